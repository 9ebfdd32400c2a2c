/* Events: threads allocate and free, a model follows the events alone, and in the end the model and the walk must agree.
 * On the way the model refuses what cannot be: a block handed out twice, freed twice, or where no memory is. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gapless/gapless.h"

#define MIB ((uint64_t)1 << 20)
#define PAGE (2 * MIB)
enum { THREADS = 4, STEPS = 4000, SLOTS = 32, BLOCKS_MAX = 4096, PIECES_MAX = 4096 };

/* ---- the model ---- */

struct piece { /* of memory: a mapping or a segment */
  gap_addr addr;
  uint64_t bytes;
};

struct model {
  gap_event blocks[BLOCKS_MAX]; /* kind: the last event, ALLOC or FREE_REQUESTED */
  struct piece pieces[PIECES_MAX];
  uint32_t block_count, piece_count, events, ooms;
  uint64_t memory_bytes;
  const char *wrong;
  gap_event at;
};

static void blame(struct model *m, const gap_event *event, const char *what) {
  if (m->wrong) return;
  m->wrong = what;
  m->at = *event;
}

static gap_event *block_at(struct model *m, gap_addr addr) {
  for (uint32_t i = 0; i < m->block_count; i++)
    if (m->blocks[i].addr == addr) return &m->blocks[i];
  return NULL;
}

/* Bytes of [addr, addr + bytes) that have memory. */
static uint64_t covered(const struct model *m, gap_addr addr, uint64_t bytes) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < m->piece_count; i++) {
    gap_addr from = m->pieces[i].addr, to = from + m->pieces[i].bytes;
    if (from < addr) from = addr;
    if (to > addr + bytes) to = addr + bytes;
    if (from < to) sum += to - from;
  }
  return sum;
}

static bool overlaps(const struct model *m, gap_addr addr, uint64_t bytes) {
  for (uint32_t i = 0; i < m->block_count; i++)
    if (addr < m->blocks[i].addr + m->blocks[i].bytes && m->blocks[i].addr < addr + bytes) return true;
  return false;
}

static void add_block(struct model *m, const gap_event *event) {
  if (overlaps(m, event->addr, event->bytes)) blame(m, event, "handed out what is in use");
  if (covered(m, event->addr, event->bytes) != event->bytes) blame(m, event, "handed out where no memory is");
  if (event->requested > event->bytes || event->bytes % 512) blame(m, event, "a size that cannot be");
  if (m->block_count < BLOCKS_MAX) m->blocks[m->block_count++] = *event;
}

static void change_block(struct model *m, const gap_event *event) {
  gap_event *block = block_at(m, event->addr);
  bool requested = event->kind == GAP_EVENT_FREE_REQUESTED;
  if (!block || block->kind != (requested ? GAP_EVENT_ALLOC : GAP_EVENT_FREE_REQUESTED)) {
    blame(m, event, requested ? "freed what is not live" : "completed what was not freed");
    return;
  }
  if (block->bytes != event->bytes || block->requested != event->requested || block->stream != event->stream)
    blame(m, event, "another block than was handed out");
  if (requested) block->kind = event->kind;
  else *block = m->blocks[--m->block_count];
}

static void add_piece(struct model *m, const gap_event *event) {
  if (covered(m, event->addr, event->bytes)) blame(m, event, "mapped twice");
  if (m->piece_count < PIECES_MAX) m->pieces[m->piece_count++] = (struct piece){event->addr, event->bytes};
  m->memory_bytes += event->bytes;
}

static void drop_piece(struct model *m, const gap_event *event) {
  if (overlaps(m, event->addr, event->bytes)) blame(m, event, "unmapped under a block");
  for (uint32_t i = 0; i < m->piece_count; i++) {
    if (m->pieces[i].addr != event->addr || m->pieces[i].bytes != event->bytes) continue;
    m->pieces[i] = m->pieces[--m->piece_count];
    m->memory_bytes -= event->bytes;
    return;
  }
  blame(m, event, "unmapped what was not mapped");
}

static void follow(void *arg, const gap_event *event) {
  struct model *m = arg;
  m->events++;
  switch (event->kind) {
    case GAP_EVENT_ALLOC: add_block(m, event); break;
    case GAP_EVENT_FREE_REQUESTED:
    case GAP_EVENT_FREE_COMPLETED: change_block(m, event); break;
    case GAP_EVENT_SEGMENT_MAP:
    case GAP_EVENT_SEGMENT_ALLOC: add_piece(m, event); break;
    case GAP_EVENT_SEGMENT_UNMAP:
    case GAP_EVENT_SEGMENT_FREE: drop_piece(m, event); break;
    case GAP_EVENT_OOM: m->ooms++; break;
  }
}

