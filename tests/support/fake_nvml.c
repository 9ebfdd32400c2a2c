/* NVIDIA's management library without a card, for the command: a library of its own, found by LD_LIBRARY_PATH.  FAKE_NVML in the environment
 * says what uses the one card: "PROCESS:BYTES ..."; its UUID is FAKE_NVML_UUID. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { OK = 0, BAD_ARGUMENT = 2, NOT_FOUND = 6, TOO_SMALL = 7 };

struct memory {
  unsigned long long total, free, used;
};
struct running {
  unsigned process;
  unsigned long long bytes;
  unsigned instance, compute_instance;
};

static int handle, is_open;
static const unsigned long long total = 80ull << 30;

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetCount_v2(unsigned *);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned, void **);
EXPORT int nvmlDeviceGetName(void *, char *, unsigned);
EXPORT int nvmlDeviceGetUUID(void *, char *, unsigned);
EXPORT int nvmlDeviceGetMemoryInfo(void *, struct memory *);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *, unsigned *, struct running *);

static const char *variable(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value ? value : otherwise;
}

static int put(char *out, unsigned bytes, const char *text) {
  if (strlen(text) >= bytes) return TOO_SMALL;
  strcpy(out, text);
  return OK;
}

static unsigned read_processes(struct running *out, unsigned most) {
  const char *at = variable("FAKE_NVML", "");
  unsigned count = 0;
  for (int used; count < most && sscanf(at, "%u:%llu%n", &out[count].process, &out[count].bytes, &used) == 2;
       at += used)
    count++;
  return count;
}

int nvmlInit_v2(void) { return is_open = 1, OK; }
int nvmlShutdown(void) { return is_open = 0, OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 1, is_open ? OK : BAD_ARGUMENT; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) { return *out = &handle, index == 0 ? OK : NOT_FOUND; }
int nvmlDeviceGetName(void *device, char *out, unsigned bytes) {
  return (void)device, put(out, bytes, "Fake \033[31mCard");
}
int nvmlDeviceGetUUID(void *device, char *out, unsigned bytes) {
  return (void)device, put(out, bytes, variable("FAKE_NVML_UUID", "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"));
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *out) {
  struct running running[8];
  unsigned count = read_processes(running, 8);
  (void)device;
  out->used = 0;
  for (unsigned i = 0; i < count; i++) out->used += running[i].bytes;
  out->total = total;
  out->free = total - out->used;
  return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct running *out) {
  (void)device;
  *count = read_processes(out, *count);
  return OK;
}
