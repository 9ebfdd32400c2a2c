/* Bytes become a sequence of heap operations on the simulated card and on real bytes; the checker looks at the heap all the
 * way, and on the host backend the contents of every block are verified before it is freed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contents.h"
#include "core/heap.h"
#include "dev/sim/sim.h"
#include "fuzz.h"

#define MIB ((uint64_t)1 << 20)
enum { BLOCKS_MAX = 64, STREAMS = 3, STEPS_MAX = 400, CHECK_EVERY = 16 };

struct block {
  gap_addr addr;
  uint64_t bytes, pattern;
  gap_stream stream;
  bool orphan; /* its stream was retired: nothing more is queued there */
};

struct run {
  gap_heap *heap;
  struct gap__dev *dev;
  bool real; /* the host backend: bytes can be looked at */
  struct block blocks[BLOCKS_MAX];
  unsigned count;
  uint64_t serial;
  const uint8_t *data;
  size_t size;
};

static uint8_t next(struct run *run) {
  if (!run->size) return 0;
  run->size--;
  return *run->data++;
}

static void check(struct run *run) {
  char text[256];
  if (gap__heap_check(run->heap, 0, text, sizeof text)) {
    fprintf(stderr, "%s\n", text);
    abort();
  }
}

/* From 1 byte to 32 MiB, page borders included. */
static uint64_t size_of(struct run *run) {
  uint8_t kind = next(run), fine = next(run);
  uint64_t bytes = (uint64_t)1 << (kind % 26);
  if (kind & 0x40) return (1 + fine % 8) * 2 * MIB;
  return bytes + (bytes >> 8) * fine;
}

static void alloc(struct run *run) {
  struct block b = {.bytes = size_of(run), .stream = next(run) % STREAMS * 8};
  gap_pool_id pool = next(run) % 8 == 0 ? (gap_pool_id){1, 0} : (gap_pool_id){0, 0};
  if (run->count == BLOCKS_MAX) return;
  int rc = gap__heap_alloc(run->heap, 0, b.stream, pool, b.bytes, &b.addr);
  FUZZ_CHECK(rc == 0 || rc == GAP_ENOMEM);
  if (rc) return;
  b.pattern = 0x9E3779B97F4A7C15ull * ++run->serial;
  if (run->real) FUZZ_CHECK(each_word(gap__host_fill, run->dev, b.addr, b.bytes, b.pattern, b.stream) == 0);
  run->blocks[run->count++] = b;
}

static void release(struct run *run, unsigned index) {
  struct block b = run->blocks[index];
  run->blocks[index] = run->blocks[--run->count];
  if (run->real && !b.orphan)
    FUZZ_CHECK(each_word(gap__host_expect, run->dev, b.addr, b.bytes, b.pattern, b.stream) == 0);
  FUZZ_CHECK(gap__heap_free(run->heap, b.addr) == 0);
  FUZZ_CHECK(gap__heap_free(run->heap, b.addr) == GAP_EFREED);
}

/* What `later` does from now on comes after what `first` was given so far: a queue may itself wait for another. */
static void order_behind(struct run *run, gap_stream later, gap_stream first) {
  gap__event event;
  FUZZ_CHECK(gap__dev_event_create(run->dev, first, &event) == 0);
  FUZZ_CHECK(gap__dev_event_record(run->dev, event, first) == 0);
  FUZZ_CHECK(gap__dev_stream_wait(run->dev, later, event) == 0);
}

static void share(struct run *run, unsigned index) {
  struct block *b = &run->blocks[index];
  gap_stream other = next(run) % STREAMS * 8;
  if (b->orphan) return;
  if (run->real) order_behind(run, other, b->stream);
  FUZZ_CHECK(gap__heap_record_stream(run->heap, b->addr, other) == 0);
  if (run->real) each_word(gap__host_expect, run->dev, b->addr, b->bytes, b->pattern, other);
}

/* From now on the handle names a new stream. */
static void retire(struct run *run) {
  gap_stream stream = next(run) % STREAMS * 8;
  FUZZ_CHECK(gap__heap_retire_stream(run->heap, 0, stream) == 0);
  for (unsigned i = 0; i < run->count; i++) run->blocks[i].orphan |= run->blocks[i].stream == stream;
}

static void let_time_pass(struct run *run) {
  uint8_t much = next(run);
  if (run->real) gap__host_run(run->dev, much % STREAMS * 8, much / 8u);
  else gap__sim_clock_advance(run->dev, (uint64_t)much * 100000);
  gap__heap_tick(run->heap, 0);
}

static void step(struct run *run) {
  uint64_t returned;
  uint8_t what = next(run);
  unsigned index = run->count ? what / 16u % run->count : 0;
  switch (what % 16) {
    case 0: gap__heap_trim(run->heap, 0, (gap_pool_id){0, 0}, &returned); break;
    case 1: gap__heap_set_cap(run->heap, 0, next(run) * 2 * MIB); break;
    case 2: let_time_pass(run); break;
    case 3:
      if (run->count) share(run, index);
      break;
    case 4: FUZZ_CHECK(gap__heap_free(run->heap, 4096 + next(run)) == GAP_ENOTMINE); break; /* no window lies there */
    case 5: retire(run); break;
    case 6:
    case 7:
    case 8:
    case 9:
    case 10:
      if (run->count) release(run, index);
      break;
    default: alloc(run); break;
  }
}

static void play(struct gap__dev *dev, bool real, const uint8_t *data, size_t size) {
  struct run run = {.dev = dev, .real = real, .data = data, .size = size};
  struct gap__heap_params params = {.devs = &dev, .dev_count = 1, .maker = real ? GAP__MAKER_OFF : GAP__MAKER_STEPPED};
  FUZZ_CHECK(gap__heap_create(&params, &run.heap) == 0);
  FUZZ_CHECK(gap__heap_pool_retain(run.heap, 0, (gap_pool_id){1, 0}) == 0);
  for (int i = 0; i < STEPS_MAX && run.size; i++) {
    step(&run);
    if (i % CHECK_EVERY == 0) check(&run);
  }
  while (run.count) release(&run, 0);
  if (real) gap__host_run_all(dev);
  check(&run);
  if (real) FUZZ_CHECK(gap__host_faults(dev) == 0);
  gap__heap_destroy(run.heap);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct gap__dev *dev;
  struct gap__sim_params sim = {.total_bytes = 512 * MIB, .lag_us = 5000, .window_max_bytes = 256 * MIB};
  struct gap__host_params host = {.total_bytes = 512 * MIB, .manual = true, .window_max_bytes = 256 * MIB};
  FUZZ_CHECK(gap__sim_create(0, &sim, &dev) == 0);
  play(dev, false, data, size);
  FUZZ_CHECK(gap__host_create(0, &host, &dev) == 0);
  play(dev, true, data, size);
  return 0;
}
