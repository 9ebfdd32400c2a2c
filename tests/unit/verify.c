/* Verification: every given history agrees, and a changed event is found and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gapless/gapless.h"
#include "replay/verify_native.h"

static struct gap__conf_set *set;

static struct gap__history *read_history(const char *name) {
  char path[512], *message = NULL;
  struct gap__history *history = NULL;
  snprintf(path, sizeof path, "%s/%s", GAP_TEST_DATA, name);
  assert_int_equal(gap__history_read(path, NULL, NULL, &history, &message), 0);
  return history;
}

static int verify(const struct gap__history *history, uint64_t cap, struct gap__verify_result *result) {
  return gap__verify_native(history, 0, gap__conf_values(set), cap, result);
}

static void agrees(const char *name, uint64_t cap) {
  struct gap__history *history = read_history(name);
  struct gap__verify_result result;
  int rc = verify(history, cap, &result);
  if (rc) print_error("%s: event %llu: %s\n", name, (unsigned long long)result.event, result.text);
  assert_int_equal(rc, 0);
  assert_int_equal(result.events, history->devices[0].event_count);
  gap__history_free(history);
}

static void training_and_serving(void **state) {
  (void)state;
  agrees("diffusion_serve.pickle.xz", 0);
  agrees("gnn.pickle.xz", 0);
  agrees("llama_sft.pickle.xz", 0); /* holds a release of everything idle */
  agrees("llama_sft.stacks.pickle.xz", 0);
  agrees("unet_multires.pickle.xz", 0);
}

static void several_streams(void **state) {
  (void)state;
  agrees("streams.pickle.xz", 0);
}

/* Graph pools and a user pool; one graph pool was gone at the end and is found by the order of its release. */
static void private_pools(void **state) {
  (void)state;
  agrees("graphs.pickle.xz", 0);
}

/* With the cap the model refuses by itself; without it the refusal is taken for the driver's. */
static void out_of_memory(void **state) {
  (void)state;
  agrees("oom.pickle.xz", (uint64_t)26 << 30);
  agrees("oom.pickle.xz", 0);
}

static void caps_and_empty_cache(void **state) {
  (void)state;
  agrees("tr_native.json.gz", 0);
  agrees("tr_native_cap.json.gz", 0);
  agrees("tr_native_str.json.gz", 0);
}

/* Under caps that refuse, so that every way of giving back is met. */
static void settings(void **state) {
  (void)state;
  agrees("tr_nat_split.json.gz", 0);
  agrees("tr_nat_nonsplit.json.gz", 0);
  agrees("tr_nat_gc.json.gz", 0);
  agrees("tr_nat_gc_split.json.gz", 0); /* and four streams */
  agrees("tr_nat_round.json.gz", 0);
  agrees("tr_nat_large.json.gz", 0);
  agrees("tr_nat_pools.json.gz", 0); /* refusals inside private pools and outside */
}

static void expandable_segments(void **state) {
  (void)state;
  agrees("unet_multires.expandable.pickle.xz", 0);
  agrees("streams.expandable.pickle.xz", 0);
  agrees("tr_exp.json.gz", 0); /* unmapping in the middle */
  agrees("tr_exp_cap.json.gz", 0);
  agrees("tr_exp_streams.json.gz", 0);
  agrees("tr_exp_oom.json.gz", 0);
  agrees("tr_exp_graphs.json.gz", 0); /* a graph's pool that was gone at the end */
  agrees("tr_exp_pools.json.gz", 0);
  agrees("tr_exp_split.json.gz", 0);
  agrees("tr_exp_round.json.gz", 0);
  agrees("tr_exp_large.json.gz", 0);
  agrees("tr_exp_gc.json.gz", 0);
}

/* Refusals are then taken for the driver's. */
static void without_a_known_cap(void **state) {
  (void)state;
  static const char *const histories[] = {"tr_exp_oom.json.gz",   "tr_exp_cap.json.gz",   "tr_exp_large.json.gz",
                                          "tr_exp_pools.json.gz", "tr_nat_split.json.gz", "tr_nat_nonsplit.json.gz",
                                          "tr_nat_pools.json.gz", "tr_native_cap.json.gz"};
  for (size_t i = 0; i < sizeof histories / sizeof *histories; i++) {
    struct gap__history *history = read_history(histories[i]);
    struct gap__verify_result result;
    history->memory_fraction = 0;
    assert_int_equal(verify(history, 0, &result), 0);
    history->total_bytes = 0;
    assert_int_equal(verify(history, 0, &result), 0);
    gap__history_free(history);
  }
}

