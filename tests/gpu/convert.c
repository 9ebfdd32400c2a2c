/* Conversion on a real card under threads that launch all the time, with contents.
 *
 * Threads own blocks on streams of their own and go on comparing every word of them by one kernel and rewriting it by the next,
 * behind kernels that take their time; they hand blocks from stream to stream behind an event.  Beside them blocks of all
 * sizes come and go at a cap that they fit under only when idle parts of large chunks serve, so that memory is exchanged under
 * the blocks and the kernels.  What was exchanged once stays in single pages: now and then these blocks go all together, and the idle
 * memory with them, so that large chunks come anew.  A kernel that ran in that moment would find a wrong word, or no memory.
 * With --careless each thread launches on a stream that the heap never saw, and that must be found: the test can fail.
 *
 * --legacy: the blocks that come and go are of the legacy default stream.
 *
 *   convert [--seconds N] [--seed N] [--cap SIZE] [--threads N] [--streams N] [--conf STRING] [--careless] [--legacy] [--json] */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "core/heap.h"
#include "dev/cuda/cuda.h"
#include "gpu/kernels.h"

enum {
  STREAMS_MAX = 16,
  THREADS_MAX = 16,
  OWNED = 8,
  CHURNED = 48,
  DELAY_US_MAX = 200,
  QUEUE_MAX = 128,
  START_OVER = 100
};
#define DEFAULT ((gap_pool_id){0, 0})
#define MIB ((uint64_t)1 << 20)

static struct {
  uint64_t seconds, seed, cap, threads, streams;
  const char *conf;
  bool json, careless, legacy;
} options = {.seconds = 20,
             .seed = 1,
             .cap = (uint64_t)2 << 30,
             .threads = 2,
             .streams = 2,
             .conf = "convert:gated,page_maker:False"};

struct block {
  gap_addr addr; /* 0: none */
  uint64_t bytes, pattern;
  gap_stream stream; /* the last that wrote it */
};

struct worker {
  struct run *run;
  pthread_t thread;
  uint64_t random;
  gap_stream streams[STREAMS_MAX], unseen;
  gap__event event;
  struct block blocks[OWNED];
  unsigned queued;
};

struct churn {
  uint64_t random, live_bytes;
  gap_stream stream;
  struct block blocks[CHURNED];
};

struct run {
  struct gap__dev *dev;
  struct kernels *kernels;
  gap_heap *heap;
  struct worker workers[THREADS_MAX];
  struct churn churn;
  atomic_bool stop;
  _Atomic uint64_t launches, handed, blocks, refused, errors;
};

/* Numerical Recipes' 64-bit step and an xorshift of the result. */
static uint64_t draw(uint64_t *random, uint64_t below) {
  *random = *random * 6364136223846793005u + 1442695040888963407u;
  uint64_t x = *random ^ *random >> 33;
  return x % below;
}

static bool must(struct run *run, const char *what, int rc) {
  if (rc == 0) return true;
  char why[256];
  gap__dev_last_error(run->dev, why, sizeof why);
  if (atomic_fetch_add(&run->errors, 1) == 0) fprintf(stderr, "convert: %s: %s (%s)\n", what, gap_strerror(rc), why);
  return false;
}

static void fill(struct run *run, const struct block *b, gap_stream stream) {
  must(run, "fill", kernels_fill(run->kernels, b->addr, b->bytes, b->pattern, stream));
}
static void expect(struct run *run, const struct block *b, gap_stream stream) {
  must(run, "expect", kernels_expect(run->kernels, b->addr, b->bytes, b->pattern, stream));
}

/* A request of `bytes`, which may be refused. */
static bool get(struct run *run, struct block *b, uint64_t bytes, gap_stream stream, uint64_t pattern) {
  *b = (struct block){.bytes = bytes / 8 * 8, .stream = stream, .pattern = pattern};
  int rc = gap__heap_alloc(run->heap, 0, stream, DEFAULT, b->bytes, &b->addr);
  if (rc) b->addr = 0;
  run->refused += rc == GAP_ENOMEM;
  run->blocks += rc == 0;
  return rc == GAP_ENOMEM ? false : must(run, "allocation", rc);
}

/* ---- the threads that launch ---- */

