/* A stand-in for libnvidia-ml.so.1: returns the values of a state file, in NVML's own ABI.
 *
 * State: $NVML_STATE, lines of KEY TAB VALUE, sorted by key in the C locale, read again when the
 * file is replaced. A key that is missing is NVML_ERROR_NOT_SUPPORTED. A value "!N" makes the call
 * return N; "@hang" never return; "@crash" crash the process. Keys of a GPU begin with its slot
 * number and a dot; "gpus" lists the slots that are enumerated, in order. "SLOT.error" is the
 * result of every call on that GPU, "fault.FUNCTION" that of every call of a function, and
 * "SLOT.fault.FUNCTION" that of a function on that GPU. $NVML_STATE.events has lines "SLOT XID",
 * appended over time. "init_blocks" blocks of 1000 bytes, at most 65536, are allocated by nvmlInit,
 * and all but the last freed; "init_command" is a shell command that it runs. nvmlTestbed… are for
 * tests.
 *
 * Layouts and semantics: nvml.h of the CUDA toolkit.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
  SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
  INSUFFICIENT_SIZE = 7, TIMEOUT = 10, MISMATCH = 18, VERSION = 25, UNKNOWN = 999, MAX_GPUS = 64,
  MAX_KEYS = 20000, MAX_CALLED = 256,
};

static struct { const char *key, *value; } table[MAX_KEYS];
static int table_size;
static char *text;
static struct timespec read_at;
static ino_t read_inode;
static char gpus[MAX_GPUS]; /* a handle is the address of its GPU's byte here */
static int initialized, has_faults;
static const char *called[MAX_CALLED]; /* the functions called, each once */
static int called_size, event_sets;
static char generation[32], loaded_library[64];

static void reload(void) {
  const char *path = getenv("NVML_STATE");
  struct stat status;
  if (path == NULL || stat(path, &status) != 0) return;
  if (text != NULL && status.st_ino == read_inode &&
      memcmp(&status.st_mtim, &read_at, sizeof read_at) == 0) return;
  FILE *file = fopen(path, "r");
  if (file == NULL) return;
  text = realloc(text, status.st_size + 1);
  size_t length = fread(text, 1, status.st_size, file);
  fclose(file);
  text[length] = 0;
  read_inode = status.st_ino;
  read_at = status.st_mtim;
  table_size = has_faults = 0;
  for (char *line = text; *line != 0 && table_size < MAX_KEYS;) {
    char *end = strchr(line, '\n'), *tab = strchr(line, '\t');
    if (end == NULL || tab == NULL || tab > end) break;
    *end = *tab = 0;
    has_faults |= strstr(line, "fault.") != NULL;
    table[table_size].key = line;
    table[table_size++].value = tab + 1;
    line = end + 1;
  }
}

static const char *find(const char *key) {
  int low = 0, high = table_size - 1;
  while (low <= high) {
    int middle = (low + high) / 2, order = strcmp(key, table[middle].key);
    if (order == 0) return table[middle].value;
    if (order < 0) high = middle - 1; else low = middle + 1;
  }
  return NULL;
}

/* The value of a key, and the effect of reading it. */
static int lookup(const char **value, const char *format, ...) {
  char key[96];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(key, sizeof key, format, arguments);
  va_end(arguments);
  *value = find(key);
  if (*value == NULL) return NOT_SUPPORTED;
  if (strcmp(*value, "@hang") == 0) for (;;) pause();
  if (strcmp(*value, "@crash") == 0) raise(SIGSEGV);
  if (**value == '!') return atoi(*value + 1);
  return SUCCESS;
}

/* Begin a call: record it, and read the state again. The fault that the state has for it. */
static int fault(const char *function, int slot) {
  const char *value;
  char key[96];
  int index = 0;
  while (index < called_size && called[index] != function) index++;
  if (index == called_size && called_size < MAX_CALLED) called[called_size++] = function;
  reload();
  if (!has_faults) return SUCCESS;
  snprintf(key, sizeof key, "%d.fault.%s", slot, function);
  if (slot < 0 || find(key) == NULL) snprintf(key, sizeof key, "fault.%s", function);
  return find(key) == NULL ? SUCCESS : lookup(&value, "%s", key);
}