static void the_recorded_policy_is_known(void **state) {
  (void)state;
  static const struct {
    const char *name;
    bool expandable;
  } cases[] = {{"gnn.pickle.xz", false},
               {"tr_native.json.gz", false},
               {"tr_exp.json.gz", true},
               {"streams.expandable.pickle.xz", true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct gap__history *history = read_history(cases[i].name);
    assert_int_equal(gap__verify_expandable(history, 0), cases[i].expandable);
    history->devices[0].event_count = 0; /* no growth: the settings say it */
    assert_int_equal(gap__verify_expandable(history, 0), cases[i].expandable);
    gap__history_free(history);
  }
}

static void a_wrapped_one_cannot_be_verified(void **state) {
  (void)state;
  struct gap__history *history = read_history("ring.pickle.xz");
  struct gap__verify_result result;
  assert_int_equal(verify(history, 0, &result), GAP_ENOTSUP);
  assert_non_null(strstr(result.text, "wrapped"));
  gap__history_free(history);
}

static void no_such_device(void **state) {
  (void)state;
  struct gap__history *history = read_history("gnn.pickle.xz");
  struct gap__verify_result result;
  assert_int_equal(gap__verify_native(history, 7, gap__conf_values(set), 0, &result), GAP_EINVAL);
  gap__history_free(history);
}

/* A cap other than the recorded one refuses at another event, or not at all. */
static void a_wrong_cap_is_noticed(void **state) {
  (void)state;
  struct gap__history *history = read_history("oom.pickle.xz");
  struct gap__verify_result result;
  assert_int_equal(verify(history, (uint64_t)20 << 30, &result), GAP_EMISMATCH);
  assert_in_range(result.event, 0, history->devices[0].event_count - 10);
  assert_int_equal(verify(history, (uint64_t)80 << 30, &result), GAP_EMISMATCH);
  assert_non_null(strstr(result.text, "segment_free"));
  gap__history_free(history);
}

static uint64_t find(const struct gap__hist_device *device, uint64_t from, enum gap__action action) {
  while (device->events[from].action != action) from++;
  return from;
}

typedef void change_fn(struct gap__hist_event *events, uint64_t at);

/* The changed event is the one that is named; the history itself is sound before and after. */
static void names(const char *name, enum gap__action action, uint64_t from, change_fn *change) {
  struct gap__history *history = read_history(name);
  struct gap__hist_device *device = &history->devices[0];
  struct gap__verify_result result;
  uint64_t at = find(device, from, action);
  struct gap__hist_event kept[2] = {device->events[at], device->events[at + 1]};
  change(device->events, at);
  assert_int_equal(verify(history, 0, &result), GAP_EMISMATCH);
  assert_int_equal(result.event, at);
  assert_int_equal(result.events, at);
  assert_true(strlen(result.text) > 20);
  memcpy(&device->events[at], kept, sizeof kept);
  assert_int_equal(verify(history, 0, &result), 0);
  gap__history_free(history);
}

static void move_address(struct gap__hist_event *events, uint64_t at) { events[at].addr += 512; }
static void grow(struct gap__hist_event *events, uint64_t at) { events[at].size += (uint64_t)100 << 30; }
static void add_bytes(struct gap__hist_event *events, uint64_t at) { events[at].size += 8; }
static void add_a_little(struct gap__hist_event *events, uint64_t at) { events[at].size += (uint64_t)4 << 20; }
static void add_a_page(struct gap__hist_event *events, uint64_t at) { events[at].size += (uint64_t)20 << 20; }
static void take_a_page(struct gap__hist_event *events, uint64_t at) { events[at].size -= (uint64_t)20 << 20; }
static void swap_with_next(struct gap__hist_event *events, uint64_t at) {
  struct gap__hist_event first = events[at];
  events[at] = events[at + 1];
  events[at + 1] = first;
}
static void change_stream(struct gap__hist_event *events, uint64_t at) { events[at].stream ^= 4096; }

static void a_changed_address_is_named(void **state) {
  (void)state;
  names("gnn.pickle.xz", GAP__ACT_ALLOC, 4000, move_address);
  names("gnn.pickle.xz", GAP__ACT_FREE_REQUESTED, 4000, move_address);
  names("gnn.pickle.xz", GAP__ACT_FREE_COMPLETED, 4000, move_address);
  names("gnn.pickle.xz", GAP__ACT_SEGMENT_ALLOC, 0, move_address); /* its request is freed elsewhere */
  names("llama_sft.pickle.xz", GAP__ACT_SEGMENT_FREE, 0, move_address);
}

static void a_changed_size_is_named(void **state) {
  (void)state;
  names("gnn.pickle.xz", GAP__ACT_ALLOC, 4000, grow);
  names("gnn.pickle.xz", GAP__ACT_ALLOC, 4000, add_bytes);    /* first seen when it is freed */
  names("gnn.pickle.xz", GAP__ACT_ALLOC, 4000, add_a_little); /* first seen when the rest serves another request */
  names("gnn.pickle.xz", GAP__ACT_SEGMENT_ALLOC, 0, grow);
  names("gnn.pickle.xz", GAP__ACT_FREE_REQUESTED, 4000, add_bytes);
  names("gnn.pickle.xz", GAP__ACT_FREE_COMPLETED, 4000, add_bytes);
  names("tr_native.json.gz", GAP__ACT_SNAPSHOT, 0, add_bytes);
}

static void a_changed_order_is_named(void **state) {
  (void)state;
  names("llama_sft.pickle.xz", GAP__ACT_SEGMENT_FREE, 0, swap_with_next); /* two of one burst */
  names("gnn.pickle.xz", GAP__ACT_FREE_REQUESTED, 4000, swap_with_next);  /* completed before requested */
}

/* The first of two neighbouring requests at different times, from `from` on. */
static uint64_t two_requests(const char *name, uint64_t from) {
  struct gap__history *history = read_history(name);
  const struct gap__hist_device *device = &history->devices[0];
  uint64_t at = from;
  while (at + 1 < device->event_count &&
         (device->events[at].action != GAP__ACT_ALLOC || device->events[at + 1].action != GAP__ACT_ALLOC ||
          device->events[at].time_us >= device->events[at + 1].time_us))
    at++;
  assert_in_range(at + 1, 1, device->event_count - 1);
  gap__history_free(history);
  return at;
}

/* Requests that have nothing to do with each other. */
static void a_swap_that_changes_nothing_is_named(void **state) {
  (void)state;
  static const char *const histories[] = {"gnn.pickle.xz", "graphs.pickle.xz", "streams.expandable.pickle.xz"};
  for (size_t i = 0; i < sizeof histories / sizeof *histories; i++)
    names(histories[i], GAP__ACT_ALLOC, two_requests(histories[i], 1000), swap_with_next);
}

/* The first segment_unmap of several pages, from `from` on. */
static uint64_t several_pages(const struct gap__hist_event *events, uint64_t from) {
  while (events[from].action != GAP__ACT_SEGMENT_UNMAP || events[from].size < (uint64_t)60 << 20) from++;
  return from;
}

static void changes_of_expandable_histories_are_named(void **state) {
  (void)state;
  static const char *const histories[] = {
      "tr_exp.json.gz",        "tr_exp_cap.json.gz",          "tr_exp_streams.json.gz", "tr_exp_pools.json.gz",
      "tr_exp_split.json.gz",  "tr_exp_round.json.gz",        "tr_exp_large.json.gz",   "tr_exp_gc.json.gz",
      "tr_exp_graphs.json.gz", "streams.expandable.pickle.xz"};
  for (size_t i = 0; i < sizeof histories / sizeof *histories; i++) {
    names(histories[i], GAP__ACT_ALLOC, 2000, move_address);
    names(histories[i], GAP__ACT_ALLOC, 2000, grow);
    names(histories[i], GAP__ACT_ALLOC, 2000, add_bytes);
    names(histories[i], GAP__ACT_FREE_REQUESTED, 2000, move_address);
    names(histories[i], GAP__ACT_FREE_REQUESTED, 2000, swap_with_next);
    names(histories[i], GAP__ACT_FREE_COMPLETED, 2000, add_bytes);
    names(histories[i], GAP__ACT_SEGMENT_MAP, 0, add_a_page);
    names(histories[i], GAP__ACT_SEGMENT_MAP, 0, move_address);
    names(histories[i], GAP__ACT_SEGMENT_MAP, 100, swap_with_next); /* before its alloc */
  }
}

static void changes_of_unmapping_are_named(void **state) {
  (void)state;
  static const char *const histories[] = {"tr_exp.json.gz", "tr_exp_cap.json.gz", "tr_exp_split.json.gz",
                                          "tr_exp_gc.json.gz"};
  for (size_t i = 0; i < sizeof histories / sizeof *histories; i++) {
    struct gap__history *history = read_history(histories[i]);
    uint64_t at = several_pages(history->devices[0].events, 0);
    gap__history_free(history);
    names(histories[i], GAP__ACT_SEGMENT_UNMAP, at, add_a_page);
    names(histories[i], GAP__ACT_SEGMENT_UNMAP, at, take_a_page);
    names(histories[i], GAP__ACT_SEGMENT_UNMAP, at, move_address);
  }
  names("tr_exp.json.gz", GAP__ACT_SEGMENT_UNMAP, 0, swap_with_next); /* two of one burst */
}

/* Live at the end, so no free contradicts it: the block that the snapshot lists does. */
static void a_size_is_compared_with_the_last_block(void **state) {
  (void)state;
  struct gap__history *history = read_history("tr_exp.json.gz");
  struct gap__hist_device *device = &history->devices[0];
  struct gap__verify_result result;
  uint64_t at = device->event_count, freed = 0;
  while (freed < device->event_count) { /* the last alloc that is not freed */
    at--;
    for (freed = at; freed < device->event_count; freed++)
      if (device->events[freed].action == GAP__ACT_FREE_REQUESTED &&
          device->events[freed].addr == device->events[at].addr)
        break;
    if (device->events[at].action != GAP__ACT_ALLOC) freed = 0;
  }
  device->events[at].size -= 1;
  assert_int_equal(verify(history, 0, &result), GAP_EMISMATCH);
  assert_int_equal(result.event, at);
  gap__history_free(history);
}

/* A free of another live block of the same size: the completion that follows and a second free give it away. */
static void a_free_of_another_block_is_named(void **state) {
  (void)state;
  struct gap__history *history = read_history("gnn.pickle.xz");
  struct gap__hist_event *events = history->devices[0].events;
  struct gap__verify_result result;
  uint64_t at = 3000, other;
  for (bool found = false; !found; at += !found) {
    if (events[at].action != GAP__ACT_FREE_REQUESTED) continue;
    for (other = at + 2; other < at + 40 && !found; other++)
      found = events[other].action == GAP__ACT_FREE_REQUESTED && events[other].size == events[at].size &&
              events[other].addr != events[at].addr;
    for (uint64_t between = at + 2; found && between < other; between++)
      found = events[between].action != GAP__ACT_ALLOC;
  }
  events[at].addr = events[other - 1].addr;
  assert_int_equal(verify(history, 0, &result), GAP_EMISMATCH);
  assert_int_equal(result.event, at);
  gap__history_free(history);
}

static void a_changed_stream_is_named(void **state) {
  (void)state;
  names("streams.pickle.xz", GAP__ACT_ALLOC, 5000, change_stream);
  names("streams.pickle.xz", GAP__ACT_FREE_REQUESTED, 5000, change_stream);
}

/* A late completion that moves behind the malloc that noticed it. */
static void a_late_completion_is_placed(void **state) {
  (void)state;
  struct gap__history *history = read_history("streams.pickle.xz");
  struct gap__hist_event *events = history->devices[0].events;
  uint64_t at = 1;
  while (events[at].action != GAP__ACT_FREE_COMPLETED || events[at + 1].action != GAP__ACT_ALLOC ||
         events[at - 1].addr == events[at].addr || events[at + 1].addr != events[at].addr)
    at++;
  swap_with_next(events, at);
  struct gap__verify_result result;
  assert_int_equal(verify(history, 0, &result), GAP_EMISMATCH);
  assert_int_equal(result.event, at);
  gap__history_free(history);
}

static void a_lost_segment_shows_at_the_end(void **state) {
  (void)state;
  struct gap__history *history = read_history("gnn.pickle.xz");
  struct gap__verify_result result;
  history->segments[history->segment_count - 1].total_size -= 512;
  assert_int_equal(verify(history, 0, &result), GAP_EMISMATCH);
  assert_int_equal(result.event, history->devices[0].event_count);
  history->segments[history->segment_count - 1].total_size += 512;
  history->segment_count--;
  assert_int_equal(verify(history, 0, &result), GAP_EMISMATCH);
  history->segment_count++;
  history->blocks[history->segments[3].block_first].state ^= 1;
  assert_int_equal(verify(history, 0, &result), GAP_EMISMATCH);
  gap__history_free(history);
}

static int make_set(void **state) {
  (void)state;
  set = gap__conf_new();
  return set ? 0 : -1;
}
static int free_set(void **state) {
  (void)state;
  gap__conf_free(set);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(training_and_serving),
      cmocka_unit_test(several_streams),
      cmocka_unit_test(private_pools),
      cmocka_unit_test(out_of_memory),
      cmocka_unit_test(caps_and_empty_cache),
      cmocka_unit_test(settings),
      cmocka_unit_test(expandable_segments),
      cmocka_unit_test(without_a_known_cap),
      cmocka_unit_test(the_recorded_policy_is_known),
      cmocka_unit_test(a_wrapped_one_cannot_be_verified),
      cmocka_unit_test(no_such_device),
      cmocka_unit_test(a_wrong_cap_is_noticed),
      cmocka_unit_test(a_changed_address_is_named),
      cmocka_unit_test(a_changed_size_is_named),
      cmocka_unit_test(a_changed_order_is_named),
      cmocka_unit_test(a_swap_that_changes_nothing_is_named),
      cmocka_unit_test(changes_of_expandable_histories_are_named),
      cmocka_unit_test(changes_of_unmapping_are_named),
      cmocka_unit_test(a_size_is_compared_with_the_last_block),
      cmocka_unit_test(a_free_of_another_block_is_named),
      cmocka_unit_test(a_changed_stream_is_named),
      cmocka_unit_test(a_late_completion_is_placed),
      cmocka_unit_test(a_lost_segment_shows_at_the_end),
  };
  return cmocka_run_group_tests(tests, make_set, free_set);
}