/* What `later` is given from now on comes after what `first` was given so far. */
static void wait_for(struct worker *w, gap_stream later, gap_stream first) {
  must(w->run, "event", gap__dev_event_record(w->run->dev, w->event, first));
  must(w->run, "stream wait", gap__dev_stream_wait(w->run->dev, later, w->event));
}

static void take(struct worker *w, struct block *b) {
  uint64_t bytes = MIB / 4 + draw(&w->random, options.cap / 256);
  if (!get(w->run, b, bytes, w->streams[draw(&w->random, options.streams)], w->random)) return;
  fill(w->run, b, b->stream);
  if (options.careless) wait_for(w, w->unseen, b->stream);
}

static void give(struct worker *w, struct block *b) {
  if (!b->addr) return;
  if (options.careless) wait_for(w, b->stream, w->unseen);
  expect(w->run, b, b->stream);
  must(w->run, "free", gap__heap_free(w->run->heap, b->addr));
  b->addr = 0;
}

/* Another of the thread's streams goes on with the block. */
static void hand_over(struct worker *w, struct block *b) {
  gap_stream to = w->streams[draw(&w->random, options.streams)];
  if (to == b->stream) return;
  wait_for(w, to, b->stream);
  must(w->run, "record stream", gap__heap_record_stream(w->run->heap, b->addr, to));
  b->stream = to;
  w->run->handed++;
}

/* Compares and rewrites.  The careless do so on a stream that the heap never saw, which waits for no other until the block goes: one
 * that waited for a stream behind its gate would be held, too. */
static void launch(struct worker *w, struct block *b) {
  gap_stream stream = options.careless ? w->unseen : b->stream;
  if (draw(&w->random, 4) == 0)
    must(w->run, "delay", kernels_delay(w->run->kernels, 1000 * (1 + draw(&w->random, DELAY_US_MAX)), stream));
  expect(w->run, b, stream);
  b->pattern = draw(&w->random, UINT64_MAX);
  fill(w->run, b, stream);
  w->run->launches++;
  if (++w->queued < QUEUE_MAX) return; /* launching goes on for ever: not further ahead than this */
  w->queued = 0;
  must(w->run, "event", gap__dev_event_record(w->run->dev, w->event, stream));
  must(w->run, "event wait", gap__dev_event_wait(w->run->dev, w->event));
}

/* Leaves large chunks behind, in which the thread's blocks find their places. */
static void breathe(struct worker *w) {
  struct block large;
  uint64_t bytes = options.cap / 16 + draw(&w->random, options.cap / 16);
  if (get(w->run, &large, bytes, w->streams[draw(&w->random, options.streams)], 0))
    must(w->run, "free", gap__heap_free(w->run->heap, large.addr));
}

static void *work(void *arg) {
  struct worker *w = arg;
  while (!w->run->stop && !w->run->errors) {
    struct block *b = &w->blocks[draw(&w->random, OWNED)];
    if (!b->addr) take(w, b);
    else if (draw(&w->random, 200) == 0) give(w, b);
    else if (!options.careless && draw(&w->random, 50) == 0) hand_over(w, b);
    else if (draw(&w->random, 300) == 0) breathe(w);
    else launch(w, b);
  }
  for (int i = 0; i < OWNED; i++) give(w, &w->blocks[i]);
  return NULL;
}

/* ---- what makes conversion necessary ---- */

static void drop(struct run *run, struct block *b) {
  if (!b->addr) return;
  expect(run, b, b->stream);
  must(run, "free", gap__heap_free(run->heap, b->addr));
  run->churn.live_bytes -= b->bytes;
  b->addr = 0;
}

/* Any size is as likely as its double, up to a quarter of the cap; seven eighths of it live. */
static void churn(struct run *run) {
  struct churn *c = &run->churn;
  struct block *b = &c->blocks[draw(&c->random, CHURNED)];
  unsigned octaves = 63 - (unsigned)__builtin_clzll(options.cap / 4) - 16;
  uint64_t low = (uint64_t)1 << (16 + draw(&c->random, octaves)), bytes = low + draw(&c->random, low);
  drop(run, b);
  if (c->live_bytes + bytes > options.cap / 8 * 7) return;
  if (!get(run, b, bytes, c->stream, c->random)) return;
  c->live_bytes += b->bytes;
  fill(run, b, b->stream);
}