static int usable(void) {
  const char *value;
  if (!initialized) return UNINITIALIZED;
  /* The driver was reloaded under this process. */
  if (lookup(&value, "generation") == SUCCESS && strcmp(value, generation) != 0) return UNINITIALIZED;
  if (lookup(&value, "delay_microseconds") == SUCCESS) usleep(atoi(value));
  return SUCCESS;
}

/* A function that is not on a GPU begins with ready(), one on a GPU with gpu() or gpu_value(). */
#define ready() ready_in(__func__)
static int ready_in(const char *function) {
  int code = fault(function, -1);
  return code != SUCCESS ? code : usable();
}

static int slot_of(void *handle) { return (int)((char *)handle - gpus); }

#define gpu(handle, slot) gpu_in(__func__, handle, slot)
static int gpu_in(const char *function, void *handle, int *slot) {
  const char *value;
  *slot = slot_of(handle);
  if (*slot < 0 || *slot >= MAX_GPUS) return INVALID_ARGUMENT;
  int code = fault(function, *slot);
  if (code == SUCCESS) code = usable();
  if (code != SUCCESS) return code;
  code = lookup(&value, "%d.error", *slot);
  return code == NOT_SUPPORTED ? SUCCESS : code;
}

#define gpu_value(handle, name, value) gpu_value_in(__func__, handle, name, value)
static int gpu_value_in(const char *function, void *handle, const char *name, const char **value) {
  int slot, code = gpu_in(function, handle, &slot);
  return code != SUCCESS ? code : lookup(value, "%d.%s", slot, name);
}

static int copy(int code, const char *value, char *out, unsigned length) {
  if (code != SUCCESS) return code;
  if (strlen(value) >= length) return INSUFFICIENT_SIZE;
  strcpy(out, value);
  return SUCCESS;
}

/* For tests: the functions called and the fields asked for since these were forgotten, and the
 * number of event sets. */
static unsigned char field_asked[1024];
const char *nvmlTestbedCalled(int index) { return index < called_size ? called[index] : NULL; }
int nvmlTestbedFieldAsked(unsigned id) { return id < sizeof field_asked && field_asked[id]; }
void nvmlTestbedForget(void) {
  called_size = 0;
  memset(field_asked, 0, sizeof field_asked);
}
int nvmlTestbedEventSets(void) { return event_sets; }

/* Library and system */
int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  const char *value;
  int code = fault(__func__, -1);
  if (code != SUCCESS) return code;
  if (lookup(&value, "init_microseconds") == SUCCESS) usleep(atoi(value));
  if (lookup(&value, "init_command") == SUCCESS && system(value) != 0) return UNKNOWN;
  code = lookup(&value, "init");
  if (code != SUCCESS && code != NOT_SUPPORTED) return code;
  if (loaded_library[0] == 0 && lookup(&value, "library") == SUCCESS)
    snprintf(loaded_library, sizeof loaded_library, "%s", value);
  if (lookup(&value, "driver") != SUCCESS) return 9; /* driver not loaded */
  if (strcmp(value, loaded_library) != 0) return MISMATCH;
  if (lookup(&value, "generation") == SUCCESS) snprintf(generation, sizeof generation, "%s", value);
  /* A real library uses memory for its start and frees it; something later remains. */
  static void *block[65536];
  int blocks = lookup(&value, "init_blocks") == SUCCESS ? atoi(value) : 0;
  for (int one = 0; one < blocks; one++) block[one] = memset(malloc(1000), 1, 1000);
  for (int one = 0; one + 1 < blocks; one++) free(block[one]);
  initialized = 1;
  return SUCCESS;
}
int nvmlShutdown(void) { initialized = 0; return SUCCESS; }
const char *nvmlErrorString(int code) {
  switch (code) {
    case UNINITIALIZED: return "Uninitialized";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case MISMATCH: return "Driver/library version mismatch";
    default: return "Unknown Error";
  }
}
int nvmlSystemGetDriverVersion(char *out, unsigned length) {
  const char *value = "";
  int code = ready();
  if (code == SUCCESS) code = lookup(&value, "driver");
  return copy(code, value, out, length);
}
int nvmlSystemGetNVMLVersion(char *out, unsigned length) {
  char version[80];
  snprintf(version, sizeof version, "12.%s", loaded_library);
  return copy(fault(__func__, -1), version, out, length);
}
int nvmlSystemGetCudaDriverVersion_v2(int *out) {
  const char *value;
  int code = fault(__func__, -1);
  if (code == SUCCESS) code = lookup(&value, "cuda");
  if (code == SUCCESS) *out = atoi(value);
  return code;
}

