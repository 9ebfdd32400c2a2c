/* Conversion under threads that launch all the time, on `host`, with contents.
 *
 * Two threads own blocks on streams of their own, compare and rewrite them without pause, hand them from one stream to the other
 * behind an event, and exchange them now and then.  Beside them blocks of all sizes come and go at a cap that they only fit
 * under when idle parts of large chunks serve.  A word read or written while its memory was exchanged would be a fault of the
 * device or wrong contents.  What was exchanged once stays in single pages, so the idle ones go back to the device now and then, and
 * large chunks come anew.  GAP_SOAK_SECONDS=3600 makes it an hour (of each kind;
 * a name as argument: of that one). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "support/gapless_try.h"

enum { LAUNCHERS = 2, OWNED = 6, CHURNED = 16, SAMPLE = 512 };
#define CAP (168 * MIB)
#define CHURN_LIVE (112 * MIB) /* of the blocks that come and go */

struct owned {
  gap_addr at;
  uint64_t bytes, pattern;
  gap_stream stream; /* the last that wrote it */
};

struct launcher {
  struct stage *stage;
  pthread_t thread;
  uint64_t seed, launches, handed;
  gap_stream streams[2];
  gap__event event;
  struct owned owned[OWNED];
};

struct stage {
  struct try t;
  struct launcher launchers[LAUNCHERS];
  atomic_bool stop, pause;
  atomic_uint parked;
  _Atomic uint64_t errors;
};

static void must(struct stage *stage, const char *what, int rc) {
  if (rc && atomic_fetch_add(&stage->errors, 1) == 0) fprintf(stderr, "%s: %s\n", what, gap_strerror(rc));
}

/* The ends of each page stand for the whole. */
typedef int touch_fn(struct gap__dev *, gap_addr, uint64_t bytes, uint64_t pattern, gap_stream);
static void touch(struct stage *stage, const struct owned *b, gap_stream stream, touch_fn *how) {
  for (uint64_t at = 0; at + SAMPLE <= b->bytes; at += PAGE / 2)
    must(stage, "work", how(stage->t.dev, b->at + at, SAMPLE, b->pattern, stream));
  must(stage, "work", how(stage->t.dev, b->at + b->bytes - SAMPLE, SAMPLE, b->pattern, stream));
}

/* ---- the threads that launch ---- */

static void take(struct launcher *l, struct owned *b) {
  b->stream = l->streams[0];
  b->bytes = (MIB / 4 + try_random(&l->seed, 3 * MIB)) / SAMPLE * SAMPLE;
  b->at = 0;
  int rc = gap__heap_alloc(l->stage->t.heap, 0, b->stream, DEFAULT, b->bytes, &b->at);
  if (rc) b->at = 0;
  if (rc != GAP_ENOMEM) must(l->stage, "request", rc);
  b->pattern = try_random(&l->seed, UINT64_MAX);
  if (b->at) touch(l->stage, b, b->stream, gap__host_fill);
}

static void give(struct launcher *l, struct owned *b) {
  if (!b->at) return;
  touch(l->stage, b, b->stream, gap__host_expect);
  if (b->stream != l->streams[0])
    must(l->stage, "record stream", gap__heap_record_stream(l->stage->t.heap, b->at, b->stream));
  must(l->stage, "free", gap__heap_free(l->stage->t.heap, b->at));
  b->at = 0;
}

/* The other stream goes on with the block, behind what this one has queued. */
static void hand_over(struct launcher *l, struct owned *b) {
  struct gap__dev *dev = l->stage->t.dev;
  gap_stream to = l->streams[b->stream == l->streams[0]];
  must(l->stage, "event", gap__dev_event_record(dev, l->event, b->stream));
  must(l->stage, "stream wait", gap__dev_stream_wait(dev, to, l->event));
  must(l->stage, "record stream", gap__heap_record_stream(l->stage->t.heap, b->at, to));
  b->stream = to;
  l->handed++;
}

static void launch(struct launcher *l, struct owned *b) {
  touch(l->stage, b, b->stream, gap__host_expect);
  b->pattern = b->pattern * 6364136223846793005u + 1;
  touch(l->stage, b, b->stream, gap__host_fill);
  l->launches++;
}

/* Leaves large chunks behind, in which the thread's blocks find their places. */
static void breathe(struct launcher *l) {
  gap_addr at = 0;
  int rc = gap__heap_alloc(l->stage->t.heap, 0, l->streams[0], DEFAULT, (24 + try_random(&l->seed, 16)) * MIB, &at);
  if (rc != GAP_ENOMEM) must(l->stage, "request", rc);
  if (!rc) must(l->stage, "free", gap__heap_free(l->stage->t.heap, at));
}

static void park(struct stage *stage) {
  if (!atomic_load(&stage->pause)) return;
  atomic_fetch_add(&stage->parked, 1);
  while (atomic_load(&stage->pause)) nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
  atomic_fetch_sub(&stage->parked, 1);
}

static void *launch_all(void *arg) {
  struct launcher *l = arg;
  while (!atomic_load(&l->stage->stop)) {
    struct owned *b = &l->owned[try_random(&l->seed, OWNED)];
    park(l->stage);
    if (!b->at) take(l, b);
    else if (try_random(&l->seed, 200) == 0) give(l, b);
    else if (try_random(&l->seed, 50) == 0) hand_over(l, b);
    else if (try_random(&l->seed, 300) == 0) breathe(l);
    else launch(l, b);
  }
  for (int i = 0; i < OWNED; i++) give(l, &l->owned[i]);
  return NULL;
}

