/* The allocators that are measured: see subject.h. */
#include "subject.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "dev/sim/sim.h"

static const gap_pool_id default_pool = {0, 0};
static void *(*mimalloc_alloc)(size_t);
static void (*mimalloc_free)(void *);

/* ---- the calls ---- */

static uint64_t empty_alloc(struct bench_subject *subject, gap_stream stream, uint64_t bytes) {
  (void)subject, (void)stream;
  return bytes;
}

static void empty_free(struct bench_subject *subject, uint64_t addr) { (void)subject, (void)addr; }

static uint64_t heap_alloc(struct bench_subject *subject, gap_stream stream, uint64_t bytes) {
  gap_addr addr;
  if (gap__heap_alloc(subject->heap, 0, stream, default_pool, bytes, &addr)) abort();
  return addr;
}

static void heap_free(struct bench_subject *subject, uint64_t addr) {
  if (gap__heap_free(subject->heap, addr)) abort();
}

static uint64_t mimalloc_call(struct bench_subject *subject, gap_stream stream, uint64_t bytes) {
  (void)subject, (void)stream;
  return (uintptr_t)mimalloc_alloc(bytes);
}

static void mimalloc_free_call(struct bench_subject *subject, uint64_t addr) {
  (void)subject;
  mimalloc_free((void *)(uintptr_t)addr);
}

static uint64_t glibc_alloc(struct bench_subject *subject, gap_stream stream, uint64_t bytes) {
  (void)subject, (void)stream;
  return (uintptr_t)malloc(bytes);
}

static void glibc_free(struct bench_subject *subject, uint64_t addr) {
  (void)subject;
  free((void *)(uintptr_t)addr);
}

/* ---- opening ---- */

static bool load_mimalloc(void) {
  static bool tried;
  if (tried) return mimalloc_alloc && mimalloc_free;
  tried = true;
  static const char *const names[] = {"libmimalloc.so.2", "libmimalloc.so.3", "libmimalloc.so"};
  void *library = NULL;
  for (unsigned i = 0; !library && i < sizeof names / sizeof *names; i++)
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!library) return false;
  *(void **)&mimalloc_alloc = dlsym(library, "mi_malloc");
  *(void **)&mimalloc_free = dlsym(library, "mi_free");
  return mimalloc_alloc && mimalloc_free;
}

static gap_heap *make_heap(enum gap__strategy strategy) {
  struct gap__sim_params card = {.total_bytes = (uint64_t)1 << 40};
  struct gap__conf_set *set = gap__conf_new();
  struct gap__dev *dev;
  gap_heap *heap = NULL;
  if (set && gap__sim_create(0, &card, &dev) == 0) {
    struct gap__conf conf = *gap__conf_values(set);
    conf.strategy = strategy;
    struct gap__heap_params params = {.devs = &dev, .dev_count = 1, .conf = &conf, .maker = GAP__MAKER_OFF};
    if (gap__heap_create(&params, &heap)) heap = NULL;
  }
  gap__conf_free(set);
  if (heap) return heap;
  fprintf(stderr, "cannot make a heap\n");
  exit(1);
}

const char *bench_subject_name(enum bench_kind kind) {
  static const char *const names[BENCH_KIND_COUNT] = {"empty call",   "gapless",  "caching_allocator",
                                                      "mimalloc/512", "mimalloc", "glibc"};
  return names[kind];
}

bool bench_subject_open(struct bench_subject *out, enum bench_kind kind) {
  *out = (struct bench_subject){.kind = kind, .alloc = empty_alloc, .free = empty_free};
  if (kind == BENCH_GAPLESS || kind == BENCH_CACHING) {
    out->alloc = heap_alloc, out->free = heap_free;
    out->heap = make_heap(kind == BENCH_GAPLESS ? GAP__STRATEGY_GAPLESS : GAP__STRATEGY_CACHING);
  } else if (kind == BENCH_MIMALLOC || kind == BENCH_MIMALLOC_512) {
    out->alloc = mimalloc_call, out->free = mimalloc_free_call;
    out->shift = kind == BENCH_MIMALLOC_512 ? 9 : 0;
    return load_mimalloc();
  } else if (kind == BENCH_GLIBC) {
    out->alloc = glibc_alloc, out->free = glibc_free;
  }
  return true;
}

void bench_subject_close(struct bench_subject *subject) {
  gap__heap_destroy(subject->heap);
  subject->heap = NULL;
}

/* ---- looking ---- */

static bool is_event_call(enum gap__dev_call call) {
  return call == GAP__CALL_event_create || call == GAP__CALL_event_destroy || call == GAP__CALL_event_record ||
         call == GAP__CALL_event_query || call == GAP__CALL_event_wait || call == GAP__CALL_stream_wait ||
         call == GAP__CALL_stream_id || call == GAP__CALL_stream_capturing;
}

struct bench_calls bench_subject_calls(const struct bench_subject *subject) {
  struct bench_calls sum = {0};
  if (!subject->heap) return sum;
  const struct gap__dev_counters *counters = &gap__heap_dev(subject->heap, 0)->counters;
  for (int call = 0; call < GAP__CALL_COUNT; call++)
    *(is_event_call(call) ? &sum.events : &sum.memory) += counters->calls[call] + counters->background_calls[call];
  return sum;
}

uint64_t bench_subject_metadata(const struct bench_subject *subject, uint64_t *live) {
  *live = 0;
  struct gap__stats *stats = malloc(sizeof *stats); /* large for a stack */
  if (!subject->heap || !stats || gap__heap_stats(subject->heap, 0, stats)) {
    free(stats);
    return 0;
  }
  *live = (uint64_t)stats->allocation[GAP__KIND_ALL].current;
  uint64_t bytes = (uint64_t)stats->metadata_bytes;
  free(stats);
  return bytes;
}
