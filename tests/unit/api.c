/* The C interface: heaps, blocks, streams; every documented error. */
#include "support/api_try.h"

/* ---- heaps ---- */

static void refused(gap_heap_options options, int rc) {
  gap_heap *heap = NULL;
  assert_int_equal(gap_heap_create(&options, &heap), rc);
  assert_null(heap);
}

static void options_are_checked(void **state) {
  (void)state;
  gap_heap_options good = GAP_HEAP_OPTIONS_INIT, o;
  gap_heap *heap = NULL;
  good.backend = GAP_BACKEND_SIM;
  good.flags = GAP_HEAP_NO_ENVIRONMENT;
  assert_int_equal(gap_heap_create(NULL, &heap), GAP_EINVAL);
  o = good, o.size = 8, refused(o, GAP_EINVAL);
  o = good, o.size = sizeof o + 8, refused(o, GAP_EINVAL);
  o = good, o.backend = (gap_backend)7, refused(o, GAP_EINVAL);
  o = good, o.flags = 64, refused(o, GAP_EINVAL);
  o = good, o.device_count = 65, refused(o, GAP_EINVAL);
  o = good, o.device_count = -1, refused(o, GAP_EINVAL);
  o = good, o.device_bytes = 4096, refused(o, GAP_EINVAL);
  o = good, o.conf = "max_memory:banana", refused(o, GAP_EVALUE);
  o = good, o.conf = "strict:True,max_memroy:2G", refused(o, GAP_EKEY);
  o = good, o.backend = GAP_BACKEND_CUDA, o.device_count = 1, refused(o, GAP_EINVAL);
  o = good, o.backend = GAP_BACKEND_CUDA, o.device_bytes = GIB, refused(o, GAP_EINVAL);
  o = good, o.device_count = 64, o.device_bytes = 3 * GIB;
  assert_int_equal(gap_heap_create(&o, &heap), 0);
  assert_int_equal(gap_device_count(heap), 64);
  api_close(heap);
  gap_heap_destroy(NULL);
}

static void devices_are_opened_when_wanted(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 0, NULL);
  gap_usage usage = {.size = sizeof usage};
  gap_addr addr;
  assert_int_equal(gap_get_usage(heap, 1, &usage), 0);
  assert_int_equal(usage.card_total_bytes, 0);
  assert_int_equal(gap_free(heap, 0x123400), GAP_ENOTMINE);
  assert_int_equal(gap_alloc(heap, 1, 0, MIB, &addr), 0);
  assert_int_equal(gap_get_usage(heap, 1, &usage), 0);
  assert_int_equal(usage.card_total_bytes, GIB);
  assert_int_equal(usage.live_bytes, MIB);
  assert_int_equal(gap_get_usage(heap, 0, &usage), 0);
  assert_int_equal(usage.card_total_bytes, 0);
  memset((void *)(uintptr_t)addr, 7, MIB); /* the host backend's addresses may be used */
  assert_int_equal(gap_free(heap, addr), 0);
  api_close(heap);
}

/* ---- blocks ---- */

static void allocation(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, NULL);
  gap_addr a = 5, b = 5;
  assert_int_equal(gap_alloc(heap, 0, 0, 0, &a), 0);
  assert_int_equal(a, 0);
  assert_int_equal(gap_free(heap, 0), 0);
  assert_int_equal(gap_record_stream(heap, 0, 7), 0);
  assert_int_equal(gap_free_on(heap, 0, 7), 0);
  a = 5;
  assert_int_equal(gap_alloc(heap, 0, 0, (uint64_t)1 << 60, &a), GAP_ETOOBIG);
  assert_int_equal(a, 0);
  a = 5;
  assert_int_equal(gap_alloc(heap, 2, 0, 512, &a), GAP_EINVAL);
  assert_int_equal(gap_alloc(heap, -1, 0, 512, &a), GAP_EINVAL);
  assert_int_equal(a, 0);
  a = 5;
  assert_int_equal(gap_alloc(heap, 0, 0, 100 * GIB, &a), GAP_ENOMEM);
  assert_int_equal(a, 0);
  assert_int_equal(gap_alloc(heap, 0, 0, 1, &a), 0);
  assert_int_equal(gap_alloc(heap, 1, 3, 513, &b), 0);
  assert_int_equal(a % 512, 0);
  assert_int_equal(api_stat(heap, 0, "allocated_bytes.all.current"), 512);
  assert_int_equal(api_stat(heap, 1, "allocated_bytes.all.current"), 1024);
  assert_int_equal(gap_free(heap, a + 512), GAP_EFREED);
  assert_int_equal(gap_free(heap, a), 0);
  assert_int_equal(gap_free(heap, a), GAP_EFREED);
  assert_int_equal(gap_free_on(heap, a, 3), GAP_EFREED);
  assert_int_equal(gap_record_stream(heap, a, 3), GAP_EFREED);
  assert_int_equal(gap_free(heap, (gap_addr)1 << 60), GAP_ENOTMINE);
  assert_int_equal(gap_record_stream(heap, (gap_addr)1 << 60, 1), GAP_ENOTMINE);
  assert_int_equal(gap_free(heap, b), 0);
  assert_int_equal(gap_retire_stream(heap, 0, 3), 0);
  assert_int_equal(gap_retire_stream(heap, 9, 3), GAP_EINVAL);
  api_close(heap);
}

