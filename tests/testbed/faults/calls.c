/* Calls of libc that fail on request: the library is preloaded, the test controls it by ctypes.
 *
 * `faults_watch(root)` records each path below the root that the process opens, lists, or whose link
 * or status it reads. `faults_set(path, where, error)` makes these calls fail with that errno
 * (where 'o'), or the reads of the file ('r'); 's' makes its first read return one byte.
 * `faults_content` replaces what reads of the file return. One fault at a time; with `below`, of
 * all paths below the given one as well.
 *
 * `faults_advance(seconds)` sets the clocks forward. While the file `faults_hang(path)` exists,
 * epoll_wait does not wait: its time-out passes at once.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DESCRIPTORS 4096
#define EPOLL_SLICE_MS 5
#define EXPORT __attribute__((visibility("default")))
#define REAL(name)                                                                                 \
    ({                                                                                             \
        static __typeof__(&name) real;                                                             \
        real ? real : (real = (__typeof__(&name))dlsym(RTLD_NEXT, #name));                         \
    })

static char root[PATH_MAX], log_text[1 << 20];
static size_t log_length;
static char fault_path[PATH_MAX], hang_path[PATH_MAX];
static int fault_where, fault_error, fault_below;
static char content[1 << 16];
static long content_length = -1;
static int read_error[DESCRIPTORS];
static char read_short[DESCRIPTORS];
static long offset_seconds_ns[2]; /* seconds, nanoseconds */

EXPORT void faults_watch(const char *path) {
    snprintf(root, sizeof root, "%s", path);
    log_length = 0;
    log_text[0] = 0;
}

EXPORT const char *faults_seen(void) { return log_text; }

EXPORT void faults_set(const char *path, int where, int error, int below) {
    snprintf(fault_path, sizeof fault_path, "%s", path);
    fault_where = where;
    fault_error = error;
    fault_below = below;
    content_length = -1;
    memset(read_error, 0, sizeof read_error); /* a descriptor recovers as well */
}

EXPORT void faults_content(const char *path, const char *data, long length) {
    faults_set(path, 'c', 0, 0);
    if (length > (long)sizeof content)
        length = sizeof content;
    memcpy(content, data, length);
    content_length = length;
}

EXPORT void faults_hang(const char *path) { snprintf(hang_path, sizeof hang_path, "%s", path); }

EXPORT void faults_advance(double seconds) {
    long whole = (long)seconds;
    offset_seconds_ns[0] += whole;
    offset_seconds_ns[1] += (long)((seconds - whole) * 1e9);
    if (offset_seconds_ns[1] >= 1000000000) {
        offset_seconds_ns[0]++;
        offset_seconds_ns[1] -= 1000000000;
    }
}

static int is_below(const char *path, const char *top) {
    size_t length = strlen(top);
    return length && strncmp(path, top, length) == 0 && (path[length] == '/' || !path[length]);
}

static void record(char kind, const char *path) {
    size_t length = strlen(path);
    if (!is_below(path, root) || log_length + length + 4 > sizeof log_text)
        return;
    log_length += sprintf(log_text + log_length, "%c%s\n", kind, path);
}

static int is_faulty(const char *path) {
    return fault_where && (fault_below ? is_below(path, fault_path) : !strcmp(path, fault_path));
}

/* Whether a call with this path fails now; errno is set. */
static int refused(char kind, const char *path) {
    if (!path)
        return 0;
    record(kind, path);
    if (is_faulty(path) && fault_where == 'o') {
        errno = fault_error;
        return 1;
    }
    return 0;
}

static int opened(const char *path, int descriptor) {
    if (descriptor < 0 || descriptor >= DESCRIPTORS)
        return descriptor;
    int other, faulty = is_faulty(path);
    if (sscanf(path, "/proc/self/fd/%d", &other) == 1 && other >= 0 && other < DESCRIPTORS) {
        read_error[descriptor] = read_error[other];
        read_short[descriptor] = read_short[other];
        return descriptor;
    }
    read_error[descriptor] = faulty && fault_where == 'r' ? fault_error : 0;
    read_short[descriptor] = faulty && fault_where == 's';
    long length = content_length; /* another thread may end the fault meanwhile */
    if (!faulty || length < 0)
        return descriptor;
    int replacement = memfd_create("content", MFD_CLOEXEC);
    if (replacement < 0 || write(replacement, content, length) != length)
        abort();
    lseek(replacement, 0, SEEK_SET);
    close(descriptor);
    read_error[replacement] = read_short[replacement] = 0;
    return replacement;
}

