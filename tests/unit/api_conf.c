/* Limits and configuration of the C interface, and what the environment does. */
#include "support/api_try.h"

static void value_is(gap_heap *heap, const char *key, const char *wanted) {
  char text[300];
  assert_int_equal(gap_conf_value(heap, key, text, sizeof text), 0);
  assert_string_equal(text, wanted);
}

/* ---- limits ---- */

static void cap(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, GIB, NULL);
  gap_addr addr;
  assert_int_equal(gap_set_cap(heap, 2, MIB), GAP_EINVAL);
  assert_int_equal(gap_set_cap(heap, 0, 40 * MIB), 0); /* before the device is open */
  gap_addr a = api_get(heap, 0, 40 * MIB);
  assert_int_equal(api_usage(heap, 0).cap_bytes, 40 * MIB);
  assert_int_equal(gap_alloc(heap, 0, 0, MIB, &addr), GAP_ENOMEM);
  assert_int_equal(gap_set_cap(heap, 0, 10 * MIB), 0); /* below what is live */
  assert_int_equal(gap_alloc(heap, 0, 0, MIB, &addr), GAP_ENOMEM);
  api_give(heap, a);
  api_give(heap, api_get(heap, 0, 11 * MIB)); /* idle memory goes on serving ... */
  assert_int_equal(api_usage(heap, 0).held_bytes, 40 * MIB);
  assert_int_equal(gap_trim(heap, 0, NONE, NULL), 0); /* ... until it is given back */
  assert_int_equal(gap_alloc(heap, 0, 0, 11 * MIB, &addr), GAP_ENOMEM);
  a = api_get(heap, 0, 10 * MIB);
  assert_int_equal(api_usage(heap, 0).held_bytes, 10 * MIB);
  assert_int_equal(gap_set_cap(heap, 0, 0), 0);
  api_get(heap, 0, 500 * MIB);
  assert_int_equal(api_usage(heap, 0).cap_bytes, 0);
  assert_int_equal(api_usage(heap, 1).held_bytes, 0);
  api_close(heap);
}

static void fraction(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, GIB, NULL);
  gap_addr addr;
  double wrong[] = {-0.1, 1.1, 0.0 / 0.0};
  for (int i = 0; i < 3; i++) assert_int_equal(gap_set_fraction(heap, 0, wrong[i]), GAP_EINVAL);
  assert_int_equal(gap_set_fraction(heap, 7, 0.5), GAP_EINVAL);
  assert_int_equal(gap_set_fraction(heap, 0, 0.25), 0); /* its size is not known yet */
  gap_addr a = api_get(heap, 0, 256 * MIB);
  assert_int_equal(api_usage(heap, 0).cap_bytes, 256 * MIB);
  assert_int_equal(gap_alloc(heap, 0, 0, MIB, &addr), GAP_ENOMEM);
  api_give(heap, a);
  assert_int_equal(gap_set_fraction(heap, 0, 0), 0); /* nothing at all */
  assert_int_equal(api_usage(heap, 0).held_bytes, 0);
  assert_int_equal(gap_alloc(heap, 0, 0, 1, &addr), GAP_ENOMEM);
  assert_int_equal(gap_set_fraction(heap, 0, 1), 0);
  api_get(heap, 0, 800 * MIB);
  api_close(heap);
}

/* The cap and the share of the card are two limits, from wherever they come: each is taken back by itself. */
static void cap_and_fraction(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, GIB, "max_memory:100MiB");
  api_give(heap, api_get(heap, 0, MIB));
  assert_int_equal(gap_set_fraction(heap, 0, 0.5), 0);
  assert_int_equal(api_usage(heap, 0).cap_bytes, 100 * MIB);
  assert_int_equal(gap_set_cap(heap, 0, 0), 0); /* over what the configuration says */
  assert_int_equal(api_usage(heap, 0).cap_bytes, 512 * MIB);
  assert_int_equal(gap_set_cap(heap, 0, 600 * MIB), 0);
  assert_int_equal(api_usage(heap, 0).cap_bytes, 512 * MIB);
  assert_int_equal(gap_set_fraction(heap, 0, 1), 0);
  assert_int_equal(api_usage(heap, 0).cap_bytes, 600 * MIB);
  api_close(heap);
  heap = api_open(GAP_BACKEND_SIM, GIB, "max_memory:200MiB,per_process_memory_fraction:0.125");
  api_give(heap, api_get(heap, 0, MIB));
  assert_int_equal(api_usage(heap, 0).cap_bytes, 128 * MIB);
  assert_int_equal(gap_set_fraction(heap, 0, 1), 0); /* torch's way back */
  assert_int_equal(api_usage(heap, 0).cap_bytes, 200 * MIB);
  assert_int_equal(gap_set_cap(heap, 0, 0), 0);
  assert_int_equal(api_usage(heap, 0).cap_bytes, 0);
  api_close(heap);
}

