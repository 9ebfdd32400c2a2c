/* The statistics of caching_allocator against torch's own memory_stats at the end of recorded histories: every figure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <zlib.h>

#include "gapless/gapless.h"
#include "replay/verify_native.h"

static json_t *read_stats(const char *path) {
  gzFile file = gzopen(path, "rb");
  assert_non_null(file);
  size_t room = 16u << 20, used = 0;
  char *text = malloc(room);
  for (int got; (got = gzread(file, text + used, (unsigned)(room - used))) > 0;) used += (size_t)got;
  gzclose(file);
  json_t *whole = json_loadb(text, used, 0, NULL);
  assert_non_null(whole);
  json_t *stats = json_incref(json_object_get(whole, "stats"));
  json_decref(whole);
  free(text);
  return stats;
}

static int compare_figure(const json_t *stats, const char *key, int64_t ours) {
  const json_t *theirs = json_object_get(stats, key);
  if (theirs && json_integer_value(theirs) == ours) return 0;
  print_error("%s: torch has %lld, we have %lld\n", key, theirs ? (long long)json_integer_value(theirs) : -1LL,
              (long long)ours);
  return 1;
}

static int compare_array(const json_t *stats, const char *name, const struct gap__stat ours[GAP__KIND_COUNT]) {
  static const char *const kinds[] = {"all", "small_pool", "large_pool"};
  int differ = 0;
  for (int kind = 0; kind < GAP__KIND_COUNT; kind++) {
    const struct {
      const char *name;
      int64_t value;
    } figures[] = {{"current", ours[kind].current},
                   {"peak", ours[kind].peak},
                   {"allocated", ours[kind].allocated},
                   {"freed", ours[kind].freed}};
    for (size_t i = 0; i < 4; i++) {
      char key[96];
      snprintf(key, sizeof key, "%s.%s.%s", name, kinds[kind], figures[i].name);
      differ += compare_figure(stats, key, figures[i].value);
    }
  }
  return differ;
}

static int compare_arrays(const json_t *torch, const struct gap__stats *ours) {
  int differ = 0;
#define GAP_STAT_ARRAY(name, help) differ += compare_array(torch, #name, ours->name);
#include "core/stats.def"
  return differ;
}

static int compare_scalars(const json_t *torch, const struct gap__stats *ours) {
  return compare_figure(torch, "oversize_allocations.current", ours->oversize_allocations_current) +
         compare_figure(torch, "oversize_allocations.allocated", ours->oversize_allocations_allocated) +
         compare_figure(torch, "oversize_segments.peak", ours->oversize_segments_peak) +
         compare_figure(torch, "num_alloc_retries", ours->num_alloc_retries) +
         compare_figure(torch, "num_ooms", ours->num_ooms) +
         compare_figure(torch, "num_device_alloc", ours->num_device_alloc) +
         compare_figure(torch, "num_device_free", ours->num_device_free) +
         compare_figure(torch, "max_split_size", ours->max_split_size);
}

/* The recording program called empty_cache() once after each snapshot; the calls that freed nothing left no event. */
static int compare_synchronisations(const json_t *torch, const struct gap__history *history,
                                    const struct gap__verify_result *result) {
  int64_t calls = 0;
  for (uint64_t i = 0; i < history->devices[0].event_count; i++)
    calls += history->devices[0].events[i].action == GAP__ACT_SNAPSHOT;
  assert_in_range(result->trims, 1, calls);
  int64_t unseen = calls - (int64_t)result->trims;
  return compare_figure(torch, "num_sync_all_streams", result->stats.num_sync_all_streams + unseen);
}

static void compare_history(const char *path) {
  struct gap__conf_set *set = gap__conf_new();
  struct gap__history *history = NULL;
  char *message = NULL;
  assert_int_equal(gap__history_read(path, NULL, NULL, &history, &message), 0);
  struct gap__verify_result result;
  assert_int_equal(gap__verify_native(history, 0, gap__conf_values(set), 0, &result), 0);
  json_t *torch = read_stats(path);
  int differ = compare_arrays(torch, &result.stats) + compare_scalars(torch, &result.stats) +
               compare_synchronisations(torch, history, &result);
  json_decref(torch);
  gap__history_free(history);
  gap__conf_free(set);
  assert_int_equal(differ, 0);
}

static void without_cap(void **state) {
  (void)state;
  compare_history(GAP_TEST_DATA "/tr_native.json.gz");
}
static void under_a_cap(void **state) {
  (void)state;
  compare_history(GAP_TEST_DATA "/tr_native_cap.json.gz");
}
static void several_streams(void **state) {
  (void)state;
  compare_history(GAP_TEST_DATA "/tr_native_str.json.gz");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_cap),
      cmocka_unit_test(under_a_cap),
      cmocka_unit_test(several_streams),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
