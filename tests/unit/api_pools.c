/* Pools of the C interface: private, shared, contiguous. */
#include "support/api_try.h"

static gap_pool_id make(gap_heap *heap, unsigned flags, const char *tag) {
  gap_pool_id id = {0, 0};
  assert_int_equal(gap_pool_create(heap, 0, flags, tag, &id), 0);
  assert_true(id.first != 0 && id.second != 0); /* never one of torch's */
  return id;
}

static void arguments(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, NULL);
  gap_pool_id id = {9, 9}, unknown = {77, 0};
  gap_addr addr;
  assert_int_equal(gap_pool_create(heap, 0, GAP_POOL_SHARED | GAP_POOL_CONTIGUOUS, NULL, &id), GAP_EINVAL);
  assert_int_equal(gap_pool_create(heap, 0, 8, NULL, &id), GAP_EINVAL);
  assert_int_equal(gap_pool_create(heap, 2, 0, NULL, &id), GAP_EINVAL);
  assert_int_equal(id.first, 9);
  assert_int_equal(gap_pool_adopt(heap, 0, 0, NULL, NONE), GAP_EINVAL);
  assert_int_equal(gap_pool_adopt(heap, 0, 3, NULL, unknown), GAP_EINVAL);
  assert_int_equal(gap_pool_adopt(heap, -1, 0, NULL, unknown), GAP_EINVAL);
  assert_int_equal(gap_pool_retain(heap, 0, unknown), GAP_ESTATE);
  assert_int_equal(gap_pool_behave(heap, 0, unknown, GAP_POOL_NO_SPLIT), GAP_ESTATE);
  assert_int_equal(gap_pool_behave(heap, 0, unknown, 4), GAP_EINVAL);
  assert_int_equal(gap_pool_release(heap, 0, unknown), GAP_ESTATE);
  assert_int_equal(gap_pool_retain(heap, 0, NONE), GAP_EINVAL);
  assert_int_equal(gap_pool_release(heap, 5, unknown), GAP_EINVAL);
  assert_int_equal(gap_alloc_in(heap, 0, 0, unknown, 512, &addr), GAP_ESTATE);
  char why[200];
  assert_int_equal(gap_explain(heap, 0, why, sizeof why, NULL), 0);
  assert_non_null(strstr(why, "the pool that the request is for is not in use"));
  assert_int_equal(addr, 0);
  assert_int_equal(gap_alloc_in(heap, 2, 0, unknown, 512, &addr), GAP_EINVAL);
  assert_int_equal(gap_alloc_in(heap, 0, 0, NONE, 512, &addr), 0);
  api_close(heap);
}

/* A use count: adopted twice, retained, released as often. */
static void use_count(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, NULL);
  gap_pool_id graph = {4, 0};
  gap_addr addr;
  assert_int_equal(gap_pool_adopt(heap, 0, GAP_POOL_PRIVATE, "graph", graph), 0);
  assert_int_equal(gap_pool_adopt(heap, 0, GAP_POOL_PRIVATE, NULL, graph), 0);
  assert_int_equal(gap_pool_adopt(heap, 0, GAP_POOL_SHARED, NULL, graph), GAP_ESTATE);
  assert_int_equal(gap_pool_retain(heap, 0, graph), 0);
  assert_int_equal(gap_alloc_in(heap, 1, 0, graph, 512, &addr), GAP_ESTATE); /* pools are a device's */
  for (int i = 0; i < 3; i++) {
    api_give(heap, api_get_in(heap, 0, graph, MIB));
    assert_int_equal(gap_pool_release(heap, 0, graph), 0);
  }
  assert_int_equal(gap_alloc_in(heap, 0, 0, graph, MIB, &addr), GAP_ESTATE);
  assert_int_equal(gap_pool_release(heap, 0, graph), GAP_ESTATE);
  assert_int_equal(gap_pool_adopt(heap, 0, GAP_POOL_SHARED, NULL, graph), 0); /* other flags, now that it is free */
  api_close(heap);
}

