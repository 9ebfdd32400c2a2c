/* The default heap, the current device and peers, on a driver without a card. */
#include "support/api_try.h"
#include "support/fake_driver.h"

static int owner_of(gap_heap *heap, const void *memory) {
  gap_block block;
  int device = -1;
  assert_int_equal(gap_find_block(heap, (gap_addr)(uintptr_t)memory, &block, &device), 0);
  return device;
}

static void nothing_is_left(void) {
  assert_int_equal(fake_cuda_wrong(), 0);
  for (int i = 0; i < 4; i++) assert_int_equal(fake_cuda_retained(i), 0);
}

static void default_heap(void **state) {
  (void)state;
  gap_heap *heap, *again;
  void *a, *b, *memory = &heap;
  fake_cuda_reset(&(struct fake_cuda_settings){0});
  assert_int_equal(gap_heap_default(&heap), 0);
  assert_int_equal(gap_heap_default(&again), 0);
  assert_ptr_equal(heap, again);
  assert_int_equal(gap_device_count(heap), 4);
  for (int i = 0; i < 4; i++) assert_int_equal(fake_cuda_retained(i), 0); /* none is open yet */

  fake_cuda_push(2, true);
  assert_int_equal(gap_malloc(&a, 3 * MIB, 0), 0); /* asks for the current device while none is open */
  assert_int_equal(owner_of(heap, a), 2);
  assert_int_equal(fake_cuda_retained(0), 0);
  fake_cuda_push(1, true);
  assert_int_equal(gap_malloc(&b, 100, 0), 0);
  assert_int_equal(owner_of(heap, b), 1);
  fake_cuda_pop();
  fake_cuda_pop();
  assert_int_equal(gap_mfree(a, 0), 0);
  assert_int_equal(gap_mfree(a, 0), GAP_EFREED);
  assert_int_equal(gap_malloc(&a, 100, 0), 0); /* without a context */
  assert_int_equal(owner_of(heap, a), 0);
  assert_int_equal(gap_malloc(&memory, GIB, 0), GAP_ENOMEM);
  assert_null(memory);
  assert_int_equal(gap_mfree(NULL, 0), 0);
  gap_shutdown();
  assert_int_equal(gap_mfree(b, 0), GAP_ENOTMINE); /* late, and harmless */
  gap_shutdown();
  nothing_is_left();
}

static void made_again(void **state) {
  (void)state;
  gap_heap *heap = NULL;
  void *memory;
  fake_cuda_reset(&(struct fake_cuda_settings){.missing = "cuMemAlloc"});
  assert_int_equal(gap_heap_default(&heap), GAP_ENOTSUP);
  assert_int_equal(gap_malloc(&memory, 100, 0), GAP_ENOTSUP);
  assert_null(memory);
  assert_null(heap);
  fake_cuda_reset(&(struct fake_cuda_settings){0});
  assert_int_equal(gap_malloc(&memory, 100, 0), 0); /* a later call tries again */
  gap_shutdown();
  assert_int_equal(gap_malloc(&memory, 100, 0), 0); /* and so does one after the end */
  assert_int_equal(gap_mfree(memory, 0), 0);
  gap_shutdown();
  nothing_is_left();
}

/* Memory that is there and memory that comes later can be reached from the peer; of other devices nothing changes. */
static void peers(void **state) {
  (void)state;
  gap_heap *heap;
  fake_cuda_reset(&(struct fake_cuda_settings){0});
  assert_int_equal(gap_heap_default(&heap), 0);
  gap_addr a = api_get(heap, 8, 5 * MIB), b;
  assert_int_equal(fake_cuda_readers(), 1);
  uint64_t calls = fake_cuda_calls("cuMemSetAccess");
  assert_int_equal(gap_enable_peer(heap, 0, 3), 0);
  assert_int_equal(fake_cuda_readers(), 1 | 8);
  assert_true(fake_cuda_calls("cuMemSetAccess") > calls);
  assert_int_equal(gap_alloc(heap, 0, 8, 20 * MIB, &b), 0);
  assert_int_equal(fake_cuda_readers(), 1 | 8);
  assert_int_equal(gap_alloc(heap, 1, 8, 20 * MIB, &b), 0);
  assert_int_equal(fake_cuda_readers(), 2);
  assert_int_equal(gap_enable_peer(heap, 2, 0), 0); /* opens it */
  assert_int_equal(gap_enable_peer(heap, 2, 2), GAP_EINVAL);
  assert_int_equal(gap_free(heap, a), 0);
  api_check(heap);
  gap_shutdown();
  nothing_is_left();

  fake_cuda_reset(&(struct fake_cuda_settings){.lacks = FAKE_CUDA_PEERS});
  assert_int_equal(gap_heap_default(&heap), 0);
  assert_int_equal(gap_enable_peer(heap, 0, 1), GAP_ENOTSUP);
  gap_shutdown();
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(default_heap), cmocka_unit_test(made_again),
                                     cmocka_unit_test(peers)};
  (void)argc;
  fake_driver_find(argv);
  setenv("GAPLESS_CONF", "reserve:0", 1);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  fake_driver_forget();
  return failed;
}
