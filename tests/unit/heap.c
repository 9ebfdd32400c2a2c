/* The heap: dispatch to devices and strategies, caps, fork. */
#include "core/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "dev/sim/sim.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define DEFAULT ((gap_pool_id){0, 0})

struct fixture {
  struct gap__conf_set *set;
  struct gap__dev *devs[2];
  gap_heap *heap;
};

static const struct gap__conf *configured(struct fixture *f, const char *string) {
  if (!f->set) f->set = gap__conf_new();
  assert_int_equal(gap__conf_apply(f->set, GAP__CONF_RUNTIME, "test", string, NULL), 0);
  return gap__conf_values(f->set);
}

static void open_heap(struct fixture *f, int devices, const char *string) {
  *f = (struct fixture){0};
  for (int i = 0; i < devices; i++)
    assert_int_equal(gap__sim_create(i, &(struct gap__sim_params){.total_bytes = 80 * GIB}, &f->devs[i]), 0);
  struct gap__heap_params params = {.devs = f->devs, .dev_count = devices, .conf = configured(f, string)};
  assert_int_equal(gap__heap_create(&params, &f->heap), 0);
}

static void close_heap(struct fixture *f) {
  char text[300] = "";
  if (gap__heap_check(f->heap, 0, text, sizeof text)) fail_msg("%s", text);
  gap__heap_destroy(f->heap);
  gap__conf_free(f->set);
}

static gap_addr take(struct fixture *f, int device, uint64_t bytes) {
  gap_addr addr = 0;
  assert_int_equal(gap__heap_alloc(f->heap, device, 0, DEFAULT, bytes, &addr), 0);
  return addr;
}

static struct gap__stats stats_of(struct fixture *f, int device) {
  struct gap__stats stats;
  assert_int_equal(gap__heap_stats(f->heap, device, &stats), 0);
  return stats;
}

static void arguments(void **state) {
  (void)state;
  struct fixture f;
  struct gap__stats stats;
  open_heap(&f, 1, "strategy:caching_allocator");
  gap_addr addr = 77;
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, DEFAULT, 0, &addr), 0);
  assert_int_equal(addr, 0);
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, DEFAULT, (uint64_t)1 << 60, &addr), GAP_ETOOBIG);
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, DEFAULT, UINT64_MAX, &addr), GAP_ETOOBIG);
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, DEFAULT, ((uint64_t)1 << 60) - 1, &addr), GAP_ENOMEM);
  assert_int_equal(gap__heap_alloc(f.heap, 1, 0, DEFAULT, 512, &addr), GAP_EINVAL);
  assert_int_equal(gap__heap_alloc(f.heap, -1, 0, DEFAULT, 512, &addr), GAP_EINVAL);
  assert_int_equal(gap__heap_stats(f.heap, 5, &stats), GAP_EINVAL);
  assert_int_equal(gap__heap_set_fraction(f.heap, 0, 1.5), GAP_EINVAL);
  assert_null(gap__heap_dev(f.heap, 1));
  assert_ptr_equal(gap__heap_dev(f.heap, 0), f.devs[0]);
  close_heap(&f);
}

static void devices_are_apart(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, 2, "strategy:caching_allocator");
  gap_addr first = take(&f, 0, 20 * MIB);
  take(&f, 1, 40 * MIB);
  assert_int_equal(stats_of(&f, 0).reserved_bytes[GAP__KIND_ALL].current, 20 * MIB);
  assert_int_equal(stats_of(&f, 1).reserved_bytes[GAP__KIND_ALL].current, 40 * MIB);
  assert_int_equal(gap__heap_set_cap(f.heap, 1, 50 * MIB), 0);
  gap_addr addr = 0;
  assert_int_equal(gap__heap_alloc(f.heap, 1, 0, DEFAULT, 20 * MIB, &addr), GAP_ENOMEM);
  take(&f, 0, 200 * MIB);
  assert_int_equal(gap__heap_free(f.heap, first), 0);
  assert_int_equal(stats_of(&f, 0).allocation[GAP__KIND_ALL].freed, 1);
  assert_int_equal(stats_of(&f, 1).allocation[GAP__KIND_ALL].freed, 0);
  close_heap(&f);
}