/* Enumeration */
static int enumerated(int index) {
  const char *value;
  if (lookup(&value, "gpus") != SUCCESS) return -1;
  char *end;
  for (int position = 0;; position++) {
    long slot = strtol(value, &end, 10);
    if (end == value) return -1;
    if (position == index) return (int)slot;
    value = end;
  }
}
int nvmlDeviceGetCount_v2(unsigned *out) {
  const char *value;
  int code = ready();
  if (code != SUCCESS) return code;
  code = lookup(&value, "count");
  if (code != NOT_SUPPORTED) return code;
  for (*out = 0; enumerated((int)*out) >= 0; (*out)++) {}
  return SUCCESS;
}
#define handle_of(slot, out) handle_in(__func__, slot, out)
static int handle_in(const char *function, int slot, void **out) {
  const char *value;
  int code = lookup(&value, "%d.handle", slot);
  if (code != SUCCESS && code != NOT_SUPPORTED) return code;
  *out = &gpus[slot];
  return gpu_in(function, *out, &slot);
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
  int code = ready(), slot = enumerated((int)index);
  if (code != SUCCESS) return code;
  return slot < 0 ? INVALID_ARGUMENT : handle_of(slot, out);
}
static int same_bus(const char *one, const char *other) {
  unsigned a[4], b[4];
  return sscanf(one, "%x:%x:%x.%x", &a[0], &a[1], &a[2], &a[3]) == 4 &&
         sscanf(other, "%x:%x:%x.%x", &b[0], &b[1], &b[2], &b[3]) == 4 &&
         memcmp(a, b, sizeof a) == 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out) {
  int code = ready(), slot;
  if (code != SUCCESS) return code;
  for (int index = 0; (slot = enumerated(index)) >= 0; index++) {
    char key[32];
    snprintf(key, sizeof key, "%d.bus", slot);
    const char *value = find(key);
    if (value != NULL && same_bus(bus, value)) return handle_of(slot, out);
  }
  return NOT_FOUND;
}
int nvmlDeviceGetIndex(void *handle, unsigned *out) {
  int slot, code = gpu(handle, &slot), found;
  if (code != SUCCESS) return code;
  for (int index = 0; (found = enumerated(index)) >= 0; index++)
    if (found == slot) { *out = (unsigned)index; return SUCCESS; }
  return NOT_FOUND;
}
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *out) {
  const char *value;
  int code = gpu_value(handle, "bus", &value);
  if (code != SUCCESS) return code;
  memset(out, 0, sizeof *out);
  sscanf(value, "%x:%x:%x", &out->domain, &out->bus, &out->device);
  snprintf(out->bus_id, sizeof out->bus_id, "%s", value);
  snprintf(out->legacy, sizeof out->legacy, "%s", value + 4);
  return SUCCESS;
}

/* One number or one text of a GPU */
#define TEXT(function, key) \
  int function(void *handle, char *out, unsigned length) { \
    const char *value; \
    int code = gpu_value(handle, key, &value); \
    return copy(code, value, out, length); \
  }
#define NUMBER(function, type, key) \
  int function(void *handle, type *out) { \
    const char *value; \
    int code = gpu_value(handle, key, &value); \
    if (code == SUCCESS) *out = (type)strtoull(value, NULL, 0); \
    return code; \
  }
