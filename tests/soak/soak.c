/* A long run: soak [--operations N] [--seed N] [--conf STRING] [--only host|sim]
 *
 * Random operations of a program with several streams, first on `host`, where the contents of every block are looked at when it is
 * freed, then a quarter of them twice on the simulated card, where the same sequence must give the same addresses and answers, and
 * 25 million operations take more than an hour of the card's time.  At intervals the whole-heap checker runs, the
 * statistics must agree with the program's own books, and the allocator's own records must not grow: not beyond what 128 streams need
 * (as many are kept before it is looked for those without memory), and in a run that is long enough to get there not by more than a
 * quarter beyond the first half.  Prints one JSON object: what was done and what was found; the
 * status is 0 when nothing was. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/heap.h"
#include "dev/host/host.h"
#include "dev/sim/sim.h"

#define MIB ((uint64_t)1 << 20)
enum { SLOTS = 400, STREAMS = 6, POOLS = 3, INTERVALS = 200, LONG = 40000000 };
#define RECORDS_MOST (8 * MIB)
/* A record for each piece of a page that a size class has, and each stream and pool keeps as many as it ever had at once: in any
 * run some of them reach that late. */
#define RECORDS_MOST_POOLED (64 * MIB)

struct slot {
  gap_addr addr;
  uint64_t bytes, tag;
};

struct task {
  uint64_t seed, operations;
  const char *conf, *only; /* only: a backend, or both */
};

struct soak {
  gap_heap *heap;
  struct gap__dev *dev;
  enum gap__strategy strategy;
  bool real;
  uint64_t seed, tags, operations, checks, findings;
  uint64_t hash; /* of all addresses and answers, in order */
  /* the program's own books */
  uint64_t served, served_bytes, refused, live_blocks, live_bytes; /* bytes in whole units of 512 */
  uint64_t metadata_most;                                          /* in the first half of a long run */
  bool retained[POOLS];
  struct slot slots[SLOTS];
};

static uint64_t pick(struct soak *s, uint64_t below) {
  uint64_t z = s->seed += 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return (z ^ z >> 31) % below;
}

static void __attribute__((format(printf, 3, 4))) expect(struct soak *s, bool true_one, const char *format, ...) {
  va_list args;
  if (true_one || s->findings++ > 20) return;
  va_start(args, format);
  fprintf(stderr, "operation %llu: ", (unsigned long long)s->operations);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
}

static void note(struct soak *s, uint64_t value) { s->hash = (s->hash ^ value) * 0x100000001B3ull; }

/* ---- blocks ---- */

/* Queued work runs at once on this device, so the program may write itself: the first and the last word. */
static uint64_t *word(const struct slot *slot, uint64_t at) { return (uint64_t *)(uintptr_t)(slot->addr + at); }

static void write_tag(struct soak *s, struct slot *slot) {
  slot->tag = ++s->tags * 0x9E3779B97F4A7C15ull;
  if (!s->real) return;
  *word(slot, 0) = slot->tag;
  *word(slot, slot->bytes - 8) = slot->tag;
}

static bool has_tag(const struct soak *s, const struct slot *slot) {
  return !s->real || (*word(slot, 0) == slot->tag && *word(slot, slot->bytes - 8) == slot->tag);
}

/* Most are small; one in twelve is of whole pages. */
static uint64_t any_size(struct soak *s) {
  uint64_t shift = pick(s, 18);
  if (pick(s, 12) == 0) return (1 + pick(s, 6)) * GAP__PAGE;
  return (((uint64_t)8 << shift) + pick(s, (uint64_t)8 << shift)) / 8 * 8;
}

static uint64_t rounded(const struct slot *slot) { return (slot->bytes + 511) / 512 * 512; }

static gap_stream any_stream(struct soak *s) { return (gap_stream)(1 + pick(s, STREAMS)) * 64; }

static void take(struct soak *s, struct slot *slot) {
  uint64_t pool = pick(s, 8 * POOLS);
  gap_pool_id id = {pool < POOLS && s->retained[pool] ? pool + 1 : 0, 0};
  slot->bytes = any_size(s);
  int rc = gap__heap_alloc(s->heap, 0, any_stream(s), id, slot->bytes, &slot->addr);
  note(s, slot->addr ^ (uint64_t)rc);
  expect(s, rc == 0 || rc == GAP_ENOMEM, "%llu bytes: %d", (unsigned long long)slot->bytes, rc);
  if (rc) {
    slot->addr = 0;
    s->refused++;
    return;
  }
  write_tag(s, slot);
  s->served++, s->live_blocks++;
  s->served_bytes += rounded(slot), s->live_bytes += rounded(slot);
}

static void give(struct soak *s, struct slot *slot) {
  expect(s, has_tag(s, slot), "the block of %llu bytes has lost its contents", (unsigned long long)slot->bytes);
  int rc = gap__heap_free(s->heap, slot->addr);
  expect(s, rc == 0, "free: %d", rc);
  slot->addr = 0;
  s->live_blocks--;
  s->live_bytes -= rounded(slot);
}

/* ---- what happens now and then ---- */