static void caps_from_the_configuration(void **state) {
  (void)state;
  static const struct {
    const char *string;
    uint64_t cap;
  } cases[] = {{"", 0},
               {"max_memory:3GiB", 3 * GIB},
               {"max_memory:25%", 20 * GIB},
               {"per_process_memory_fraction:0.5", 40 * GIB},
               {"per_process_memory_fraction:0.5,max_memory:3GiB", 3 * GIB}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct fixture f;
    char string[160];
    snprintf(string, sizeof string, "strategy:caching_allocator%s%s", *cases[i].string ? "," : "", cases[i].string);
    open_heap(&f, 1, string);
    assert_int_equal(stats_of(&f, 0).cap_bytes, cases[i].cap);
    close_heap(&f);
  }
}

/* The product is rounded down, as torch does. */
static void fractions(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, 1, "strategy:caching_allocator");
  assert_int_equal(gap__heap_set_fraction(f.heap, 0, 0.03), 0);
  assert_int_equal(stats_of(&f, 0).cap_bytes, (int64_t)(0.03 * (double)(80 * GIB)));
  assert_int_equal(gap__heap_set_fraction(f.heap, 0, 0), 0);
  gap_addr addr = 0;
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, DEFAULT, 512, &addr), GAP_ENOMEM);
  assert_int_equal(gap__heap_set_fraction(f.heap, 0, 1), 0);
  take(&f, 0, 512);
  close_heap(&f);
}

static void a_cap_set_by_hand_outlives_other_settings(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, 1, "strategy:caching_allocator");
  gap__heap_set_cap(f.heap, 0, 5 * GIB);
  assert_int_equal(gap__heap_configure(f.heap, configured(&f, "strategy:caching_allocator,max_split_size_mb:64")), 0);
  assert_int_equal(stats_of(&f, 0).cap_bytes, 5 * GIB);
  assert_int_equal(gap__heap_configure(f.heap, configured(&f, "strategy:caching_allocator,max_memory:2GiB")), 0);
  assert_int_equal(stats_of(&f, 0).cap_bytes, 2 * GIB);
  close_heap(&f);
}

static void a_cap_below_what_is_live(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, 1, "strategy:caching_allocator");
  gap_addr live = take(&f, 0, 100 * MIB), addr = 0;
  assert_int_equal(gap__heap_set_cap(f.heap, 0, 50 * MIB), 0);
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, DEFAULT, 20 * MIB, &addr), GAP_ENOMEM);
  assert_int_equal(gap__heap_free(f.heap, live), 0);
  take(&f, 0, 20 * MIB);
  close_heap(&f);
}

static void settings_apply_at_run_time(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, 1, "strategy:caching_allocator");
  take(&f, 0, 1200 * MIB);
  gap__heap_configure(f.heap, configured(&f, "strategy:caching_allocator,roundup_power2_divisions:4"));
  take(&f, 0, 1200 * MIB);
  assert_int_equal(stats_of(&f, 0).allocated_bytes[GAP__KIND_ALL].current, (1200 + 1280) * MIB);
  close_heap(&f);
}

static void strategies_that_do_not_exist(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, 1, "strategy:caching_allocator");
  struct gap__conf conf = *configured(&f, "strategy:caching_allocator");
  conf.strategy = GAP__STRATEGY_COUNT;
  assert_int_equal(gap__heap_configure(f.heap, &conf), GAP_ENOTSUP);
  take(&f, 0, 512);
  close_heap(&f);
}

/* Blocks stay with the strategy that made them. */
static void strategies_switch_while_blocks_live(void **state) {
  (void)state;
  struct fixture f;
  gap_pool_id pool = {0, 3};
  open_heap(&f, 1, "strategy:caching_allocator");
  assert_int_equal(gap__heap_pool_retain(f.heap, 0, pool), 0);
  gap_addr old = take(&f, 0, 20 * MIB), pooled = 0;
  assert_int_equal(gap__heap_configure(f.heap, configured(&f, "strategy:gapless")), 0);
  gap_addr fresh = take(&f, 0, 20 * MIB);
  assert_int_equal(gap__heap_alloc(f.heap, 0, 0, pool, 2 * MIB, &pooled), 0); /* the new strategy knows the pool */
  assert_int_equal(stats_of(&f, 0).allocation[GAP__KIND_ALL].current, 3);
  assert_int_equal(gap__heap_record_stream(f.heap, old, 2048), 0);
  assert_int_equal(gap__heap_free(f.heap, old), 0);
  assert_int_equal(gap__heap_free(f.heap, fresh), 0);
  assert_int_equal(gap__heap_free(f.heap, fresh), GAP_EFREED);
  assert_int_equal(gap__heap_free(f.heap, pooled), 0);
  assert_int_equal(gap__heap_pool_release(f.heap, 0, pool), 0);
  assert_int_equal(gap__heap_configure(f.heap, configured(&f, "strategy:caching_allocator")), 0);
  assert_int_equal(gap__heap_free(f.heap, take(&f, 0, 20 * MIB)), 0);
  uint64_t returned = 0;
  assert_int_equal(gap__heap_trim(f.heap, 0, DEFAULT, &returned), 0);
  assert_in_range(returned, 20 * MIB, 80 * MIB);
  close_heap(&f);
}

