/* The part of NVML's interface that is used, as its documentation describes it. */
#include "toolsapi/nvml.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { NVML_SUCCESS = 0, UUID_BYTES = 96 };

struct memory {
  unsigned long long total, free, used;
};

/* Of nvmlDeviceGetComputeRunningProcesses_v2 and _v3. */
struct running {
  unsigned process;
  unsigned long long bytes;
  unsigned instance, compute_instance;
};

#define CALLS(X) \
  X(init, "nvmlInit_v2", (void)) \
  X(shutdown, "nvmlShutdown", (void)) \
  X(count, "nvmlDeviceGetCount_v2", (unsigned *)) \
  X(handle, "nvmlDeviceGetHandleByIndex_v2", (unsigned, void **)) \
  X(name, "nvmlDeviceGetName", (void *, char *, unsigned)) \
  X(uuid, "nvmlDeviceGetUUID", (void *, char *, unsigned)) \
  X(memory, "nvmlDeviceGetMemoryInfo", (void *, struct memory *)) \
  X(processes, "nvmlDeviceGetComputeRunningProcesses_v3", (void *, unsigned *, struct running *))

static struct {
#define X(member, symbol, arguments) int(*member) arguments;
  CALLS(X)
#undef X
} nvml;

static bool load(void *library) {
  bool found = true;
#define X(member, symbol, arguments) \
  *(void **)&nvml.member = dlsym(library, symbol); \
  found &= nvml.member != NULL;
  CALLS(X)
#undef X
  return found;
}

struct gap__nvml *gap__nvml_open(void) {
  struct gap__nvml *out = calloc(1, sizeof *out);
  void *library = out ? dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) return out;
  if (load(library) && nvml.init() == NVML_SUCCESS) out->library = library;
  else dlclose(library);
  return out;
}

void gap__nvml_close(struct gap__nvml *at) {
  if (at && at->library) {
    nvml.shutdown();
    dlclose(at->library);
  }
  free(at);
}

/* "GPU-" and 32 hexadecimal digits with hyphens between. */
static void read_uuid(const char *text, unsigned char out[16]) {
  int digits = 0;
  for (text += strncmp(text, "GPU-", 4) == 0 ? 4 : 0; *text && digits < 32; text++) {
    unsigned value;
    char digit[2] = {*text, '\0'};
    if (*text == '-' || sscanf(digit, "%x", &value) != 1) continue;
    out[digits / 2] = (unsigned char)(out[digits / 2] << 4 | value);
    digits++;
  }
}

/* Of a card that more use than there is room for, nobody is told. */
static void read_processes(void *device, struct gap__nvml_card *out) {
  struct running running[GAP__NVML_PROCESSES];
  unsigned count = GAP__NVML_PROCESSES;
  if (nvml.processes(device, &count, running) != NVML_SUCCESS || count > GAP__NVML_PROCESSES) return;
  out->process_count = count;
  for (unsigned i = 0; i < count; i++)
    out->processes[i] = (struct gap__nvml_process){running[i].process, running[i].bytes};
}

static bool read_card(unsigned index, struct gap__nvml_card *out) {
  void *device;
  struct memory memory;
  char uuid[UUID_BYTES] = "";
  *out = (struct gap__nvml_card){0};
  if (nvml.handle(index, &device) != NVML_SUCCESS || nvml.memory(device, &memory) != NVML_SUCCESS) return false;
  if (nvml.name(device, out->name, sizeof out->name) != NVML_SUCCESS) snprintf(out->name, sizeof out->name, "card");
  if (nvml.uuid(device, uuid, sizeof uuid) == NVML_SUCCESS) read_uuid(uuid, out->uuid);
  out->name[sizeof out->name - 1] = '\0';
  gap__text_make_plain(out->name);
  out->total_bytes = memory.total;
  out->used_bytes = memory.used;
  out->free_bytes = memory.free;
  read_processes(device, out);
  return true;
}

void gap__nvml_look(struct gap__nvml *at) {
  unsigned count = 0;
  at->count = 0;
  if (!at->library || nvml.count(&count) != NVML_SUCCESS) return;
  for (unsigned i = 0; i < count && at->count < GAP__NVML_CARDS; i++) at->count += read_card(i, &at->cards[at->count]);
}

const struct gap__nvml_card *gap__nvml_card_of(const struct gap__nvml *at, const unsigned char uuid[16]) {
  static const unsigned char none[16];
  for (uint32_t i = 0; memcmp(uuid, none, 16) != 0 && i < at->count; i++)
    if (memcmp(at->cards[i].uuid, uuid, 16) == 0) return &at->cards[i];
  return NULL;
}
