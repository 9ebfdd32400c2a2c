/* Blocks at given addresses: what was live in a pool can be had again, and nothing else can. */
#include "core/heap_share.h"
#include "support/gapless_try.h"

#define POOL ((gap_pool_id){7, 0})

static void pool_begin(struct try *t) { assert_int_equal(gap__heap_pool_retain(t->heap, 0, POOL), 0); }

static int at(struct try *t, gap_addr addr, uint64_t bytes) { return gap__heap_alloc_at(t->heap, addr, bytes); }

static void again(struct try *t, gap_addr addr, uint64_t bytes) {
  assert_int_equal(at(t, addr, bytes), 0);
  try_check(t);
}

static struct gap__block_info block_of(struct try *t, gap_addr addr) {
  struct gap__block_info info = {0};
  assert_int_equal(gap__heap_find(t->heap, addr, &info, NULL), 0);
  return info;
}

static void a_freed_block_comes_back_as_it_was(void **state) {
  (void)state;
  struct try t = try_sim("");
  pool_begin(&t);
  gap_addr a = try_get_pool(&t, STREAM_A, POOL, 5 * MIB + 100);
  struct gap__block_info before = block_of(&t, a);
  uint64_t held = try_held(&t);
  try_give(&t, a);
  again(&t, a, 5 * MIB + 100);
  struct gap__block_info after = block_of(&t, a);
  assert_memory_equal(&before, &after, sizeof before);
  assert_int_equal(try_held(&t), held);
  assert_int_equal(try_stats(&t)->allocation[GAP__KIND_ALL].current, 1);
  assert_int_equal(t.stats.requested_bytes[GAP__KIND_ALL].current, 5 * MIB + 100);
  try_give(&t, a);
  try_end(&t);
}

/* As a checkpoint does it: all goes, what was live then comes back, whatever the order. */
static void whole_layout(const char *conf) {
  enum { COUNT = 40 };
  struct try t = try_sim(conf);
  pool_begin(&t);
  gap_addr addr[COUNT];
  uint64_t bytes[COUNT], seed = 11;
  for (int i = 0; i < COUNT; i++) {
    bytes[i] = try_log_uniform(&seed, 512, 9 * MIB);
    addr[i] = try_get_pool(&t, i % 2 ? STREAM_A : STREAM_B, POOL, bytes[i]);
  }
  uint64_t held = try_held(&t);
  int64_t live = try_stats(&t)->allocated_bytes[GAP__KIND_ALL].current;
  for (int i = 0; i < COUNT; i++) try_give(&t, addr[i]);
  gap_addr other = try_get_pool(&t, STREAM_B, POOL, 3 * MIB); /* a layout of another kind in between */
  try_give(&t, other);
  for (int i = COUNT; i-- > 0;) again(&t, addr[(i * 7) % COUNT], bytes[(i * 7) % COUNT]);
  assert_int_equal(try_stats(&t)->allocated_bytes[GAP__KIND_ALL].current, live);
  assert_int_equal(try_held(&t), held);
  for (int i = 0; i < COUNT; i++) try_give(&t, addr[i]);
  try_end(&t);
}

static void a_whole_layout_comes_back(void **state) {
  (void)state;
  whole_layout("");
}

static void a_whole_layout_of_segments_comes_back(void **state) {
  (void)state;
  whole_layout("caching_allocator");
}

/* Of a segment: its low end, its middle, and what is too much. */
static void a_segment_is_cut_where_it_must(void **state) {
  (void)state;
  struct try t = try_sim("caching_allocator");
  pool_begin(&t);
  gap_addr a = try_get_pool(&t, STREAM_A, POOL, 3 * MIB); /* of 20 MiB */
  assert_int_equal(at(&t, a + 4 * MIB, 17 * MIB), GAP_EAGAIN);
  again(&t, a + 8 * MIB, 2 * MIB);
  assert_int_equal(try_stats(&t)->inactive_split[GAP__KIND_LARGE].current, 2);
  assert_int_equal(at(&t, a + 7 * MIB, 2 * MIB), GAP_EAGAIN);
  try_give(&t, a);
  again(&t, a + 512, MIB);
  try_give(&t, a + 512);
  try_give(&t, a + 8 * MIB);
  assert_int_equal(try_stats(&t)->inactive_split[GAP__KIND_LARGE].current, 0);
  assert_int_equal(at(&t, a + GIB, MIB), GAP_ENOTMINE);
  try_end(&t);
}