/* As PyTorch's pools: whole blocks, and a last resort of the default pool. */
static void behaviour(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, "strategy:caching_allocator");
  gap_pool_id pool;
  gap_addr addr;
  assert_int_equal(gap_pool_create(heap, 0, GAP_POOL_PRIVATE, NULL, &pool), 0);
  assert_int_equal(gap_pool_behave(heap, 0, pool, GAP_POOL_NO_SPLIT | GAP_POOL_USE_ON_OOM), 0);
  gap_addr a = api_get_in(heap, 0, pool, 3 * MIB);
  assert_int_equal(api_usage(heap, 0).live_bytes, 20 * MIB);
  api_give(heap, a);
  assert_int_equal(gap_set_cap(heap, 0, 20 * MIB), 0);
  assert_int_equal(gap_alloc(heap, 0, 0, 10 * MIB, &addr), 0);
  assert_int_equal(addr, a);
  api_give(heap, addr);
  assert_int_equal(gap_pool_behave(heap, 0, pool, 0), 0);
  assert_int_equal(gap_alloc(heap, 0, 0, 10 * MIB, &addr), GAP_ENOMEM);
  assert_int_equal(gap_pool_release(heap, 0, pool), 0);
  api_close(heap);
}

/* Only the pool itself is served from its idle pages; with release they are anybody's. */
static void private_pool(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, "max_memory:20MiB");
  gap_pool_id pool = make(heap, GAP_POOL_PRIVATE, "graph");
  gap_addr addr, a = api_get_in(heap, 8, pool, 16 * MIB);
  api_give(heap, a);
  assert_int_equal(gap_alloc(heap, 0, 8, 16 * MIB, &addr), GAP_ENOMEM);
  uint64_t returned = 7;
  assert_int_equal(gap_trim(heap, 0, NONE, &returned), 0);
  assert_int_equal(returned, 0);
  assert_true(api_get_in(heap, 8, pool, 16 * MIB) == a);
  assert_int_equal(gap_pool_release(heap, 0, pool), 0);
  assert_int_equal(gap_alloc(heap, 0, 8, 16 * MIB, &addr), GAP_ENOMEM); /* the block lives on */
  api_give(heap, a);
  api_get(heap, 8, 16 * MIB);
  api_close(heap);
}

/* Blocks lie apart, idle pages serve everybody, and are given back. */
static void shared_pool(void **state) {
  (void)state;
  const char *strategies[] = {"max_memory:20MiB", "max_memory:20MiB,strategy:caching_allocator"};
  for (int i = 0; i < 2; i++) {
    gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, strategies[i]);
    gap_pool_id pool = make(heap, GAP_POOL_SHARED, "weights");
    api_give(heap, api_get_in(heap, 8, pool, 16 * MIB));
    api_give(heap, api_get(heap, 8, 16 * MIB));
    api_give(heap, api_get(heap, 16, 16 * MIB));
    api_give(heap, api_get_in(heap, 8, pool, 16 * MIB));
    uint64_t returned = 0;
    assert_int_equal(gap_trim(heap, 0, pool, &returned), 0);
    assert_int_equal(returned, 16 * MIB);
    assert_int_equal(gap_trim(heap, 0, NONE, NULL), 0);
    assert_int_equal(api_usage(heap, 0).held_bytes, 0);
    api_give(heap, api_get_in(heap, 8, pool, MIB));
    assert_int_equal(gap_pool_release(heap, 0, pool), 0);
    api_close(heap);
  }
}

/* Each block lies in one driver allocation, whatever strategy serves the rest; what lies idle elsewhere is given back when
 * the pool needs it, and the other way round once the pool was released. */
