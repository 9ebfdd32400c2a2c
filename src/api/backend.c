/* Which devices a heap has, and how one is opened. */
#include <stdio.h>
#include <stdlib.h>

#include "api/client.h"
#include "base/log.h"
#include "dev/cuda/cuda.h"
#include "dev/host/host.h"
#include "dev/sim/sim.h"

#define GIB ((uint64_t)1 << 30)
enum { PATH_BYTES = 4096 };

int gap__backend_count(const gap_heap_options *options, int *out) {
  if (options->backend != GAP_BACKEND_CUDA) {
    *out = options->device_count ? options->device_count : 1;
    return 0;
  }
  int count = 0, rc = gap__cuda_device_count(NULL, &count);
  *out = count;
  return rc ? rc : count > 0 ? 0 : GAP_EDEVICE;
}

/* GAPLESS_HOST_CARD: the file by which several processes share host's simulated cards; those after the first add their
 * number. */
static const char *shared_card(const gap_heap_options *options, int ordinal, char path[PATH_BYTES]) {
  const char *name = options->flags & GAP_HEAP_NO_ENVIRONMENT ? NULL : secure_getenv("GAPLESS_HOST_CARD");
  if (!name || !*name) return NULL;
  int length = ordinal ? snprintf(path, PATH_BYTES, "%s.%d", name, ordinal) : snprintf(path, PATH_BYTES, "%s", name);
  return length < PATH_BYTES ? path : NULL;
}

static int open_host(int ordinal, const gap_heap_options *options, struct gap__dev **out) {
  uint64_t bytes = options->device_bytes ? options->device_bytes : GIB;
  char path[PATH_BYTES];
  struct gap__host_params params = {.total_bytes = bytes / GAP__PAGE * GAP__PAGE,
                                    .card = shared_card(options, ordinal, path)};
  int rc = gap__host_create(ordinal, &params, out);
  if (rc && params.card) gap__log(GAP__LOG_ERROR, "GAPLESS_HOST_CARD=%s: %s", params.card, gap_strerror(rc));
  return rc;
}

static int open_sim(int ordinal, uint64_t bytes, struct gap__dev **out) {
  struct gap__sim_params params = {.total_bytes = bytes ? bytes : 80 * GIB};
  return gap__sim_create(ordinal, &params, out);
}

int gap__backend_open(void *client, int ordinal, struct gap__dev **out) {
  const gap_heap_options *options = &((const struct gap__client *)client)->options;
  switch (options->backend) {
    case GAP_BACKEND_HOST: return open_host(ordinal, options, out);
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
