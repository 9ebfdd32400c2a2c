/* Memory that several processes map, on the driver without a card: its bytes are real, and a descriptor is a descriptor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/heap_share.h"
#include "dev/cuda/cuda.h"
#include "dev/host/host.h"
#include "support/fake_cuda.h"

#define MIB ((uint64_t)1 << 20)
#define NONE ((gap_pool_id){0, 0})
enum { STREAM = 0, ROOM = 16 };

static gap_heap *open_devices(int count, unsigned refuses, const struct gap__conf *conf) {
  fake_cuda_reset(&(struct fake_cuda_settings){.device_count = count, .total_bytes = 128 * MIB, .refuses = refuses});
  struct gap__dev *devs[2] = {NULL};
  for (int i = 0; i < count; i++)
    assert_int_equal(gap__cuda_create(i, &(struct gap__cuda_params){.driver = GAP_TEST_FAKE_CUDA}, &devs[i]), 0);
  gap_heap *heap = NULL;
  assert_int_equal(gap__heap_create(&(struct gap__heap_params){.devs = devs, .dev_count = count, .conf = conf}, &heap),
                   0);
  return heap;
}

static gap_heap *open_heap(unsigned refuses, const struct gap__conf *conf) { return open_devices(1, refuses, conf); }

static void close_heap(gap_heap *heap) {
  char text[200] = "";
  assert_int_equal(gap__heap_check(heap, 0, text, sizeof text), 0);
  gap__heap_destroy(heap);
  assert_int_equal(fake_cuda_wrong(), 0);
}

static gap_addr get(gap_heap *heap, uint64_t bytes) {
  gap_addr addr = 0;
  assert_int_equal(gap__heap_alloc(heap, 0, STREAM, NONE, bytes, &addr), 0);
  return addr;
}

static void write_and_read(gap_addr to, gap_addr from, uint64_t bytes, uint64_t pattern) {
  struct gap__dev *host = fake_cuda_host(0);
  assert_int_equal(gap__host_fill(host, to, bytes, pattern, STREAM), 0);
  assert_int_equal(gap__host_expect(host, from, bytes, pattern, STREAM), 0);
  gap__host_run_all(host);
  assert_int_equal(gap__host_faults(host), 0);
}

static void close_all(gap_piece *pieces, unsigned count) {
  for (unsigned i = 0; i < count; i++) assert_int_equal(close(pieces[i].fd), 0);
}

static void both_addresses_see_the_same_bytes(void **state) {
  (void)state;
  gap_heap *heap = open_heap(0, NULL);
  gap_addr lower = get(heap, 3 * MIB), addr = get(heap, 5 * MIB + 700), base = 0, import = 0;
  gap_piece pieces[ROOM];
  unsigned count = 0;
  assert_int_equal(gap__heap_export_layout(heap, addr + 4096, &base, &count), 0);
  assert_true(base <= addr && addr - base < 2 * MIB && count >= 3 && count <= ROOM);
  assert_int_equal(gap__heap_export(heap, addr, 0, count, pieces), 0);
  for (unsigned i = 0; i < count; i++) assert_int_equal(pieces[i].bytes, 2 * MIB);
  uint64_t held = gap__heap_held(heap, 0);
  assert_int_equal(gap__heap_import(heap, 0, pieces, count, &import), 0);
  close_all(pieces, count);
  assert_int_equal(gap__heap_held(heap, 0), held);
  write_and_read(addr, import + (addr - base), 5 * MIB + 512, 0x1234567890abcdef);
  write_and_read(import + (addr - base), addr, 5 * MIB + 512, 0xfedcba0987654321);
  assert_int_equal(gap__heap_import_release(heap, import), 0);
  assert_int_equal(gap__heap_import_release(heap, import), GAP_ENOTMINE);
  gap__heap_free(heap, addr);
  gap__heap_free(heap, lower);
  close_heap(heap);
}

static void pieces_come_in_parts(void **state) {
  (void)state;
  gap_heap *heap = open_heap(0, NULL);
  gap_addr addr = get(heap, 10 * MIB), base = 0, import = 0;
  gap_piece pieces[ROOM];
  unsigned count = 0;
  assert_int_equal(gap__heap_export_layout(heap, addr, &base, &count), 0);
  assert_int_equal(count, 5);
  assert_int_equal(gap__heap_export(heap, addr, 0, 2, pieces), 0);
  assert_int_equal(gap__heap_export(heap, addr, 2, 3, pieces + 2), 0);
  assert_int_equal(gap__heap_import(heap, 0, pieces, count, &import), 0);
  close_all(pieces, count);
  write_and_read(addr, import, 10 * MIB, 77);
  close_heap(heap); /* takes the import with it */
}

