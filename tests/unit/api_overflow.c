/* Overflow through the C interface: the budget of the tiers, a CUDA driver that can and one that cannot, and what others may not have. */
#include "gapless/share.h"
#include "gapless/tier.h"
#include "support/api_try.h"
#include "support/fake_driver.h"

static void explained(gap_heap *heap, const char *words) {
  char text[1024];
  size_t needed;
  assert_int_equal(gap_explain(heap, 0, text, sizeof text, &needed), 0);
  if (!strstr(text, words)) print_error("no '%s' in: %s\n", words, text);
  assert_non_null(strstr(text, words));
}

static void refused(gap_heap *heap, uint64_t bytes, const char *words) {
  gap_addr none;
  assert_int_equal(gap_alloc(heap, 0, 0, bytes, &none), GAP_ENOMEM);
  explained(heap, words);
}

static gap_heap *on_driver(const struct fake_cuda_settings *settings, const char *conf) {
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  gap_heap *heap = NULL;
  fake_cuda_reset(settings);
  options.flags = GAP_HEAP_NO_ENVIRONMENT | GAP_HEAP_NO_THREAD;
  options.conf = conf;
  assert_int_equal(gap_heap_create(&options, &heap), 0);
  return heap;
}

/* One limit for what sleeps, what is reserved, and what stands behind device addresses. */
static void one_budget(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "max_memory:8M,overflow:on,tiers:host=20M");
  gap_addr a = api_get(heap, 0, 14 * MIB);
  assert_int_equal(api_stat(heap, 0, "overflow_bytes"), 14 * MIB);
  assert_int_equal(api_stat(heap, 0, "reserved_bytes.all.current"), 0);
  refused(heap, 10 * MIB,
          "10 MiB more of host memory would have to be locked, 6 MiB may be: 14 MiB locked already, the "
          "limit is that of tiers");
  assert_int_equal(gap_reserve_host(heap, 0, 8 * MIB), GAP_ELIMIT);
  assert_int_equal(gap_reserve_host(heap, 0, 6 * MIB), 0);
  refused(heap, 9 * MIB, "0 B may be: 20 MiB locked already");
  gap_addr b;
  assert_int_equal(gap_alloc(heap, 1, 0, 9 * MIB, &b), GAP_ENOMEM); /* the other device has none of its own */
  api_give(heap, a);
  assert_int_equal(gap_trim(heap, 0, NONE, NULL), 0);
  assert_int_equal(gap_alloc(heap, 1, 0, 9 * MIB, &b), 0);
  api_give(heap, b);
  api_close(heap);
}

/* Pages that are idle there are kept for the next time, not from those that need host memory now. */
static void idle_pages_make_room(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "max_memory:24M,overflow:on,tiers:host=20M");
  gap_pool_id pool = {0, 0};
  assert_int_equal(gap_pool_create(heap, 0, GAP_POOL_SHARED, "weights", &pool), 0);
  gap_addr weights = api_get_in(heap, 0, pool, 20 * MIB);
  memset((void *)(uintptr_t)weights, 3, 20 * MIB);
  for (unsigned i = 0; i < 3; i++) {
    gap_addr a = api_get(heap, 0, 18 * MIB); /* beside the weights: there */
    assert_int_equal(api_stat(heap, 0, "overflow_live_bytes"), 18 * MIB);
    assert_int_equal(gap_sleep(heap, 0, "weights", 0, NULL), GAP_ELIMIT); /* it is in use */
    api_give(heap, a);
    assert_int_equal(api_stat(heap, 0, "overflow_bytes"), 18 * MIB);
    if (i == 0) assert_int_equal(gap_sleep(heap, 0, "weights", 0, NULL), 0);
    if (i == 1) assert_int_equal(gap_reserve_host(heap, 0, 4 * MIB), 0);
    gap_item item = 0;
    if (i == 2) assert_int_equal(gap_tier_put(heap, 0, &(gap_span){weights, 20 * MIB}, 1, 0, 0, &item), 0);
    assert_true(api_stat(heap, 0, "overflow_bytes") < (int64_t)(18 * MIB));
    if (i == 0) assert_int_equal(gap_wake(heap, 0, "weights", 0), 0);
    if (i == 2) assert_int_equal(gap_tier_wait(heap, 0, item) | gap_tier_drop(heap, 0, item), 0);
    for (uint64_t at = 0; at < 20 * MIB; at += 4093) assert_int_equal(((unsigned char *)(uintptr_t)weights)[at], 3);
    assert_int_equal(gap_reserve_host(heap, 0, 0), 0);
  }
  api_give(heap, weights);
  api_close(heap);
}