#define OPEN(name)                                                                                 \
    EXPORT int name(const char *path, int flags, ...) {                                            \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;                  \
        va_end(rest);                                                                              \
        if (refused('o', path))                                                                    \
            return -1;                                                                             \
        return opened(path, REAL(name)(path, flags, mode));                                        \
    }
OPEN(open)
OPEN(open64)

/* The path that a descriptor was opened by; NULL where there is none. */
static const char *target(int descriptor, char *buffer, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = REAL(readlink)(link, buffer, size - 1);
    if (length < 0)
        return NULL;
    buffer[length] = 0;
    return buffer;
}

/* The whole path of one that is relative to a directory's descriptor; the path itself where it is
 * not. */
static const char *whole(int folder, const char *path, char *buffer, size_t size) {
    if (!path || path[0] == '/' || folder == AT_FDCWD || !target(folder, buffer, size))
        return path;
    size_t length = strlen(buffer);
    snprintf(buffer + length, size - length, "/%s", path);
    return buffer;
}

#define OPEN_AT(name)                                                                              \
    EXPORT int name(int folder, const char *path, int flags, ...) {                                \
        char buffer[PATH_MAX];                                                                     \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;                  \
        va_end(rest);                                                                              \
        const char *resolved = whole(folder, path, buffer, sizeof buffer);                         \
        if (refused('o', resolved))                                                                \
            return -1;                                                                             \
        return opened(resolved, REAL(name)(folder, path, flags, mode));                            \
    }
OPEN_AT(openat)
OPEN_AT(openat64)

/* The number is another file's next, or a pipe's. */
EXPORT int close(int descriptor) {
    if (descriptor >= 0 && descriptor < DESCRIPTORS)
        read_error[descriptor] = read_short[descriptor] = 0;
    return REAL(close)(descriptor);
}

EXPORT ssize_t read(int descriptor, void *buffer, size_t size) {
    if (descriptor >= 0 && descriptor < DESCRIPTORS) {
        if (read_error[descriptor]) {
            errno = read_error[descriptor];
            return -1;
        }
        if (read_short[descriptor] && size > 1) {
            size = 1;
            read_short[descriptor] = 0;
        }
    }
    return REAL(read)(descriptor, buffer, size);
}

EXPORT DIR *opendir(const char *path) {
    return refused('d', path) ? NULL : REAL(opendir)(path);
}

EXPORT DIR *fdopendir(int descriptor) {
    char path[PATH_MAX];
    return refused('d', target(descriptor, path, sizeof path)) ? NULL : REAL(fdopendir)(descriptor);
}

EXPORT ssize_t readlink(const char *path, char *buffer, size_t size) {
    return refused('l', path) ? -1 : REAL(readlink)(path, buffer, size);
}

#define STAT(name, type)                                                                           \
    EXPORT int name(const char *path, struct type *status) {                                       \
        return refused('s', path) ? -1 : REAL(name)(path, status);                                 \
    }
STAT(stat, stat)
STAT(lstat, stat)
STAT(stat64, stat64)
STAT(lstat64, stat64)

#define STAT_AT(name, type)                                                                        \
    EXPORT int name(int folder, const char *path, struct type *status, int flags) {                \
        return refused('s', path) ? -1 : REAL(name)(folder, path, status, flags);                  \
    }
STAT_AT(fstatat, stat)
STAT_AT(fstatat64, stat64)

EXPORT int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = REAL(clock_gettime)(clock, now);
    if (!result && (clock == CLOCK_MONOTONIC || clock == CLOCK_REALTIME)) {
        now->tv_sec += offset_seconds_ns[0];
        now->tv_nsec += offset_seconds_ns[1];
        if (now->tv_nsec >= 1000000000) {
            now->tv_sec++;
            now->tv_nsec -= 1000000000;
        }
    }
    return result;
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
                           struct timespec *left) {
    struct timespec real = *time;
    if (flags & TIMER_ABSTIME) {
        real.tv_sec -= offset_seconds_ns[0];
        real.tv_nsec -= offset_seconds_ns[1];
        if (real.tv_nsec < 0) {
            real.tv_sec--;
            real.tv_nsec += 1000000000;
        }
    }
    return REAL(clock_nanosleep)(clock, flags, &real, left);
}

EXPORT int epoll_wait(int set, struct epoll_event *events, int size, int timeout) {
    int left = timeout;
    for (;;) {
        int slice = left < 0 || left > EPOLL_SLICE_MS ? EPOLL_SLICE_MS : left;
        int found = REAL(epoll_wait)(set, events, size, slice);
        if (found || (left >= 0 && left <= slice))
            return found;
        if (left > 0 && hang_path[0] && access(hang_path, F_OK) == 0) {
            faults_advance(left / 1e3);
            return 0;
        }
        left -= left < 0 ? 0 : slice;
    }
}