#define PAIR(function, key) /* current and pending */ \
  int function(void *handle, unsigned *current, unsigned *pending) { \
    const char *value; \
    int code = gpu_value(handle, key, &value); \
    if (code == SUCCESS) *current = *pending = (unsigned)atoi(value); \
    return code; \
  }
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
NUMBER(nvmlDeviceGetMinorNumber, unsigned, "minor")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, "pcie_width")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, "pcie_width_max")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, "pcie_generation")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, "pcie_generation_max")
NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned, "pcie_replays")
NUMBER(nvmlDeviceGetPowerUsage, unsigned, "power")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, "power_limit")
NUMBER(nvmlDeviceGetPersistenceMode, unsigned, "persistence")
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, "clock_reasons")
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, "clock_reasons")
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, unsigned, "retired_pending")
NUMBER(nvmlDeviceGetSupportedEventTypes, unsigned long long, "event_types")
PAIR(nvmlDeviceGetEccMode, "ecc_mode")
PAIR(nvmlDeviceGetMigMode, "mig_mode")

int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *out) {
  const char *value;
  int code = sensor ? INVALID_ARGUMENT : gpu_value(handle, "temperature", &value);
  if (code == SUCCESS) *out = (unsigned)atoi(value);
  return code;
}
int nvmlDeviceGetTemperatureThreshold(void *handle, unsigned which, unsigned *out) {
  const char *value;
  char key[32];
  snprintf(key, sizeof key, "threshold.%u", which);
  int code = gpu_value(handle, key, &value);
  if (code == SUCCESS) *out = (unsigned)atoi(value);
  return code;
}
struct margin { unsigned version; int margin; };
int nvmlDeviceGetMarginTemperature(void *handle, struct margin *out) {
  const char *value;
  if (out->version != 0x1000008) return VERSION;
  int code = gpu_value(handle, "margin", &value);
  if (code == SUCCESS) out->margin = atoi(value);
  return code;
}
int nvmlDeviceGetClockInfo(void *handle, unsigned type, unsigned *out) {
  const char *value;
  char key[32];
  snprintf(key, sizeof key, "clock.%u", type);
  int code = gpu_value(handle, key, &value);
  if (code == SUCCESS) *out = (unsigned)atoi(value);
  return code;
}
struct utilization { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(void *handle, struct utilization *out) {
  const char *value;
  int code = gpu_value(handle, "utilization", &value);
  if (code == SUCCESS) out->gpu = out->memory = (unsigned)atoi(value);
  return code;
}
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
static int memory_in(const char *function, void *handle, struct memory *out) {
  const char *total, *used;
  int code = gpu_value_in(function, handle, "memory_total", &total);
  if (code == SUCCESS) code = gpu_value_in(function, handle, "memory_used", &used);
  if (code != SUCCESS) return code;
  out->total = strtoull(total, NULL, 0);
  out->used = strtoull(used, NULL, 0) + (500ull << 20); /* in this version with the driver's own */
  out->free = out->total - out->used;
  return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *handle, struct memory *out) { return memory_in(__func__, handle, out); }
int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *out) {
  struct memory plain;
  if (out->version != 0x2000028) return VERSION;
  int code = memory_in(__func__, handle, &plain);
  if (code != SUCCESS) return code;
  out->total = plain.total;
  out->reserved = 500ull << 20;
  out->used = plain.used - out->reserved;
  out->free = plain.free;
  return SUCCESS;
}
struct process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *out) {
  const char *value;
  int code = gpu_value(handle, "processes", &value);
  if (code != SUCCESS) return code;
  int listed = strchr(value, ':') != NULL; /* PID:BYTES …; `-` for a size that is not available */
  unsigned running = listed ? 0 : (unsigned)atoi(value), room = *count;
  for (const char *at = value; listed && (at = strchr(at, ':')); at++) running++;
  *count = running;
  if (running > room) return INSUFFICIENT_SIZE;
  for (unsigned index = 0; index < running; index++) {
    out[index] = (struct process){1000 + index, 1 << 30, ~0u, ~0u};
    if (!listed) continue;
    char *end;
    out[index].pid = (unsigned)strtoul(value, &end, 10);
    out[index].memory = end[1] == '-' ? ~0ull : strtoull(end + 1, NULL, 10);
    value = end + 1 + strcspn(end + 1, " ");
  }
  return SUCCESS;
}

