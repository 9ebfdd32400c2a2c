/* fork and exit with `gapless` and its page maker as a thread: the child harms nobody, the parent goes on. */
#include <sys/wait.h>
#include <unistd.h>

#include "support/gapless_try.h"

static struct try begin(void) {
  struct gap__host_params card = {.total_bytes = 256 * MIB, .window_max_bytes = 128 * MIB};
  return try_host(&card, "reserve:0", GAP__MAKER_THREAD);
}

/* What destructors of a child do: frees, statistics, allocation, the end of the heap. */
static int child(struct try *t, gap_addr mine) {
  gap_addr addr;
  struct gap__stats stats;
  uint64_t bytes;
  int wrong = 0;
  wrong += gap__heap_free(t->heap, mine) != 0;
  wrong += gap__heap_record_stream(t->heap, mine, STREAM_A) != 0;
  wrong += gap__heap_alloc(t->heap, 0, 0, DEFAULT, MIB, &addr) != GAP_EFORKED;
  wrong += gap__heap_stats(t->heap, 0, &stats) != GAP_EFORKED;
  wrong += gap__heap_trim(t->heap, 0, DEFAULT, &bytes) != GAP_EFORKED;
  wrong += gap__heap_set_cap(t->heap, 0, 1) != GAP_EFORKED;
  gap__heap_tick(t->heap, 0);
  gap__heap_destroy(t->heap);
  return wrong;
}

static int status_of(pid_t pid) {
  int status;
  assert_true(waitpid(pid, &status, 0) == pid);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void child_is_harmless(void **state) {
  (void)state;
  struct try t = begin();
  gap_addr a = try_get(&t, 0, 8 * MIB);
  assert_int_equal(gap__host_fill(t.dev, a, 8 * MIB, 0xabcdabcd, 0), 0);
  for (int i = 0; i < 10; i++) {
    gap_addr b = try_get(&t, STREAM_A, (uint64_t)(i + 1) * MIB); /* the maker is awake */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) _exit(child(&t, a));
    assert_int_equal(status_of(pid), 0);
    try_give(&t, b);
    try_give(&t, try_get(&t, 0, 3 * MIB));
    try_check(&t);
  }
  assert_int_equal(gap__host_expect(t.dev, a, 8 * MIB, 0xabcdabcd, 0), 0);
  assert_int_equal(gap__host_faults(t.dev), 0);
  try_give(&t, a);
  try_end(&t);
}

/* A program that ends with live blocks and a running page maker, without a word to the heap. */
static void exit_with_live_blocks(void **state) {
  (void)state;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (!pid) {
    struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = GIB}, "", GAP__MAKER_THREAD);
    for (int i = 0; i < 20; i++) try_get(&t, STREAM_A, 4 * MIB);
    exit(7); /* exit handlers run */
  }
  assert_int_equal(status_of(pid), 7);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(child_is_harmless), cmocka_unit_test(exit_with_live_blocks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
