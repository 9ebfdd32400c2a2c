/* Contents on a real card, while pages are stolen under queued work.
 *
 * Threads with two streams each allocate blocks of random sizes at a tight cap.  A kernel fills each block after a delay, in
 * the order of its stream; a second kernel compares every word after another delay, and the block is freed at once, with all
 * of this still queued.  Some blocks are compared on another thread's stream, after an event, and are freed with
 * gap__heap_record_stream.  Whoever got the memory before its last use ended would overwrite a pattern that is still to be compared:
 * a wrong word.  With --careless the other stream's use is kept from the heap, and wrong words must be found, or a page that is
 * gone from under a kernel: the test can fail.
 *
 * --shared N: so many of the threads have no streams of their own, but two that they share.
 *
 *   data [--seconds N] [--seed N] [--cap SIZE] [--largest SIZE] [--threads N] [--shared N] [--conf STRING] [--careless] [--json] */
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

enum { STREAMS = 2, SLOTS = 48, THREADS_MAX = 16, DELAY_US_MAX = 400 };
#define DEFAULT ((gap_pool_id){0, 0})

static struct {
  uint64_t seconds, seed, cap, largest, threads, shared;
  const char *conf;
  bool json, careless;
} options = {
    .seconds = 10, .seed = 1, .cap = (uint64_t)6 << 30, .largest = (uint64_t)600 << 20, .threads = 4, .conf = ""};

struct block {
  gap_addr addr;
  uint64_t bytes, pattern;
  gap_stream stream;
};

struct worker {
  struct run *run;
  uint64_t random;
  gap_stream streams[STREAMS];
  gap__event event; /* of the last hand-over */
  struct block blocks[SLOTS];
  uint64_t live_bytes;
};

struct run {
  struct gap__dev *dev;
  struct kernels *kernels;
  gap_heap *heap;
  struct worker workers[THREADS_MAX];
  atomic_bool stop;
  _Atomic uint64_t blocks, bytes, shared, refused, errors;
};

/* Numerical Recipes' 64-bit step and an xorshift of the result. */
static uint64_t draw(struct worker *w, uint64_t below) {
  w->random = w->random * 6364136223846793005u + 1442695040888963407u;
  uint64_t x = w->random ^ w->random >> 33;
  return x % below;
}

/* Any size is as likely as its double. */
static uint64_t draw_bytes(struct worker *w) {
  unsigned top = 63 - (unsigned)__builtin_clzll(options.largest), octave = 9 + (unsigned)draw(w, top - 8);
  uint64_t low = (uint64_t)1 << octave, bytes = low + draw(w, low);
  return (bytes > options.largest ? options.largest : bytes) / 8 * 8;
}

/* Every step of a worker must succeed. */
static bool must(struct worker *w, const char *what, int rc) {
  if (rc == 0) return true;
  char why[256];
  gap__dev_last_error(w->run->dev, why, sizeof why);
  if (atomic_fetch_add(&w->run->errors, 1) == 0) fprintf(stderr, "data: %s: %s (%s)\n", what, gap_strerror(rc), why);
  return false;
}

static void delay(struct worker *w, gap_stream stream) {
  if (draw(w, 2)) must(w, "delay", kernels_delay(w->run->kernels, 1000 * (1 + draw(w, DELAY_US_MAX)), stream));
}

/* Compares the block on another thread's stream: that stream waits for what was queued on the block's own. */
static void lend(struct worker *w, const struct block *b) {
  struct run *run = w->run;
  struct worker *other = &run->workers[draw(w, options.threads)];
  gap_stream stream = other->streams[draw(w, STREAMS)];
  if (stream == b->stream) return;
  must(w, "event", gap__dev_event_record(run->dev, w->event, b->stream));
  must(w, "stream wait", gap__dev_stream_wait(run->dev, stream, w->event));
  delay(w, stream);
  must(w, "expect", kernels_expect(run->kernels, b->addr, b->bytes, b->pattern, stream));
  if (!options.careless) must(w, "record stream", gap__heap_record_stream(run->heap, b->addr, stream));
  run->shared++;
}

