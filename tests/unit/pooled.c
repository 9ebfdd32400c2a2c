/* The strategy `pooled`: size classes, trays that come and go, what is wasted, and changes of the strategy while blocks live. */
#include "base/text.h"
#include "core/at.h"
#include "core/tray.h"
#include "support/gapless_try.h"

#define POOL ((gap_pool_id){0, 7})

static uint64_t bytes_of(struct try *t, gap_addr addr) {
  struct gap__block_info info;
  assert_int_equal(gap__heap_find(t->heap, addr, &info, NULL), 0);
  assert_int_equal(info.addr, addr);
  return info.bytes;
}

static void serve(struct try *t, uint64_t asked, uint64_t given) {
  gap_addr addr = try_get(t, 0, asked);
  assert_int_equal(bytes_of(t, addr), given);
  try_give(t, addr);
}

static void configure(struct try *t, const char *string) {
  struct gap__conf_set *set = gap__conf_new();
  assert_int_equal(gap__conf_apply(set, GAP__CONF_RUNTIME, "test", string, NULL), 0);
  assert_int_equal(gap__heap_configure(t->heap, gap__conf_values(set)), 0);
  gap__conf_free(set);
}

/* ---- classes ---- */

static void usual_classes(void **state) {
  (void)state;
  struct try t = try_sim("pooled");
  const struct gap__classes *classes = &try_state(&t)->classes;
  for (uint32_t i = 0; i < classes->count; i++) {
    uint64_t units = classes->units[i], pages = (uint64_t)classes->pages[i] << GAP__PAGE_UNIT_SHIFT;
    if (i) assert_true(units > classes->units[i - 1] && units <= classes->units[i - 1] * 2);
    if (i > 3) assert_true(units * 4 <= (uint64_t)classes->units[i - 1] * 5); /* at most a fifth of a block is waste */
    assert_true(pages >= units && pages % units * 8 <= pages);
  }
  serve(&t, 1, 512);
  serve(&t, 1537, 2048);
  serve(&t, 70 * KIB, 80 * KIB);
  serve(&t, 80 * KIB, 80 * KIB);
  serve(&t, 4 * MIB, 4 * MIB);
  serve(&t, 4 * MIB + 1, 6 * MIB); /* pages of its own */
  serve(&t, 101 * MIB, 102 * MIB);
  try_end(&t);
}

static void listed_classes(void **state) {
  (void)state;
  struct try t = try_sim("pooled,pool_sizes:[1MiB,3MiB,1TiB]");
  serve(&t, 8, MIB);
  serve(&t, MIB + 1, 3 * MIB);
  serve(&t, 3 * MIB + 1, 4 * MIB); /* 1 TiB is longer than any block */
  try_end(&t);
  t = try_sim("pooled,pool_sizes:[1KiB,6GiB],max_memory:1GiB");
  serve(&t, KIB + 1, 2 * MIB); /* no block wastes 4 GiB */
  try_end(&t);
}

/* Roundings of the configuration come first. */
static void rounded_before(void **state) {
  (void)state;
  struct try t = try_sim("pooled,pool_sizes:[1KiB,64KiB],granularity:4KiB");
  serve(&t, 100, 64 * KIB);
  try_end(&t);
}

/* ---- trays ---- */

static void blocks_are_never_split(void **state) {
  (void)state;
  struct try t = try_sim("pooled,pool_sizes:[64KiB,1MiB]");
  gap_addr large = try_get(&t, 0, MIB), second = try_get(&t, 0, MIB);
  try_give(&t, large);
  gap_addr small = try_get(&t, 0, 64 * KIB);
  assert_true(small < large || small >= large + MIB); /* the free block serves its class only */
  assert_int_equal(try_get(&t, 0, MIB - 5), large);
  assert_int_equal(try_held(&t), 4 * MIB);
  assert_int_equal(try_stats(&t)->class_trays, 2);
  try_give(&t, second);
  assert_int_equal(try_stats(&t)->class_idle_bytes, 31 * 64 * KIB + MIB);
  try_end(&t);
}