/* At the cap a pool moves pages inside itself; the old addresses are still the same bytes. */
static void moved_pages_come_back_with_their_bytes(void **state) {
  (void)state;
  struct try t = try_host(&(struct gap__host_params){.total_bytes = 64 * MIB}, "max_memory:20MiB", GAP__MAKER_OFF);
  pool_begin(&t);
  gap_addr a = try_get_pool(&t, STREAM_A, POOL, 8 * MIB), barrier = try_get_pool(&t, STREAM_A, POOL, 4 * MIB);
  memset((void *)(uintptr_t)a, 0x5a, 8 * MIB);
  try_give(&t, a);
  gap_addr b = try_get_pool(&t, STREAM_A, POOL, 16 * MIB);
  assert_int_equal(at(&t, a, 8 * MIB), GAP_EAGAIN); /* its memory is in use elsewhere */
  try_check(&t);
  try_give(&t, b);
  again(&t, a + 512, 2 * MIB);
  again(&t, a + 2 * MIB + 512, 6 * MIB - 512);
  for (uint64_t i = 512; i < 8 * MIB; i += 4096) assert_int_equal(*(unsigned char *)(uintptr_t)(a + i), 0x5a);
  assert_true(try_stats(&t)->pages_reclaimed_mapping >= 4);
  assert_int_equal(at(&t, b, 16 * MIB), GAP_EAGAIN);
  assert_int_equal(try_held(&t), 20 * MIB);
  try_give(&t, a + 512);
  try_give(&t, a + 2 * MIB + 512);
  again(&t, b, 16 * MIB); /* and the other way round */
  try_give(&t, b);
  try_give(&t, barrier);
  try_end(&t);
}

static void what_is_not_idle_is_refused(void **state) {
  (void)state;
  struct try t = try_sim("");
  pool_begin(&t);
  gap_addr a = try_get_pool(&t, STREAM_A, POOL, 4 * MIB), b = try_get_pool(&t, STREAM_A, POOL, 4 * MIB);
  assert_int_equal(at(&t, a, MIB), GAP_EAGAIN);
  try_give(&t, a);
  assert_int_equal(at(&t, a + 256, MIB), GAP_EINVAL);
  assert_int_equal(at(&t, a, 0), GAP_EINVAL);
  assert_int_equal(at(&t, a, UINT64_MAX), GAP_EINVAL);
  assert_int_equal(at(&t, a, (uint64_t)1 << 50), GAP_EAGAIN);
  assert_int_equal(at(&t, a, 4 * MIB + 512), GAP_EAGAIN); /* into b, wherever b lies: or into nothing */
  assert_int_equal(at(&t, 512, MIB), GAP_ENOTMINE);
  assert_int_equal(at(&t, a + GIB, MIB), GAP_EAGAIN); /* addresses without memory */
  try_check(&t);
  again(&t, a + MIB, MIB); /* in the middle */
  assert_int_equal(at(&t, a, 2 * MIB), GAP_EAGAIN);
  again(&t, a, MIB);
  try_give(&t, a);
  try_give(&t, a + MIB);
  try_give(&t, b);
  try_end(&t);
}

/* A small block that was freed last is kept whole for its size: it is idle all the same. */
static void cached_blocks_are_idle(void **state) {
  (void)state;
  struct try t = try_sim("");
  pool_begin(&t);
  gap_addr small = try_get_pool(&t, STREAM_A, POOL, 1024);
  try_give(&t, small);
  again(&t, small, 512);
  again(&t, small + 512, 512);
  try_give(&t, small);
  try_give(&t, small + 512);
  try_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_freed_block_comes_back_as_it_was),
      cmocka_unit_test(a_whole_layout_comes_back),
      cmocka_unit_test(a_whole_layout_of_segments_comes_back),
      cmocka_unit_test(a_segment_is_cut_where_it_must),
      cmocka_unit_test(moved_pages_come_back_with_their_bytes),
      cmocka_unit_test(what_is_not_idle_is_refused),
      cmocka_unit_test(cached_blocks_are_idle),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