static void driver_time_is_counted(void **state) {
  (void)state;
  struct fixture f;
  open_heap(&f, 1, "strategy:caching_allocator");
  take(&f, 0, 100 * MIB);
  struct gap__stats stats = stats_of(&f, 0);
  assert_in_range(stats.driver_calls, 1, 10);
  assert_in_range(stats.driver_time_us, 1, 1000);
  assert_in_range(stats.rung_us[GAP__RUNG_grow], 1, 1000);
  assert_int_equal(gap__heap_reset_accumulated(f.heap, 0), 0);
  assert_int_equal(stats_of(&f, 0).driver_time_us, 0);
  close_heap(&f);
}

static void rungs_have_names(void **state) {
  (void)state;
  assert_string_equal(gap__rung_name(GAP__RUNG_fit), "fit");
  assert_string_equal(gap__rung_name(GAP__RUNG_fail), "fail");
  assert_string_equal(gap__rung_name(GAP__RUNG_COUNT), "");
}

/* 0 when everything in the child was as it should be, else the number of the step that was not. */
static int live_in_child(struct fixture *f, gap_addr inherited) {
  gap_addr addr = 0;
  struct gap__stats stats;
  uint64_t bytes = 0;
  if (gap__heap_alloc(f->heap, 0, 0, DEFAULT, 512, &addr) != GAP_EFORKED) return 1;
  if (gap__heap_free(f->heap, inherited)) return 2;
  if (gap__heap_free(f->heap, inherited)) return 3; /* silent, whatever it names */
  if (gap__heap_record_stream(f->heap, inherited, 1)) return 4;
  if (gap__heap_trim(f->heap, 0, DEFAULT, &bytes) != GAP_EFORKED || bytes) return 5;
  if (gap__heap_stats(f->heap, 0, &stats) != GAP_EFORKED) return 6;
  if (gap__heap_set_cap(f->heap, 0, 1) != GAP_EFORKED) return 7;
  if (gap__heap_configure(f->heap, gap__conf_values(f->set)) != GAP_EFORKED) return 8;
  gap__heap_tick(f->heap, 0);
  gap__heap_destroy(f->heap);
  return 0;
}

static void the_child_of_a_fork_is_dead_and_quiet(void **state) {
  (void)state;
  struct fixture f, other;
  open_heap(&f, 1, "strategy:caching_allocator");
  open_heap(&other, 2, "strategy:caching_allocator");
  gap_addr live = take(&f, 0, 20 * MIB);
  take(&other, 1, 20 * MIB);
  pid_t child = fork();
  if (child == 0) {
    int step = live_in_child(&f, live);
    _exit(step ? step : 20 * live_in_child(&other, live));
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  assert_int_equal(gap__heap_free(f.heap, live), 0); /* the parent goes on */
  take(&f, 0, 20 * MIB);
  close_heap(&other);
  close_heap(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(arguments),
      cmocka_unit_test(devices_are_apart),
      cmocka_unit_test(caps_from_the_configuration),
      cmocka_unit_test(fractions),
      cmocka_unit_test(a_cap_set_by_hand_outlives_other_settings),
      cmocka_unit_test(a_cap_below_what_is_live),
      cmocka_unit_test(settings_apply_at_run_time),
      cmocka_unit_test(strategies_that_do_not_exist),
      cmocka_unit_test(strategies_switch_while_blocks_live),
      cmocka_unit_test(driver_time_is_counted),
      cmocka_unit_test(rungs_have_names),
      cmocka_unit_test(the_child_of_a_fork_is_dead_and_quiet),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
