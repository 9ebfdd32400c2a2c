/* The C interface: heaps, blocks, streams; every documented error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gapless/gapless.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define NONE ((gap_pool_id){0, 0})

static gap_heap *open_with(gap_backend backend, const char *conf) {
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  gap_heap *heap = NULL;
  options.backend = backend;
  options.flags = GAP_HEAP_NO_ENVIRONMENT;
  options.device_count = 2;
  options.conf = conf;
  assert_int_equal(gap_heap_create(&options, &heap), 0);
  return heap;
}

static void close_heap(gap_heap *heap) {
  char text[300] = "";
  for (int i = 0; i < gap_device_count(heap); i++)
    if (gap_check(heap, i, text, sizeof text)) fail_msg("%s", text);
  gap_heap_destroy(heap);
}

static int64_t stat_of(gap_heap *heap, int device, const char *name) {
  int64_t value = -1;
  assert_int_equal(gap_stat(heap, device, name, &value), 0);
  return value;
}

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
  o = good, o.conf = "strategy:pooled", refused(o, GAP_ENOTSUP);
  o = good, o.backend = GAP_BACKEND_CUDA, o.device_count = 1, refused(o, GAP_EINVAL);
  o = good, o.backend = GAP_BACKEND_CUDA, o.device_bytes = GIB, refused(o, GAP_EINVAL);
  o = good, o.device_count = 64, o.device_bytes = 3 * GIB;
  assert_int_equal(gap_heap_create(&o, &heap), 0);
  assert_int_equal(gap_device_count(heap), 64);
  close_heap(heap);
  gap_heap_destroy(NULL);
}

static void devices_are_opened_when_wanted(void **state) {
  (void)state;
  gap_heap *heap = open_with(GAP_BACKEND_HOST, NULL);
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
  close_heap(heap);
}

/* ---- blocks ---- */

static void allocation(void **state) {
  (void)state;
  gap_heap *heap = open_with(GAP_BACKEND_SIM, NULL);
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
  assert_int_equal(stat_of(heap, 0, "allocated_bytes.all.current"), 512);
  assert_int_equal(stat_of(heap, 1, "allocated_bytes.all.current"), 1024);
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
  close_heap(heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(options_are_checked),
      cmocka_unit_test(devices_are_opened_when_wanted),
      cmocka_unit_test(allocation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