/* A block freed on another stream than its own waits for that stream. */
static void freed_on_another_stream(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "reserve:0");
  gap_addr a = api_get(heap, 0, MIB);
  assert_int_equal(gap_free_on(heap, a, 0), 0); /* its own: free at once */
  assert_int_equal(api_usage(heap, 0).pending_bytes, 0);
  a = api_get(heap, 0, MIB);
  assert_int_equal(gap_record_stream(heap, a, 1), 0); /* 0 and 1 are one stream */
  api_give(heap, a);
  assert_int_equal(api_usage(heap, 0).pending_bytes, 0);
  a = api_get(heap, 8, MIB);
  assert_int_equal(gap_free_on(heap, a, 16), 0);
  gap_usage usage = api_usage(heap, 0);
  assert_int_equal(usage.pending_bytes, MIB);
  assert_int_equal(usage.live_bytes, 0);
  assert_int_equal(gap_free(heap, a), GAP_EFREED);
  assert_int_equal(gap_trim(heap, 0, NONE, NULL), 0);
  assert_int_equal(api_usage(heap, 0).pending_bytes, 0);
  api_close(heap);
}

static void find_block(void **state) {
  (void)state;
  const char *strategies[] = {"", "strategy:caching_allocator"};
  for (int i = 0; i < 2; i++) {
    gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, strategies[i]);
    gap_block block;
    int device = -1;
    gap_addr addr, other;
    assert_int_equal(gap_alloc(heap, 1, 24, 5 * MIB, &other), 0);
    assert_int_equal(gap_alloc(heap, 1, 24, 3 * MIB + 700, &addr), 0);
    gap_addr inside[] = {addr, addr + 1, addr + 3 * MIB, addr + 3 * MIB + 1023};
    for (int n = 0; n < 4; n++) {
      assert_int_equal(gap_find_block(heap, inside[n], &block, &device), 0);
      assert_int_equal(device, 1);
      assert_int_equal(block.addr, addr);
      assert_int_equal(block.requested, 3 * MIB + 700);
      assert_true(block.bytes >= 3 * MIB + 1024);
      assert_int_equal(block.stream, 24);
      assert_int_equal(block.state, GAP_BLOCK_LIVE);
      assert_int_equal(block.is_large, 1);
      assert_true(block.segment <= addr && addr + block.bytes <= block.segment + block.segment_bytes);
    }
    assert_int_equal(gap_find_block(heap, addr, &block, NULL), 0);
    assert_int_equal(gap_record_stream(heap, addr, 32), 0);
    assert_int_equal(gap_free(heap, addr), 0);
    assert_int_equal(gap_find_block(heap, addr + 99, &block, NULL), 0);
    assert_int_equal(block.state, GAP_BLOCK_PENDING);
    assert_int_equal(gap_free(heap, other), 0);
    assert_int_equal(gap_find_block(heap, other, &block, NULL), GAP_EFREED);
    assert_int_equal(gap_find_block(heap, 4096, &block, NULL), GAP_ENOTMINE);
    assert_int_equal(gap_find_block(heap, UINT64_MAX, &block, NULL), GAP_ENOTMINE);
    api_close(heap);
  }
}

static void codes_and_version(void **state) {
  (void)state;
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", GAP_VERSION_MAJOR, GAP_VERSION_MINOR, GAP_VERSION_PATCH);
  assert_string_equal(gap_version(), version);
  for (int code = GAP_EFORKED; code <= 0; code++) assert_true(strlen(gap_strerror(code)) > 5);
  assert_string_equal(gap_strerror(1), gap_strerror(-1000));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(options_are_checked), cmocka_unit_test(devices_are_opened_when_wanted),
      cmocka_unit_test(allocation),          cmocka_unit_test(freed_on_another_stream),
      cmocka_unit_test(find_block),          cmocka_unit_test(codes_and_version),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