static void check(struct run *run) {
  char text[512];
  if (gap__heap_check(run->heap, 0, text, sizeof text) == 0) return;
  fprintf(stderr, "convert: heap check: %s\n", text);
  run->errors++;
}

static void start_over(struct run *run) {
  uint64_t returned;
  for (int i = 0; i < CHURNED; i++) drop(run, &run->churn.blocks[i]);
  must(run, "trim", gap__heap_trim(run->heap, 0, DEFAULT, &returned));
}

static void run_churn(struct run *run) {
  uint64_t now = gap__dev_now_ns(run->dev), end = now + options.seconds * 1000000000u, look = now;
  for (uint64_t n = 1; now < end && !run->errors; n++) {
    churn(run);
    if (n % START_OVER == 0) start_over(run);
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    now = gap__dev_now_ns(run->dev);
    if (now < look) continue;
    check(run);
    look = now + 500000000u;
  }
  run->stop = true;
}

/* ---- all of it ---- */

static bool set_up_worker(struct run *run, unsigned i) {
  struct worker *w = &run->workers[i];
  w->run = run;
  w->random = options.seed * 1000003 + i;
  for (unsigned s = 0; s < options.streams; s++)
    if (!must(run, "stream", gap__dev_stream_create(run->dev, &w->streams[s]))) return false;
  return must(run, "stream", gap__dev_stream_create(run->dev, &w->unseen)) &&
         must(run, "event", gap__dev_event_create(run->dev, w->unseen, &w->event));
}

static int make_heap(struct run *run) {
  struct gap__conf_set *set = gap__conf_new();
  if (!set) return GAP_ENOMETA;
  int rc = gap__conf_apply(set, GAP__CONF_RUNTIME, "--conf", options.conf, NULL);
  struct gap__heap_params params = {
      .devs = &run->dev, .dev_count = 1, .conf = gap__conf_values(set), .maker = GAP__MAKER_THREAD};
  if (rc == 0) rc = gap__heap_create(&params, &run->heap);
  gap__conf_free(set);
  return rc;
}

static int set_up(struct run *run) {
  int rc = kernels_open(run->dev, &run->kernels);
  if (rc == 0) rc = make_heap(run);
  if (rc == 0) rc = gap__heap_set_cap(run->heap, 0, options.cap);
  if (rc == 0 && !options.legacy) rc = gap__dev_stream_create(run->dev, &run->churn.stream);
  run->churn.random = options.seed;
  for (unsigned i = 0; rc == 0 && i < options.threads; i++) rc = set_up_worker(run, i) ? 0 : GAP_EDEVICE;
  return rc;
}

static void work_all(struct run *run) {
  for (unsigned i = 0; i < options.threads; i++)
    if (pthread_create(&run->workers[i].thread, NULL, work, &run->workers[i]) != 0) abort();
  run_churn(run);
  for (unsigned i = 0; i < options.threads; i++) pthread_join(run->workers[i].thread, NULL);
  start_over(run);
}

struct result {
  uint64_t wrong, left; /* words; bytes that were not given back */
  struct gap__stats stats;
};

static void finish(struct run *run, struct result *out) {
  struct gap__stats after = {0};
  uint64_t returned;
  out->wrong = kernels_wrong(run->kernels);
  check(run);
  must(run, "statistics", gap__heap_stats(run->heap, 0, &out->stats));
  must(run, "trim", gap__heap_trim(run->heap, 0, DEFAULT, &returned));
  must(run, "statistics", gap__heap_stats(run->heap, 0, &after));
  out->left = (uint64_t)after.reserved_bytes[GAP__KIND_ALL].current;
}

static bool is_good(struct run *run, const struct result *r) {
  if (options.careless) return r->wrong != 0 || run->errors != 0;
  return run->errors == 0 && r->wrong == 0 && r->left == 0 && r->stats.conversions > 0;
}