static void toggle_pool(struct soak *s) {
  uint64_t pool = pick(s, POOLS);
  gap_pool_id id = {pool + 1, 0};
  int rc = s->retained[pool] ? gap__heap_pool_release(s->heap, 0, id) : gap__heap_pool_retain(s->heap, 0, id);
  expect(s, rc == 0, "pool: %d", rc);
  s->retained[pool] = !s->retained[pool];
}

static void disturb(struct soak *s) {
  uint64_t bytes = 0;
  switch (pick(s, 6)) {
    case 0: (void)gap__heap_trim(s->heap, 0, (gap_pool_id){0, 0}, &bytes); break;
    case 1: (void)gap__heap_set_cap(s->heap, 0, (128 + pick(s, 256)) * MIB); break;
    case 2: toggle_pool(s); break;
    case 3: (void)gap__heap_retire_stream(s->heap, 0, any_stream(s)); break;
    case 4:
      if (!s->real) gap__sim_neighbour_set(s->dev, pick(s, 400) * MIB);
      break;
    default: gap__heap_tick(s->heap, 0);
  }
  note(s, bytes);
}

/* Mostly a moment, now and then as long as a program takes to think: 0.16 ms a step on average. */
static void let_time_pass(struct soak *s) {
  if (pick(s, 32) == 0) gap__sim_clock_advance(s->dev, 100000);
  if (pick(s, 512)) return;
  gap__sim_clock_advance(s->dev, 80000000);
  gap__heap_tick(s->heap, 0);
}

static void step(struct soak *s) {
  struct slot *slot = &s->slots[pick(s, SLOTS)];
  s->operations++;
  if (pick(s, 20000) == 0) disturb(s);
  else if (!slot->addr) take(s, slot);
  else if (pick(s, 16) == 0) (void)gap__heap_record_stream(s->heap, slot->addr, any_stream(s));
  else give(s, slot);
  if (!s->real) let_time_pass(s);
}

/* ---- looking at it ---- */

/* A lane is made when more of streams and pools are in use at a time than ever before, which happens ever more rarely and never quite stops. */
static uint64_t records_most(const struct soak *s, bool growing) {
  if (s->strategy == GAP__STRATEGY_POOLED) return RECORDS_MOST_POOLED;
  return growing ? RECORDS_MOST : s->metadata_most + s->metadata_most / 4;
}

static void check_records(struct soak *s, uint64_t bytes, bool growing) {
  uint64_t most = records_most(s, growing);
  if (growing && bytes > s->metadata_most) s->metadata_most = bytes;
  expect(s, bytes <= most, "records of %llu bytes, not %llu", (unsigned long long)bytes, (unsigned long long)most);
}

/* What a strategy adds to a size differs; only `gapless` hands out exactly the units that were asked for. */
static void check_books(struct soak *s, const struct gap__stats *stats) {
  const struct gap__stat *blocks = &stats->allocation[0], *bytes = &stats->allocated_bytes[0];
  bool exact = s->strategy == GAP__STRATEGY_GAPLESS;
  expect(s, (uint64_t)blocks->current == s->live_blocks, "%lld blocks, not %llu", (long long)blocks->current,
         (unsigned long long)s->live_blocks);
  expect(s, (uint64_t)blocks->allocated == s->served && (uint64_t)blocks->freed == s->served - s->live_blocks,
         "%lld blocks in all, not %llu", (long long)blocks->allocated, (unsigned long long)s->served);
  expect(
      s,
      exact || !s->live_blocks ? (uint64_t)bytes->current == s->live_bytes : (uint64_t)bytes->current >= s->live_bytes,
      "%lld bytes, not %llu", (long long)bytes->current, (unsigned long long)s->live_bytes);
  expect(s, exact ? (uint64_t)bytes->allocated == s->served_bytes : (uint64_t)bytes->allocated >= s->served_bytes,
         "%lld bytes in all, not %llu", (long long)bytes->allocated, (unsigned long long)s->served_bytes);
  expect(s, bytes->allocated - bytes->freed == bytes->current, "bytes do not add up");
  if (s->strategy != GAP__STRATEGY_HEURISTIC) /* it counts what one strategy refuses and the other serves */
    expect(s, (uint64_t)stats->num_ooms == s->refused, "%lld refusals", (long long)stats->num_ooms);
}

static void check(struct soak *s, bool growing) {
  char text[300] = "";
  struct gap__stats stats;
  int rc = gap__heap_check(s->heap, 0, text, sizeof text);
  expect(s, rc == 0, "checker: %s", text);
  rc = gap__heap_stats(s->heap, 0, &stats);
  expect(s, rc == 0, "statistics: %d", rc);
  check_books(s, &stats);
  check_records(s, (uint64_t)stats.metadata_bytes, growing);
  if (s->real) expect(s, gap__host_faults(s->dev) == 0, "the device has seen a fault");
  s->checks++;
}

