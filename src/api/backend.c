/* Which devices a heap has, and how one is opened. */
#include "api/client.h"
#include "dev/cuda/cuda.h"
#include "dev/host/host.h"
#include "dev/sim/sim.h"

#define GIB ((uint64_t)1 << 30)

int gap__backend_count(const gap_heap_options *options, int *out) {
  if (options->backend != GAP_BACKEND_CUDA) {
    *out = options->device_count ? options->device_count : 1;
    return 0;
  }
  int count = 0, rc = gap__cuda_device_count(NULL, &count);
  *out = count;
  return rc ? rc : count > 0 ? 0 : GAP_EDEVICE;
}

static int open_host(int ordinal, uint64_t bytes, struct gap__dev **out) {
  struct gap__host_params params = {.total_bytes = (bytes ? bytes : GIB) / GAP__PAGE * GAP__PAGE};
  return gap__host_create(ordinal, &params, out);
}

static int open_sim(int ordinal, uint64_t bytes, struct gap__dev **out) {
  struct gap__sim_params params = {.total_bytes = bytes ? bytes : 80 * GIB};
  return gap__sim_create(ordinal, &params, out);
}

int gap__backend_open(void *client, int ordinal, struct gap__dev **out) {
  const gap_heap_options *options = &((const struct gap__client *)client)->options;
  switch (options->backend) {
    case GAP_BACKEND_HOST: return open_host(ordinal, options->device_bytes, out);
    case GAP_BACKEND_SIM: return open_sim(ordinal, options->device_bytes, out);
    default: return gap__cuda_create(ordinal, NULL, out);
  }
}

int gap__backend_current_device(gap_heap *heap) {
  if (gap__client_of(heap)->options.backend != GAP_BACKEND_CUDA || gap__heap_forked(heap)) return 0;
  for (int i = 0; i < gap__heap_device_count(heap); i++) {
    struct gap__dev *dev = gap__heap_dev(heap, i);
    if (dev) return gap__cuda_current_device(dev);
  }
  return gap__cuda_current_ordinal(NULL);
}
