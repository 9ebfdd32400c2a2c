/* The checker's view of a simulated card. */
#include "replay/checker.h"

static int walk(void *arg, gap__checker_visit *visit, void *visit_arg) { return gap__sim_walk(arg, visit, visit_arg); }

static uint64_t held_bytes(void *arg) { return gap__sim_chunk_bytes(arg); }

/* Mappings change only by these calls, and the checked layer counts every one of them. */
static uint64_t version(void *arg) {
  static const enum gap__dev_call calls[] = {GAP__CALL_map,           GAP__CALL_unmap,        GAP__CALL_set_access,
                                             GAP__CALL_segment_alloc, GAP__CALL_segment_free, GAP__CALL_chunk_release};
  const struct gap__dev *dev = arg;
  uint64_t sum = 0;
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
    sum += atomic_load_explicit(&dev->counters.calls[calls[i]], memory_order_relaxed) +
           atomic_load_explicit(&dev->counters.background_calls[calls[i]], memory_order_relaxed);
  return sum;
}

struct gap__checker_source gap__checker_sim(struct gap__dev *dev) {
  return (struct gap__checker_source){.arg = dev, .walk = walk, .held_bytes = held_bytes, .version = version};
}