/* Memory errors */
int nvmlDeviceGetTotalEccErrors(void *handle, unsigned kind, unsigned lifetime, unsigned long long *out) {
  const char *value;
  char key[48];
  snprintf(key, sizeof key, "ecc.%u.%u.all", kind, lifetime);
  int code = gpu_value(handle, key, &value);
  if (code == SUCCESS) *out = strtoull(value, NULL, 0);
  return code;
}
int nvmlDeviceGetMemoryErrorCounter(void *handle, unsigned kind, unsigned lifetime, unsigned location,
                                    unsigned long long *out) {
  const char *value;
  char key[48];
  snprintf(key, sizeof key, "ecc.%u.%u.%u", kind, lifetime, location);
  int code = gpu_value(handle, key, &value);
  if (code == SUCCESS) *out = strtoull(value, NULL, 0);
  return code;
}
struct sram { unsigned version; unsigned long long counts[11]; unsigned threshold_exceeded; };
int nvmlDeviceGetSramEccErrorStatus(void *handle, struct sram *out) {
  const char *value;
  if (out->version != 0x1000068) return VERSION;
  int code = gpu_value(handle, "sram_threshold", &value);
  if (code != SUCCESS) return code;
  memset(out->counts, 0, sizeof out->counts);
  out->threshold_exceeded = (unsigned)atoi(value);
  return SUCCESS;
}
int nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed) {
  const char *value;
  int code = gpu_value(handle, "remapped", &value);
  if (code == SUCCESS && sscanf(value, "%u %u %u %u", corrected, uncorrected, pending, failed) != 4)
    return INVALID_ARGUMENT;
  return code;
}
struct banks { unsigned counts[5]; };
int nvmlDeviceGetRowRemapperHistogram(void *handle, struct banks *out) {
  const char *value;
  unsigned *counts = out->counts;
  int code = gpu_value(handle, "remap_banks", &value);
  if (code == SUCCESS && sscanf(value, "%u %u %u %u %u", counts, counts + 1, counts + 2, counts + 3,
                                counts + 4) != 5)
    return INVALID_ARGUMENT;
  return code;
}
int nvmlDeviceGetRetiredPages(void *handle, unsigned cause, unsigned *count, unsigned long long *out) {
  const char *value;
  char key[32];
  snprintf(key, sizeof key, "retired.%u", cause);
  int code = gpu_value(handle, key, &value);
  if (code != SUCCESS) return code;
  unsigned pages = (unsigned)atoi(value), room = *count;
  *count = pages;
  if (out == NULL || pages > room) return INSUFFICIENT_SIZE;
  for (unsigned index = 0; index < pages; index++) out[index] = index;
  return SUCCESS;
}

/* NVLink, fabric, fields */
int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *out) {
  const char *value;
  char key[32];
  snprintf(key, sizeof key, "nvlink.%u", link);
  int code = gpu_value(handle, key, &value);
  if (code == SUCCESS) *out = (unsigned)atoi(value);
  return code;
}
int nvmlDeviceGetNvLinkErrorCounter(void *handle, unsigned link, unsigned kind, unsigned long long *out) {
  const char *value;
  char key[48];
  snprintf(key, sizeof key, "nvlink_counter.%u.%u", kind, link);
  int code = gpu_value(handle, key, &value);
  if (code == SUCCESS) *out = strtoull(value, NULL, 0);
  return code;
}
struct fabric { unsigned version; unsigned char cluster[16]; int status; unsigned clique;
                unsigned state, health_mask; unsigned char health_summary; };
