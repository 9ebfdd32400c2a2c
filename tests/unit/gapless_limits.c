/* Caps, the reserve left to neighbours, and address windows that the driver refuses. */
#include <math.h>
#include <stdio.h>

#include "support/gapless_try.h"

static void cap_by_bytes(void **state) {
  (void)state;
  struct try t = try_sim("");
  try_cap(&t, 64 * MIB);
  gap_addr a = try_get(&t, 0, 40 * MIB), b = try_get(&t, STREAM_A, 24 * MIB);
  assert_int_equal(try_held(&t), 64 * MIB);
  try_refuse(&t, STREAM_B, 1, GAP_ENOMEM);
  try_cap(&t, 66 * MIB);
  gap_addr c = try_get(&t, STREAM_B, 2 * MIB);
  assert_int_equal(try_stats(&t)->cap_bytes, 66 * MIB);
  assert_int_equal(gap__sim_chunk_bytes(t.dev), 66 * MIB);
  try_give(&t, a), try_give(&t, b), try_give(&t, c);
  try_end(&t);
}

/* A cap that is not a whole number of pages holds whole pages below it; a cap below a page holds none. */
static void caps_beside_pages(void **state) {
  (void)state;
  struct try t = try_sim("");
  try_cap(&t, 5 * MIB);
  try_refuse(&t, 0, 5 * MIB, GAP_ENOMEM);
  try_give(&t, try_get(&t, 0, 4 * MIB));
  try_cap(&t, PAGE - 1);
  try_trim(&t);
  try_refuse(&t, 0, 1, GAP_ENOMEM);
  try_cap(&t, 1);
  try_refuse(&t, 0, 1, GAP_ENOMEM);
  assert_int_equal(try_held(&t), 0);
  try_cap(&t, 0);
  try_give(&t, try_get(&t, 0, 100 * MIB));
  try_end(&t);
}

static void cap_by_fraction(void **state) {
  (void)state;
  struct try t = try_sim("");
  assert_int_equal(gap__heap_set_fraction(t.heap, 0, 0.25), 0);
  assert_int_equal(try_stats(&t)->cap_bytes, GIB);
  try_refuse(&t, 0, GIB + 1, GAP_ENOMEM);
  try_give(&t, try_get(&t, 0, GIB));
  assert_int_equal(gap__heap_set_fraction(t.heap, 0, -0.1), GAP_EINVAL);
  assert_int_equal(gap__heap_set_fraction(t.heap, 0, 1.01), GAP_EINVAL);
  assert_int_equal(gap__heap_set_fraction(t.heap, 0, (double)NAN), GAP_EINVAL);
  assert_int_equal(try_stats(&t)->cap_bytes, GIB);
  try_trim(&t);
  assert_int_equal(gap__heap_set_fraction(t.heap, 0, 0), 0);
  try_refuse(&t, 0, 512, GAP_ENOMEM); /* nothing, not everything */
  try_end(&t);
}

/* Idle memory goes at once, what is live stays, nothing new is served until it fits. */
static void cap_below_live(void **state) {
  (void)state;
  struct try t = try_sim("");
  gap_addr live = try_get(&t, 0, 40 * MIB), idle = try_get(&t, 0, 40 * MIB);
  try_give(&t, idle);
  try_cap(&t, 20 * MIB);
  assert_int_equal(try_held(&t), 40 * MIB);
  try_refuse(&t, 0, 2 * MIB, GAP_ENOMEM);
  try_refuse(&t, STREAM_A, 512, GAP_ENOMEM);
  try_give(&t, live);
  gap_addr a = try_get(&t, 0, 20 * MIB);
  try_cap(&t, 20 * MIB);
  assert_true(try_held(&t) <= 20 * MIB);
  try_refuse(&t, 0, 2 * MIB, GAP_ENOMEM);
  try_give(&t, a);
  try_end(&t);
}