static void one_tray_holds_many(void **state) {
  (void)state;
  struct try t = try_sim("pooled");
  gap_addr all[4096];
  for (int i = 0; i < 4096; i++) all[i] = try_get(&t, 0, 512);
  assert_int_equal(try_held(&t), PAGE);
  try_get(&t, 0, 512);
  assert_int_equal(try_held(&t), 2 * PAGE);
  try_check(&t);
  for (int i = 0; i < 4096; i++) try_give(&t, all[i]);
  assert_int_equal(try_trim(&t), PAGE);
  try_end(&t);
}

/* The pages of a class that is not wanted any more serve another one, at the cap, without a call of the program's. */
static void empty_trays_serve_other_classes(void **state) {
  (void)state;
  struct try t = try_sim("pooled,pool_sizes:[4KiB,256KiB,5MiB],max_memory:8MiB");
  static gap_addr all[2048];
  for (int i = 0; i < 2048; i++) all[i] = try_get(&t, 0, 4096);
  try_refuse(&t, 0, 256 * KIB, GAP_ENOMEM);
  for (int i = 1; i < 2048; i++) try_give(&t, all[i]);
  try_check(&t);
  gap_addr quarters[24];
  for (int i = 0; i < 24; i++) quarters[i] = try_get(&t, STREAM_A, 256 * KIB);
  try_refuse(&t, STREAM_A, 256 * KIB, GAP_ENOMEM); /* the last page has a live block */
  assert_true(try_stats(&t)->pages_stolen >= 3);
  for (int i = 0; i < 24; i++) try_give(&t, quarters[i]);
  serve(&t, 5 * MIB, 5 * MIB);
  try_give(&t, all[0]);
  try_end(&t);
}

/* What is left over of a tray's pages is idle memory, and its place is found again. */
static void rests_of_trays(void **state) {
  (void)state;
  struct try t = try_sim("pooled,pool_sizes:[1900KiB],max_memory:8MiB");
  for (int round = 0; round < 3; round++) {
    gap_addr a[4];
    for (int i = 0; i < 4; i++) a[i] = try_get(&t, 0, 1 + (uint64_t)round);
    try_refuse(&t, 0, 1, GAP_ENOMEM);
    assert_int_equal(try_stats(&t)->idle_stuck_bytes, 4 * 148 * KIB);
    for (int i = 0; i < 4; i++) try_give(&t, a[(i + round) % 4]);
    gap_addr whole = try_get(&t, 0, 8 * MIB);
    try_give(&t, whole);
  }
  try_end(&t);
}

/* ---- uses by other streams, pools, given addresses ---- */

static void pending_blocks_go_back_to_their_tray(void **state) {
  (void)state;
  struct try t = try_sim("pooled,pool_sizes:[2MiB],max_memory:2MiB");
  gap_addr a = try_get(&t, STREAM_A, MIB);
  assert_int_equal(gap__heap_record_stream(t.heap, a, STREAM_B), 0);
  try_give(&t, a);
  assert_int_equal(try_stats(&t)->active[0].current, 1);
  assert_int_equal(try_stats(&t)->waste_bytes, MIB);
  assert_int_equal(try_get(&t, STREAM_A, MIB), a); /* at the cap: the ladder finds it in its class */
  assert_int_equal(gap__heap_free(t.heap, a + 512), GAP_EFREED);
  try_give(&t, a);
  assert_int_equal(gap__heap_free(t.heap, a), GAP_EFREED);
  assert_int_equal(try_stats(&t)->waste_bytes, 0);
  try_end(&t);
}

static void pools_keep_their_trays(void **state) {
  (void)state;
  struct try t = try_sim("pooled,max_memory:4MiB");
  assert_int_equal(gap__heap_pool_retain(t.heap, 0, POOL), 0);
  gap_addr a = try_get_pool(&t, 0, POOL, 100 * KIB), b = try_get(&t, 0, 100 * KIB);
  try_give(&t, a);
  try_give(&t, b);
  try_refuse(&t, 0, 4 * MIB, GAP_ENOMEM);
  assert_int_equal(try_get_pool(&t, 0, POOL, 100 * KIB), a);
  try_give(&t, a);
  assert_int_equal(gap__heap_pool_release(t.heap, 0, POOL), 0);
  try_get(&t, 0, 4 * MIB);
  try_end(&t);
}