/* ---- the walk beside it ---- */

struct comparison {
  struct model *model;
  uint32_t blocks;
  uint64_t memory_bytes;
  gap_addr missed;
};

static int compare_block(void *arg, const gap_block *block) {
  struct comparison *c = arg;
  if (block->state == GAP_BLOCK_HOLE) return 0;
  c->memory_bytes += block->bytes;
  if (covered(c->model, block->addr, block->bytes) != block->bytes) c->missed = block->addr;
  if (block->state == GAP_BLOCK_IDLE) return 0;
  const gap_event *known = block_at(c->model, block->addr);
  c->blocks++;
  bool same = known && known->bytes == block->bytes && known->requested == block->requested &&
              known->stream == block->stream && known->pool.first == block->pool.first &&
              (known->kind == GAP_EVENT_ALLOC) == (block->state == GAP_BLOCK_LIVE);
  if (!same) c->missed = block->addr;
  return 0;
}

static void agree(gap_heap *heap, struct model *m) {
  struct comparison c = {.model = m};
  if (m->wrong)
    fail_msg("%s: event %d at %#llx, %llu bytes", m->wrong, (int)m->at.kind, (unsigned long long)m->at.addr,
             (unsigned long long)m->at.bytes);
  assert_int_equal(gap_walk(heap, 0, compare_block, &c), 0);
  assert_int_equal(c.missed, 0);
  assert_int_equal(c.blocks, m->block_count);
  assert_int_equal(c.memory_bytes, m->memory_bytes);
}

/* ---- threads ---- */

struct shared {
  gap_heap *heap;
  gap_pool_id pool;
  pthread_mutex_t lock;
  gap_addr slots[SLOTS];
};

struct worker {
  struct shared *shared;
  uint64_t seed;
  pthread_t thread;
};

static uint64_t draw(struct worker *w, uint64_t below) {
  w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
  return (w->seed >> 33) % below;
}

/* The block that lies in a random slot goes, whoever made it. */
static gap_addr exchange(struct worker *w, gap_addr mine) {
  gap_addr *slot = &w->shared->slots[draw(w, SLOTS)];
  pthread_mutex_lock(&w->shared->lock);
  gap_addr old = *slot;
  *slot = mine;
  pthread_mutex_unlock(&w->shared->lock);
  return old;
}

static void *work(void *arg) {
  struct worker *w = arg;
  gap_heap *heap = w->shared->heap;
  for (int i = 0; i < STEPS; i++) {
    uint64_t bytes = draw(w, 4) ? draw(w, 64 * 1024) + 1 : draw(w, 6 * MIB) + 1;
    gap_pool_id pool = draw(w, 8) ? (gap_pool_id){0, 0} : w->shared->pool;
    gap_addr addr;
    if (gap_alloc_in(heap, 0, 8 * (1 + draw(w, 2)), pool, bytes, &addr)) addr = 0;
    if (addr && !draw(w, 4)) gap_record_stream(heap, addr, 8 * (1 + draw(w, 3)));
    addr = exchange(w, addr);
    if (gap_free(heap, addr)) return w;
    if (!draw(w, 500)) gap_trim(heap, 0, (gap_pool_id){0, 0}, NULL);
  }
  return NULL;
}

static void run(gap_heap *heap, gap_pool_id pool, gap_addr left[SLOTS]) {
  struct shared shared = {.heap = heap, .pool = pool, .lock = PTHREAD_MUTEX_INITIALIZER};
  struct worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){.shared = &shared, .seed = (uint64_t)i + 1};
    assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    void *failed;
    pthread_join(workers[i].thread, &failed);
    assert_null(failed);
  }
  memcpy(left, shared.slots, sizeof shared.slots);
}