/* Without a cap 512 MiB, on a small card a sixteenth, stay free for others; a neighbour that comes later is respected. */
static void reserve(void **state) {
  (void)state;
  struct gap__sim_params card = {.total_bytes = 8 * GIB}, small = {.total_bytes = GIB};
  struct try t = try_sim_with(&card, "", GAP__MAKER_OFF);
  try_refuse(&t, 0, 7681 * MIB, GAP_ENOMEM);
  gap_addr a = try_get(&t, 0, 7144 * MIB);
  gap__sim_neighbour_set(t.dev, 400 * MIB);
  try_refuse(&t, STREAM_A, 200 * MIB, GAP_ENOMEM);
  gap_addr b = try_get(&t, STREAM_A, 130 * MIB);
  uint64_t free_bytes, total;
  assert_int_equal(gap__dev_mem_info(t.dev, &free_bytes, &total), 0);
  assert_true(free_bytes >= 512 * MIB);
  try_give(&t, a), try_give(&t, b);
  try_end(&t);

  t = try_sim_with(&card, "reserve:0", GAP__MAKER_OFF);
  try_give(&t, try_get(&t, 0, 8 * GIB));
  try_end(&t);
  t = try_sim_with(&small, "", GAP__MAKER_OFF);
  try_refuse(&t, 0, 961 * MIB, GAP_ENOMEM);
  try_give(&t, try_get(&t, 0, 960 * MIB));
  try_end(&t);
  t = try_sim_with(&card, "reserve:1GiB", GAP__MAKER_OFF);
  try_refuse(&t, 0, 7 * GIB + 1, GAP_ENOMEM);
  try_give(&t, try_get(&t, 0, 7 * GIB));
  try_end(&t);
}

/* The driver has less than the cap allows: idle pages serve instead, and a refusal is an ordinary failure. */
static void driver_refuses_below_the_cap(void **state) {
  (void)state;
  struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = 100 * MIB}, "", GAP__MAKER_OFF);
  try_cap(&t, GIB);
  gap_addr a = try_get(&t, STREAM_A, 60 * MIB);
  try_refuse(&t, STREAM_B, 60 * MIB, GAP_ENOMEM);
  try_check(&t);
  try_give(&t, a);
  gap__sim_clock_advance(t.dev, 1000000);
  gap_addr b = try_get(&t, STREAM_B, 90 * MIB);
  assert_true(try_held(&t) <= 100 * MIB);
  try_give(&t, b);
  try_end(&t);
}

/* ---- addresses that the driver refuses ---- */

static struct {
  int lines;
  char last[300];
} said;

static void keep_line(void *arg, int level, const char *line) {
  (void)arg, (void)level;
  said.lines++;
  snprintf(said.last, sizeof said.last, "%s", line);
}

static void listen_to_lines(void) {
  memset(&said, 0, sizeof said);
  gap_set_log(keep_line, NULL);
}

/* One line in all says that driver allocations serve. */
static void said_once(const char *bytes) {
  char words[120];
  snprintf(words, sizeof words, "the driver refused the addresses for %s: driver allocations serve", bytes);
  assert_int_equal(said.lines, 1);
  if (!strstr(said.last, words)) fail_msg("%s", said.last);
  gap_set_log(NULL, NULL);
}

static void windows_of_64_mib(void **state) {
  (void)state;
  listen_to_lines();
  struct gap__sim_params card = {.total_bytes = 4 * GIB, .window_max_bytes = 64 * MIB};
  struct try t = try_sim_with(&card, "", GAP__MAKER_OFF);
  gap_addr at[40];
  for (int i = 0; i < 40; i++) at[i] = try_get(&t, 0, (uint64_t)(i + 1) * MIB);
  assert_int_equal(said.lines, 0);
  try_give(&t, try_get(&t, 0, 65 * MIB));
  try_give(&t, try_get(&t, 0, 65 * MIB));
  said_once("65 MiB");
  assert_int_equal(try_calls(&t, GAP__CALL_segment_alloc), 1); /* the second had the first one's */
  for (int i = 0; i < 40; i += 2) try_give(&t, at[i]);
  for (int i = 0; i < 40; i += 2) at[i] = try_get(&t, STREAM_A, 33 * MIB);
  for (int i = 0; i < 40; i++) try_give(&t, at[i]);
  try_end(&t);
}

