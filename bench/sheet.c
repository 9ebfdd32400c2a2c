/* What publishing figures for `gapless top` costs: sheet [--json] [--quick] [--repeat N]
 *
 * Pairs of allocations and frees that idle memory serves, in one thread, without pause: CPU time of a pair on the average of many
 * publications, with serve:False, with serve:True, and with serve:True while a thread reads the sheet a hundred times a second.
 * And how long one publication takes, which is the time for which a request may have to wait, by strategy and number of blocks. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "api/door.h"
#include "api/sheet.h"
#include "gapless/gapless.h"
#include "harness.h"
#include "toolsapi/sheets.h"

enum { BLOCKS = 64, REPEAT_MOST = 101, BURST_MS = 1500, QUICK_MS = 300, PUBLICATIONS = 51, READ_NS = 10000000 };

enum subject { OFF, ON, READ, SUBJECTS };
static const char *const names[SUBJECTS] = {"serve:False", "serve:True", "serve:True, read 100 times a second"};

static void check(int rc, const char *what) {
  if (!rc) return;
  fprintf(stderr, "sheet: %s: %s\n", what, gap_strerror(rc));
  exit(1);
}

static gap_heap *open_heap(const char *conf) {
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  gap_heap *heap = NULL;
  options.backend = GAP_BACKEND_SIM;
  options.flags = GAP_HEAP_NO_ENVIRONMENT;
  options.conf = conf;
  check(gap_heap_create(&options, &heap), conf);
  return heap;
}

/* ---- pairs ---- */

static void allocate_and_free(gap_heap *heap) {
  gap_addr blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++)
    check(gap_alloc(heap, 0, 8, 512 * (1 + (uint64_t)(i * 7) % 40), &blocks[i]), "alloc");
  for (int i = 0; i < BLOCKS; i++) check(gap_free(heap, blocks[i]), "free");
}

static atomic_bool reading;

static void *read_again_and_again(void *unused) {
  (void)unused;
  while (atomic_load(&reading)) {
    struct gap__sheets sheets;
    if (gap__sheets_read(NULL, (long)getpid(), &sheets) == 0) gap__sheets_free(&sheets);
    nanosleep(&(struct timespec){.tv_nsec = READ_NS}, NULL);
  }
  return NULL;
}

static double pair_ns(gap_heap *heap, unsigned ms) {
  uint64_t pairs = 0, begin = bench_thread_ns(), until = bench_wall_ns() + ms * 1000000ull;
  do {
    for (int round = 0; round < 100; round++) allocate_and_free(heap);
    pairs += 100 * BLOCKS;
  } while (bench_wall_ns() < until);
  return (double)(bench_thread_ns() - begin) / (double)pairs;
}

static double measure(enum subject subject, unsigned ms) {
  gap_heap *heap = open_heap(subject == OFF ? "serve:False" : "serve:True");
  pthread_t reader;
  allocate_and_free(heap);
  atomic_store(&reading, subject == READ);
  if (subject == READ && pthread_create(&reader, NULL, read_again_and_again, NULL)) exit(1);
  double ns = pair_ns(heap, ms);
  atomic_store(&reading, false);
  if (subject == READ) pthread_join(reader, NULL);
  gap_heap_destroy(heap);
  return ns;
}

/* ---- one publication ---- */

static const struct lot {
  const char *conf;
  unsigned blocks; /* half of them live, the others idle between them */
} lots[] = {
    {"strategy:gapless", 100},           {"strategy:gapless", 10000},           {"strategy:gapless", 100000},
    {"strategy:caching_allocator", 100}, {"strategy:caching_allocator", 10000}, {"strategy:caching_allocator", 100000}};
enum { LOTS = sizeof lots / sizeof *lots };

