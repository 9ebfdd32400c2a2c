/* The life of a heap: threads at its beginning and beside every call, and the process's own heap. */
#include <pthread.h>

#include "support/api_try.h"

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 300 };

struct crowd {
  gap_heap *heap;
  pthread_barrier_t start;
  gap_pool_id pool;
};

static void *allocate(void *arg) {
  struct crowd *crowd = arg;
  gap_addr addrs[8];
  pthread_barrier_wait(&crowd->start);
  for (int i = 0; i < 8; i++) {
    if (gap_alloc_in(crowd->heap, i & 1, 8, i & 2 ? crowd->pool : NONE, 3 * MIB, &addrs[i])) return arg;
    memset((void *)(uintptr_t)addrs[i], i, 4096);
  }
  for (int i = 0; i < 8; i++)
    if (*(unsigned char *)(uintptr_t)addrs[i] != i || gap_free(crowd->heap, addrs[i])) return arg;
  return NULL;
}

static void run(void *(*work)(void *), struct crowd *crowd) {
  pthread_t threads[THREADS];
  void *wrong;
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, crowd), 0);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], &wrong);
    assert_null(wrong);
  }
}

/* All want the same devices at the same moment; each is opened once. */
static void opened_by_many(void **state) {
  (void)state;
  for (int i = 0; i < 20; i++) {
    struct crowd crowd = {.heap = api_open(GAP_BACKEND_HOST, 0, NULL), .pool = {3, 3}};
    pthread_barrier_init(&crowd.start, NULL, THREADS);
    for (int d = 0; d < 2; d++)
      assert_int_equal(gap_pool_adopt(crowd.heap, d, GAP_POOL_CONTIGUOUS, NULL, crowd.pool), 0);
    run(allocate, &crowd);
    for (int d = 0; d < 2; d++) assert_int_equal(api_usage(crowd.heap, d).live_bytes, 0);
    pthread_barrier_destroy(&crowd.start);
    api_close(crowd.heap);
  }
}

static int count_block(void *arg, const gap_block *block) {
  *(uint64_t *)arg += block->bytes;
  return 0;
}

/* Everything that may be called at any time, while others allocate. */
static void *meddle(void *arg) {
  static _Atomic unsigned number;
  static const char *const confs[] = {"grow_limit:1.2", "roundup_power2_divisions:4", "strategy:caching_allocator", ""};
  struct crowd *crowd = arg;
  unsigned me = number++;
  char text[4000];
  pthread_barrier_wait(&crowd->start);
  for (unsigned i = 0; i < ROUNDS; i++) {
    gap_heap *heap = crowd->heap;
    gap_usage usage = {.size = sizeof usage};
    gap_pool_id pool;
    gap_addr addr = 0;
    gap_block block;
    uint64_t sum = 0;
    gap_alloc(heap, 0, 8 * (me & 1), (uint64_t)(i % 7 + 1) * 700000, &addr);
    if (addr && gap_find_block(heap, addr + 5, &block, NULL)) return arg;
    switch ((i + me) % 12) {
      case 0: gap_configure(heap, confs[i % 4]); break;
      case 1: gap_set_cap(heap, 0, i & 1 ? 0 : 4 * MIB); break;
      case 2: gap_set_reserve(heap, 0, i * MIB % 50); break;
      case 3: gap_trim(heap, 0, NONE, NULL); break;
      case 4: gap_get_usage(heap, 0, &usage); break;
      case 5: gap_summary(heap, 0, text, sizeof text, NULL); break;
      case 6: gap_walk(heap, 0, count_block, &sum); break;
      case 7: gap_explain(heap, 0, text, sizeof text, NULL); break;
      case 8: gap_set_oom(heap, NULL, NULL); break;
      case 9: gap_conf_value(heap, "grow_limit", text, sizeof text); break;
      case 10: gap_reset_peaks(heap, 0); break;
      default:
        if (gap_pool_create(heap, 0, i % 3, "x", &pool)) return arg;
        gap_addr mine = 0;
        if (gap_alloc_in(heap, 0, 8, pool, MIB, &mine) == GAP_ESTATE) return arg;
        if (gap_free(heap, mine) || gap_pool_release(heap, 0, pool)) return arg;
    }
    if (gap_record_stream(heap, addr, 24) || gap_free(heap, addr)) return arg;
  }
  return NULL;
}

static void anything_at_any_time(void **state) {
  (void)state;
  struct crowd crowd = {.heap = api_open(GAP_BACKEND_HOST, 400 * MIB, NULL)};
  pthread_barrier_init(&crowd.start, NULL, THREADS);
  run(meddle, &crowd);
  pthread_barrier_destroy(&crowd.start);
  assert_int_equal(gap_configure(crowd.heap, ""), 0);
  assert_int_equal(api_usage(crowd.heap, 0).live_bytes, 0);
  api_close(crowd.heap);
}

/* ---- the process's own heap ---- */

/* Where there is a driver it works, elsewhere it says so; either way frees after the end are harmless. */
static void default_heap(void **state) {
  (void)state;
  gap_heap *heap = NULL, *again = NULL;
  void *memory = &heap;
  gap_shutdown(); /* there is none */
  assert_int_equal(gap_mfree(NULL, 0), 0);
  assert_int_equal(gap_mfree(&heap, 0), GAP_ENOTMINE);
  int rc = gap_heap_default(&heap);
  assert_true(rc == 0 || rc == GAP_ENOTSUP || rc == GAP_EDEVICE);
  if (rc) {
    assert_null(heap);
    assert_int_equal(gap_malloc(&memory, 100, 0), rc);
    assert_null(memory);
    return;
  }
  assert_int_equal(gap_heap_default(&again), 0);
  assert_ptr_equal(heap, again);
  assert_int_equal(gap_malloc(&memory, 100, 0), 0);
  assert_non_null(memory);
  assert_int_equal(gap_mfree(memory, 0), 0);
  assert_int_equal(gap_mfree(memory, 0), GAP_EFREED);
  gap_shutdown();
  gap_shutdown();
  assert_int_equal(gap_mfree(memory, 0), GAP_ENOTMINE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(opened_by_many),
      cmocka_unit_test(anything_at_any_time),
      cmocka_unit_test(default_heap),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
