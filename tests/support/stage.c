#include "support/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void stage_must(struct stage *stage, const char *what, int rc) {
  if (rc && atomic_fetch_add(&stage->errors, 1) == 0) fprintf(stderr, "%s: %s\n", what, gap_strerror(rc));
}

void stage_touch(struct stage *stage, const struct owned *b, gap_stream stream, stage_touch_fn *how) {
  for (uint64_t at = 0; at + STAGE_SAMPLE <= b->bytes; at += PAGE / 2)
    stage_must(stage, "work", how(stage->t.dev, b->at + at, STAGE_SAMPLE, b->pattern, stream));
  stage_must(stage, "work", how(stage->t.dev, b->at + b->bytes - STAGE_SAMPLE, STAGE_SAMPLE, b->pattern, stream));
}

void stage_launch(struct launcher *l, struct owned *b) {
  stage_touch(l->stage, b, b->stream, gap__host_expect);
  b->pattern = b->pattern * 6364136223846793005u + 1;
  stage_touch(l->stage, b, b->stream, gap__host_fill);
  l->launches++;
}

void stage_hand_over(struct launcher *l, struct owned *b) {
  struct stage *stage = l->stage;
  gap_stream to = l->streams[b->stream == l->streams[0]];
  stage_must(stage, "event", gap__dev_event_record(stage->t.dev, l->event, b->stream));
  stage_must(stage, "stream wait", gap__dev_stream_wait(stage->t.dev, to, l->event));
  stage_must(stage, "record stream", gap__heap_record_stream(stage->t.heap, b->at, to));
  b->stream = to;
  l->handed++;
}

/* ---- threads ---- */

static void pause_a_moment(void) { nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL); }

static void park(struct stage *stage) {
  if (!atomic_load(&stage->pause)) return;
  atomic_fetch_add(&stage->parked, 1);
  while (atomic_load(&stage->pause)) pause_a_moment();
  atomic_fetch_sub(&stage->parked, 1);
}

static void *launch_all(void *arg) {
  struct launcher *l = arg;
  struct stage *stage = l->stage;
  while (!atomic_load(&stage->stop)) {
    struct owned *b = &l->owned[try_random(&l->seed, stage->owned)];
    park(stage);
    stage->act(l, b);
  }
  for (unsigned i = 0; i < stage->owned; i++) stage->give(l, &l->owned[i]);
  return NULL;
}

uint64_t stage_seconds(uint64_t otherwise) {
  const char *asked = getenv("GAP_SOAK_SECONDS");
  return asked ? strtoull(asked, NULL, 10) : otherwise;
}

void stage_begin(struct stage *stage, const char *conf, uint64_t cap, uint64_t seed) {
  assert_true(stage->count <= STAGE_LAUNCHERS_MAX && stage->owned <= STAGE_OWNED);
  stage->t = try_host(&(struct gap__host_params){.total_bytes = GIB}, conf, GAP__MAKER_OFF);
  try_cap(&stage->t, cap);
  for (unsigned i = 0; i < stage->count; i++) {
    struct launcher *l = &stage->launchers[i];
    *l = (struct launcher){.stage = stage, .seed = seed + i, .streams = {5000 + 2 * i, 5001 + 2 * i}};
    assert_int_equal(gap__dev_event_create(stage->t.dev, l->streams[0], &l->event), 0);
    assert_int_equal(pthread_create(&l->thread, NULL, launch_all, l), 0);
  }
}

void stage_hold(struct stage *stage) {
  atomic_store(&stage->pause, true);
  while (atomic_load(&stage->parked) < stage->count) pause_a_moment();
}

void stage_let_go(struct stage *stage) {
  atomic_store(&stage->pause, false);
  while (atomic_load(&stage->parked)) pause_a_moment();
}

uint64_t stage_stop(struct stage *stage) {
  uint64_t launches = 0;
  atomic_store(&stage->stop, true);
  for (unsigned i = 0; i < stage->count; i++) {
    pthread_join(stage->launchers[i].thread, NULL);
    launches += stage->launchers[i].launches;
  }
  gap__host_run_all(stage->t.dev);
  for (unsigned i = 0; i < stage->count; i++) gap__dev_event_destroy(stage->t.dev, stage->launchers[i].event);
  assert_int_equal(atomic_load(&stage->errors), 0);
  assert_int_equal(gap__host_faults(stage->t.dev), 0);
  return launches;
}

bool stage_goes_on(struct stage *stage, uint64_t end_ns, bool (*done)(const struct gap__stats *)) {
  struct gap__stats stats;
  if (atomic_load(&stage->errors) || gap__host_faults(stage->t.dev)) return false;
  uint64_t now = gap__dev_now_ns(stage->t.dev);
  if (now < end_ns || now > end_ns + 30000000000u) return now < end_ns;
  return gap__heap_stats(stage->t.heap, 0, &stats) == 0 && !done(&stats);
}