/* A peer that is let in later reaches what was mapped of another process before. */
static void peers_reach_what_was_imported(void **state) {
  (void)state;
  gap_heap *heap = open_devices(2, 0, NULL);
  gap_addr addr = get(heap, 4 * MIB), import = 0, later = 0;
  gap_piece pieces[2];
  assert_int_equal(gap__heap_export(heap, addr, 0, 2, pieces), 0);
  assert_int_equal(gap__heap_import(heap, 0, pieces, 2, &import), 0);
  gap__heap_free(heap, addr);
  assert_int_equal(gap__heap_trim(heap, 0, NONE, NULL), 0); /* nothing else is mapped */
  assert_int_equal(fake_cuda_readers(), 1);
  uint64_t calls = fake_cuda_calls("cuMemSetAccess");
  assert_int_equal(gap__heap_enable_peer(heap, 1, 0), 0); /* not this device's memory */
  assert_int_equal(fake_cuda_calls("cuMemSetAccess"), calls);
  assert_int_equal(gap__heap_enable_peer(heap, 0, 1), 0);
  assert_int_equal(fake_cuda_calls("cuMemSetAccess"), calls + 1);
  assert_int_equal(fake_cuda_readers(), 1 | 2);
  assert_int_equal(gap__heap_import(heap, 0, pieces, 2, &later), 0);
  assert_int_equal(fake_cuda_readers(), 1 | 2);
  close_all(pieces, 2);
  close_heap(heap);
}

static void wrong_calls_are_refused(void **state) {
  (void)state;
  gap_heap *heap = open_heap(0, NULL);
  gap_addr addr = get(heap, 4 * MIB), base = 0;
  gap_piece pieces[ROOM];
  unsigned count = 0;
  assert_int_equal(gap__heap_export_layout(heap, 512, &base, &count), GAP_ENOTMINE);
  assert_int_equal(gap__heap_export(heap, addr, 1, 2, pieces), GAP_EINVAL);
  assert_int_equal(gap__heap_export(heap, addr, 2, UINT32_MAX, pieces), GAP_EINVAL);
  assert_int_equal(gap__heap_import(heap, 1, pieces, 1, &base), GAP_EINVAL);
  assert_int_equal(gap__heap_import(heap, 0, pieces, 0, &base), GAP_EINVAL);
  pieces[0] = (gap_piece){.bytes = MIB, .fd = 0};
  assert_int_equal(gap__heap_import(heap, 0, pieces, 1, &base), GAP_EINVAL);
  gap__heap_free(heap, addr);
  assert_int_equal(gap__heap_export_layout(heap, addr, &base, &count), GAP_EFREED);
  close_heap(heap);
}

/* The driver fails at every place in turn: nothing may be left behind. */
static void a_failed_import_leaves_nothing(void **state) {
  (void)state;
  static const char *const calls[] = {"cuMemAddressReserve", "cuMemImportFromShareableHandle", "cuMemMap",
                                      "cuMemSetAccess"};
  gap_heap *heap = open_heap(0, NULL);
  gap_addr addr = get(heap, 6 * MIB), base = 0;
  gap_piece pieces[3];
  assert_int_equal(gap__heap_export(heap, addr, 0, 3, pieces), 0);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    for (uint64_t after = 0; after < (i % 3 ? 3u : 1u); after++) {
      fake_cuda_fail(calls[i], 1, after, 100);
      assert_true(gap__heap_import(heap, 0, pieces, 3, &base) < 0);
      fake_cuda_fail(calls[i], 0, 0, 0);
    }
  }
  assert_int_equal(gap__heap_import(heap, 0, pieces, 3, &base), 0);
  close_all(pieces, 3);
  close_heap(heap);
}

static void a_failed_export_leaves_no_descriptor(void **state) {
  (void)state;
  gap_heap *heap = open_heap(0, NULL);
  gap_addr addr = get(heap, 6 * MIB);
  gap_piece pieces[3] = {{0, -1}, {0, -1}, {0, -1}};
  fake_cuda_fail("cuMemExportToShareableHandle", 1, 2, 1);
  assert_true(gap__heap_export(heap, addr, 0, 3, pieces) < 0);
  assert_int_equal(close(pieces[0].fd), -1); /* closed already */
  assert_int_equal(close(pieces[1].fd), -1);
  fake_cuda_fail("cuMemExportToShareableHandle", 0, 0, 0);
  close_heap(heap);
}

static void segments_are_not_exported_page_by_page(void **state) {
  (void)state;
  struct gap__conf_set *set = gap__conf_new();
  assert_int_equal(gap__conf_apply(set, GAP__CONF_RUNTIME, "test", "caching_allocator", NULL), 0);
  gap_heap *heap = open_heap(0, gap__conf_values(set));
  gap_addr addr = get(heap, 512), second = get(heap, 512), base = 0;
  unsigned count = 9;
  assert_int_equal(gap__heap_export_layout(heap, second, &base, &count), GAP_ENOTSUP);
  assert_int_equal(base, addr);
  assert_int_equal(count, 0);
  close_heap(heap);
  gap__conf_free(set);
}

static void an_unexportable_card_says_so(void **state) {
  (void)state;
  gap_heap *heap = open_heap(FAKE_CUDA_EXPORT, NULL);
  gap_addr addr = get(heap, 512);
  gap_piece piece;
  assert_int_equal(gap__heap_export(heap, addr, 0, 1, &piece), GAP_ENOTSUP);
  close_heap(heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(both_addresses_see_the_same_bytes),      cmocka_unit_test(pieces_come_in_parts),
      cmocka_unit_test(peers_reach_what_was_imported),          cmocka_unit_test(wrong_calls_are_refused),
      cmocka_unit_test(a_failed_import_leaves_nothing),         cmocka_unit_test(a_failed_export_leaves_no_descriptor),
      cmocka_unit_test(segments_are_not_exported_page_by_page), cmocka_unit_test(an_unexportable_card_says_so),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