int nvmlDeviceGetGpuFabricInfoV(void *handle, struct fabric *out) {
  const char *value, *newest;
  unsigned state, mask, summary, cluster, clique;
  int status, code = gpu_value(handle, "fabric", &value);
  if (code != SUCCESS) return code;
  unsigned versions = gpu_value(handle, "fabric_version", &newest) == SUCCESS ? (unsigned)atoi(newest) : 3;
  if (out->version != 0x2000024 && (out->version != 0x3000028 || versions < 3)) return VERSION;
  if (sscanf(value, "%u %d %x %u", &state, &status, &mask, &summary) != 4) return INVALID_ARGUMENT;
  out->state = state;
  out->status = status;
  out->health_mask = mask;
  memset(out->cluster, 0, sizeof out->cluster);
  out->clique = 0;
  if (gpu_value(handle, "fabric_place", &value) == SUCCESS &&
      sscanf(value, "%u %u", &cluster, &clique) == 2) {
    out->cluster[15] = (unsigned char)cluster;
    out->clique = clique;
  }
  if (out->version == 0x3000028) out->health_summary = (unsigned char)summary;
  return SUCCESS;
}
struct old_fabric { unsigned char cluster[16]; int status; unsigned clique, state; };
int nvmlDeviceGetGpuFabricInfo(void *handle, struct old_fabric *out) {
  const char *value;
  int code = gpu_value(handle, "fabric", &value);
  if (code == SUCCESS && sscanf(value, "%u %d", &out->state, &out->status) != 2) return INVALID_ARGUMENT;
  return code;
}
struct field { unsigned id, scope; long long timestamp, latency; unsigned type; int code;
               union { double real; unsigned word; unsigned long long wide; } value; };
int nvmlDeviceGetFieldValues(void *handle, int count, struct field *fields) {
  int slot, code = gpu(handle, &slot);
  if (code != SUCCESS) return code;
  for (int index = 0; index < count; index++) {
    const char *value, *type;
    struct field *one = &fields[index];
    if (one->id < sizeof field_asked) field_asked[one->id] = 1;
    one->code = lookup(&value, "%d.field.%u.%u", slot, one->id, one->scope);
    one->type = 3; /* unsigned long long */
    if (lookup(&type, "%d.field_type.%u", slot, one->id) == SUCCESS) one->type = (unsigned)atoi(type);
    if (one->code == SUCCESS) one->value.wide = strtoull(value, NULL, 0);
  }
  return SUCCESS;
}

/* Events */
struct set { long offset; unsigned char registered[MAX_GPUS]; };
struct event { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };
static FILE *open_events(long offset) {
  char path[4096];
  snprintf(path, sizeof path, "%s.events", getenv("NVML_STATE"));
  FILE *file = fopen(path, "r");
  if (file != NULL) fseek(file, offset, SEEK_SET);
  return file;
}
int nvmlEventSetCreate(struct set **out) {
  const char *value;
  int code = ready();
  if (code == SUCCESS) code = lookup(&value, "events");
  if (code != SUCCESS) return code;
  *out = calloc(1, sizeof **out);
  event_sets++;
  FILE *file = open_events(0);
  if (file != NULL) {
    fseek(file, 0, SEEK_END);
    (*out)->offset = ftell(file);
    fclose(file);
  }
  return SUCCESS;
}
int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, struct set *set) {
  int slot, code = gpu(handle, &slot);
  if (code != SUCCESS) return code;
  if (types != 8) return INVALID_ARGUMENT;
  set->registered[slot] = 1;
  return SUCCESS;
}
int nvmlEventSetWait_v2(struct set *set, struct event *out, unsigned milliseconds) {
  int code = ready(), slot;
  unsigned xid;
  if (code != SUCCESS) return code;
  FILE *file = open_events(set->offset);
  if (file != NULL) {
    while (fscanf(file, "%d %u\n", &slot, &xid) == 2) {
      set->offset = ftell(file);
      if (!set->registered[slot]) continue;
      fclose(file);
      *out = (struct event){&gpus[slot], 8, xid, ~0u, ~0u};
      return SUCCESS;
    }
    fclose(file);
  }
  if (milliseconds != 0) usleep(milliseconds * 1000);
  return TIMEOUT;
}
int nvmlEventSetFree(struct set *set) {
  int code = fault(__func__, -1);
  if (code != SUCCESS) return code;
  free(set);
  event_sets--;
  return SUCCESS;
}

