#include "dev/cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "gapless/gapless.h"

struct entry {
  const char *name;
  int version;
  enum gap__cuda_group group;
  size_t offset; /* of its pointer in the table */
};

static const struct entry entries[] = {
#define GAP_CUDA_ENTRY(name, version, group, parameters) \
  {#name, version, GAP__CUDA_##group, offsetof(struct gap__cuda_driver, name)},
#include "dev/cuda/entry_points.def"
#undef GAP_CUDA_ENTRY
};
enum { ENTRY_COUNT = sizeof entries / sizeof *entries };

/* Function pointers have no portable conversion from void *; POSIX gives them one representation. */
static void *get_pointer(const struct gap__cuda_driver *driver, const struct entry *entry) {
  void *at;
  memcpy(&at, (const char *)driver + entry->offset, sizeof at);
  return at;
}

static void bind_one(struct gap__cuda_driver *driver, const struct entry *entry, gap__cuda_get_proc_address *find) {
  void *at = NULL;
  unsigned status = GAP__CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  gap__cuda_result rc = find(entry->name, &at, entry->version, GAP__CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
  if (rc != GAP__CUDA_SUCCESS || status != GAP__CU_GET_PROC_ADDRESS_SUCCESS) at = NULL;
  memcpy((char *)driver + entry->offset, &at, sizeof at);
}

bool gap__cuda_driver_has(const struct gap__cuda_driver *driver, enum gap__cuda_group group) {
  for (size_t i = 0; i < ENTRY_COUNT; i++)
    if (entries[i].group == group && !get_pointer(driver, &entries[i])) return false;
  return true;
}

static void list_missing(const struct gap__cuda_driver *driver, struct gap__text *out) {
  for (size_t i = 0; i < ENTRY_COUNT; i++)
    if (!get_pointer(driver, &entries[i])) gap__text_add(out, "%s%s", out->length ? " " : "", entries[i].name);
}

static gap__cuda_get_proc_address *load(const char *library) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) {
    const char *why = dlerror();
    gap__log(GAP__LOG_WARNING, "no CUDA driver: %s", why ? why : library);
    return NULL;
  }
  gap__cuda_get_proc_address *find;
  void *symbol = dlsym(handle, "cuGetProcAddress_v2");
  memcpy(&find, &symbol, sizeof find);
  if (!find)
    gap__log(GAP__LOG_WARNING, "%s lacks cuGetProcAddress_v2: a driver for CUDA 12.0 or newer is needed", library);
  return find;
}

static int initialise(struct gap__cuda_driver *driver) {
  gap__cuda_result rc = driver->cuInit(0);
  if (rc == GAP__CUDA_SUCCESS) rc = driver->cuDriverGetVersion(&driver->version);
  if (rc == GAP__CUDA_SUCCESS) return 0;
  char text[256];
  gap__cuda_describe_error(driver, "cuInit", rc, text, sizeof text);
  gap__log(GAP__LOG_WARNING, "the CUDA driver does not start: %s", text);
  return GAP_EDEVICE;
}

int gap__cuda_driver_open(const char *library, struct gap__cuda_driver *out, struct gap__text *missing) {
  if (!library) library = "libcuda.so.1";
  gap__cuda_get_proc_address *find = load(library);
  if (!find) return GAP_ENOTSUP;
  for (size_t i = 0; i < ENTRY_COUNT; i++) bind_one(out, &entries[i], find);
  list_missing(out, missing);
  if (!gap__cuda_driver_has(out, GAP__CUDA_NEED)) {
    gap__log(GAP__LOG_WARNING, "%s lacks what is needed; missing entry points: %s", library, gap__text_str(missing));
    return GAP_ENOTSUP;
  }
  return initialise(out);
}

bool gap__cuda_is_sticky(gap__cuda_result rc) {
  switch (rc) {
    case GAP__CUDA_ERROR_ECC_UNCORRECTABLE:
    case GAP__CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case GAP__CUDA_ERROR_CONTAINED:
    case GAP__CUDA_ERROR_ILLEGAL_ADDRESS:
    case GAP__CUDA_ERROR_LAUNCH_TIMEOUT:
    case GAP__CUDA_ERROR_ASSERT:
    case GAP__CUDA_ERROR_HARDWARE_STACK_ERROR:
    case GAP__CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case GAP__CUDA_ERROR_MISALIGNED_ADDRESS:
    case GAP__CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case GAP__CUDA_ERROR_INVALID_PC:
    case GAP__CUDA_ERROR_LAUNCH_FAILED:
    case GAP__CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case GAP__CUDA_ERROR_EXTERNAL_DEVICE: return true;
    default: return false;
  }
}

int gap__cuda_code(gap__cuda_result rc) {
  switch (rc) {
    case GAP__CUDA_SUCCESS: return GAP_OK;
    case GAP__CUDA_ERROR_NOT_READY: return GAP_EAGAIN;
    case GAP__CUDA_ERROR_OUT_OF_MEMORY: return GAP_ENOMEM;
    case GAP__CUDA_ERROR_INVALID_VALUE:
    case GAP__CUDA_ERROR_INVALID_HANDLE:
    case GAP__CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
    case GAP__CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: return GAP_EINVAL;
    case GAP__CUDA_ERROR_LOSSY_QUERY:
    case GAP__CUDA_ERROR_NOT_SUPPORTED:
    case GAP__CUDA_ERROR_NOT_PERMITTED:
    case GAP__CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER: return GAP_ENOTSUP;
    default: return GAP_EDEVICE;
  }
}

void gap__cuda_describe_error(const struct gap__cuda_driver *driver, const char *call, gap__cuda_result rc, char *out,
                              size_t bytes) {
  const char *name = NULL, *text = NULL;
  if (driver->cuGetErrorName(rc, &name) != GAP__CUDA_SUCCESS || !name) name = "unknown error";
  if (driver->cuGetErrorString(rc, &text) != GAP__CUDA_SUCCESS || !text) text = "no description";
  snprintf(out, bytes, "%s: %s (%u): %s", call, name, rc, text);
}
