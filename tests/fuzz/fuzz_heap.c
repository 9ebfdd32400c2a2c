/* Bytes as operations on a heap: any sequence of calls, right or wrong, on `sim` or on `host` (the first byte decides).
 * Promised: every call answers with a documented code, live blocks never overlap and keep their contents, the checker finds
 * nothing, and in the end everything goes back. */
#include <string.h>

#include "contents.h"
#include "core/heap.h"
#include "dev/sim/sim.h"
#include "fuzz.h"

#define MIB ((uint64_t)1 << 20)
enum { SLOTS = 32, OPERATIONS = 400, CHECK_EVERY = 25 };

struct slot {
  gap_addr addr;
  uint64_t bytes, pattern;
  gap_stream stream;
  bool orphan; /* its stream was retired: nothing more is queued there */
};

struct play {
  const uint8_t *data;
  size_t left;
  gap_heap *heap;
  struct gap__dev *dev;
  bool real; /* host: contents are checked */
  uint64_t patterns;
  struct slot slots[SLOTS];
  int pool_uses[2];
};

static uint8_t byte(struct play *p) {
  if (!p->left) return 0;
  p->left--;
  return *p->data++;
}

static gap_stream stream(struct play *p) {
  static const gap_stream names[] = {0, 1, 2, 1024, 2048};
  return names[byte(p) % 5];
}

static gap_pool_id pool(uint8_t number) { return (gap_pool_id){number % 3, 0}; }

/* 5 bits of exponent, 3 of what is added: small, large, whole pages, just beside pages, absurd. */
static uint64_t size(struct play *p) {
  uint8_t how = byte(p), more = byte(p);
  uint64_t base = (uint64_t)1 << (how >> 3);
  if (base > 8 * MIB) return (uint64_t)more << (how >> 2); /* may be 0, may be past any card */
  switch (how & 3) {
    case 0: return base + more * 8u;
    case 1: return base * (more % 8 + 1u);
    case 2: return (more % 6 + 1u) * GAP__PAGE;
    default: return (more % 6 + 1u) * GAP__PAGE + base % 1024 - 512;
  }
}

static void check_apart(const struct play *p, const struct slot *s) {
  for (int i = 0; i < SLOTS; i++) {
    const struct slot *o = &p->slots[i];
    if (o == s || !o->addr) continue;
    FUZZ_CHECK(s->addr + s->bytes <= o->addr || o->addr + o->bytes <= s->addr);
  }
}

static void allocate(struct play *p) {
  struct slot *s = &p->slots[byte(p) % SLOTS];
  gap_pool_id id = pool(byte(p) / 64);
  struct slot made = {.bytes = size(p), .stream = stream(p)};
  if (s->addr) return;
  int rc = gap__heap_alloc(p->heap, 0, made.stream, id, made.bytes, &made.addr);
  FUZZ_CHECK(rc == 0 || rc == GAP_ENOMEM || rc == GAP_ETOOBIG);
  if (rc || !made.addr) return;
  FUZZ_CHECK(made.addr % 512 == 0);
  *s = made;
  check_apart(p, s);
  s->pattern = ++p->patterns * 0x9E3779B97F4A7C15ull;
  if (p->real) FUZZ_CHECK(each_word(gap__host_fill, p->dev, s->addr, s->bytes, s->pattern, s->stream) == 0);
}

static void release(struct play *p, struct slot *s) {
  if (!s->addr) return;
  if (p->real && s->bytes >= 8 && !s->orphan)
    FUZZ_CHECK(each_word(gap__host_expect, p->dev, s->addr, s->bytes, s->pattern, s->stream) == 0);
  FUZZ_CHECK(gap__heap_free(p->heap, s->addr) == 0);
  FUZZ_CHECK(gap__heap_free(p->heap, s->addr) == GAP_EFREED);
  s->addr = 0;
}

/* Any address beside those of live blocks: never accepted. */
static void free_wrongly(struct play *p) {
  const struct slot *s = &p->slots[byte(p) % SLOTS];
  uint64_t off = (uint64_t)byte(p) << (byte(p) % 40);
  gap_addr addr = s->addr + off;
  for (int i = 0; i < SLOTS; i++)
    if (p->slots[i].addr == addr) return;
  if (!addr) return;
  int rc = gap__heap_free(p->heap, addr);
  FUZZ_CHECK(rc == GAP_EFREED || rc == GAP_ENOTMINE);
  rc = gap__heap_record_stream(p->heap, addr, byte(p) & 1 ? 6144 : s->stream);
  FUZZ_CHECK(rc == GAP_EFREED || rc == GAP_ENOTMINE);
}

