/* Code of our own on the card: modules, their functions, launches. */
#include "dev/cuda/state.h"

static gap__cuda_module module_of(gap__module module) { return (gap__cuda_module)(uintptr_t)module; }
static gap__cuda_function function_of(gap__function function) { return (gap__cuda_function)(uintptr_t)function; }

bool gap__cuda_has_code(const struct cuda *cuda) {
  const struct gap__cuda_driver *driver = &cuda->driver;
  return driver->cuModuleLoadData && driver->cuModuleUnload && driver->cuModuleGetFunction &&
         driver->cuFuncSetAttribute && driver->cuLaunchKernel;
}

int gap__cuda_module_load(struct gap__dev *dev, const void *image, gap__module *out) {
  struct cuda *cuda = cuda_of(dev);
  gap__cuda_module module;
  int rc;
  CALL_IN_CONTEXT(rc, cuda, cuModuleLoadData, &module, image);
  if (rc == 0) *out = (uintptr_t)module;
  return rc;
}

int gap__cuda_module_unload(struct gap__dev *dev, gap__module module) {
  struct cuda *cuda = cuda_of(dev);
  RETURN_CALL(cuda, cuModuleUnload, module_of(module));
}

/* Room for such blocks, as many side by side as a processor can have. */
static int allow_shared(struct cuda *cuda, gap__cuda_function function, uint32_t bytes) {
  int rc;
  CALL_IN_CONTEXT(rc, cuda, cuFuncSetAttribute, function, GAP__CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                  (int)bytes);
  if (rc == 0)
    CALL_IN_CONTEXT(rc, cuda, cuFuncSetAttribute, function, GAP__CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                    100);
  return rc;
}

int gap__cuda_module_find(struct gap__dev *dev, gap__module module, const char *name, uint32_t shared_bytes,
                          gap__function *out) {
  struct cuda *cuda = cuda_of(dev);
  gap__cuda_function function;
  int rc;
  CALL_IN_CONTEXT(rc, cuda, cuModuleGetFunction, &function, module_of(module), name);
  if (rc == 0 && shared_bytes) rc = allow_shared(cuda, function, shared_bytes);
  if (rc == 0) *out = (uintptr_t)function;
  return rc;
}

int gap__cuda_launch(struct gap__dev *dev, const struct gap__launch *launch, gap_stream stream) {
  struct cuda *cuda = cuda_of(dev);
  void *arguments[] = {(void *)(uintptr_t)launch->argument};
  RETURN_CALL(cuda, cuLaunchKernel, function_of(launch->function), launch->blocks[0], launch->blocks[1],
              launch->blocks[2], launch->threads, 1, 1, launch->shared_bytes, stream_of(stream), arguments, NULL);
}