static int fill(gap_heap *heap, unsigned count) {
  gap_addr *blocks = bench_alloc(count * sizeof *blocks);
  int rc = 0;
  for (unsigned i = 0; i < count && !rc; i++)
    rc = gap_alloc(heap, 0, 8 + i / 1000 % 8, 70000 + i % 7 * 4096, &blocks[i]);
  for (unsigned i = 0; i < count && !rc; i += 2) rc = gap_free(heap, blocks[i]);
  free(blocks);
  return rc;
}

static struct bench_spread publication_us(const struct lot *lot) {
  gap_heap *heap = open_heap(lot->conf);
  struct gap__sheet sheet;
  double us[PUBLICATIONS];
  check(fill(heap, lot->blocks), "fill");
  int folder = gap__door_open_own_folder();
  check(folder < 0 ? folder : gap__sheet_make(&sheet, folder), "sheet");
  for (int i = 0; i < PUBLICATIONS; i++) {
    uint64_t before = bench_wall_ns();
    gap__sheet_publish(&sheet, (gap_heap *const[]){heap}, 1);
    us[i] = (double)(bench_wall_ns() - before) / 1e3;
  }
  gap__sheet_remove_name(&sheet, folder);
  gap__sheet_close(&sheet);
  close(folder);
  gap_heap_destroy(heap);
  return bench_spread_of(us, PUBLICATIONS);
}

/* ---- the whole ---- */

static json_t *pairs_json(const struct bench_spread *pairs, const struct bench_spread *more, bool json) {
  json_t *all = json_object();
  for (int i = 0; i < SUBJECTS; i++) {
    json_t *one = json_object();
    json_object_set_new(one, "pair_ns", bench_spread_json(&pairs[i]));
    json_object_set_new(one, "more_ns", bench_spread_json(&more[i]));
    json_object_set_new(all, names[i], one);
    if (!json)
      printf("%-38s %6.2f ns a pair (%.2f to %.2f), %+5.2f ns (%+.2f to %+.2f)\n", names[i], pairs[i].median,
             pairs[i].least, pairs[i].most, more[i].median, more[i].p10, more[i].p90);
  }
  return all;
}

static json_t *publications_json(bool json) {
  json_t *all = json_array();
  for (int i = 0; i < LOTS; i++) {
    struct bench_spread us = publication_us(&lots[i]);
    json_t *one = bench_spread_json(&us);
    json_object_set_new(one, "conf", json_string(lots[i].conf));
    json_object_set_new(one, "blocks", json_integer(lots[i].blocks));
    json_array_append_new(all, one);
    if (!json)
      printf("one publication, %-26s %6u blocks: %8.1f us (%.1f to %.1f)\n", lots[i].conf, lots[i].blocks, us.median,
             us.least, us.most);
  }
  return all;
}

int main(int argc, char **argv) {
  struct bench_options options = bench_options_read(argc, argv, "what publishing figures costs", 11, 3);
  double pair[SUBJECTS][REPEAT_MOST], difference[SUBJECTS][REPEAT_MOST];
  struct bench_spread pairs[SUBJECTS], more[SUBJECTS];
  unsigned repeat = options.repeat < REPEAT_MOST ? options.repeat : REPEAT_MOST;
  bench_start_idle_thread();
  for (unsigned turn = 0; turn < repeat; turn++)
    for (int i = 0; i < SUBJECTS; i++) {
      pair[i][turn] = measure((enum subject)i, options.quick ? QUICK_MS : BURST_MS);
      difference[i][turn] = pair[i][turn] - pair[OFF][turn];
    }
  for (int i = 0; i < SUBJECTS; i++) {
    pairs[i] = bench_spread_of(pair[i], repeat);
    more[i] = bench_spread_of(difference[i], repeat);
  }
  if (!options.json) bench_where_print();
  json_t *root = json_object();
  json_object_set_new(root, "pairs", pairs_json(pairs, more, options.json));
  json_object_set_new(root, "publications", publications_json(options.json));
  json_object_set_new(root, "where", bench_where());
  if (options.json) json_dumpf(root, stdout, JSON_COMPACT), putchar('\n');
  json_decref(root);
  return 0;
}