static void no_windows(void **state) {
  (void)state;
  struct gap__sim_params card = {.total_bytes = GIB, .window_max_bytes = 1};
  struct try t = try_sim_with(&card, "max_memory:100MiB", GAP__MAKER_OFF);
  listen_to_lines();
  gap_addr a = try_get(&t, 0, 512), b = try_get(&t, STREAM_A, 60 * MIB);
  said_once("512 B");
  assert_int_equal(try_held(&t), 62 * MIB);
  try_refuse(&t, STREAM_B, 60 * MIB, GAP_ENOMEM); /* the cap holds for them too */
  assert_int_equal(gap__heap_record_stream(t.heap, b, STREAM_B), 0);
  try_give(&t, a), try_give(&t, b);
  assert_int_equal(gap__heap_free(t.heap, a), GAP_EFREED);
  assert_int_equal(try_stats(&t)->num_ooms, 1);
  try_end(&t);
}

/* A request longer than any window takes the memory that lies idle on pages: nobody waits, no callback is called. */
static bool never(void *arg, int device, gap_stream stream, uint64_t bytes) {
  (void)arg, (void)device, (void)stream, (void)bytes;
  fail();
  return false;
}

static void longer_than_any_window(void **state) {
  (void)state;
  struct gap__sim_params card = {.total_bytes = 80 * GIB, .window_max_bytes = 16 * GIB};
  struct try t = try_sim_with(&card, "", GAP__MAKER_OFF);
  listen_to_lines();
  gap__heap_set_oom_callback(t.heap, never, NULL);
  gap_addr at[6];
  for (int i = 0; i < 6; i++) at[i] = try_get(&t, STREAM_A, 10 * GIB);
  gap_addr pending = at[0];
  assert_int_equal(gap__heap_record_stream(t.heap, pending, STREAM_B), 0);
  gap__sim_stream_hold(t.dev, STREAM_B);
  try_give(&t, pending);
  gap_addr big = try_get(&t, STREAM_A, 17 * GIB);
  said_once("17 GiB");
  assert_int_equal(try_stats(&t)->stalls, 0);
  try_give(&t, big);
  for (int i = 1; i < 6; i++) try_give(&t, at[i]);
  gap__sim_stream_release(t.dev, STREAM_B);
  gap__heap_set_oom_callback(t.heap, NULL, NULL);
  try_give(&t, try_get(&t, STREAM_A, 70 * GIB));
  try_give(&t, try_get(&t, STREAM_A, 15 * GIB)); /* and back */
  try_end(&t);
}

/* 256 MiB of addresses in all: what they cannot hold comes from the driver. */
static void address_budget(void **state) {
  (void)state;
  struct gap__sim_params card = {.total_bytes = 4 * GIB, .address_budget_bytes = 256 * MIB};
  struct try t = try_sim_with(&card, "", GAP__MAKER_OFF);
  gap_addr a = try_get(&t, 0, 100 * MIB);
  for (int i = 0; i < 50; i++) {
    try_give(&t, a);
    a = try_get(&t, 0, 20 * MIB + (uint64_t)i * MIB);
    try_check(&t);
  }
  try_give(&t, a);
  gap_addr many[40];
  listen_to_lines();
  for (int i = 0; i < 40; i++) many[i] = try_get(&t, (gap_stream)(i % 8 + 1) * 64, 30 * MIB);
  said_once("30 MiB");
  for (int i = 0; i < 40; i++) try_give(&t, many[i]);
  try_end(&t);
}

/* 80 streams on each of 8 cards, each of its own window for small and large blocks: below 64 TiB. */
static void addresses_of_many_streams(void **state) {
  (void)state;
  uint64_t sum = 0;
  for (int card = 0; card < 8; card++) {
    struct try t = try_sim_with(&(struct gap__sim_params){.total_bytes = 192 * GIB}, "", GAP__MAKER_OFF);
    for (gap_stream s = 3; s < 163; s++) {
      try_get(&t, s * 64, 4096);
      try_get(&t, s * 64, 64 * MIB);
    }
    sum += try_state(&t)->address_bytes;
    try_end(&t);
  }
  assert_true(sum < (uint64_t)64 << 40);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cap_by_bytes),
      cmocka_unit_test(caps_beside_pages),
      cmocka_unit_test(cap_by_fraction),
      cmocka_unit_test(cap_below_live),
      cmocka_unit_test(reserve),
      cmocka_unit_test(driver_refuses_below_the_cap),
      cmocka_unit_test(no_windows),
      cmocka_unit_test(windows_of_64_mib),
      cmocka_unit_test(longer_than_any_window),
      cmocka_unit_test(address_budget),
      cmocka_unit_test(addresses_of_many_streams),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
