/* Overflow on a real card, with contents: host memory at device addresses, and live blocks that move there and back.
 *
 *   place   --bytes of blocks on the card and as much again in host memory: how long making it takes, cold and again; how fast kernels
 *           write and read each
 *   copies  a block of one kind to one of the other, both ways
 *   move    half of what is on the card is cold and goes, then comes back: at safe points, by what has to be copied
 *   gate    the same inside a request, while another thread launches kernels without pause
 *   refuse  what lies in host memory is not exported
 *
 * All blocks are filled by a kernel and compared word by word after each of these.  --host runs it on host memory that behaves like a
 * card, without figures that mean anything.
 *
 *   overflow [--bytes SIZE] [--host] */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "core/heap_share.h"
#include "dev/cuda/cuda.h"
#include "dev/host/host.h"
#include "gpu/kernels.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
enum { BLOCKS = 16 }; /* on the card, and as many again */

static struct {
  uint64_t bytes;
  bool host;
} options = {.bytes = 4 * GIB};

struct bench {
  struct gap__dev *dev;
  struct kernels *kernels; /* NULL: host */
  gap_heap *heap;
  gap_stream stream;
  gap_addr blocks[2 * BLOCKS]; /* the first half lies on the card */
  uint64_t block_bytes, wrong, errors;
};