static void print(struct run *run, const struct result *r) {
  const struct gap__stats *s = &r->stats;
  const struct {
    const char *name;
    uint64_t value;
  } figures[] = {{"launches", run->launches},
                 {"handed_over", run->handed},
                 {"blocks", run->blocks},
                 {"refused", run->refused},
                 {"wrong_words", r->wrong},
                 {"errors", run->errors},
                 {"bytes_left", r->left},
                 {"cap_bytes", options.cap},
                 {"held_peak_bytes", (uint64_t)s->reserved_bytes[GAP__KIND_ALL].peak},
                 {"conversions", (uint64_t)s->conversions},
                 {"requests_served", (uint64_t)s->rung_count[GAP__RUNG_convert]},
                 {"bytes_copied", (uint64_t)s->bytes_copied},
                 {"pages_converted", (uint64_t)s->pages_converted},
                 {"convert_us", (uint64_t)s->convert_us},
                 {"gate_calls", (uint64_t)s->driver[GAP__CALL_gate].calls},
                 {"gate_wait_us", (uint64_t)s->driver[GAP__CALL_value_await].ns / 1000},
                 {"refused_gate", (uint64_t)s->convert_refused_gate},
                 {"refused_room", (uint64_t)s->convert_refused_room},
                 {"refused_driver", (uint64_t)s->convert_refused_driver},
                 {"pages_stolen", (uint64_t)s->pages_stolen},
                 {"driver_us", (uint64_t)s->driver_time_us}};
  printf("%s", options.json ? "{" : "");
  for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
    printf(options.json ? "%s\"%s\": %llu" : "%s%s %llu", i ? ", " : "", figures[i].name,
           (unsigned long long)figures[i].value);
  puts(options.json ? "}" : "");
  if (!options.json) printf("convert: %d passed, %d failed\n", is_good(run, r), !is_good(run, r));
}

static void log_line(void *arg, int level, const char *line) {
  (void)arg;
  fprintf(stderr, "gapless[%d]: %s\n", level, line);
}

static bool read_options(int argc, char **argv) {
  const struct {
    const char *name;
    uint64_t *value;
  } sizes[] = {{"--seconds", &options.seconds},
               {"--seed", &options.seed},
               {"--cap", &options.cap},
               {"--threads", &options.threads},
               {"--streams", &options.streams}};
  for (int i = 1; i < argc; i++) {
    bool *flag = strcmp(argv[i], "--json") == 0       ? &options.json
                 : strcmp(argv[i], "--careless") == 0 ? &options.careless
                 : strcmp(argv[i], "--legacy") == 0   ? &options.legacy
                                                      : NULL;
    bool known = flag != NULL;
    if (flag) *flag = true;
    else if (i + 1 == argc) return false;
    for (size_t o = 0; !known && o < sizeof sizes / sizeof *sizes; o++)
      if (strcmp(argv[i], sizes[o].name) == 0)
        known = gap__text_parse_size(argv[i + 1], strlen(argv[i + 1]), sizes[o].value) == 0, i++;
    if (!known && strcmp(argv[i], "--conf") == 0) options.conf = argv[++i], known = true;
    if (!known) return false;
  }
  return options.threads >= 1 && options.threads <= THREADS_MAX && options.streams >= 1 &&
         options.streams <= STREAMS_MAX && options.cap >= 256 * MIB;
}

static int run_all(struct run *run) {
  struct result result = {0};
  int rc = set_up(run);
  if (rc != 0) {
    fprintf(stderr, "convert: %s\n", gap_strerror(rc));
    return 1;
  }
  work_all(run);
  finish(run, &result);
  print(run, &result);
  kernels_close(run->kernels);
  gap__heap_destroy(run->heap);
  return is_good(run, &result) ? 0 : 1;
}

int main(int argc, char **argv) {
  static struct run run;
  if (!read_options(argc, argv)) {
    fputs("convert [--seconds N] [--seed N] [--cap SIZE] [--threads N] [--streams N] [--conf STRING] [--careless] "
          "[--legacy] [--json]\n",
          stderr);
    return 2;
  }
  int count = 0;
  if (gap__cuda_device_count(NULL, &count) != 0 || count == 0) {
    puts("convert skipped: no CUDA device");
    return 77;
  }
  gap_set_log(log_line, NULL);
  if (gap__cuda_create(0, NULL, &run.dev) != 0) return 1;
  return run_all(&run);
}