/* What sleeps gives the card's memory back; what lies in host memory takes none, and stays. */
static void beside_sleep(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "max_memory:8M,overflow:on,tiers:host");
  gap_pool_id pool = {0, 0};
  uint64_t freed;
  assert_int_equal(gap_pool_create(heap, 0, GAP_POOL_SHARED, "weights", &pool), 0);
  gap_addr a = api_get_in(heap, 0, pool, 8 * MIB), b = api_get_in(heap, 0, pool, 4 * MIB);
  memset((void *)(uintptr_t)a, 1, 8 * MIB);
  memset((void *)(uintptr_t)b, 2, 4 * MIB);
  assert_int_equal(gap_sleep(heap, 0, "weights", 0, &freed), 0);
  assert_int_equal(freed, 8 * MIB);
  assert_int_equal(api_stat(heap, 0, "overflow_live_bytes"), 4 * MIB);
  gap_addr c = api_get(heap, 0, 8 * MIB);
  assert_int_equal(api_stat(heap, 0, "overflow_bytes"), 4 * MIB);
  api_give(heap, c);
  assert_int_equal(gap_wake(heap, 0, "weights", 0), 0);
  for (uint64_t i = 0; i < 4 * MIB; i += 4093) {
    assert_int_equal(((unsigned char *)(uintptr_t)a)[2 * i], 1);
    assert_int_equal(((unsigned char *)(uintptr_t)b)[i], 2);
  }
  api_give(heap, a);
  api_give(heap, b);
  api_close(heap);
}

static void on_a_driver(void **state) {
  (void)state;
  gap_heap *heap = on_driver(&(struct fake_cuda_settings){0}, "max_memory:8M,overflow:on");
  gap_addr a = api_get(heap, 8, 8 * MIB), b = api_get(heap, 8, 5 * MIB);
  assert_int_equal(api_stat(heap, 0, "overflow_live_bytes"), 5 * MIB);
  assert_int_equal(api_stat(heap, 0, "rung.overflow.count"), 1);
  gap_addr base;
  unsigned count;
  gap_piece pieces[4];
  assert_int_equal(gap_export_layout(heap, a, &base, &count), 0);
  assert_int_equal(gap_export(heap, b, 0, 1, pieces), GAP_ESTATE);
  explained(heap, "it cannot be exported or registered before it is back on the device");
  assert_int_equal(gap_keep_memory(heap, b), GAP_ESTATE);
  assert_int_equal(gap_keep_memory(heap, a), 0);
  api_give(heap, a);
  api_give(heap, b);
  api_close(heap);
  assert_int_equal(fake_cuda_wrong(), 0);
}

/* A cold block makes room at a safe point, and what lies in host memory can be exported once it is back. */
static void hints(void **state) {
  (void)state;
  gap_heap *heap = on_driver(&(struct fake_cuda_settings){0}, "max_memory:8M,overflow:on");
  gap_addr a = api_get(heap, 8, 8 * MIB), b = api_get(heap, 8, 4 * MIB);
  memset((void *)(uintptr_t)a, 1, 8 * MIB);
  memset((void *)(uintptr_t)b, 2, 4 * MIB);
  assert_int_equal(gap_hint(heap, a, (gap_hint_kind)7), GAP_EINVAL);
  assert_int_equal(gap_hint(heap, 4096, GAP_HINT_COLD), GAP_ENOTMINE);
  assert_int_equal(gap_hint(heap, a + 12345, GAP_HINT_COLD), 0);
  assert_int_equal(gap_keep_memory(heap, b), GAP_ESTATE);
  assert_int_equal(gap_defragment(heap, 0, NULL), 0);
  assert_int_equal(api_stat(heap, 0, "overflow_out_bytes"), 4 * MIB);
  assert_int_equal(api_stat(heap, 0, "overflow_back_bytes"), 4 * MIB);
  assert_int_equal(gap_keep_memory(heap, b), 0);
  assert_int_equal(gap_keep_memory(heap, a), GAP_ESTATE);
  for (uint64_t i = 0; i < 4 * MIB; i += 4093) {
    assert_int_equal(((unsigned char *)(uintptr_t)a)[2 * i], 1);
    assert_int_equal(((unsigned char *)(uintptr_t)b)[i], 2);
  }
  api_give(heap, a);
  assert_int_equal(gap_hint(heap, a, GAP_HINT_NONE), GAP_EFREED);
  api_give(heap, b);
  api_close(heap);
  assert_int_equal(fake_cuda_wrong(), 0);
}