static void give(struct worker *w, struct block *b) {
  struct run *run = w->run;
  if (draw(w, 8) == 0) lend(w, b);
  delay(w, b->stream);
  must(w, "expect", kernels_expect(run->kernels, b->addr, b->bytes, b->pattern, b->stream));
  must(w, "free", gap__heap_free(run->heap, b->addr));
  w->live_bytes -= b->bytes;
  b->addr = 0;
}

static void give_any(struct worker *w) {
  unsigned first = (unsigned)draw(w, SLOTS);
  for (unsigned i = 0; i < SLOTS; i++) {
    struct block *b = &w->blocks[(first + i) % SLOTS];
    if (b->addr) {
      give(w, b);
      return;
    }
  }
}

/* At most nine tenths of a thread's share of the cap live, so that the heap must find room by moving pages; when it finds none
 * all the same, something is freed. */
static void take(struct worker *w, struct block *b) {
  struct run *run = w->run;
  struct block made = {.bytes = draw_bytes(w), .stream = w->streams[draw(w, STREAMS)], .pattern = w->random};
  uint64_t share = options.cap / options.threads * 9 / 10;
  while (w->live_bytes + made.bytes > share && w->live_bytes) give_any(w);
  int rc = gap__heap_alloc(run->heap, 0, made.stream, DEFAULT, made.bytes, &made.addr);
  if (rc == GAP_ENOMEM) {
    run->refused++;
    give_any(w);
    return;
  }
  if (!must(w, "allocation", rc)) return;
  *b = made;
  w->live_bytes += b->bytes;
  run->blocks++;
  run->bytes += b->bytes;
  delay(w, b->stream);
  must(w, "fill", kernels_fill(run->kernels, b->addr, b->bytes, b->pattern, b->stream));
}

static void *work(void *arg) {
  struct worker *w = arg;
  while (!w->run->stop && !w->run->errors) {
    struct block *b = &w->blocks[draw(w, SLOTS)];
    if (b->addr) give(w, b);
    else take(w, b);
  }
  for (unsigned i = 0; i < SLOTS; i++)
    if (w->blocks[i].addr) give(w, &w->blocks[i]);
  return NULL;
}

static bool set_up_worker(struct run *run, unsigned i) {
  struct worker *w = &run->workers[i];
  w->run = run;
  w->random = options.seed * 1000003 + i;
  bool own = i == 0 || i >= options.shared;
  for (int s = 0; s < STREAMS; s++)
    if (!own) w->streams[s] = run->workers[0].streams[s];
    else if (!must(w, "stream", gap__dev_stream_create(run->dev, &w->streams[s]))) return false;
  return must(w, "event", gap__dev_event_create(run->dev, w->streams[0], &w->event));
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
  for (unsigned i = 0; rc == 0 && i < options.threads; i++) rc = set_up_worker(run, i) ? 0 : GAP_EDEVICE;
  return rc;
}

static void check(struct run *run) {
  char text[512];
  if (gap__heap_check(run->heap, 0, text, sizeof text) == 0) return;
  fprintf(stderr, "data: heap check: %s\n", text);
  run->errors++;
}

/* Looks at the whole heap twice a second while the threads work. */
static void watch(struct run *run) {
  uint64_t end = gap__dev_now_ns(run->dev) + options.seconds * 1000000000u;
  while (gap__dev_now_ns(run->dev) < end && !run->errors) {
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    check(run);
  }
  run->stop = true;
}

static void work_all(struct run *run) {
  pthread_t threads[THREADS_MAX];
  for (unsigned i = 0; i < options.threads; i++)
    if (pthread_create(&threads[i], NULL, work, &run->workers[i]) != 0) abort();
  watch(run);
  for (unsigned i = 0; i < options.threads; i++) pthread_join(threads[i], NULL);
}

