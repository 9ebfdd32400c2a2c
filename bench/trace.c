/* What an event costs the program when it is heard, when it is written to a file, and when it is put into a ring of last events:
 * trace [--json] [--quick] [--repeat N]
 *
 * Pairs of allocations and frees that idle memory serves, three events each, in one thread; its CPU time without anybody
 * who hears, with a listener that does nothing, with `trace:FILE`, and with `trace_ring:FILE`.  Threads that write have a CPU time
 * of their own.  The pairs come in bursts that the queue to the file takes, so that what is measured is not the disk; the ring is lapped
 * several times. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "gapless/gapless.h"
#include "harness.h"

enum { BLOCKS = 64, ROUNDS = 100, BURSTS = 50, EVENTS_A_PAIR = 3, REPEAT_MOST = 101 };

enum subject { ALONE, LISTENER, TRACE, RING, SUBJECTS };
static const char *const names[SUBJECTS] = {"nobody hears", "a listener that does nothing", "trace:FILE",
                                            "trace_ring:FILE"};

static void ignore(void *arg, const gap_event *event) { (void)arg, (void)event; }

static gap_heap *open_heap(enum subject subject, const char *path) {
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  gap_heap *heap = NULL;
  char conf[200];
  snprintf(conf, sizeof conf, subject == RING ? "trace_ring:%s,trace_ring_events:262144" : "trace:%s", path);
  options.backend = GAP_BACKEND_SIM;
  options.flags = GAP_HEAP_NO_ENVIRONMENT;
  options.conf = subject >= TRACE ? conf : NULL;
  int rc = gap_heap_create(&options, &heap);
  if (!rc && subject == LISTENER) rc = gap_set_events(heap, ignore, NULL);
  if (!rc) return heap;
  fprintf(stderr, "trace: %s\n", gap_strerror(rc));
  exit(1);
}

static void allocate_and_free(gap_heap *heap) {
  gap_addr blocks[BLOCKS];
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < BLOCKS; i++) {
      if (gap_alloc(heap, 0, 8, 512 * (1 + (uint64_t)(i * 7 + round) % 40), &blocks[i])) exit(1);
    }
    for (int i = 0; i < BLOCKS; i++) gap_free(heap, blocks[i]);
  }
}

/* ns a pair: the least of the bursts, since what else the machine does only adds. */
static double measure(enum subject subject, const char *path) {
  gap_heap *heap = open_heap(subject, path);
  double least = 1e9;
  allocate_and_free(heap);
  for (int burst = 0; burst < BURSTS; burst++) {
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* the ring is emptied */
    uint64_t before = bench_thread_ns();
    allocate_and_free(heap);
    double ns = (double)(bench_thread_ns() - before) / (ROUNDS * BLOCKS);
    if (ns < least) least = ns;
  }
  gap_heap_destroy(heap);
  return least;
}

static void print(const struct bench_spread *pairs, const struct bench_spread *events, bool json) {
  json_t *root = json_object();
  if (!json) bench_where_print();
  for (int i = 0; i < SUBJECTS; i++) {
    json_t *one = json_object();
    json_object_set_new(one, "pair_ns", bench_spread_json(&pairs[i]));
    json_object_set_new(one, "event_ns", bench_spread_json(&events[i]));
    json_object_set_new(root, names[i], one);
    if (!json)
      printf("%-30s %6.1f ns a pair (%.1f to %.1f), %5.1f ns an event\n", names[i], pairs[i].median, pairs[i].least,
             pairs[i].most, events[i].median);
  }
  json_object_set_new(root, "where", bench_where());
  if (json) json_dumpf(root, stdout, JSON_COMPACT), putchar('\n');
  json_decref(root);
}

int main(int argc, char **argv) {
  struct bench_options options = bench_options_read(argc, argv, "what an event costs when it is written", 11, 3);
  double pair[SUBJECTS][REPEAT_MOST], event[SUBJECTS][REPEAT_MOST];
  char path[] = "/tmp/gapless-bench-XXXXXX";
  struct bench_spread pairs[SUBJECTS], events[SUBJECTS];
  unsigned repeat = options.repeat < REPEAT_MOST ? options.repeat : REPEAT_MOST;
  int fd = mkstemp(path);
  if (fd < 0) return 1;
  close(fd);
  bench_start_idle_thread();
  for (unsigned turn = 0; turn < repeat; turn++)
    for (int i = 0; i < SUBJECTS; i++) {
      pair[i][turn] = measure((enum subject)i, path);
      event[i][turn] = (pair[i][turn] - pair[ALONE][turn]) / EVENTS_A_PAIR;
    }
  unlink(path);
  for (int i = 0; i < SUBJECTS; i++) {
    pairs[i] = bench_spread_of(pair[i], repeat);
    events[i] = bench_spread_of(event[i], repeat);
  }
  print(pairs, events, options.json);
  return 0;
}