static void use_pool(struct play *p) {
  uint8_t which = byte(p) % 2;
  gap_pool_id id = pool((uint8_t)(which + 1));
  if (byte(p) & 1) {
    FUZZ_CHECK(gap__heap_pool_retain(p->heap, 0, id) == 0);
    p->pool_uses[which]++;
  } else {
    int rc = gap__heap_pool_release(p->heap, 0, id);
    FUZZ_CHECK(rc == (p->pool_uses[which] ? 0 : GAP_ESTATE));
    p->pool_uses[which] -= rc == 0;
  }
}

static void let_run(struct play *p) {
  gap_stream on = stream(p);
  uint8_t how = byte(p);
  if (p->real) {
    gap__host_run(p->dev, on, how);
    return;
  }
  switch (how % 5) {
    case 0: gap__sim_stream_hold(p->dev, on); break;
    case 1: gap__sim_stream_release(p->dev, on); break;
    case 2: gap__sim_stream_capture(p->dev, on, how & 128); break;
    case 3: gap__sim_stream_recycle(p->dev, on); break;
    default: gap__sim_clock_advance(p->dev, (uint64_t)how << 16);
  }
}

static void look(struct play *p) {
  struct gap__stats stats;
  uint64_t bytes;
  FUZZ_CHECK(gap__heap_stats(p->heap, 0, &stats) == 0);
  FUZZ_CHECK(stats.active_bytes[0].current + stats.idle_returnable_bytes + stats.idle_stuck_bytes ==
             stats.reserved_bytes[0].current);
  if (byte(p) & 1) FUZZ_CHECK(gap__heap_trim(p->heap, 0, pool(byte(p)), &bytes) == 0);
}

static void retire(struct play *p) {
  gap_stream gone = stream(p);
  FUZZ_CHECK(gap__heap_retire_stream(p->heap, 0, gone) == 0);
  for (int i = 0; i < SLOTS; i++)
    if (p->slots[i].stream == gone || (p->slots[i].stream | gone) == 1) p->slots[i].orphan = true; /* 0 and 1 are one */
}

static void change(struct play *p) {
  uint8_t what = byte(p);
  if (what < 100) FUZZ_CHECK(gap__heap_set_cap(p->heap, 0, (uint64_t)what * MIB) == 0);
  else if (what < 120) retire(p);
  else if (what < 140) FUZZ_CHECK(gap__heap_reset_peaks(p->heap, 0) == 0);
  else if (what < 160) FUZZ_CHECK(gap__heap_reset_accumulated(p->heap, 0) == 0);
  else if (!p->real && what < 200) gap__sim_neighbour_set(p->dev, (uint64_t)(what - 160) * MIB);
  else gap__heap_tick(p->heap, 0);
}

static void step(struct play *p) {
  struct slot *s;
  switch (byte(p) % 12) {
    case 0:
    case 1:
    case 2:
    case 3: allocate(p); break;
    case 4:
    case 5:
    case 6: release(p, &p->slots[byte(p) % SLOTS]); break;
    case 7:
      s = &p->slots[byte(p) % SLOTS];
      FUZZ_CHECK(gap__heap_record_stream(p->heap, s->addr, stream(p)) == 0);
      break;
    case 8: let_run(p); break;
    case 9: change(p); break;
    case 10:
      if (byte(p) & 1) use_pool(p);
      else free_wrongly(p);
      break;
    default: look(p);
  }
}

static void check(struct play *p) {
  char text[300];
  int rc = gap__heap_check(p->heap, 0, text, sizeof text);
  if (rc) fprintf(stderr, "checker: %s\n", text);
  FUZZ_CHECK(rc == 0);
}