static void given_addresses(void **state) {
  (void)state;
  struct try t = try_sim("pooled");
  struct gap__policy_state *s = try_state(&t);
  gap_addr a = try_get(&t, 0, 96 * KIB), b = try_get(&t, 0, 96 * KIB);
  try_give(&t, b);
  assert_int_equal(gap__at_alloc(s, b + 512, 96 * KIB), GAP_EAGAIN);
  assert_int_equal(gap__at_alloc(s, b, 200 * KIB), GAP_EAGAIN);
  assert_int_equal(gap__at_alloc(s, b, 90 * KIB), 0);
  assert_int_equal(gap__at_alloc(s, b, 90 * KIB), GAP_EAGAIN);
  assert_int_equal(bytes_of(&t, b), 96 * KIB);
  try_give(&t, a);
  try_give(&t, b);
  try_stats(&t); /* the tray goes */
  assert_int_equal(gap__at_alloc(s, b, 90 * KIB), 0);
  assert_int_equal(bytes_of(&t, b), 96 * KIB);
  try_give(&t, b);
  try_end(&t);
}

/* ---- figures ---- */

static void waste_is_told(void **state) {
  (void)state;
  struct try t = try_sim("pooled,pool_sizes:[1MiB]");
  gap_addr a = try_get(&t, 0, 600 * KIB);
  const struct gap__stats *s = try_stats(&t);
  assert_int_equal(s->waste_bytes, 424 * KIB);
  assert_int_equal(s->requested_bytes[0].current, 600 * KIB);
  assert_int_equal(s->allocated_bytes[0].current, MIB);
  assert_int_equal(s->class_idle_bytes, MIB);
  struct gap__text text = {0};
  assert_int_equal(gap__heap_summary(t.heap, 0, &text), 0);
  assert_non_null(strstr(gap__text_str(&text), "waste: 424 KiB"));
  assert_non_null(strstr(gap__text_str(&text), "size classes: 1 trays"));
  gap__text_free(&text);
  try_give(&t, a);
  assert_int_equal(try_stats(&t)->waste_bytes, 0);
  assert_int_equal(try_stats(&t)->class_trays, 0);
  try_end(&t);
}

/* ---- the strategy changes ---- */

static void switched_while_blocks_live(void **state) {
  (void)state;
  struct try t = try_sim("");
  gap_addr plain = try_get(&t, 0, 70 * KIB);
  assert_int_equal(bytes_of(&t, plain), 70 * KIB);
  configure(&t, "pooled");
  gap_addr classed = try_get(&t, 0, 70 * KIB), other = try_get(&t, STREAM_A, 3000);
  assert_int_equal(bytes_of(&t, classed), 80 * KIB);
  assert_int_equal(bytes_of(&t, other), 3072);
  try_give(&t, plain);
  configure(&t, "gapless");
  try_check(&t);
  serve(&t, 71 * KIB, 71 * KIB);
  try_give(&t, classed);
  try_give(&t, other);
  configure(&t, "caching_allocator");
  serve(&t, 600, 1024);
  configure(&t, "pooled");
  serve(&t, 600, 1024);
  assert_int_equal(bytes_of(&t, try_get(&t, 0, 70 * KIB)), 80 * KIB);
  try_end(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(usual_classes),          cmocka_unit_test(listed_classes),
      cmocka_unit_test(rounded_before),         cmocka_unit_test(blocks_are_never_split),
      cmocka_unit_test(one_tray_holds_many),    cmocka_unit_test(empty_trays_serve_other_classes),
      cmocka_unit_test(rests_of_trays),         cmocka_unit_test(pending_blocks_go_back_to_their_tray),
      cmocka_unit_test(pools_keep_their_trays), cmocka_unit_test(given_addresses),
      cmocka_unit_test(waste_is_told),          cmocka_unit_test(switched_while_blocks_live),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