static void reserve(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, GIB, NULL);
  gap_addr addr;
  assert_int_equal(gap_alloc(heap, 0, 0, 961 * MIB, &addr), GAP_ENOMEM); /* a sixteenth is left by itself */
  api_give(heap, api_get(heap, 0, 960 * MIB));
  assert_int_equal(gap_set_reserve(heap, 3, 0), GAP_EINVAL);
  assert_int_equal(gap_set_reserve(heap, 0, 200 * MIB), 0);
  assert_int_equal(gap_alloc(heap, 0, 0, 825 * MIB, &addr), GAP_ENOMEM);
  api_give(heap, api_get(heap, 0, 824 * MIB));
  assert_int_equal(gap_set_reserve(heap, 0, 0), 0);
  api_get(heap, 0, 1024 * MIB);
  api_close(heap);
}

/* The largest reserve leaves nothing; the number beyond means something else inside. */
static void largest_reserve(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, GIB, NULL);
  gap_addr addr, a = api_get(heap, 0, 10 * MIB);
  assert_int_equal(gap_set_reserve(heap, 0, UINT64_MAX), GAP_EINVAL);
  assert_int_equal(gap_set_reserve(heap, 0, UINT64_MAX - 1), 0);
  assert_int_equal(gap_alloc(heap, 0, 0, 20 * MIB, &addr), GAP_ENOMEM);
  api_give(heap, a);
  api_give(heap, api_get(heap, 0, MIB)); /* from what is held */
  assert_int_equal(gap_trim(heap, 0, NONE, NULL), 0);
  assert_int_equal(gap_alloc(heap, 0, 0, MIB, &addr), GAP_ENOMEM);
  assert_int_equal(gap_set_reserve(heap, 0, GIB - 64 * MIB), 0);
  assert_int_equal(gap_alloc(heap, 0, 0, 66 * MIB, &addr), GAP_ENOMEM);
  api_give(heap, api_get(heap, 0, 64 * MIB));
  api_close(heap);
}

/* What was set by hand holds until the configuration wants something else. */
static void by_hand_and_by_configuration(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, GIB, "max_memory:100MiB,reserve:50MiB");
  api_give(heap, api_get(heap, 0, MIB));
  assert_int_equal(api_usage(heap, 0).cap_bytes, 100 * MIB);
  assert_int_equal(gap_set_cap(heap, 0, 70 * MIB), 0);
  assert_int_equal(gap_configure(heap, "max_memory:100MiB,log:error"), 0);
  assert_int_equal(api_usage(heap, 0).cap_bytes, 70 * MIB);
  assert_int_equal(gap_configure(heap, "max_memory:10%"), 0);
  assert_int_equal(api_usage(heap, 0).cap_bytes, (uint64_t)(0.1 * (double)GIB));
  assert_int_equal(gap_configure(heap, ""), 0);
  assert_int_equal(api_usage(heap, 0).cap_bytes, 0);
  api_close(heap);
}

static void peers(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, NULL);
  assert_int_equal(gap_enable_peer(heap, 0, 0), GAP_EINVAL);
  assert_int_equal(gap_enable_peer(heap, 0, 2), GAP_EINVAL);
  assert_int_equal(gap_enable_peer(heap, -1, 0), GAP_EINVAL);
  assert_int_equal(gap_enable_peer(heap, 0, 1), GAP_ENOTSUP);
  api_close(heap);
}

/* ---- configuration ---- */