static void create(struct play *p, uint8_t how) {
  struct gap__conf_set *set = gap__conf_new();
  if (!set) abort();
  static const char *const confs[] = {"max_memory:24MiB",
                                      "reserve:0",
                                      "max_memory:32MiB,chunk_max:8MiB",
                                      "reserve:4MiB,chunk_max:4MiB,grow_limit:1.5",
                                      "",
                                      "max_memory:40MiB,granularity:4KiB",
                                      "max_memory:30MiB,roundup_power2_divisions:4",
                                      "reserve:0,nmalloc:2"};
  FUZZ_CHECK(gap__conf_apply(set, GAP__CONF_RUNTIME, "fuzz", confs[how >> 1 & 7], NULL) == 0);
  p->real = how & 1;
  uint64_t window = how & 16 ? 64 * MIB : 256 * MIB;
  struct gap__host_params host = {.total_bytes = 64 * MIB, .window_max_bytes = window, .manual = how & 32};
  struct gap__sim_params sim = {.total_bytes = 64 * MIB, .window_max_bytes = window, .lag_us = how & 32 ? 1000 : 0};
  int rc = p->real ? gap__host_create(0, &host, &p->dev) : gap__sim_create(0, &sim, &p->dev);
  FUZZ_CHECK(rc == 0);
  struct gap__heap_params params = {.devs = &p->dev,
                                    .dev_count = 1,
                                    .conf = gap__conf_values(set),
                                    .maker = how & 64 && !p->real ? GAP__MAKER_STEPPED : GAP__MAKER_OFF};
  FUZZ_CHECK(gap__heap_create(&params, &p->heap) == 0);
  gap__conf_free(set);
}

static void run_out(struct play *p) {
  static const gap_stream names[] = {0, 2, 1024, 2048};
  if (p->real) gap__host_run_all(p->dev);
  for (int i = 0; i < 4 && !p->real; i++) {
    gap__sim_stream_capture(p->dev, names[i], false);
    gap__sim_stream_release(p->dev, names[i]);
  }
  if (p->real) return;
  gap__sim_neighbour_set(p->dev, 0); /* to drain the device takes a little memory */
  gap__sim_clock_advance(p->dev, 1000000000);
}

/* On a card that is full to the last byte memory stays when nothing but a drained device can tell that it is out of use: to drain it
 * takes an allocation. */
static bool may_stay(struct play *p) {
  uint64_t free_bytes = 0, total_bytes = 0;
  FUZZ_CHECK(gap__dev_mem_info(p->dev, &free_bytes, &total_bytes) == 0);
  return free_bytes == 0;
}

/* Everything is freed and released: nothing may stay. */
static void finish(struct play *p) {
  uint64_t bytes;
  for (int i = 0; i < SLOTS; i++) release(p, &p->slots[i]);
  for (uint8_t i = 0; i < 2; i++) { /* a pool in use without a count is pinned: one more turn releases it */
    FUZZ_CHECK(gap__heap_pool_retain(p->heap, 0, pool((uint8_t)(i + 1))) == 0);
    for (p->pool_uses[i]++; p->pool_uses[i]; p->pool_uses[i]--)
      FUZZ_CHECK(gap__heap_pool_release(p->heap, 0, pool((uint8_t)(i + 1))) == 0);
  }
  run_out(p);
  for (int i = 0; i < 3; i++) FUZZ_CHECK(gap__heap_trim(p->heap, 0, pool(0), &bytes) == 0);
  check(p);
  struct gap__stats stats;
  FUZZ_CHECK(gap__heap_stats(p->heap, 0, &stats) == 0);
  FUZZ_CHECK(stats.active_bytes[0].current == 0 && stats.requested_bytes[0].current == 0);
  if (p->real) FUZZ_CHECK(gap__host_faults(p->dev) == 0);
  if (stats.reserved_bytes[0].current && may_stay(p)) return;
  FUZZ_CHECK(stats.reserved_bytes[0].current == 0);
  if (p->real) FUZZ_CHECK(gap__host_chunk_bytes(p->dev) == 0);
  else FUZZ_CHECK(gap__sim_chunk_bytes(p->dev) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct play p = {.data = data, .left = bytes};
  create(&p, byte(&p));
  for (int i = 0; i < OPERATIONS && p.left; i++) {
    step(&p);
    if (i % CHECK_EVERY == 0) check(&p);
  }
  finish(&p);
  gap__heap_destroy(p.heap);
  return 0;
}
