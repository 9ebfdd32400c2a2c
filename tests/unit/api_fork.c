/* fork and exit under the C interface. */
#include <sys/wait.h>
#include <unistd.h>

#include "support/api_try.h"

/* ---- fork ---- */

static int child(gap_heap *heap, gap_addr mine, gap_pool_id pool) {
  gap_addr addr = 5;
  gap_usage usage = {.size = sizeof usage};
  gap_block block;
  char text[100];
  int64_t value;
  int wrong = 0;
  wrong += gap_alloc(heap, 0, 0, MIB, &addr) != GAP_EFORKED || addr != 0;
  wrong += gap_alloc(heap, 1, 0, MIB, &addr) != GAP_EFORKED; /* a device that was never opened */
  wrong += gap_alloc_in(heap, 0, 0, pool, MIB, &addr) != GAP_EFORKED;
  wrong += gap_free(heap, mine) != 0 || gap_free(heap, mine) != 0;
  wrong += gap_free_on(heap, mine, 8) != 0;
  wrong += gap_record_stream(heap, mine, 8) != 0;
  wrong += gap_trim(heap, 0, NONE, NULL) != GAP_EFORKED;
  wrong += gap_get_usage(heap, 0, &usage) != GAP_EFORKED;
  wrong += gap_stat(heap, 0, "num_ooms", &value) != GAP_EFORKED;
  wrong += gap_find_block(heap, mine, &block, NULL) != GAP_EFORKED;
  wrong += gap_configure(heap, "") != GAP_EFORKED;
  wrong += gap_conf_value(heap, "nmalloc", text, sizeof text) != GAP_EFORKED;
  wrong += gap_pool_create(heap, 0, 0, NULL, &pool) != GAP_EFORKED;
  wrong += gap_pool_release(heap, 0, pool) != GAP_EFORKED;
  wrong += gap_set_cap(heap, 0, 1) != GAP_EFORKED;
  wrong += gap_set_events(heap, NULL, NULL) != GAP_EFORKED;
  wrong += gap_set_oom(heap, NULL, NULL) != GAP_EFORKED;
  wrong += gap_check(heap, 0, text, sizeof text) != GAP_EFORKED;
  gap_heap_destroy(heap);
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT; /* a heap of the child's own works */
  options.backend = GAP_BACKEND_HOST;
  options.flags = GAP_HEAP_NO_THREAD;
  wrong += gap_heap_create(&options, &heap) != 0;
  wrong += gap_alloc(heap, 0, 0, MIB, &addr) != 0 || gap_free(heap, addr) != 0;
  gap_heap_destroy(heap);
  return wrong;
}

static int status_of(pid_t pid) {
  int status;
  assert_true(waitpid(pid, &status, 0) == pid);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void forked(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 0, NULL);
  gap_pool_id pool;
  assert_int_equal(gap_pool_create(heap, 0, GAP_POOL_CONTIGUOUS, NULL, &pool), 0);
  gap_addr a = api_get(heap, 0, MIB), b = api_get_in(heap, 0, pool, MIB);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (!pid) _exit(child(heap, a, pool));
  assert_int_equal(status_of(pid), 0);
  api_give(heap, a), api_give(heap, b);
  api_close(heap);
}

/* ---- the end of a program ---- */

static gap_heap *left_behind;
static gap_addr late_block;
static void free_late(void) { _exit(gap_free(left_behind, late_block) == 0 ? 7 : 8); }

/* A destructor that frees when main has returned. */
static void late_free(void **state) {
  (void)state;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (!pid) {
    left_behind = api_open(GAP_BACKEND_HOST, 0, NULL);
    late_block = api_get(left_behind, 0, 30 * MIB);
    atexit(free_late);
    exit(1);
  }
  assert_int_equal(status_of(pid), 7);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(late_free), cmocka_unit_test(forked)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