static void all_or_nothing(void **state) {
  (void)state;
  struct api_log log;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, "grow_limit:1.5");
  value_is(heap, "grow_limit", "1.5");
  assert_int_equal(gap_conf_value(heap, "no_such_key", log.lines, 8), GAP_EKEY);
  api_listen(&log);
  assert_int_equal(gap_configure(heap, "nmalloc:3,grow_limit:banana"), GAP_EVALUE);
  assert_non_null(strstr(log.lines, "banana"));
  assert_int_equal(log.worst, 0);
  assert_int_equal(gap_configure(heap, "strict:True,grow_limt:2"), GAP_EKEY);
  assert_non_null(strstr(log.lines, "grow_limt"));
  value_is(heap, "nmalloc", "1");
  value_is(heap, "grow_limit", "1.5");
  value_is(heap, "strategy", "gapless");
  assert_int_equal(gap_configure(heap, "nmalloc:3"), 0);
  value_is(heap, "nmalloc", "3");
  value_is(heap, "grow_limit", "1.05"); /* replaced, options.conf included */
  assert_int_equal(gap_configure(heap, ""), 0);
  value_is(heap, "nmalloc", "1");
  char small[4];
  assert_int_equal(gap_conf_value(heap, "strategy", small, sizeof small), 0);
  assert_string_equal(small, "gap");
  gap_set_log(NULL, NULL);
  api_close(heap);
}

/* As the article writes them, between steps of a program: blocks of all of them live side by side. */
static void strategies(void **state) {
  (void)state;
  static const char *const words[][2] = {{"pooled", "pooled"},         {"heuristic:1,nmalloc:3", "heuristic"},
                                         {"gapless", "gapless"},       {"caching_allocator:1", "caching_allocator"},
                                         {"pooled=1", "pooled"},       {"backend:heuristic", "heuristic"},
                                         {"strategy:pooled", "pooled"}};
  enum { COUNT = sizeof words / sizeof *words };
  gap_heap *heap = api_open(GAP_BACKEND_SIM, GIB, "pool_sizes:[1KiB,1MiB]");
  gap_addr blocks[COUNT];
  for (int i = 0; i < COUNT; i++) {
    assert_int_equal(gap_configure(heap, words[i][0]), 0);
    value_is(heap, "strategy", words[i][1]);
    value_is(heap, "pool_sizes", "[1 KiB,1 MiB]"); /* counts from the start */
    blocks[i] = api_get(heap, 0, 600 << 10);
    if (strcmp(words[i][1], "pooled") == 0) assert_in_range(api_stat(heap, 0, "waste_bytes"), 424 << 10, COUNT * MIB);
  }
  for (int i = 0; i < COUNT; i++) api_give(heap, blocks[i]);
  assert_int_equal(api_stat(heap, 0, "waste_bytes"), 0);
  api_close(heap);
}

/* What this version does not do is said, not passed over. */
static void without_effect(void **state) {
  (void)state;
  struct api_log log;
  api_listen(&log);
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, "scrub:True,grow_limit:1.1");
  assert_int_equal(log.count, 1);
  assert_non_null(strstr(log.lines, "options.conf: scrub:True"));
  api_listen(&log);
  assert_int_equal(gap_configure(heap, "convert:off,nmalloc:2"), 0); /* as it is anyway */
  assert_int_equal(log.count, 0);
  gap_set_log(NULL, NULL);
  api_close(heap);
}

static void strategies_at_run_time(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 0, NULL);
  gap_addr a = api_get(heap, 0, 3 * MIB);
  assert_int_equal(gap_configure(heap, "strategy:caching_allocator"), 0);
  gap_addr b = api_get(heap, 0, 3 * MIB);
  assert_int_equal(api_stat(heap, 0, "driver.segment_alloc.calls"), 1);
  assert_int_equal(gap_configure(heap, "strategy:gapless"), 0);
  gap_addr c = api_get(heap, 0, 3 * MIB);
  assert_int_equal(api_usage(heap, 0).live_bytes, 9 * MIB);
  api_give(heap, a), api_give(heap, b), api_give(heap, c);
  api_close(heap);
}

static void log_level(void **state) {
  (void)state;
  struct api_log log;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, NULL);
  api_listen(&log);
  assert_int_equal(gap_configure(heap, "no_such_key:1"), 0);
  assert_int_equal(log.worst, 1);
  api_listen(&log);
  assert_int_equal(gap_configure(heap, "no_such_key:1,log:error"), 0);
  assert_int_equal(log.count, 0);
  assert_int_equal(gap_configure(heap, "log:debug,nmalloc=2"), 0);
  assert_int_equal(log.worst, 2); /* the note about "=" */
  assert_int_equal(gap_configure(heap, "log:warning"), 0);
  gap_set_log(NULL, NULL);
  api_close(heap);
}

