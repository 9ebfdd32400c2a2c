/* Regions: addresses that stay, memory part by part. */
#include "core/heap_region.h"

#include "support/api_try.h"

static void parts_have_memory_when_asked(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "reserve:0");
  struct gap__heap_region r;
  assert_int_equal(gap__heap_region_open(heap, 0, 0, "test", 256 * MIB, &r), 0);
  assert_int_equal(gap__heap_region_commit(&r, 1, 2 * MIB), GAP_EINVAL);
  assert_int_equal(gap__heap_region_commit(&r, 0, 0), GAP_EINVAL);
  assert_int_equal(gap__heap_region_commit(&r, 256 * MIB, 2 * MIB), GAP_EINVAL);
  for (uint64_t i = 0; i < 8; i++) {
    assert_int_equal(gap__heap_region_commit(&r, i * 32 * MIB, 8 * MIB), 0);
    memset((void *)(uintptr_t)(r.base + i * 32 * MIB), (int)i + 1, 8 * MIB);
    api_check(heap);
  }
  assert_int_equal(gap__heap_region_commit(&r, 32 * MIB, 8 * MIB), GAP_EAGAIN);
  assert_int_equal(gap__heap_region_commit(&r, 8 * MIB, 2 * MIB), GAP_ENOMEM);
  assert_int_equal(api_usage(heap, 0).live_bytes, 64 * MIB);
  for (uint64_t i = 0; i < 8; i++)
    assert_int_equal(*(unsigned char *)(uintptr_t)(r.base + i * 32 * MIB + 8 * MIB - 1), i + 1);
  for (uint64_t i = 0; i < 8; i += 2) api_give(heap, r.base + i * 32 * MIB);
  gap_addr other = api_get(heap, 5, 32 * MIB); /* its pages serve another stream */
  api_check(heap);
  for (uint64_t i = 1; i < 8; i += 2) api_give(heap, r.base + i * 32 * MIB);
  assert_int_equal(gap__heap_region_commit(&r, 100 * MIB, 32 * MIB), 0);
  api_give(heap, r.base + 100 * MIB);
  api_give(heap, other);
  gap__heap_region_close(&r);
  api_close(heap);
}

static void whoever_serves_the_rest(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, GIB, "strategy:caching_allocator,max_memory:64MiB");
  struct gap__heap_region r;
  assert_int_equal(gap__heap_region_open(heap, 0, 0, "test", GIB, &r), 0);
  gap_addr block = api_get(heap, 0, 30 * MIB);
  assert_int_equal(gap__heap_region_commit(&r, 0, 40 * MIB), GAP_ENOMEM); /* one cap for all */
  assert_int_equal(gap__heap_region_commit(&r, 0, 30 * MIB), 0);
  api_give(heap, r.base);
  api_give(heap, block);
  gap__heap_region_close(&r);
  api_close(heap);
}

static void its_lane_stays_its_own(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, GIB, NULL);
  struct gap__heap_region r, s;
  assert_int_equal(gap__heap_region_open(heap, 0, 0, "test", GIB, &r), 0);
  for (gap_stream stream = 100; stream < 600; stream++) { /* enough lanes for a sweep of empty ones */
    api_give(heap, api_get(heap, stream, MIB));
    uint64_t returned;
    assert_int_equal(gap_trim(heap, 0, NONE, &returned), 0);
    assert_int_equal(gap_retire_stream(heap, 0, stream), 0);
  }
  assert_int_equal(gap__heap_region_commit(&r, 0, 2 * MIB), 0);
  api_check(heap);
  assert_int_equal(gap__heap_region_open(heap, 0, 0, "test", GIB, &s), 0);
  assert_int_not_equal(r.base, s.base);
  api_give(heap, r.base);
  gap__heap_region_close(&r);
  gap__heap_region_close(&s);
  api_close(heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(parts_have_memory_when_asked),
                                     cmocka_unit_test(whoever_serves_the_rest),
                                     cmocka_unit_test(its_lane_stays_its_own)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