static void contiguous_pool(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, "max_memory:64MiB");
  gap_pool_id pool = make(heap, GAP_POOL_CONTIGUOUS, "nccl");
  gap_block block;
  gap_addr a = api_get_in(heap, 8, pool, 30 * MIB); /* the device's first: it opens it */
  assert_int_equal(api_stat(heap, 0, "driver.segment_alloc.calls"), 1);
  assert_int_equal(api_stat(heap, 0, "driver.chunk_create.calls"), 0);
  assert_int_equal(gap_find_block(heap, a + 29 * MIB, &block, NULL), 0);
  assert_true(block.segment <= a && a + 30 * MIB <= block.segment + block.segment_bytes);
  assert_int_equal(block.pool.first, pool.first);
  api_give(heap, a);
  assert_true(api_get_in(heap, 8, pool, 30 * MIB) == a);
  gap_addr others = api_get(heap, 8, 30 * MIB), more;
  assert_true(api_stat(heap, 0, "driver.chunk_create.calls") > 0);
  assert_int_equal(gap_alloc_in(heap, 0, 8, pool, 30 * MIB, &more), GAP_ENOMEM);
  api_give(heap, others);
  more = api_get_in(heap, 8, pool, 30 * MIB);
  api_check(heap);
  api_give(heap, more);
  api_give(heap, a);
  assert_int_equal(gap_alloc(heap, 0, 8, 60 * MIB, &others), GAP_ENOMEM);
  assert_int_equal(gap_pool_release(heap, 0, pool), 0);
  others = api_get(heap, 8, 60 * MIB);
  assert_int_equal(gap_free(heap, a), GAP_ENOTMINE); /* its segment is gone */
  api_close(heap);
}

static void contiguous_pools_leave_nothing(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, NULL);
  for (int i = 0; i < 50; i++) {
    gap_pool_id pool = make(heap, GAP_POOL_CONTIGUOUS, NULL);
    gap_addr a = api_get_in(heap, 8, pool, 30 * MIB), b = api_get_in(heap, 8, pool, 3000);
    api_give(heap, a), api_give(heap, b);
    assert_int_equal(gap_pool_release(heap, 0, pool), 0);
    assert_int_equal(api_stat(heap, 0, "reserved_bytes.all.current"), 0);
  }
  api_check(heap);
  api_close(heap);
}

static void tags_in_the_summary(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, NULL);
  char text[8000];
  gap_pool_id short_tag = make(heap, GAP_POOL_PRIVATE, "graph 1"), long_tag, none = make(heap, GAP_POOL_PRIVATE, NULL);
  long_tag = make(heap, GAP_POOL_SHARED, "a tag that is longer than thirty-one bytes are");
  api_get_in(heap, 8, short_tag, MIB), api_get_in(heap, 8, long_tag, MIB), api_get_in(heap, 8, none, MIB);
  assert_int_equal(gap_summary(heap, 0, text, sizeof text, NULL), 0);
  assert_non_null(strstr(text, "graph 1 ("));
  assert_non_null(strstr(text, "a tag that is longer than thirt ("));
  api_close(heap);
}

/* A pool of the caller's that has one of our numbers does not confuse us. */
static void foreign_numbers(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, NULL);
  gap_pool_id mine = make(heap, GAP_POOL_PRIVATE, NULL);
  for (uint64_t i = 1; i < 6; i++)
    assert_int_equal(gap_pool_adopt(heap, 0, 0, NULL, (gap_pool_id){mine.first + i, mine.first + i}), 0);
  gap_pool_id next = make(heap, GAP_POOL_PRIVATE, NULL);
  assert_true(next.first > mine.first + 5);
  for (int i = 0; i < 1000; i++) {
    gap_pool_id id = make(heap, GAP_POOL_PRIVATE, NULL);
    if (i < 20) api_give(heap, api_get_in(heap, 8, id, 512));
    assert_int_equal(gap_pool_release(heap, 0, id), 0);
  }
  api_close(heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(arguments),
      cmocka_unit_test(use_count),
      cmocka_unit_test(behaviour),
      cmocka_unit_test(private_pool),
      cmocka_unit_test(shared_pool),
      cmocka_unit_test(contiguous_pool),
      cmocka_unit_test(contiguous_pools_leave_nothing),
      cmocka_unit_test(tags_in_the_summary),
      cmocka_unit_test(foreign_numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
