/* Sleep and wake on a real card, against what the link and the disk give in the same run, with contents.
 *
 *   link      1 GiB of pinned memory, copied off the card, onto it, and both ways at once
 *   cold      the first sleep, which has to pin its memory; and how fast a pool is pinned by itself
 *   warm      sleep and wake with the pool filled beforehand: the median of --cycles
 *   unchanged a sleep whose copy was kept
 *   damage    one bit of a copy that sleeps: waking must refuse, and not once the bit is right again; and the processor gets the
 *             card's sums
 *   both      one half of the bytes falls asleep while the other one wakes
 *   disk      --disk-bytes by the same file code at depths of 1, 8 and 32 operations of 1 MiB, each in a file of its own: written where
 *             space was just taken, as a sleep's is, then over that, then read; and by sleep and wake: --cycles times in turn, medians.
 *             With the mean MiB that were under way at the block device (other programs' included), and how fast the space goes back
 *             behind the wake
 *
 * All blocks are filled by a kernel and compared word by word after each wake.  --host runs it on host memory that behaves like a
 * card, without figures that mean anything.
 *
 *   tiers [--bytes SIZE] [--cycles N] [--disk FOLDER] [--disk-bytes SIZE] [--host] */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "core/heap.h"
#include "dev/cuda/cuda.h"
#include "dev/host/host.h"
#include "gpu/kernels.h"
#include "tier/state.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define BLOCK (256 * MIB)
enum { BLOCKS_MAX = 1024, CYCLES_MAX = 100, DAMAGED_MAX = 8 };

static struct {
  uint64_t bytes, cycles, disk_bytes;
  const char *disk;
  bool host;
} options = {.bytes = 16 * GIB, .cycles = 5, .disk_bytes = 4 * GIB};

