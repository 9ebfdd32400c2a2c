/* Conversion under threads that launch all the time, on `host`, with contents.
 *
 * Two threads own blocks on streams of their own, compare and rewrite them without pause, hand them from one stream to the other
 * behind an event, and exchange them now and then.  Beside them blocks of all sizes come and go at a cap that they only fit
 * under when idle parts of large chunks serve.  A word read or written while its memory was exchanged would be a fault of the
 * device or wrong contents.  What was exchanged once stays in single pages, so the idle ones go back to the device now and then, and
 * large chunks come anew.  GAP_SOAK_SECONDS=3600 makes it an hour (of each kind;
 * a name as argument: of that one). */
#include <stdio.h>

#include "support/stage.h"

enum { CHURNED = 16 };
#define CAP (168 * MIB)
#define CHURN_LIVE (112 * MIB) /* of the blocks that come and go */

/* ---- the threads that launch ---- */

static void take(struct launcher *l, struct owned *b) {
  b->stream = l->streams[0];
  b->bytes = (MIB / 4 + try_random(&l->seed, 3 * MIB)) / STAGE_SAMPLE * STAGE_SAMPLE;
  b->at = 0;
  int rc = gap__heap_alloc(l->stage->t.heap, 0, b->stream, DEFAULT, b->bytes, &b->at);
  if (rc) b->at = 0;
  if (rc != GAP_ENOMEM) stage_must(l->stage, "request", rc);
  b->pattern = try_random(&l->seed, UINT64_MAX);
  if (b->at) stage_touch(l->stage, b, b->stream, gap__host_fill);
}

static void give(struct launcher *l, struct owned *b) {
  if (!b->at) return;
  stage_touch(l->stage, b, b->stream, gap__host_expect);
  if (b->stream != l->streams[0])
    stage_must(l->stage, "record stream", gap__heap_record_stream(l->stage->t.heap, b->at, b->stream));
  stage_must(l->stage, "free", gap__heap_free(l->stage->t.heap, b->at));
  b->at = 0;
}

/* Leaves large chunks behind, in which the thread's blocks find their places. */
static void breathe(struct launcher *l) {
  gap_addr at = 0;
  int rc = gap__heap_alloc(l->stage->t.heap, 0, l->streams[0], DEFAULT, (24 + try_random(&l->seed, 16)) * MIB, &at);
  if (rc != GAP_ENOMEM) stage_must(l->stage, "request", rc);
  if (!rc) stage_must(l->stage, "free", gap__heap_free(l->stage->t.heap, at));
}

static void act(struct launcher *l, struct owned *b) {
  if (!b->at) take(l, b);
  else if (try_random(&l->seed, 200) == 0) give(l, b);
  else if (try_random(&l->seed, 50) == 0) stage_hand_over(l, b);
  else if (try_random(&l->seed, 300) == 0) breathe(l);
  else stage_launch(l, b);
}

/* ---- what makes conversion necessary ---- */

struct churn {
  struct stage *stage;
  uint64_t seed, refused, live_bytes;
  struct owned blocks[CHURNED];
};

static void drop(struct churn *c, struct owned *b) {
  if (!b->at) return;
  stage_touch(c->stage, b, STREAM_A, gap__host_expect);
  stage_must(c->stage, "free", gap__heap_free(c->stage->t.heap, b->at));
  c->live_bytes -= b->bytes;
  b->at = 0;
}

static void churn(struct churn *c) {
  struct owned *b = &c->blocks[try_random(&c->seed, CHURNED)];
  drop(c, b);
  b->bytes = try_log_uniform(&c->seed, 64 * KIB, 56 * MIB) / STAGE_SAMPLE * STAGE_SAMPLE;
  b->pattern = try_random(&c->seed, UINT64_MAX);
  if (c->live_bytes + b->bytes > CHURN_LIVE) return;
  int rc = gap__heap_alloc(c->stage->t.heap, 0, STREAM_A, DEFAULT, b->bytes, &b->at);
  if (rc) {
    b->at = 0;
    c->refused++;
    assert_int_equal(rc, GAP_ENOMEM);
    return;
  }
  c->live_bytes += b->bytes;
  stage_touch(c->stage, b, STREAM_A, gap__host_fill);
}

/* ---- both ---- */

static void end(struct stage *stage, const struct churn *c) {
  uint64_t handed = 0, launches = stage_stop(stage);
  for (unsigned i = 0; i < stage->count; i++) handed += stage->launchers[i].handed;
  const struct gap__stats *s = try_stats(&stage->t);
  print_message("%llu launches, %llu handed over, %lld conversions, %lld MiB copied, %lld pages freed, %llu refused, "
                "refused by gate %lld, by "
                "the driver %lld\n",
                (unsigned long long)launches, (unsigned long long)handed, (long long)s->conversions,
                (long long)(s->bytes_copied >> 20), (long long)s->pages_converted, (unsigned long long)c->refused,
                (long long)s->convert_refused_gate, (long long)s->convert_refused_driver);
  assert_true(launches > 0 && s->conversions > 0 &&
              s->conversions >= (int64_t)stage_seconds(3) / 10); /* not at the beginning only */
  assert_true(s->reserved_bytes[0].peak <= (int64_t)CAP);
  try_trim(&stage->t);
  try_end(&stage->t);
}

static bool has_exchanged(const struct gap__stats *s) { return s->conversions != 0; }

static void start_over(struct churn *c) {
  for (int i = 0; i < CHURNED; i++) drop(c, &c->blocks[i]);
  try_trim(&c->stage->t);
}

/* One of the blocks that come and go. */
static void go_on(struct churn *c, uint64_t n) {
  churn(c);
  if (n % 500 == 0) try_check(&c->stage->t);
}

static void gated(void **state) {
  (void)state;
  static struct stage stage = {.act = act, .give = give, .count = 2, .owned = 6};
  stage_begin(&stage, "convert:gated,page_maker:False", CAP, 1);
  struct churn c = {.stage = &stage, .seed = 77};
  uint64_t end_ns = gap__dev_now_ns(stage.t.dev) + stage_seconds(3) * 1000000000u;
  for (uint64_t n = 1; stage_goes_on(&stage, end_ns, has_exchanged); n++) {
    go_on(&c, n);
    if (n % 100 == 0) start_over(&c);
  }
  start_over(&c);
  end(&stage, &c);
}

/* The threads hold still while the program defragments; to give memory back is a safe point, too. */
static void safe_point(struct churn *c, bool over) {
  uint64_t freed;
  stage_hold(c->stage);
  if (over) start_over(c);
  else assert_int_equal(gap__heap_defragment(c->stage->t.heap, 0, &freed), 0);
  stage_let_go(c->stage);
}

static void safe_points(void **state) {
  (void)state;
  static struct stage stage = {.act = act, .give = give, .count = 2, .owned = 6};
  stage_begin(&stage, "convert:safe_points,chunk_max:32MiB,page_maker:False", CAP, 9);
  struct churn c = {.stage = &stage, .seed = 78};
  uint64_t end_ns = gap__dev_now_ns(stage.t.dev) + stage_seconds(3) * 1000000000u;
  for (uint64_t n = 1; stage_goes_on(&stage, end_ns, has_exchanged); n++) {
    go_on(&c, n);
    if (n % 20 == 0) safe_point(&c, n % 100 == 0);
  }
  safe_point(&c, true);
  end(&stage, &c);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gated), cmocka_unit_test(safe_points)};
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
