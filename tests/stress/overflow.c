/* Overflow under threads that launch all the time, on `host`, with contents.
 *
 * Each thread owns blocks on streams of its own, more than fit under the cap together; it compares and rewrites them without pause, hands
 * them from one stream to the other, calls some cold and takes it back.  So blocks are placed in host memory, and live ones move there and
 * back: behind the gate, by requests and by the watcher, or at safe points.  A word read or written while its memory was exchanged would
 * be a fault of the device or wrong contents.  GAP_SOAK_SECONDS=3600 makes it an hour (of each kind; a name as argument: of that
 * one). */
#include <stdio.h>
#include <time.h>

#include "support/stage.h"

#define CAP (48 * MIB)
#define LARGEST (12 * MIB)

/* ---- what a thread does ---- */

static void take(struct launcher *l, struct owned *b) {
  *b = (struct owned){.stream = l->streams[0],
                      .bytes = try_log_uniform(&l->seed, 64 * KIB, LARGEST) / STAGE_SAMPLE * STAGE_SAMPLE,
                      .pattern = try_random(&l->seed, UINT64_MAX)};
  stage_must(l->stage, "request", gap__heap_alloc(l->stage->t.heap, 0, b->stream, DEFAULT, b->bytes, &b->at));
  if (b->at) stage_touch(l->stage, b, b->stream, gap__host_fill);
}

static void give(struct launcher *l, struct owned *b) {
  if (!b->at) return;
  stage_touch(l->stage, b, b->stream, gap__host_expect);
  stage_must(l->stage, "free", gap__heap_free(l->stage->t.heap, b->at));
  b->at = 0;
}

static void hint(struct launcher *l, const struct owned *b) {
  stage_must(l->stage, "hint", gap__heap_hint(l->stage->t.heap, b->at, try_random(&l->seed, 2)));
}

static void act(struct launcher *l, struct owned *b) {
  uint64_t what = try_random(&l->seed, 60);
  if (!b->at) take(l, b);
  else if (what == 0) give(l, b);
  else if (what == 1) stage_hand_over(l, b);
  else if (what < 5) hint(l, b);
  else stage_launch(l, b);
}

/* ---- the whole ---- */

static void end(struct stage *stage, uint64_t cap) {
  uint64_t launches = stage_stop(stage);
  const struct gap__stats *s = try_stats(&stage->t);
  print_message("%llu launches; %lld MiB placed, %lld moved out, %lld back; refused by gate %lld, by the driver %lld\n",
                (unsigned long long)launches, (long long)(s->overflow_placed_bytes >> 20),
                (long long)(s->overflow_out_bytes >> 20), (long long)(s->overflow_back_bytes >> 20),
                (long long)s->convert_refused_gate, (long long)s->convert_refused_driver);
  assert_true(launches && s->overflow_placed_bytes && s->overflow_out_bytes && s->overflow_back_bytes);
  assert_true(s->reserved_bytes[0].peak <= (int64_t)cap);
  try_trim(&stage->t);
  assert_int_equal(try_stats(&stage->t)->overflow_bytes, 0);
  try_end(&stage->t);
}

static bool has_moved(const struct gap__stats *s) { return s->overflow_out_bytes && s->overflow_back_bytes; }

static void pause_ms(unsigned ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

/* The device has more now and then, which makes the room that the watcher brings blocks back into. */
static void gated(void **state) {
  (void)state;
  static struct stage stage = {.act = act, .give = give, .count = 3, .owned = 8};
  stage_begin(&stage, "overflow:on,convert:gated,reserve:0,page_maker:False", CAP, 1);
  uint64_t end_ns = gap__dev_now_ns(stage.t.dev) + stage_seconds(2) * 1000000000u;
  for (uint64_t n = 1; stage_goes_on(&stage, end_ns, has_moved); n++) {
    pause_ms(5);
    try_cap(&stage.t, n % 10 ? CAP : 2 * CAP);
    try_state(&stage.t)->watch.due_ns = 0;
    gap__heap_tick(stage.t.heap, 0);
    if (n % 20 == 0) try_check(&stage.t);
  }
  end(&stage, 2 * CAP);
}

static void safe_points(void **state) {
  (void)state;
  static struct stage stage = {.act = act, .give = give, .count = 3, .owned = 8};
  uint64_t freed;
  stage_begin(&stage, "overflow:on,reserve:0,page_maker:False", CAP, 9);
  uint64_t end_ns = gap__dev_now_ns(stage.t.dev) + stage_seconds(2) * 1000000000u;
  while (stage_goes_on(&stage, end_ns, has_moved)) {
    pause_ms(10);
    stage_hold(&stage);
    assert_int_equal(gap__heap_defragment(stage.t.heap, 0, &freed), 0);
    try_check(&stage.t);
    stage_let_go(&stage);
  }
  end(&stage, CAP);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gated), cmocka_unit_test(safe_points)};
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