/* Usage */
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, "energy")
NUMBER(nvmlDeviceGetPerformanceState, unsigned, "performance_state")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, "power_limit_default")
static int busy(const char *function, void *handle, const char *key, unsigned *out,
                unsigned *period) {
  const char *value;
  int code = gpu_value_in(function, handle, key, &value);
  if (code == SUCCESS) { *out = (unsigned)atoi(value); *period = 167000; }
  return code;
}
int nvmlDeviceGetEncoderUtilization(void *handle, unsigned *out, unsigned *period) {
  return busy(__func__, handle, "encoder", out, period);
}
int nvmlDeviceGetDecoderUtilization(void *handle, unsigned *out, unsigned *period) {
  return busy(__func__, handle, "decoder", out, period);
}

/* MIG: "mig.INDEX" of a GPU is the slot whose keys are the instance's; there may be gaps. */
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned, "mig_max")
NUMBER(nvmlDeviceGetGpuInstanceId, unsigned, "gpu_instance")
NUMBER(nvmlDeviceGetComputeInstanceId, unsigned, "compute_instance")
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **out) {
  const char *value;
  char key[32];
  snprintf(key, sizeof key, "mig.%u", index);
  int code = gpu_value(handle, key, &value);
  if (code == SUCCESS) *out = &gpus[atoi(value)];
  return code == NOT_SUPPORTED ? NOT_FOUND : code;
}

/* GPM: the value of "gpm.METRIC", or "gpm.METRIC.INSTANCE", between two samples of one source. */
enum { MEMORY = 20, MAX_SAMPLES = 128 };
struct sample { int slot, instance; unsigned number; };
struct metric { unsigned id; int code; double value; const char *names[3]; };
struct metrics { unsigned version, count; struct sample *first, *second; struct metric metrics[]; };
struct support { unsigned version, supported; };
static unsigned samples, samples_taken;
int nvmlGpmQueryDeviceSupport(void *handle, struct support *out) {
  const char *value;
  if (out->version != 1) return VERSION;
  int code = gpu_value(handle, "gpm", &value);
  if (code == SUCCESS) out->supported = (unsigned)atoi(value);
  return code;
}
int nvmlGpmSampleAlloc(struct sample **out) {
  int code = fault(__func__, -1);
  if (code != SUCCESS) return code;
  if (samples >= MAX_SAMPLES) return MEMORY;
  samples++;
  *out = calloc(1, sizeof **out);
  return SUCCESS;
}
int nvmlGpmSampleFree(struct sample *sample) {
  int code = fault(__func__, -1);
  if (code != SUCCESS) return code;
  samples--;
  free(sample);
  return SUCCESS;
}
static int take(const char *function, void *handle, int instance, struct sample *out) {
  const char *value;
  int slot, code = gpu_in(function, handle, &slot);
  if (code != SUCCESS) return code;
  code = lookup(&value, "%d.gpm_sample", slot);
  if (code != SUCCESS && code != NOT_SUPPORTED) return code;
  *out = (struct sample){slot, instance, ++samples_taken};
  return SUCCESS;
}
int nvmlGpmSampleGet(void *handle, struct sample *out) { return take(__func__, handle, -1, out); }
int nvmlGpmMigSampleGet(void *handle, unsigned instance, struct sample *out) {
  return take(__func__, handle, (int)instance, out);
}
int nvmlGpmMetricsGet(struct metrics *out) {
  const struct sample *first = out->first, *second = out->second;
  int code = fault(__func__, first->slot);
  if (code != SUCCESS) return code;
  if (out->version != 1) return VERSION;
  if (first->slot != second->slot || first->instance != second->instance ||
      first->number == 0 || first->number >= second->number) return INVALID_ARGUMENT;
  for (unsigned index = 0; index < out->count; index++) {
    const char *value;
    struct metric *one = &out->metrics[index];
    one->code = first->instance < 0
        ? lookup(&value, "%d.gpm.%u", first->slot, one->id)
        : lookup(&value, "%d.gpm.%u.%d", first->slot, one->id, first->instance);
    if (one->code == SUCCESS) one->value = strtod(value, NULL);
  }
  return SUCCESS;
}