/* ---- what makes conversion necessary ---- */

struct churn {
  struct stage *stage;
  uint64_t seed, refused, live_bytes;
  struct owned blocks[CHURNED];
};

static void drop(struct churn *c, struct owned *b) {
  if (!b->at) return;
  touch(c->stage, b, STREAM_A, gap__host_expect);
  must(c->stage, "free", gap__heap_free(c->stage->t.heap, b->at));
  c->live_bytes -= b->bytes;
  b->at = 0;
}

static void churn(struct churn *c) {
  struct owned *b = &c->blocks[try_random(&c->seed, CHURNED)];
  drop(c, b);
  b->bytes = try_log_uniform(&c->seed, 64 * KIB, 56 * MIB) / SAMPLE * SAMPLE;
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
  touch(c->stage, b, STREAM_A, gap__host_fill);
}

/* ---- both ---- */

static uint64_t seconds(void) {
  const char *asked = getenv("GAP_SOAK_SECONDS");
  return asked ? strtoull(asked, NULL, 10) : 3;
}

static void begin(struct stage *stage, const char *conf, uint64_t seed) {
  *stage = (struct stage){0};
  stage->t = try_host(&(struct gap__host_params){.total_bytes = GIB}, conf, GAP__MAKER_OFF);
  try_cap(&stage->t, CAP);
  for (unsigned i = 0; i < LAUNCHERS; i++) {
    struct launcher *l = &stage->launchers[i];
    *l = (struct launcher){.stage = stage, .seed = seed + i, .streams = {5000 + 2 * i, 5001 + 2 * i}};
    assert_int_equal(gap__dev_event_create(stage->t.dev, l->streams[0], &l->event), 0);
    assert_int_equal(pthread_create(&l->thread, NULL, launch_all, l), 0);
  }
}

static void end(struct stage *stage, const struct churn *c) {
  uint64_t launches = 0, handed = 0;
  atomic_store(&stage->stop, true);
  for (unsigned i = 0; i < LAUNCHERS; i++) {
    pthread_join(stage->launchers[i].thread, NULL);
    launches += stage->launchers[i].launches;
    handed += stage->launchers[i].handed;
  }
  gap__host_run_all(stage->t.dev);
  const struct gap__stats *s = try_stats(&stage->t);
  print_message("%llu launches, %llu handed over, %lld conversions, %lld MiB copied, %lld pages freed, %llu refused, "
                "refused by gate %lld, by "
                "the driver %lld\n",
                (unsigned long long)launches, (unsigned long long)handed, (long long)s->conversions,
                (long long)(s->bytes_copied >> 20), (long long)s->pages_converted, (unsigned long long)c->refused,
                (long long)s->convert_refused_gate, (long long)s->convert_refused_driver);
  assert_int_equal(atomic_load(&stage->errors), 0);
  assert_int_equal(gap__host_faults(stage->t.dev), 0);
  assert_true(launches > 0 && s->conversions > 0 &&
              s->conversions >= (int64_t)seconds() / 10); /* not at the beginning only */
  assert_true(s->reserved_bytes[0].peak <= (int64_t)CAP);
  for (unsigned i = 0; i < LAUNCHERS; i++) gap__dev_event_destroy(stage->t.dev, stage->launchers[i].event);
  try_trim(&stage->t);
  try_end(&stage->t);
}

/* On a busy machine until something was exchanged under launched work, half a minute at most. */
static bool goes_on(struct stage *stage, uint64_t end_ns) {
  if (atomic_load(&stage->errors) || gap__host_faults(stage->t.dev)) return false;
  uint64_t now = gap__dev_now_ns(stage->t.dev);
  if (now < end_ns || now > end_ns + 30000000000u) return now < end_ns;
  struct gap__stats stats;
  return gap__heap_stats(stage->t.heap, 0, &stats) == 0 && stats.conversions == 0;
}

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
  static struct stage stage;
  begin(&stage, "convert:gated,page_maker:False", 1);
  struct churn c = {.stage = &stage, .seed = 77};
  uint64_t end_ns = gap__dev_now_ns(stage.t.dev) + seconds() * 1000000000u;
  for (uint64_t n = 1; goes_on(&stage, end_ns); n++) {
    go_on(&c, n);
    if (n % 100 == 0) start_over(&c);
  }
  start_over(&c);
  end(&stage, &c);
}

static void hold(struct stage *stage) {
  atomic_store(&stage->pause, true);
  while (atomic_load(&stage->parked) < LAUNCHERS) nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static void let_go(struct stage *stage) {
  atomic_store(&stage->pause, false);
  while (atomic_load(&stage->parked)) nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

/* The threads hold still while the program defragments; to give memory back is a safe point, too. */
static void safe_point(struct churn *c, bool over) {
  uint64_t freed;
  hold(c->stage);
  if (over) start_over(c);
  else assert_int_equal(gap__heap_defragment(c->stage->t.heap, 0, &freed), 0);
  let_go(c->stage);
}

static void safe_points(void **state) {
  (void)state;
  static struct stage stage;
  begin(&stage, "convert:safe_points,chunk_max:32MiB,page_maker:False", 9);
  struct churn c = {.stage = &stage, .seed = 78};
  uint64_t end_ns = gap__dev_now_ns(stage.t.dev) + seconds() * 1000000000u;
  for (uint64_t n = 1; goes_on(&stage, end_ns); n++) {
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