static void follow_threads(const char *conf, bool tight) {
  static struct model model;
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  gap_heap *heap;
  gap_pool_id pool;
  gap_addr left[SLOTS];
  char text[300];
  int64_t ooms, moved;
  memset(&model, 0, sizeof model);
  options.backend = GAP_BACKEND_HOST;
  options.flags = GAP_HEAP_NO_ENVIRONMENT;
  options.device_bytes = 256 * MIB;
  options.conf = conf;
  assert_int_equal(gap_heap_create(&options, &heap), 0);
  assert_int_equal(gap_set_events(heap, follow, &model), 0);
  assert_int_equal(gap_pool_create(heap, 0, GAP_POOL_PRIVATE, "own", &pool), 0);
  run(heap, pool, left);
  agree(heap, &model);
  assert_true(model.events > 2 * THREADS * STEPS);
  assert_int_equal(gap_stat(heap, 0, "num_ooms", &ooms), 0);
  assert_int_equal(gap_stat(heap, 0, "num_device_free", &moved), 0);
  assert_int_equal(model.ooms, ooms);
  if (tight) assert_true(ooms > 0 && moved > 0);
  for (int i = 0; i < SLOTS; i++) assert_int_equal(gap_free(heap, left[i]), 0);
  assert_int_equal(gap_pool_release(heap, 0, pool), 0);
  assert_int_equal(gap_trim(heap, 0, (gap_pool_id){0, 0}, NULL), 0);
  agree(heap, &model);
  assert_int_equal(model.block_count, 0);
  if (gap_check(heap, 0, text, sizeof text)) fail_msg("%s", text);

  uint32_t heard = model.events;
  gap_addr addr;
  assert_int_equal(gap_set_events(heap, NULL, NULL), 0);
  assert_int_equal(gap_alloc(heap, 0, 0, MIB, &addr), 0);
  assert_int_equal(gap_free(heap, addr), 0);
  assert_int_equal(model.events, heard);
  gap_heap_destroy(heap);
  assert_int_equal(model.events, heard);
}

static void plenty(void **state) {
  (void)state;
  follow_threads(NULL, false);
}
static void scarce(void **state) {
  (void)state;
  follow_threads("max_memory:60MiB", true); /* pages are stolen, requests fail */
}
static void native(void **state) {
  (void)state;
  follow_threads("strategy:caching_allocator", false);
}
static void native_scarce(void **state) {
  (void)state;
  follow_threads("strategy:caching_allocator,max_memory:80MiB", true);
}

/* ---- what an event says ---- */

struct heard {
  gap_event events[64];
  uint32_t count;
};

static void keep(void *arg, const gap_event *event) {
  struct heard *h = arg;
  if (h->count < 64) h->events[h->count++] = *event;
}

static const gap_event *last(const struct heard *h) { return &h->events[h->count - 1]; }

static void fields(void **state) {
  (void)state;
  static struct heard h;
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  gap_heap *heap;
  gap_addr a, b;
  options.backend = GAP_BACKEND_SIM;
  options.flags = GAP_HEAP_NO_ENVIRONMENT;
  options.device_count = 2;
  options.device_bytes = 64 * MIB;
  options.conf = "reserve:0";
  assert_int_equal(gap_heap_create(&options, &heap), 0);
  assert_int_equal(gap_set_events(heap, keep, &h), 0);
  assert_int_equal(gap_alloc(heap, 1, 40, 3 * MIB + 1, &a), 0);
  assert_int_equal(h.events[0].kind, GAP_EVENT_SEGMENT_MAP);
  const gap_event *alloc = last(&h);
  assert_int_equal(alloc->kind, GAP_EVENT_ALLOC);
  assert_int_equal(alloc->device, 1);
  assert_int_equal(alloc->addr, a);
  assert_int_equal(alloc->bytes, 3 * MIB + 512);
  assert_int_equal(alloc->requested, 3 * MIB + 1);
  assert_int_equal(alloc->stream, 40);
  assert_int_equal(gap_alloc(heap, 1, 40, 100 * MIB, &b), GAP_ENOMEM);
  assert_int_equal(last(&h)->kind, GAP_EVENT_OOM);
  assert_int_equal(last(&h)->addr, 60 * MIB);
  assert_int_equal(last(&h)->bytes, 100 * MIB);
  assert_int_equal(gap_free(heap, a), 0);
  assert_int_equal(h.events[h.count - 2].kind, GAP_EVENT_FREE_REQUESTED);
  assert_int_equal(last(&h)->kind, GAP_EVENT_FREE_COMPLETED);
  assert_int_equal(last(&h)->requested, 3 * MIB + 1);
  gap_heap_destroy(heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plenty),        cmocka_unit_test(scarce), cmocka_unit_test(native),
      cmocka_unit_test(native_scarce), cmocka_unit_test(fields),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
