/* Overflow under threads that launch all the time, on `host`, with contents.
 *
 * Each thread owns blocks on streams of its own, more than fit under the cap together; it compares and rewrites them without pause, hands
 * them from one stream to the other, calls some cold and takes it back.  So blocks are placed in host memory, and live ones move there and
 * back: behind the gate, by requests and by the watcher, or at safe points.  A word read or written while its memory was exchanged would
 * be a fault of the device or wrong contents.  GAP_SOAK_SECONDS=3600 makes it an hour (of each kind; a name as argument: of that
 * one). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "support/gapless_try.h"

enum { LAUNCHERS = 3, OWNED = 8, SAMPLE = 512 };
#define CAP (48 * MIB)
#define LARGEST (12 * MIB)

struct owned {
  gap_addr at;
  uint64_t bytes, pattern;
  gap_stream stream; /* the last that wrote it */
};

struct launcher {
  struct stage *stage;
  pthread_t thread;
  uint64_t seed, launches;
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
static void touch(struct stage *stage, const struct owned *b, touch_fn *how) {
  for (uint64_t at = 0; at + SAMPLE <= b->bytes; at += PAGE / 2)
    must(stage, "work", how(stage->t.dev, b->at + at, SAMPLE, b->pattern, b->stream));
  must(stage, "work", how(stage->t.dev, b->at + b->bytes - SAMPLE, SAMPLE, b->pattern, b->stream));
}

/* ---- what a thread does ---- */

static void take(struct launcher *l, struct owned *b) {
  *b = (struct owned){.stream = l->streams[0],
                      .bytes = try_log_uniform(&l->seed, 64 * KIB, LARGEST) / SAMPLE * SAMPLE,
                      .pattern = try_random(&l->seed, UINT64_MAX)};
  must(l->stage, "request", gap__heap_alloc(l->stage->t.heap, 0, b->stream, DEFAULT, b->bytes, &b->at));
  if (b->at) touch(l->stage, b, gap__host_fill);
}

static void give(struct launcher *l, struct owned *b) {
  if (!b->at) return;
  touch(l->stage, b, gap__host_expect);
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
}

static void launch(struct launcher *l, struct owned *b) {
  touch(l->stage, b, gap__host_expect);
  b->pattern = b->pattern * 6364136223846793005u + 1;
  touch(l->stage, b, gap__host_fill);
  l->launches++;
}

static void hint(struct launcher *l, const struct owned *b) {
  must(l->stage, "hint", gap__heap_hint(l->stage->t.heap, b->at, try_random(&l->seed, 2)));
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
    uint64_t what = try_random(&l->seed, 60);
    park(l->stage);
    if (!b->at) take(l, b);
    else if (what == 0) give(l, b);
    else if (what == 1) hand_over(l, b);
    else if (what < 5) hint(l, b);
    else launch(l, b);
  }
  for (int i = 0; i < OWNED; i++) give(l, &l->owned[i]);
  return NULL;
}

/* ---- the whole ---- */

static uint64_t seconds(void) {
  const char *asked = getenv("GAP_SOAK_SECONDS");
  return asked ? strtoull(asked, NULL, 10) : 2;
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

static void end(struct stage *stage, uint64_t cap) {
  uint64_t launches = 0;
  atomic_store(&stage->stop, true);
  for (unsigned i = 0; i < LAUNCHERS; i++) {
    pthread_join(stage->launchers[i].thread, NULL);
    launches += stage->launchers[i].launches;
    gap__dev_event_destroy(stage->t.dev, stage->launchers[i].event);
  }
  gap__host_run_all(stage->t.dev);
  const struct gap__stats *s = try_stats(&stage->t);
  print_message("%llu launches; %lld MiB placed, %lld moved out, %lld back; refused by gate %lld, by the driver %lld\n",
                (unsigned long long)launches, (long long)(s->overflow_placed_bytes >> 20),
                (long long)(s->overflow_out_bytes >> 20), (long long)(s->overflow_back_bytes >> 20),
                (long long)s->convert_refused_gate, (long long)s->convert_refused_driver);
  assert_int_equal(atomic_load(&stage->errors), 0);
  assert_int_equal(gap__host_faults(stage->t.dev), 0);
  assert_true(launches && s->overflow_placed_bytes && s->overflow_out_bytes && s->overflow_back_bytes);
  assert_true(s->reserved_bytes[0].peak <= (int64_t)cap);
  try_trim(&stage->t);
  assert_int_equal(try_stats(&stage->t)->overflow_bytes, 0);
  try_end(&stage->t);
}

/* On a busy machine until blocks have moved both ways, half a minute at most. */
static bool goes_on(struct stage *stage, uint64_t end_ns) {
  struct gap__stats stats;
  if (atomic_load(&stage->errors) || gap__host_faults(stage->t.dev)) return false;
  uint64_t now = gap__dev_now_ns(stage->t.dev);
  if (now < end_ns || now > end_ns + 30000000000u) return now < end_ns;
  return gap__heap_stats(stage->t.heap, 0, &stats) == 0 && !(stats.overflow_out_bytes && stats.overflow_back_bytes);
}

static void pause_ms(unsigned ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

/* The device has more now and then, which makes the room that the watcher brings blocks back into. */
static void gated(void **state) {
  (void)state;
  static struct stage stage;
  begin(&stage, "overflow:on,convert:gated,reserve:0,page_maker:False", 1);
  uint64_t end_ns = gap__dev_now_ns(stage.t.dev) + seconds() * 1000000000u;
  for (uint64_t n = 1; goes_on(&stage, end_ns); n++) {
    pause_ms(5);
    try_cap(&stage.t, n % 10 ? CAP : 2 * CAP);
    try_state(&stage.t)->watch.due_ns = 0;
    gap__heap_tick(stage.t.heap, 0);
    if (n % 20 == 0) try_check(&stage.t);
  }
  end(&stage, 2 * CAP);
}

static void hold(struct stage *stage) {
  atomic_store(&stage->pause, true);
  while (atomic_load(&stage->parked) < LAUNCHERS) nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static void let_go(struct stage *stage) {
  atomic_store(&stage->pause, false);
  while (atomic_load(&stage->parked)) nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static void safe_points(void **state) {
  (void)state;
  static struct stage stage;
  uint64_t freed;
  begin(&stage, "overflow:on,reserve:0,page_maker:False", 9);
  uint64_t end_ns = gap__dev_now_ns(stage.t.dev) + seconds() * 1000000000u;
  while (goes_on(&stage, end_ns)) {
    pause_ms(10);
    hold(&stage);
    assert_int_equal(gap__heap_defragment(stage.t.heap, 0, &freed), 0);
    try_check(&stage.t);
    let_go(&stage);
  }
  end(&stage, CAP);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gated), cmocka_unit_test(safe_points)};
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
