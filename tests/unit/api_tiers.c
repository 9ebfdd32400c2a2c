/* Memory beyond the card in the C interface: the pinned pool of each device, its limits, and words when it is refused. */
#include <sys/wait.h>
#include <unistd.h>

#include "gapless/tier.h"
#include "support/api_try.h"

static gap_tiers tiers_of(gap_heap *heap, int device) {
  gap_tiers out = {.size = sizeof out};
  assert_int_equal(gap_get_tiers(heap, device, &out), 0);
  return out;
}

static void arguments(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, NULL);
  gap_tiers out = {.size = 3};
  assert_int_equal(gap_reserve_host(heap, 2, 0), GAP_EINVAL);
  assert_int_equal(gap_reserve_host(heap, -1, MIB), GAP_EINVAL);
  assert_int_equal(gap_reserve_host(heap, 0, UINT64_MAX), GAP_EINVAL);
  assert_int_equal(gap_get_tiers(heap, 0, &out), GAP_EINVAL);
  out.size = sizeof out;
  assert_int_equal(gap_get_tiers(heap, 2, &out), GAP_EINVAL);
  api_close(heap);
}

static void reserved_by_device(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "tiers:host=40M");
  assert_int_equal(gap_reserve_host(heap, 0, 10 * MIB), 0);
  assert_int_equal(gap_reserve_host(heap, 1, 19 * MIB), 0);
  assert_int_equal(tiers_of(heap, 0).host_locked_bytes, 10 * MIB);
  assert_int_equal(tiers_of(heap, 1).host_locked_bytes, 20 * MIB);
  assert_int_equal(tiers_of(heap, 0).host_used_bytes, 0);
  assert_int_equal(tiers_of(heap, 0).host_more_bytes, 20 * MIB); /* its own and what is left */
  assert_int_equal(gap_reserve_host(heap, 0, 0), 0);
  assert_int_equal(tiers_of(heap, 0).host_locked_bytes, 0);
  assert_int_equal(tiers_of(heap, 1).host_more_bytes, 40 * MIB);
  api_close(heap);
}

static void refused_in_words(void **state) {
  (void)state;
  struct api_log log;
  char words[300];
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "tiers:host=16M,disk=/nowhere:1G,log:warning");
  api_listen(&log);
  assert_int_equal(gap_reserve_host(heap, 1, 20 * MIB), GAP_ELIMIT);
  assert_int_equal(gap_explain(heap, 1, words, sizeof words, NULL), 0);
  assert_non_null(strstr(words, "20 MiB more of host memory would have to be locked, 16 MiB may be"));
  assert_non_null(strstr(log.lines, "the limit is that of tiers"));
  assert_int_equal(tiers_of(heap, 1).host_locked_bytes, 0);
  assert_int_equal(gap_reserve_host(heap, 1, 16 * MIB), 0);
  gap_set_log(NULL, NULL);
  api_close(heap);
}

/* A child of a fork has no pool, and ends its heap without harm. */
static void in_a_child(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, NULL);
  assert_int_equal(gap_reserve_host(heap, 0, 4 * MIB), 0);
  pid_t child = fork();
  if (child == 0) {
    gap_tiers out = {.size = sizeof out};
    int rc = gap_reserve_host(heap, 0, 0), other = gap_get_tiers(heap, 0, &out);
    gap_heap_destroy(heap);
    _exit(rc == GAP_EFORKED && other == GAP_EFORKED ? 0 : 1);
  }
  int status = 1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(tiers_of(heap, 0).host_locked_bytes, 4 * MIB);
  api_close(heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(arguments), cmocka_unit_test(reserved_by_device),
                                     cmocka_unit_test(refused_in_words), cmocka_unit_test(in_a_child)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