/* ---- the environment ---- */

static gap_heap *open_in_environment(const char *conf) {
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  gap_heap *heap = NULL;
  options.backend = GAP_BACKEND_SIM;
  options.conf = conf;
  assert_int_equal(gap_heap_create(&options, &heap), 0);
  return heap;
}

static void environment(void **state) {
  (void)state;
  struct api_log log;
  setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128,roundup_power2_divisions:4", 1);
  setenv("GAPLESS_CONF", "grow_limit:1.25,nmalloc:2", 1);
  gap_heap *heap = open_in_environment("nmalloc:5");
  value_is(heap, "max_split_size_mb", "128 MiB");
  value_is(heap, "grow_limit", "1.25");
  value_is(heap, "nmalloc", "5");
  assert_int_equal(api_stat(heap, 0, "max_split_size"), 128 * MIB);
  assert_int_equal(gap_configure(heap, ""), 0);
  value_is(heap, "nmalloc", "2");
  gap_heap_destroy(heap);
  heap = api_open(GAP_BACKEND_SIM, 0, NULL); /* it does not look */
  value_is(heap, "nmalloc", "1");
  gap_heap_destroy(heap);
  setenv("GAPLESS_CONF", "grow_limit:banana", 1);
  api_listen(&log);
  heap = open_in_environment(NULL); /* one wrong variable leaves the other */
  assert_non_null(strstr(log.lines, "banana"));
  value_is(heap, "grow_limit", "1.05");
  value_is(heap, "max_split_size_mb", "128 MiB");
  gap_heap_destroy(heap);
  setenv("GAPLESS_CONF", "heuristic", 1);
  heap = open_in_environment(NULL);
  value_is(heap, "strategy", "heuristic");
  api_get(heap, 0, MIB);
  assert_int_equal(api_stat(heap, 0, "strategy_reason"), 1);
  gap_heap_destroy(heap);
  gap_set_log(NULL, NULL);
  unsetenv("GAPLESS_CONF");
  unsetenv("PYTORCH_CUDA_ALLOC_CONF");
}

/* Every block from the driver and straight back; a private pool keeps its memory. */
static void no_caching(void **state) {
  (void)state;
  setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", 1);
  gap_heap *heap = open_in_environment(NULL);
  unsetenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
  gap_addr a = api_get(heap, 0, 3 * MIB + 1), b = api_get(heap, 8, 700);
  gap_pool_id pool;
  assert_int_equal(api_usage(heap, 0).held_bytes, 3 * MIB + 512 + 1024);
  assert_int_equal(gap_record_stream(heap, b, 16), 0);
  api_give(heap, a);
  assert_int_equal(api_usage(heap, 0).held_bytes, 1024);
  api_give(heap, b);
  assert_int_equal(gap_trim(heap, 0, NONE, NULL), 0);
  assert_int_equal(api_usage(heap, 0).held_bytes, 0);
  assert_int_equal(api_stat(heap, 0, "driver.segment_free.calls"), 2);
  assert_int_equal(gap_pool_create(heap, 0, GAP_POOL_PRIVATE, NULL, &pool), 0);
  a = api_get_in(heap, 0, pool, MIB);
  api_give(heap, a);
  assert_int_equal(api_usage(heap, 0).held_bytes, MIB);
  assert_true(api_get_in(heap, 0, pool, MIB) == a);
  api_close(heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cap),
      cmocka_unit_test(fraction),
      cmocka_unit_test(cap_and_fraction),
      cmocka_unit_test(reserve),
      cmocka_unit_test(largest_reserve),
      cmocka_unit_test(by_hand_and_by_configuration),
      cmocka_unit_test(peers),
      cmocka_unit_test(all_or_nothing),
      cmocka_unit_test(strategies),
      cmocka_unit_test(without_effect),
      cmocka_unit_test(log_level),
      cmocka_unit_test(strategies_at_run_time),
      cmocka_unit_test(environment),
      cmocka_unit_test(no_caching),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