/* All goes back.  Returns the bytes that do not. */
static uint64_t finish(struct soak *s) {
  struct gap__stats stats;
  uint64_t bytes;
  for (int i = 0; i < SLOTS; i++)
    if (s->slots[i].addr) give(s, &s->slots[i]);
  for (uint64_t i = 0; i < POOLS; i++)
    if (s->retained[i]) (void)gap__heap_pool_release(s->heap, 0, (gap_pool_id){i + 1, 0});
  for (int i = 0; i < 2; i++) (void)gap__heap_trim(s->heap, 0, (gap_pool_id){0, 0}, &bytes);
  check(s, true);
  (void)gap__heap_stats(s->heap, 0, &stats);
  uint64_t given = s->real ? gap__host_chunk_bytes(s->dev) : gap__sim_chunk_bytes(s->dev);
  expect(s, (uint64_t)stats.reserved_bytes[0].current == given, "books and device differ");
  return given + (uint64_t)stats.active_bytes[0].current;
}

static int make_heap(struct soak *s, const char *text) {
  struct gap__conf_set *set = gap__conf_new();
  int rc = set ? gap__conf_apply(set, GAP__CONF_RUNTIME, "--conf", text, NULL) : GAP_ENOMETA;
  if (rc) return rc;
  struct gap__heap_params params = {.devs = &s->dev,
                                    .dev_count = 1,
                                    .conf = gap__conf_values(set),
                                    .maker = s->real ? GAP__MAKER_OFF : GAP__MAKER_STEPPED};
  s->strategy = params.conf->strategy;
  rc = gap__heap_create(&params, &s->heap);
  gap__conf_free(set);
  return rc ? rc : gap__heap_set_cap(s->heap, 0, 256 * MIB);
}

static bool begin(struct soak *s, bool real, const struct task *task) {
  struct gap__host_params host = {.total_bytes = 512 * MIB, .window_max_bytes = 256 * MIB};
  struct gap__sim_params sim = {.total_bytes = 512 * MIB, .lag_us = 2000, .window_max_bytes = 256 * MIB};
  *s = (struct soak){.real = real, .seed = task->seed};
  int rc = real ? gap__host_create(0, &host, &s->dev) : gap__sim_create(0, &sim, &s->dev);
  if (!rc) rc = make_heap(s, task->conf);
  if (rc) fprintf(stderr, "soak: %s\n", gap_strerror(rc));
  return rc == 0;
}

static void print(const char *name, const struct soak *s, double seconds, uint64_t lost) {
  printf("\"%s\": {\"operations\": %llu, \"seconds\": %.1f, ", name, (unsigned long long)s->operations, seconds);
  if (!s->real) printf("\"card_seconds\": %.1f, ", (double)gap__dev_now_ns(s->dev) / 1e9);
  printf("\"checks\": %llu, \"refused\": %llu, \"metadata_bytes\": %llu, \"hash\": \"%016llx\", \"findings\": %llu, "
         "\"bytes_lost\": %llu}",
         (unsigned long long)s->checks, (unsigned long long)s->refused, (unsigned long long)s->metadata_most,
         (unsigned long long)s->hash, (unsigned long long)s->findings, (unsigned long long)lost);
  fflush(stdout);
}

/* Prints what was done; false: something was found. */
static bool soak(const char *name, bool real, const struct task *task, uint64_t *hash) {
  struct soak s;
  struct timespec from, to;
  if (!begin(&s, real, task)) return false;
  clock_gettime(CLOCK_MONOTONIC, &from);
  for (uint64_t part = 0, i = 0; part < INTERVALS; part++) {
    for (; i < task->operations * (part + 1) / INTERVALS; i++) step(&s);
    check(&s, part < INTERVALS / 2 || task->operations < LONG);
  }
  uint64_t lost = finish(&s);
  clock_gettime(CLOCK_MONOTONIC, &to);
  print(name, &s, (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9, lost);
  *hash = s.hash;
  gap__heap_destroy(s.heap);
  return s.findings == 0 && lost == 0;
}

static bool soak_sim_twice(struct task task) {
  uint64_t hash[2] = {0};
  task.operations /= 4;
  bool good = soak("sim", false, &task, &hash[0]);
  printf(", ");
  good &= soak("sim_again", false, &task, &hash[1]);
  bool same = hash[0] == hash[1];
  printf(", \"same_addresses\": %s", same ? "true" : "false");
  return good && same;
}

int main(int argc, char **argv) {
  struct task task = {.operations = 1000000, .seed = 1, .conf = "", .only = ""};
  uint64_t hash;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--operations")) task.operations = strtoull(argv[i + 1], NULL, 10);
    if (!strcmp(argv[i], "--seed")) task.seed = strtoull(argv[i + 1], NULL, 10);
    if (!strcmp(argv[i], "--conf")) task.conf = argv[i + 1];
    if (!strcmp(argv[i], "--only")) task.only = argv[i + 1];
  }
  bool host = strcmp(task.only, "sim") != 0, sim = strcmp(task.only, "host") != 0, good = true;
  printf("{");
  if (host) good &= soak("host", true, &task, &hash);
  printf("%s", host && sim ? ", " : "");
  if (sim) good &= soak_sim_twice(task);
  printf("}\n");
  return good ? 0 : 1;
}