/* The driver has never had, or at last has no more: one line, and the request fails as it would have. */
static void without_memory(void **state) {
  (void)state;
  struct api_log log;
  api_listen(&log);
  gap_heap *heap = on_driver(&(struct fake_cuda_settings){.lacks = FAKE_CUDA_HOST_CHUNKS}, "max_memory:8M,overflow:on");
  refused(heap, 10 * MIB, "larger than all that may be held");
  refused(heap, 10 * MIB, "larger than all that may be held");
  assert_int_equal(api_stat(heap, 0, "overflow_refused"), 0);
  api_close(heap);
  assert_int_equal(log.count, 1);
  assert_non_null(strstr(log.lines, "device 0: overflow: off: the driver puts no host memory behind device addresses"));

  api_listen(&log);
  heap = on_driver(&(struct fake_cuda_settings){0}, "max_memory:8M,overflow:on");
  gap_addr a = api_get(heap, 8, 12 * MIB);
  for (int i = 0; i < 2; i++) {
    fake_cuda_fail("cuMemCreate", 2, i ? 0 : 3, 1); /* out of memory, at the fourth page; three are kept */
    refused(heap, 12 * MIB, "Overflow: ");
    explained(heap, "the driver gives no more host memory: ");
  }
  assert_int_equal(api_stat(heap, 0, "overflow_refused"), 2);
  api_give(heap, a);
  a = api_get(heap, 8, 12 * MIB);
  api_give(heap, a);
  api_close(heap);
  assert_int_equal(log.count, 1);
  gap_set_log(NULL, NULL);
  assert_int_equal(fake_cuda_wrong(), 0);
}

/* Each call that reaches the driver fails once: the request does, or is served, and nothing is lost. */
static void each_call_fails(void **state) {
  (void)state;
  static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"};
  for (unsigned c = 0; c < sizeof calls / sizeof *calls; c++)
    for (uint64_t nth = 0; nth < 12; nth++) {
      gap_heap *heap = on_driver(&(struct fake_cuda_settings){0}, "max_memory:4M,overflow:on,log:error");
      gap_addr a = api_get(heap, 8, 4 * MIB), b = 0;
      fake_cuda_fail(calls[c], 999, nth, 1);
      int rc = gap_alloc(heap, 0, 8, 8 * MIB, &b);
      if (!rc) memset((void *)(uintptr_t)b, 3, 8 * MIB);
      if (!rc) api_give(heap, b);
      gap_trim(heap, 0, NONE, NULL);
      api_check(heap);
      fake_cuda_fail(calls[c], 0, 0, 0);
      b = api_get(heap, 8, 8 * MIB);
      api_give(heap, b);
      api_give(heap, a);
      assert_int_equal(gap_trim(heap, 0, NONE, NULL), 0);
      assert_int_equal(api_stat(heap, 0, "overflow_bytes"), 0);
      api_close(heap);
      assert_int_equal(fake_cuda_wrong(), 0);
    }
}

int main(int argc, char **argv) {
  (void)argc;
  fake_driver_find(argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_budget),      cmocka_unit_test(idle_pages_make_room),
      cmocka_unit_test(beside_sleep),    cmocka_unit_test(on_a_driver),
      cmocka_unit_test(hints),           cmocka_unit_test(without_memory),
      cmocka_unit_test(each_call_fails),
  };
  int rc = cmocka_run_group_tests(tests, NULL, NULL);
  fake_driver_forget();
  return rc;
}