struct result {
  uint64_t wrong, left; /* words; bytes that were not given back */
  struct gap__stats stats;
};

/* Everything was freed: nothing may be live or held after a trim. */
static void finish(struct run *run, struct result *out) {
  uint64_t returned;
  out->wrong = kernels_wrong(run->kernels);
  check(run);
  if (gap__heap_stats(run->heap, 0, &out->stats) != 0) run->errors++;
  if (gap__heap_trim(run->heap, 0, DEFAULT, &returned) != 0) run->errors++;
  struct gap__stats after;
  if (gap__heap_stats(run->heap, 0, &after) != 0) run->errors++;
  out->left = (uint64_t)after.reserved_bytes[GAP__KIND_ALL].current;
  check(run);
}

static bool is_good(struct run *run, const struct result *r) {
  if (options.careless) return r->wrong != 0 || run->errors != 0;
  return run->errors == 0 && r->wrong == 0 && r->left == 0;
}

static void print(struct run *run, const struct result *r) {
  const struct gap__stats *s = &r->stats;
  const struct {
    const char *name;
    uint64_t value;
  } figures[] = {{"blocks", run->blocks},
                 {"bytes", run->bytes},
                 {"lent", run->shared},
                 {"refused", run->refused},
                 {"wrong_words", r->wrong},
                 {"errors", run->errors},
                 {"bytes_left", r->left},
                 {"cap_bytes", options.cap},
                 {"held_peak_bytes", (uint64_t)s->reserved_bytes[GAP__KIND_ALL].peak},
                 {"pages_grown", (uint64_t)s->pages_grown},
                 {"pages_stolen", (uint64_t)s->pages_stolen},
                 {"pages_stolen_alias", (uint64_t)s->pages_stolen_alias},
                 {"stalls", (uint64_t)s->stalls},
                 {"stall_us", (uint64_t)s->stall_us},
                 {"driver_us", (uint64_t)s->driver_time_us},
                 {"background_us", (uint64_t)s->background_time_us}};
  printf("%s", options.json ? "{" : "");
  for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
    printf(options.json ? "%s\"%s\": %llu" : "%s%s %llu", i ? ", " : "", figures[i].name,
           (unsigned long long)figures[i].value);
  puts(options.json ? "}" : "");
  if (!options.json) printf("data: %d passed, %d failed\n", is_good(run, r), !is_good(run, r));
}

static void log_line(void *arg, int level, const char *line) {
  (void)arg;
  fprintf(stderr, "gapless[%d]: %s\n", level, line);
}

static bool read_options(int argc, char **argv) {
  const struct {
    const char *name;
    uint64_t *value;
  } sizes[] = {{"--seconds", &options.seconds}, {"--seed", &options.seed},       {"--cap", &options.cap},
               {"--largest", &options.largest}, {"--threads", &options.threads}, {"--shared", &options.shared}};
  for (int i = 1; i < argc; i++) {
    bool *flag = strcmp(argv[i], "--json") == 0       ? &options.json
                 : strcmp(argv[i], "--careless") == 0 ? &options.careless
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
  return options.threads >= 1 && options.threads <= THREADS_MAX && options.largest >= 1024;
}

static int run_all(struct run *run) {
  struct result result = {0};
  int rc = set_up(run);
  if (rc != 0) {
    fprintf(stderr, "data: %s\n", gap_strerror(rc));
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
    fputs("data [--seconds N] [--seed N] [--cap SIZE] [--largest SIZE] [--threads N] [--shared N] [--conf STRING] "
          "[--careless] [--json]\n",
          stderr);
    return 2;
  }
  int count = 0;
  if (gap__cuda_device_count(NULL, &count) != 0 || count == 0) {
    puts("data skipped: no CUDA device");
    return 77;
  }
  gap_set_log(log_line, NULL);
  if (gap__cuda_create(0, NULL, &run.dev) != 0) return 1;
  return run_all(&run);
}