struct bench {
  struct gap__dev *dev;
  struct kernels *kernels; /* NULL: host */
  gap_heap *heap;
  struct gap__tier *tier;
  gap_stream stream;
  gap_addr blocks[BLOCKS_MAX];
  uint64_t sizes[BLOCKS_MAX];
  unsigned count;
  uint64_t wrong, errors;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static double gb_per_s(uint64_t bytes, double seconds) { return (double)bytes / 1e9 / seconds; }

static bool must(struct bench *b, const char *what, int rc) {
  char words[1024] = "";
  if (rc == 0) return true;
  if (b->heap) gap__heap_diagnosis(b->heap, 0, words, sizeof words);
  fprintf(stderr, "tiers: %s: %s (%s)\n", what, gap_strerror(rc), words);
  b->errors++;
  return false;
}

/* ---- blocks ---- */

static uint64_t pattern_of(unsigned i) { return 0x9E3779B97F4A7C15ull * (i + 1); }

static void fill(struct bench *b) {
  for (unsigned i = 0; i < b->count; i++)
    must(b, "fill",
         b->kernels ? kernels_fill(b->kernels, b->blocks[i], b->sizes[i], pattern_of(i), b->stream)
                    : gap__host_fill(b->dev, b->blocks[i], b->sizes[i], pattern_of(i), b->stream));
}

static void verify(struct bench *b) {
  for (unsigned i = 0; i < b->count; i++)
    must(b, "compare",
         b->kernels ? kernels_expect(b->kernels, b->blocks[i], b->sizes[i], pattern_of(i), b->stream)
                    : gap__host_expect(b->dev, b->blocks[i], b->sizes[i], pattern_of(i), b->stream));
  b->wrong = b->kernels ? kernels_wrong(b->kernels) : gap__host_faults(b->dev);
}

/* Large blocks, and one of odd size for each. */
static void get_more(struct bench *b, gap_pool_id pool, uint64_t bytes) {
  while (bytes && b->count < BLOCKS_MAX) {
    uint64_t size = b->count % 9 == 8 ? 3 * MIB + 512 : bytes < BLOCK ? bytes : BLOCK;
    if (!must(b, "allocation", gap__heap_alloc(b->heap, 0, b->stream, pool, size, &b->blocks[b->count]))) return;
    b->sizes[b->count++] = size;
    bytes -= size < bytes ? size : bytes;
  }
}
static void get_blocks(struct bench *b, gap_pool_id pool, uint64_t bytes) {
  b->count = 0;
  get_more(b, pool, bytes);
}
static void give_blocks(struct bench *b) {
  for (unsigned i = 0; i < b->count; i++) must(b, "free", gap__heap_free(b->heap, b->blocks[i]));
  b->count = 0;
}

/* ---- the link ---- */

struct link {
  double off, on, both;
};

static double copy_time(struct bench *b, const gap_stream streams[2], const gap__event events[2], gap_addr card,
                        void *host[2], uint64_t bytes, bool off, bool on) {
  double began = now();
  if (off) must(b, "copy", gap__dev_copy(b->dev, (uintptr_t)host[0], card, bytes, streams[0]));
  if (on) must(b, "copy", gap__dev_copy(b->dev, card + bytes, (uintptr_t)host[1], bytes, streams[1]));
  for (int i = 0; i < 2; i++) must(b, "event", gap__dev_event_record(b->dev, events[i], streams[i]));
  for (int i = 0; i < 2; i++) must(b, "wait", gap__dev_event_wait(b->dev, events[i]));
  return now() - began;
}

static double best_of(struct bench *b, const gap_stream streams[2], const gap__event events[2], gap_addr card,
                      void *host[2], uint64_t bytes, bool off, bool on) {
  double best = 1e9;
  for (int i = 0; i < 5; i++) {
    double time = copy_time(b, streams, events, card, host, bytes, off, on);
    if (time < best) best = time;
  }
  return gb_per_s(bytes * (uint64_t)(off + on), best);
}

static struct link measure_link(struct bench *b) {
  uint64_t bytes = options.host ? 16 * MIB : GIB;
  struct link link = {0};
  gap_addr card = 0;
  gap_stream streams[2];
  gap__event events[2];
  void *host[2];
  if (!must(b, "segment", gap__dev_segment_alloc(b->dev, 2 * bytes, &card))) return link;
  for (int i = 0; i < 2; i++) {
    host[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (host[i] == MAP_FAILED || !must(b, "pin", gap__dev_pin(b->dev, host[i], bytes))) return link;
    if (!must(b, "stream", gap__dev_stream_create(b->dev, &streams[i]))) return link;
    if (!must(b, "event", gap__dev_event_create(b->dev, streams[i], &events[i]))) return link;
  }
  link.off = best_of(b, streams, events, card, host, bytes, true, false);
  link.on = best_of(b, streams, events, card, host, bytes, false, true);
  link.both = best_of(b, streams, events, card, host, bytes, true, true);
  for (int i = 0; i < 2; i++) {
    gap__dev_event_destroy(b->dev, events[i]);
    gap__dev_stream_destroy(b->dev, streams[i]);
    gap__dev_unpin(b->dev, host[i], bytes);
    munmap(host[i], bytes);
  }
  gap__dev_segment_free(b->dev, card);
  return link;
}

/* ---- sleep and wake ---- */

static double sleep_time(struct bench *b, unsigned flags) {
  uint64_t freed = 0;
  double began = now();
  must(b, "sleep", gap__tier_sleep(b->tier, 0, "weights", flags, &freed));
  return now() - began;
}
static double wake_time(struct bench *b, unsigned flags) {
  double began = now();
  must(b, "wake", gap__tier_wake(b->tier, 0, "weights", flags));
  double time = now() - began;
  verify(b);
  return time;
}

static uint64_t asleep_bytes(struct bench *b) {
  gap_tiers figures = {.size = sizeof figures};
  must(b, "figures", gap__tier_figures(b->tier, 0, &figures));
  return figures.asleep_bytes;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}
static double median(double *times, uint64_t count) {
  qsort(times, count, sizeof *times, by_size);
  return times[count / 2];
}

/* What the disk gave: GB/s, and the mean MiB under way. */
struct disk_reading {
  double rate, under_way;
};
enum { DISK_DEPTHS = 3 };
struct disk_figures {
  struct disk_reading fresh[DISK_DEPTHS], again[DISK_DEPTHS], reads[DISK_DEPTHS], sleep, wake,
      holes; /* from the end of waking until the file system has the space */
};

struct figures {
  struct link link;
  uint64_t bytes;
  double cold_sleep, cold_wake, pin, sleep, wake, unchanged;
  struct disk_figures disk;
  double both; /* GB/s, both ways together */
  unsigned damaged, noticed;
  unsigned unequal; /* sums of the card's that the processor does not get */
  bool by_card;     /* sums are made by the card */
};

/* Of each fourth piece. */
static void damage(struct bench *b, struct figures *f) {
  const struct gap__image *image = &b->tier->devices[0].image;
  sleep_time(b, 0);
  for (uint32_t i = 0; i < image->count && f->damaged < DAMAGED_MAX; i += 4) {
    const struct gap__piece *piece = &image->pieces[i];
    unsigned char *byte = piece->host + gap__piece_bytes(piece) / 3;
    f->unequal += piece->by_card && gap__card_sum_here(piece->host, gap__piece_bytes(piece)) != piece->sum;
    *byte ^= 0x20;
    f->damaged++;
    f->noticed += gap__tier_wake(b->tier, 0, "weights", 0) == GAP_EIO;
    *byte ^= 0x20;
  }
  f->by_card = image->count && image->pieces[0].by_card;
  if (f->noticed < f->damaged || f->unequal) b->errors++;
  wake_time(b, 0);
}

static void measure_host(struct bench *b, gap_pool_id pool, struct figures *f) {
  double sleeps[CYCLES_MAX], wakes[CYCLES_MAX];
  get_blocks(b, pool, options.bytes);
  fill(b);
  if (b->kernels) kernels_wait(b->kernels);
  f->cold_sleep = sleep_time(b, 0);
  f->bytes = asleep_bytes(b);
  f->cold_wake = wake_time(b, 0);
  must(b, "reserve", gap__tier_reserve_host(b->tier, 0, 0));
  double began = now();
  must(b, "reserve", gap__tier_reserve_host(b->tier, 0, f->bytes));
  f->pin = now() - began;
  for (uint64_t i = 0; i < options.cycles; i++) {
    sleeps[i] = sleep_time(b, 0);
    wakes[i] = wake_time(b, i + 1 == options.cycles ? GAP_WAKE_KEEP : 0);
  }
  f->sleep = median(sleeps, options.cycles);
  f->wake = median(wakes, options.cycles);
  f->unchanged = sleep_time(b, GAP_SLEEP_UNCHANGED);
  wake_time(b, 0);
  damage(b, f);
  give_blocks(b);
}

/* ---- both ways at once ---- */

struct half {
  struct bench *b;
  const char *tag;
  bool wakes;
};

static void *go(void *arg) {
  struct half *half = arg;
  uint64_t freed;
  int rc = half->wakes ? gap__tier_wake(half->b->tier, 0, half->tag, 0)
                       : gap__tier_sleep(half->b->tier, 0, half->tag, 0, &freed);
  if (rc) half->b->errors++;
  return NULL;
}

/* Both halves were asleep once before, so that their chunks are large. */
static void measure_both(struct bench *b, struct figures *f) {
  struct half halves[2] = {{b, "left", false}, {b, "right", true}};
  struct gap__pool_about about[2] = {{.flags = GAP_POOL_SHARED, .tag = "left"},
                                     {.flags = GAP_POOL_SHARED, .tag = "right"}};
  pthread_t threads[2];
  uint64_t freed;
  unsigned first = 0;
  for (int i = 0; i < 2; i++) {
    must(b, "pool", gap__heap_pool_create(b->heap, 0, &about[i]));
    b->count = first;
    get_more(b, about[i].id, options.bytes / 2);
    first = b->count;
  }
  fill(b);
  if (b->kernels) kernels_wait(b->kernels);
  for (int i = 0; i < 2; i++) must(b, "sleep", gap__tier_sleep(b->tier, 0, about[i].tag, 0, &freed));
  uint64_t bytes = asleep_bytes(b);
  for (int i = 0; i < 2; i++) must(b, "wake", gap__tier_wake(b->tier, 0, about[i].tag, 0));
  must(b, "sleep", gap__tier_sleep(b->tier, 0, "right", 0, &freed));
  double began = now();
  for (int i = 0; i < 2; i++)
    if (pthread_create(&threads[i], NULL, go, &halves[i])) abort();
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  f->both = gb_per_s(bytes, now() - began);
  must(b, "wake", gap__tier_wake(b->tier, 0, "left", 0));
  verify(b);
  give_blocks(b);
}

/* ---- the disk ---- */

static const unsigned disk_depths[DISK_DEPTHS] = {1, 8, 32};

/* What the kernel counts of a block device: requests, sectors of 512 bytes, and the time of requests added up; reads, then writes. */
struct disk_counts {
  double requests, sectors, waited_ms, at;
};

/* All 0 where the folder lies on no block device of its own. */
static struct disk_counts count_disk(bool write) {
  struct disk_counts c = {.at = now()};
  struct stat about;
  char path[64];
  double v[8];
  if (stat(options.disk, &about)) return c;
  snprintf(path, sizeof path, "/sys/dev/block/%u:%u/stat", major(about.st_dev), minor(about.st_dev));
  FILE *file = fopen(path, "r");
  if (!file) return c;
  if (fscanf(file, "%lf %lf %lf %lf %lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) == 8)
    c = (struct disk_counts){v[4 * write], v[4 * write + 2], v[4 * write + 3], c.at};
  fclose(file);
  return c;
}

/* Of `bytes` since then: the time of requests added up over the time that has passed is how many were under way. */
static struct disk_reading reading_since(struct disk_counts from, bool write, uint64_t bytes) {
  struct disk_counts to = count_disk(write);
  double ms = 1e3 * (to.at - from.at), requests = to.requests - from.requests;
  double mib_each = requests > 0 ? (to.sectors - from.sectors) / 2048 / requests : 0;
  return (struct disk_reading){gb_per_s(bytes, ms / 1e3), (to.waited_ms - from.waited_ms) / ms * mib_each};
}

/* `depth` operations of 1 MiB under way at once, by up to eight transfers. */
static struct disk_reading pass(struct bench *b, struct gap__disk *d, unsigned char *memory, unsigned depth, bool write,
                                uint64_t bytes) {
  unsigned transfers = depth < 8 ? depth : 8;
  uint64_t step = depth / transfers * MIB, at = 0, where;
  struct disk_counts began = count_disk(write);
  int why = 0;
  for (unsigned i = 0; at < bytes && !why; i = (i + 1) % transfers, at += step) {
    why = gap__io_wait(&d->io, i, &where);
    gap__io_begin(&d->io, i, write, memory + i * step, step, at);
  }
  for (unsigned i = 0; i < transfers; i++) why |= gap__io_wait(&d->io, i, &where);
  must(b, "transfer", why ? GAP_EIO : 0);
  return reading_since(began, write, bytes);
}

static void measure_file(struct bench *b, unsigned char *memory, int depth, struct disk_figures *f) {
  struct gap__disk d;
  uint32_t first, got, units = (uint32_t)(options.disk_bytes / GAP__DISK_UNIT);
  if (!must(b, "file", gap__disk_open(&d, options.disk, options.disk_bytes, false))) return;
  if (must(b, "space", gap__disk_take(&d, units, &first, &got))) {
    f->fresh[depth] = pass(b, &d, memory, disk_depths[depth], true, options.disk_bytes);
    f->again[depth] = pass(b, &d, memory, disk_depths[depth], true, options.disk_bytes);
    f->reads[depth] = pass(b, &d, memory, disk_depths[depth], false, options.disk_bytes);
  }
  gap__disk_close(&d);
}

static void measure_disk_once(struct bench *b, unsigned char *memory, uint64_t bytes, struct disk_figures *f) {
  for (int i = 0; i < DISK_DEPTHS; i++) measure_file(b, memory, i, f);
  struct disk_counts began = count_disk(true);
  sleep_time(b, GAP_SLEEP_DISK);
  f->sleep = reading_since(began, true, bytes);
  began = count_disk(false);
  must(b, "wake", gap__tier_wake(b->tier, 0, "weights", 0));
  f->wake = reading_since(began, false, bytes);
  began = count_disk(true);
  uint64_t where;
  must(b, "holes", gap__io_wait(&b->tier->devices[0].disk.io, GAP__DISK_HOLES, &where) ? GAP_EIO : 0);
  f->holes = reading_since(began, true, bytes);
  verify(b);
}

static int by_rate(const void *a, const void *b) {
  double x = ((const struct disk_reading *)a)->rate, y = ((const struct disk_reading *)b)->rate;
  return x < y ? -1 : x > y;
}

/* Of each figure the reading with the median rate. */
static struct disk_figures disk_medians(const struct disk_figures *rounds) {
  enum { READINGS = sizeof(struct disk_figures) / sizeof(struct disk_reading) };
  struct disk_reading column[CYCLES_MAX], medians[READINGS];
  struct disk_figures f;
  for (int i = 0; i < READINGS; i++) {
    for (uint64_t k = 0; k < options.cycles; k++)
      memcpy(&column[k], (const char *)&rounds[k] + (size_t)i * sizeof *column, sizeof *column);
    qsort(column, options.cycles, sizeof *column, by_rate);
    medians[i] = column[options.cycles / 2];
  }
  memcpy(&f, medians, sizeof f);
  return f;
}

static void measure_disk(struct bench *b, gap_pool_id pool, struct figures *f) {
  static struct disk_figures rounds[CYCLES_MAX];
  uint64_t memory_bytes = 32 * MIB, bytes = 0;
  unsigned char *memory = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!must(b, "memory", memory == MAP_FAILED ? GAP_ENOMETA : 0)) return;
  madvise(memory, memory_bytes, MADV_HUGEPAGE); /* as pinned memory is */
  memset(memory, 0x5A, memory_bytes);
  get_blocks(b, pool, options.disk_bytes - options.disk_bytes / 16); /* odd sizes round up */
  fill(b);
  if (b->kernels) kernels_wait(b->kernels);
  sleep_time(b, GAP_SLEEP_DISK); /* takes buffers, and makes large chunks */
  bytes = asleep_bytes(b);
  wake_time(b, 0);
  for (uint64_t i = 0; i < options.cycles; i++) measure_disk_once(b, memory, bytes, &rounds[i]);
  f->disk = disk_medians(rounds);
  give_blocks(b);
  munmap(memory, memory_bytes);
}

/* ---- the whole ---- */

static double best(const struct disk_reading readings[DISK_DEPTHS]) {
  double most = 0;
  for (int i = 0; i < DISK_DEPTHS; i++)
    if (readings[i].rate > most) most = readings[i].rate;
  return most;
}

static void print_depths(const char *what, const struct disk_reading r[DISK_DEPTHS]) {
  printf("\"disk_%s_gb_s\": [%.2f, %.2f, %.2f], \"disk_%s_mib_under_way\": [%.1f, %.1f, %.1f], ", what, r[0].rate,
         r[1].rate, r[2].rate, what, r[0].under_way, r[1].under_way, r[2].under_way);
}

static void print_disk(const struct disk_figures *f) {
  print_depths("write", f->fresh);
  print_depths("rewrite", f->again);
  print_depths("read", f->reads);
  printf("\"disk_sleep_gb_s\": %.2f, \"disk_sleep_mib_under_way\": %.1f, \"disk_sleep_of_best\": %.3f, "
         "\"disk_sleep_of_rewrite\": %.3f, ",
         f->sleep.rate, f->sleep.under_way, f->sleep.rate / best(f->fresh), f->sleep.rate / best(f->again));
  printf("\"disk_wake_gb_s\": %.2f, \"disk_wake_mib_under_way\": %.1f, \"disk_wake_of_best\": %.3f, "
         "\"disk_back_gb_s\": %.1f, ",
         f->wake.rate, f->wake.under_way, f->wake.rate / best(f->reads), f->holes.rate);
}

static void print(const struct bench *b, const struct figures *f) {
  double sleep = gb_per_s(f->bytes, f->sleep), wake = gb_per_s(f->bytes, f->wake);
  printf("{\"bytes\": %llu, \"link_off_gb_s\": %.2f, \"link_on_gb_s\": %.2f, \"link_both_gb_s\": %.2f, ",
         (unsigned long long)f->bytes, f->link.off, f->link.on, f->link.both);
  printf("\"cold_sleep_s\": %.4f, \"cold_wake_s\": %.4f, \"pin_gib_s\": %.2f, ", f->cold_sleep, f->cold_wake,
         (double)f->bytes / (double)GIB / f->pin);
  printf("\"sleep_s\": %.4f, \"sleep_gb_s\": %.2f, \"sleep_of_link\": %.3f, ", f->sleep, sleep, sleep / f->link.off);
  printf("\"wake_s\": %.4f, \"wake_gb_s\": %.2f, \"wake_of_link\": %.3f, \"unchanged_sleep_ms\": %.2f, \"both_gb_s\": "
         "%.2f, ",
         f->wake, wake, wake / f->link.on, 1e3 * f->unchanged, f->both);
  printf("\"sums_by_card\": %s, \"damaged\": %u, \"noticed\": %u, \"unequal_sums\": %u, ",
         f->by_card ? "true" : "false", f->damaged, f->noticed, f->unequal);
  if (options.disk) print_disk(&f->disk);
  printf("\"wrong_words\": %llu, \"errors\": %llu}\n", (unsigned long long)b->wrong, (unsigned long long)b->errors);
}

static int open_device(struct bench *b) {
  struct gap__host_params params = {.total_bytes = 2 * options.bytes + options.disk_bytes + 64 * MIB};
  if (options.host) return gap__host_create(0, &params, &b->dev);
  int rc = gap__cuda_create(0, NULL, &b->dev);
  return rc ? rc : kernels_open(b->dev, &b->kernels);
}

static int set_up(struct bench *b, gap_pool_id *pool) {
  char tiers[300] = "host";
  struct gap__heap_params params = {.dev_count = 1, .maker = GAP__MAKER_THREAD};
  struct gap__pool_about about = {.flags = GAP_POOL_SHARED, .tag = "weights"};
  int rc = open_device(b);
  params.devs = &b->dev;
  if (!rc) rc = gap__heap_create(&params, &b->heap);
  if (options.disk) snprintf(tiers, sizeof tiers, "host,disk=%s", options.disk);
  if (!rc) rc = gap__tier_create(b->heap, tiers, &b->tier);
  if (!rc) rc = gap__dev_stream_create(b->dev, &b->stream);
  if (!rc) rc = gap__heap_pool_create(b->heap, 0, &about);
  *pool = about.id;
  return rc;
}

static void check_heap(struct bench *b) {
  char text[300] = "";
  if (gap__heap_check(b->heap, 0, text, sizeof text) == 0) return;
  fprintf(stderr, "tiers: %s\n", text);
  b->errors++;
}

static int run(struct bench *b) {
  struct figures figures = {0};
  gap_pool_id pool;
  if (!must(b, "set up", set_up(b, &pool))) return 1;
  figures.link = measure_link(b);
  measure_host(b, pool, &figures);
  measure_both(b, &figures);
  if (options.disk) measure_disk(b, pool, &figures);
  check_heap(b);
  print(b, &figures);
  gap__tier_destroy(b->tier);
  kernels_close(b->kernels);
  gap__heap_destroy(b->heap);
  return b->errors || b->wrong ? 1 : 0;
}

static bool read_options(int argc, char **argv) {
  const struct {
    const char *name;
    uint64_t *value;
  } sizes[] = {{"--bytes", &options.bytes}, {"--cycles", &options.cycles}, {"--disk-bytes", &options.disk_bytes}};
  for (int i = 1; i < argc; i++) {
    bool known = strcmp(argv[i], "--host") == 0;
    if (known) options.host = true;
    else if (i + 1 == argc) return false;
    for (size_t o = 0; !known && o < sizeof sizes / sizeof *sizes; o++)
      if (strcmp(argv[i], sizes[o].name) == 0)
        known = gap__text_parse_size(argv[i + 1], strlen(argv[i + 1]), sizes[o].value) == 0, i++;
    if (!known && strcmp(argv[i], "--disk") == 0) options.disk = argv[++i], known = true;
    if (!known) return false;
  }
  return options.cycles >= 1 && options.cycles <= CYCLES_MAX && options.bytes >= 16 * MIB &&
         options.disk_bytes >= 64 * MIB;
}

int main(int argc, char **argv) {
  static struct bench bench;
  int count = 0;
  if (!read_options(argc, argv)) {
    fputs("tiers [--bytes SIZE] [--cycles N] [--disk FOLDER] [--disk-bytes SIZE] [--host]\n", stderr);
    return 2;
  }
  if (!options.host && (gap__cuda_device_count(NULL, &count) != 0 || count == 0)) {
    puts("tiers skipped: no CUDA device");
    return 77;
  }
  return run(&bench);
}