struct figures {
  double make, again, write[2], read[2], copy[2]; /* seconds */
  double out, back, gate;
  uint64_t out_bytes, back_bytes, gate_bytes, launches;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool must(struct bench *b, const char *what, int rc) {
  char words[1024] = "";
  if (rc == 0) return true;
  if (b->heap) gap__heap_diagnosis(b->heap, 0, words, sizeof words);
  fprintf(stderr, "overflow: %s: %s (%s)\n", what, gap_strerror(rc), words);
  b->errors++;
  return false;
}

static void expect(struct bench *b, bool met, const char *what) {
  if (met) return;
  fprintf(stderr, "overflow: %s\n", what);
  b->errors++;
}

static int64_t figure(struct bench *b, size_t offset) {
  struct gap__stats stats;
  must(b, "statistics", gap__heap_stats(b->heap, 0, &stats));
  return *(int64_t *)(void *)((char *)&stats + offset);
}
#define STAT(b, name) figure((b), offsetof(struct gap__stats, name))

/* ---- work ---- */

static uint64_t pattern_of(unsigned i) { return 0x9E3779B97F4A7C15ull * (i + 1); }

static void wait(struct bench *b) {
  if (b->kernels) kernels_wait(b->kernels);
  else gap__host_run_all(b->dev);
}

static void fill(struct bench *b, unsigned i) {
  must(b, "fill",
       b->kernels ? kernels_fill(b->kernels, b->blocks[i], b->block_bytes, pattern_of(i), b->stream)
                  : gap__host_fill(b->dev, b->blocks[i], b->block_bytes, pattern_of(i), b->stream));
}
static void compare_with(struct bench *b, unsigned i, uint64_t pattern) {
  must(b, "compare",
       b->kernels ? kernels_expect(b->kernels, b->blocks[i], b->block_bytes, pattern, b->stream)
                  : gap__host_expect(b->dev, b->blocks[i], b->block_bytes, pattern, b->stream));
}
static void compare(struct bench *b, unsigned i) { compare_with(b, i, pattern_of(i)); }

typedef void work_fn(struct bench *, unsigned block);

static double time_of(struct bench *b, work_fn *work, unsigned from, unsigned to) {
  wait(b);
  double began = now();
  for (unsigned i = from; i < to; i++) work(b, i);
  wait(b);
  return now() - began;
}

static void verify(struct bench *b, unsigned from, unsigned to) {
  for (unsigned i = from; i < to; i++) compare(b, i);
  wait(b);
}

static double get(struct bench *b, unsigned from, unsigned to) {
  double began = now();
  for (unsigned i = from; i < to; i++)
    must(b, "allocation", gap__heap_alloc(b->heap, 0, b->stream, (gap_pool_id){0, 0}, b->block_bytes, &b->blocks[i]));
  return now() - began;
}

static void give(struct bench *b, unsigned from, unsigned to) {
  for (unsigned i = from; i < to; i++) must(b, "free", gap__heap_free(b->heap, b->blocks[i]));
}

/* ---- the parts ---- */

static void measure_place(struct bench *b, struct figures *f) {
  get(b, 0, BLOCKS);
  f->make = get(b, BLOCKS, 2 * BLOCKS);
  expect(b, STAT(b, overflow_live_bytes) == (int64_t)options.bytes, "the second half is not in host memory");
  give(b, BLOCKS, 2 * BLOCKS);
  f->again = get(b, BLOCKS, 2 * BLOCKS);
  for (int half = 0; half < 2; half++) {
    unsigned from = half ? BLOCKS : 0;
    f->write[half] = time_of(b, fill, from, from + BLOCKS);
    f->read[half] = time_of(b, compare, from, from + BLOCKS);
  }
}

static void copy_to_host(struct bench *b, unsigned i) {
  must(b, "copy", gap__dev_copy(b->dev, b->blocks[BLOCKS + i], b->blocks[i], b->block_bytes, b->stream));
}
static void copy_to_card(struct bench *b, unsigned i) {
  must(b, "copy", gap__dev_copy(b->dev, b->blocks[i], b->blocks[BLOCKS + i], b->block_bytes, b->stream));
}

static void measure_copies(struct bench *b, struct figures *f) {
  f->copy[0] = time_of(b, copy_to_host, 0, BLOCKS);
  for (unsigned i = 0; i < BLOCKS; i++) compare_with(b, BLOCKS + i, pattern_of(i));
  for (unsigned i = BLOCKS; i < 2 * BLOCKS; i++) fill(b, i);
  f->copy[1] = time_of(b, copy_to_card, 0, BLOCKS);
  for (unsigned i = 0; i < BLOCKS; i++) {
    compare_with(b, i, pattern_of(BLOCKS + i));
    fill(b, i);
  }
  wait(b);
}

static double safe_point(struct bench *b) {
  uint64_t freed;
  wait(b);
  double began = now();
  must(b, "safe point", gap__heap_defragment(b->heap, 0, &freed));
  return now() - began;
}

static void hint(struct bench *b, unsigned from, unsigned to, bool cold) {
  for (unsigned i = from; i < to; i++) must(b, "hint", gap__heap_hint(b->heap, b->blocks[i], cold));
}

/* The second half was needed and is free now, so as much of the first goes. */
static void measure_move(struct bench *b, struct figures *f) {
  give(b, BLOCKS, 2 * BLOCKS);
  hint(b, 0, BLOCKS / 2, true);
  f->out = safe_point(b);
  f->out_bytes = (uint64_t)STAT(b, overflow_out_bytes);
  expect(b, f->out_bytes >= options.bytes / 4, "cold blocks did not go");
  verify(b, 0, BLOCKS);
  hint(b, 0, BLOCKS / 2, false);
  f->back = safe_point(b);
  f->back_bytes = (uint64_t)STAT(b, overflow_back_bytes);
  expect(b, !STAT(b, overflow_live_bytes), "they did not come back");
  verify(b, 0, BLOCKS);
}

struct launcher {
  struct bench *b;
  gap_stream stream;
  gap_addr block;
  _Atomic bool stop;
  uint64_t launches;
};

/* Its stream was given the block, so the gate holds it. */
static void *launch(void *arg) {
  struct launcher *l = arg;
  while (!atomic_load(&l->stop)) {
    uint64_t pattern = pattern_of((unsigned)l->launches++);
    must(l->b, "fill", kernels_fill(l->b->kernels, l->block, 32 * MIB, pattern, l->stream));
    must(l->b, "compare", kernels_expect(l->b->kernels, l->block, 32 * MIB, pattern, l->stream));
    if (l->launches % 64 == 0) kernels_settle(l->b->kernels, 20);
  }
  return NULL;
}

static void measure_gate(struct bench *b, struct figures *f) {
  struct launcher l = {.b = b};
  pthread_t thread;
  must(b, "stream", gap__dev_stream_create(b->dev, &l.stream));
  give(b, BLOCKS - 2, BLOCKS);
  must(b, "allocation", gap__heap_alloc(b->heap, 0, l.stream, (gap_pool_id){0, 0}, 32 * MIB, &l.block));
  hint(b, 0, BLOCKS - 2, true);
  bool threaded = b->kernels && pthread_create(&thread, NULL, launch, &l) == 0;
  uint64_t before = (uint64_t)STAT(b, overflow_out_bytes);
  double began = now();
  get(b, BLOCKS - 2, BLOCKS + 2);
  f->gate = now() - began;
  f->gate_bytes = (uint64_t)STAT(b, overflow_out_bytes) - before;
  atomic_store(&l.stop, true);
  if (threaded) pthread_join(thread, NULL);
  f->launches = l.launches;
  expect(b, f->gate_bytes >= b->block_bytes, "no cold block made room for a request");
  for (unsigned i = BLOCKS - 2; i < BLOCKS + 2; i++) fill(b, i);
  verify(b, 0, BLOCKS + 2);
  must(b, "free", gap__heap_free(b->heap, l.block));
}

static void check_refused(struct bench *b) {
  gap_piece piece;
  expect(b, gap__heap_export(b->heap, b->blocks[0], 0, 1, &piece) == GAP_ESTATE, "host memory was exported");
}

/* ---- the whole ---- */

static double gb_per_s(uint64_t bytes, double seconds) { return (double)bytes / 1e9 / seconds; }

static void print(const struct bench *b, const struct figures *f) {
  uint64_t n = options.bytes;
  double gib = (double)n / (double)GIB;
  printf("{\"bytes\": %llu, \"make_ms_a_gib\": %.1f, \"again_ms_a_gib\": %.2f, ", (unsigned long long)n,
         1e3 * f->make / gib, 1e3 * f->again / gib);
  printf("\"card_write_gb_s\": %.1f, \"card_read_gb_s\": %.1f, \"host_write_gb_s\": %.1f, \"host_read_gb_s\": %.1f, ",
         gb_per_s(n, f->write[0]), gb_per_s(n, f->read[0]), gb_per_s(n, f->write[1]), gb_per_s(n, f->read[1]));
  printf("\"copy_out_gb_s\": %.1f, \"copy_back_gb_s\": %.1f, ", gb_per_s(n, f->copy[0]), gb_per_s(n, f->copy[1]));
  printf("\"move_out_gb_s\": %.2f, \"move_back_gb_s\": %.2f, \"gate_gb_s\": %.2f, \"launches\": %llu, ",
         gb_per_s(f->out_bytes, f->out), gb_per_s(f->back_bytes, f->back), gb_per_s(f->gate_bytes, f->gate),
         (unsigned long long)f->launches);
  printf("\"wrong_words\": %llu, \"errors\": %llu}\n", (unsigned long long)b->wrong, (unsigned long long)b->errors);
}

static int open_device(struct bench *b) {
  struct gap__host_params params = {.total_bytes = 4 * options.bytes};
  if (options.host) return gap__host_create(0, &params, &b->dev);
  int rc = gap__cuda_create(0, NULL, &b->dev);
  return rc ? rc : kernels_open(b->dev, &b->kernels);
}

static int set_up(struct bench *b) {
  struct gap__conf_set *conf = gap__conf_new();
  struct gap__heap_params params = {.dev_count = 1, .devs = &b->dev, .maker = GAP__MAKER_OFF};
  int rc = conf ? gap__conf_apply(conf, GAP__CONF_RUNTIME, "overflow", "overflow:on,convert:gated,reserve:0", NULL)
                : GAP_ENOMETA;
  if (!rc) rc = open_device(b);
  params.conf = gap__conf_values(conf);
  if (!rc) rc = gap__heap_create(&params, &b->heap);
  if (!rc) rc = gap__heap_set_cap(b->heap, 0, options.bytes);
  if (!rc) rc = gap__dev_stream_create(b->dev, &b->stream);
  b->block_bytes = options.bytes / BLOCKS;
  gap__conf_free(conf);
  return rc;
}

static int run(struct bench *b) {
  struct figures figures = {0};
  char text[300] = "";
  if (!must(b, "set up", set_up(b))) return 1;
  measure_place(b, &figures);
  measure_copies(b, &figures);
  measure_move(b, &figures);
  measure_gate(b, &figures);
  check_refused(b);
  b->wrong = b->kernels ? kernels_wrong(b->kernels) : gap__host_faults(b->dev);
  expect(b, gap__heap_check(b->heap, 0, text, sizeof text) == 0, text);
  print(b, &figures);
  give(b, 0, BLOCKS + 2);
  kernels_close(b->kernels);
  gap__heap_destroy(b->heap);
  return b->errors || b->wrong ? 1 : 0;
}

static bool read_options(int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], "--host") == 0) options.host = true;
    else if (strcmp(argv[i], "--bytes") != 0 || i + 1 == argc ||
             gap__text_parse_size(argv[i + 1], strlen(argv[i + 1]), &options.bytes))
      return false;
    else i++;
  options.bytes = options.bytes / (BLOCKS * 2 * MIB) * (BLOCKS * 2 * MIB);
  return options.bytes >= 512 * MIB;
}

int main(int argc, char **argv) {
  static struct bench bench;
  int count = 0;
  if (!read_options(argc, argv)) {
    fputs("overflow [--bytes SIZE] [--host]     SIZE: 512M or more\n", stderr);
    return 2;
  }
  if (!options.host && (gap__cuda_device_count(NULL, &count) != 0 || count == 0)) {
    puts("overflow skipped: no CUDA device");
    return 77;
  }
  return run(&bench);
}
