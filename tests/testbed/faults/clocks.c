/* The clocks of a process, moved while it runs: the library is preloaded.
 *
 * $CLOCKS_FILE has two numbers of 8 bytes, which may change at any time (movedclocks.py): seconds
 * that are added to the time of day, as when a clock is set, and seconds that are added to it and to
 * the monotonic clock, as when they have passed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define REAL(name)                                                                                 \
    ({                                                                                             \
        static __typeof__(&name) real;                                                             \
        real ? real : (real = (__typeof__(&name))dlsym(RTLD_NEXT, #name));                         \
    })

static const volatile int64_t *moved;

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("CLOCKS_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, 2 * sizeof *moved, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED)
        moved = found;
    close(file);
}

static int64_t offset(clockid_t clock) {
    switch (moved ? clock : -1) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return moved[0] + moved[1];
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
        return moved[1];
    default:
        return 0;
    }
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = REAL(clock_gettime)(clock, now);
    if (!result)
        now->tv_sec += offset(clock);
    return result;
}

EXPORT int gettimeofday(struct timeval *now, void *zone) {
    int result = REAL(gettimeofday)(now, zone);
    if (!result)
        now->tv_sec += offset(CLOCK_REALTIME);
    return result;
}

EXPORT time_t time(time_t *now) {
    time_t found = REAL(time)(NULL) + offset(CLOCK_REALTIME);
    if (now)
        *now = found;
    return found;
}

/* A moment until which the process waits is one of the clock that it was given. */
EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until,
                           struct timespec *left) {
    struct timespec real = *until;
    if (flags & TIMER_ABSTIME)
        real.tv_sec -= offset(clock);
    return REAL(clock_nanosleep)(clock, flags, &real, left);
}

EXPORT int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until) {
    struct timespec real = *until;
    real.tv_sec -= offset(clock);
    return REAL(sem_clockwait)(semaphore, clock, &real);
}

EXPORT int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    struct timespec real = *until;
    real.tv_sec -= offset(CLOCK_REALTIME);
    return REAL(sem_timedwait)(semaphore, &real);
}
