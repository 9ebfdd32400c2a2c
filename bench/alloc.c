/* Allocation and free, CPU time of an operation pair: gapless beside torch's native policy, mimalloc and glibc.
 *
 * Three parts: one thread (hit pairs and churn), two threads (on own streams and on one), and the records' size.
 * The figures asked of gapless stand at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "scaling.h"
#include "subject.h"
#include "workload.h"

enum { ROUND_STEPS = 200000, PAIR_LIVE = 2000 };
#define KIB 1024u
#define MIB (1024u * KIB)

struct workload {
  const char *name, *figure; /* which figure it belongs to */
  uint32_t live_count, most; /* sizes up to */
  uint64_t pair_bytes;       /* 0: churn */
  double ratio_asked, ns_asked;
};

static const struct workload workloads[] = {
    {"hit pair 512 B", "hit pair", PAIR_LIVE, 16 * MIB, 512, 5, 30},
    {"hit pair 4 KiB", "hit pair", PAIR_LIVE, 16 * MIB, 4 * KIB, 5, 30},
    {"hit pair 64 KiB", "hit pair", PAIR_LIVE, 16 * MIB, 64 * KIB, 5, 30},
    {"hit pair 1 MiB", "hit pair", PAIR_LIVE, 16 * MIB, MIB, 5, 30},
    {"hit pair 4 MiB", "hit pair", PAIR_LIVE, 16 * MIB, 4 * MIB, 5, 30},
    {"churn 2k", "churn 2k", 2000, 16 * MIB, 0, 2, 110},
    {"churn 20k", "churn 20k", 20000, MIB, 0, 8, 180},
};
enum { WORKLOAD_COUNT = sizeof workloads / sizeof *workloads };

struct run {
  struct bench_options options;
  uint64_t target_ns; /* of one measurement */
  json_t *results, *threads, *metadata, *figures;
};

static void put_figure(struct run *run, const char *what, const char *unit, double asked, double reached, bool met) {
  json_array_append_new(run->figures, json_pack("{s:s, s:s, s:f, s:f, s:f, s:b}", "what", what, "unit", unit, "asked",
                                                asked, "reached", reached, "ratio", reached / asked, "met", met));
  if (!run->options.json)
    printf("%-46s %8.2f %8.2f %-12s %6.2f  %s\n", what, asked, reached, unit, reached / asked, met ? "met" : "NOT MET");
}

/* ---- one thread ---- */

struct cell {
  struct bench_subject subject;
  struct bench_user user;
  bool there;
  uint32_t count; /* operations of one measurement */
  double *ns;     /* of an operation, by repeat */
  struct bench_calls calls;
  struct bench_spread spread;
};

static void open_cell(struct cell *cell, enum bench_kind kind, const struct workload *workload,
                      const struct bench_script *script, const struct run *run) {
  cell->there = bench_subject_open(&cell->subject, kind);
  if (!cell->there) return;
  cell->ns = bench_alloc(run->options.repeat * sizeof *cell->ns);
  bench_user_start(&cell->user, &cell->subject, script, 0);
  bench_user_warm(&cell->user);
  cell->count = bench_calibrate(&cell->user, workload->pair_bytes, run->target_ns, 1u << 30);
}

static void measure_cell(struct cell *cell, const struct workload *workload, unsigned repeat) {
  struct bench_calls before = bench_subject_calls(&cell->subject);
  uint64_t start = bench_thread_ns();
  bench_play(&cell->user, cell->count, workload->pair_bytes);
  cell->ns[repeat] = (double)(bench_thread_ns() - start) / cell->count;
  struct bench_calls after = bench_subject_calls(&cell->subject);
  cell->calls.memory += after.memory - before.memory;
  cell->calls.events += after.events - before.events;
}

/* Counts what the timed parts should not contain. */
static void report_cell(struct run *run, struct cell *cell, enum bench_kind kind, const struct workload *workload) {
  unsigned repeat = run->options.repeat;
  struct bench_spread spread = cell->spread = bench_spread_of(cell->ns, repeat);
  double pairs = (double)cell->count * repeat;
  json_array_append_new(
      run->results,
      json_pack("{s:s, s:s, s:o, s:i, s:I, s:f}", "workload", workload->name, "subject", bench_subject_name(kind), "ns",
                bench_spread_json(&spread), "pairs", (int)cell->count, "memory_calls", (json_int_t)cell->calls.memory,
                "event_calls_per_1000_pairs", 1e3 * (double)cell->calls.events / pairs));
  if (run->options.json) return;
  printf("%-16s %-18s %8.1f %8.1f %8.1f %8.1f", workload->name, bench_subject_name(kind), spread.median, spread.least,
         spread.p10, spread.p90);
  if (cell->calls.memory) printf("  WITH %llu driver calls for memory", (unsigned long long)cell->calls.memory);
  printf("\n");
}

/* A round in a heap of its own, which holds no more than it wants to. */
static void measure_metadata(struct run *run, enum bench_kind kind, const struct workload *workload) {
  struct bench_subject subject;
  struct bench_user user;
  struct bench_script script = bench_script_make(workload->live_count, 512, workload->most, ROUND_STEPS);
  bench_subject_open(&subject, kind);
  bench_user_start(&user, &subject, &script, 0);
  bench_churn(&user, ROUND_STEPS);
  uint64_t live, bytes = bench_subject_metadata(&subject, &live);
  json_array_append_new(
      run->metadata,
      json_pack("{s:s, s:s, s:I, s:I, s:f}", "workload", workload->name, "subject", bench_subject_name(kind), "live",
                (json_int_t)live, "bytes", (json_int_t)bytes, "bytes_per_live_block", (double)bytes / (double)live));
  if (!run->options.json)
    printf("%-16s %-18s %8.1f bytes of records a live block\n", workload->name, bench_subject_name(kind),
           (double)bytes / (double)live);
  bench_user_end(&user);
  bench_subject_close(&subject);
  bench_script_free(&script);
}

static void close_cell(struct cell *cell) {
  if (!cell->there) return;
  bench_user_end(&cell->user);
  bench_subject_close(&cell->subject);
  free(cell->ns);
}

static void run_workload(struct run *run, const struct workload *workload, double medians[BENCH_KIND_COUNT]) {
  struct cell cells[BENCH_KIND_COUNT] = {0};
  struct bench_script script = bench_script_make(workload->live_count, 512, workload->most, ROUND_STEPS);
  for (int kind = 0; kind < BENCH_KIND_COUNT; kind++) open_cell(&cells[kind], kind, workload, &script, run);
  for (unsigned repeat = 0; repeat < run->options.repeat; repeat++)
    for (int kind = 0; kind < BENCH_KIND_COUNT; kind++)
      if (cells[kind].there) measure_cell(&cells[kind], workload, repeat);
  for (int kind = 0; kind < BENCH_KIND_COUNT; kind++) {
    if (!cells[kind].there) continue;
    report_cell(run, &cells[kind], kind, workload);
    medians[kind] = cells[kind].spread.median;
  }
  for (int kind = 0; kind < BENCH_KIND_COUNT; kind++) close_cell(&cells[kind]);
  bench_script_free(&script);
}

/* ---- two threads ---- */

enum sharing { OWN_STREAMS, ONE_STREAM, NOTHING };

struct crew {
  const char *name;
  enum bench_kind kind;
  enum sharing sharing;
};

static const struct crew crews[] = {
    {"unshared loop", BENCH_EMPTY, NOTHING},
    {"gapless, own streams", BENCH_GAPLESS, OWN_STREAMS},
    {"gapless, one stream", BENCH_GAPLESS, ONE_STREAM},
    {"caching_allocator, own streams", BENCH_CACHING, OWN_STREAMS},
    {"mimalloc/512", BENCH_MIMALLOC_512, OWN_STREAMS},
    {"glibc", BENCH_GLIBC, OWN_STREAMS},
};
enum { CREW_COUNT = sizeof crews / sizeof *crews, LOOP = 0, OWN = 1 };

struct site { /* a crew at work */
  struct bench_subject subject;
  struct bench_user users[2];
  bool there;
  uint32_t count;
  double *wall, *cpu, *relative, *one, *both; /* by repeat; relative: wall scaling over the loop's in the same repeat */
};

static void open_site(struct site *site, const struct crew *crew, const struct bench_script *script,
                      const struct run *run, uint64_t pair_bytes) {
  size_t bytes = run->options.repeat * sizeof(double);
  double **series[] = {&site->wall, &site->cpu, &site->relative, &site->one, &site->both};
  for (unsigned i = 0; i < sizeof series / sizeof *series; i++) *series[i] = bench_alloc(bytes);
  site->there = crew->sharing == NOTHING || bench_subject_open(&site->subject, crew->kind);
  if (crew->sharing == NOTHING) site->count = bench_loop_calibrate(run->target_ns);
  if (crew->sharing == NOTHING || !site->there) return;
  for (int i = 0; i < 2; i++)
    bench_user_start(&site->users[i], &site->subject, script, crew->sharing == OWN_STREAMS ? 16u + (unsigned)i : 16u);
  for (int i = 0; i < 2; i++) bench_user_warm(&site->users[i]);
  bench_user_warm(&site->users[0]); /* beside the other's blocks */
  site->count = bench_calibrate(&site->users[0], pair_bytes, run->target_ns, 1u << 30);
}

static void close_site(struct site *site) {
  double *series[] = {site->wall, site->cpu, site->relative, site->one, site->both};
  for (unsigned i = 0; i < sizeof series / sizeof *series; i++) free(series[i]);
  for (int i = 0; i < 2; i++)
    if (site->users[i].subject) bench_user_end(&site->users[i]);
  bench_subject_close(&site->subject);
}

static void measure_sites(struct bench_pair *pair, struct site *sites, unsigned repeat, uint64_t pair_bytes) {
  for (int i = 0; i < CREW_COUNT; i++) {
    struct site *site = &sites[i];
    if (!site->there) continue;
    struct bench_scaling scaling = bench_pair_measure(pair, site->users, site->count, pair_bytes);
    site->wall[repeat] = scaling.wall;
    site->cpu[repeat] = scaling.cpu;
    site->one[repeat] = scaling.one_ns;
    site->both[repeat] = scaling.both_ns;
    site->relative[repeat] = scaling.wall / sites[LOOP].wall[repeat];
  }
}

static double report_site(struct run *run, const struct site *site, const struct crew *crew, const char *work,
                          uint64_t calls) {
  unsigned n = run->options.repeat;
  struct bench_spread wall = bench_spread_of(site->wall, n), cpu = bench_spread_of(site->cpu, n),
                      relative = bench_spread_of(site->relative, n), one = bench_spread_of(site->one, n),
                      both = bench_spread_of(site->both, n);
  json_array_append_new(
      run->threads, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:I}", "workload", work, "subject", crew->name,
                              "scaling_wall", bench_spread_json(&wall), "scaling_cpu", bench_spread_json(&cpu),
                              "scaling_over_loop", bench_spread_json(&relative), "ns_alone", bench_spread_json(&one),
                              "ns_with_other", bench_spread_json(&both), "memory_calls", (json_int_t)calls));
  if (!run->options.json) {
    printf("%-16s %-31s %6.2f %6.2f %6.2f  %8.1f %8.1f", work, crew->name, wall.median, cpu.median, relative.median,
           one.median, both.median);
    if (calls) printf("  WITH %llu driver calls for memory", (unsigned long long)calls);
    printf("\n");
  }
  return relative.median;
}

/* The scaling of gapless on own streams over that of the loop. */
static double run_threads(struct run *run, const char *work, uint64_t pair_bytes) {
  struct site sites[CREW_COUNT] = {0};
  uint64_t before[CREW_COUNT];
  struct bench_script script = bench_script_make(PAIR_LIVE, 512, 16 * MIB, ROUND_STEPS);
  struct bench_pair *pair = bench_pair_start();
  for (int i = 0; i < CREW_COUNT; i++) open_site(&sites[i], &crews[i], &script, run, pair_bytes);
  for (int i = 0; i < CREW_COUNT; i++) before[i] = bench_subject_calls(&sites[i].subject).memory;
  for (unsigned repeat = 0; repeat < run->options.repeat; repeat++) measure_sites(pair, sites, repeat, pair_bytes);
  double reached = 0;
  for (int i = 0; i < CREW_COUNT; i++) {
    if (!sites[i].there) continue;
    uint64_t calls = bench_subject_calls(&sites[i].subject).memory - before[i];
    double relative = report_site(run, &sites[i], &crews[i], work, calls);
    if (i == OWN) reached = relative;
  }
  for (int i = 0; i < CREW_COUNT; i++) close_site(&sites[i]);
  bench_pair_stop(pair);
  bench_script_free(&script);
  return reached;
}

/* ---- figures ---- */

/* The worst workload of a figure counts. */
static void put_speed(struct run *run, const char *figure, double medians[][BENCH_KIND_COUNT]) {
  double ns = 0, ratio = 0;
  const struct workload *worst = NULL;
  for (int i = 0; i < WORKLOAD_COUNT; i++) {
    if (strcmp(workloads[i].figure, figure) != 0) continue;
    double ours = medians[i][BENCH_GAPLESS], theirs = medians[i][BENCH_MIMALLOC_512];
    if (ours > ns) ns = ours, worst = &workloads[i];
    if (theirs > 0 && ours / theirs > ratio) ratio = ours / theirs;
  }
  char what[64];
  snprintf(what, sizeof what, "%s, slowest size", figure);
  put_figure(run, what, "ns", worst->ns_asked, ns, ns <= worst->ns_asked);
  snprintf(what, sizeof what, "%s, worst ratio", figure);
  if (ratio > 0) put_figure(run, what, "x mimalloc/512", worst->ratio_asked, ratio, ratio <= worst->ratio_asked);
}

static double worst_metadata(const struct run *run) {
  double most = 0;
  size_t i;
  json_t *entry;
  json_array_foreach(run->metadata, i, entry) {
    double bytes = json_real_value(json_object_get(entry, "bytes_per_live_block"));
    const char *subject = json_string_value(json_object_get(entry, "subject"));
    if (strcmp(subject, bench_subject_name(BENCH_GAPLESS)) == 0 && bytes > most) most = bytes;
  }
  return most;
}

static void put_figures(struct run *run, double medians[][BENCH_KIND_COUNT], double pair, double churn) {
  if (!run->options.json) printf("\n%-46s %8s %8s %-12s %6s\n", "figure", "asked", "reached", "", "ratio");
  const char *last = NULL;
  for (int i = 0; i < WORKLOAD_COUNT; i++) {
    if (!last || strcmp(workloads[i].figure, last) != 0) put_speed(run, workloads[i].figure, medians);
    last = workloads[i].figure;
  }
  put_figure(run, "two threads on own streams, hit pair 4 KiB", "x loop's", 0.85, pair, pair >= 0.85);
  put_figure(run, "two threads on own streams, churn 2k", "x loop's", 0.85, churn, churn >= 0.85);
  double bytes = worst_metadata(run);
  put_figure(run, "records of a live block", "bytes", 128, bytes, bytes > 0 && bytes <= 128);
}

static void print_json(struct run *run) {
  json_t *all = json_pack("{s:s, s:o, s:i, s:b, s:O, s:O, s:O, s:O}", "bench", "alloc", "where", bench_where(),
                          "repeat", (int)run->options.repeat, "quick", run->options.quick, "results", run->results,
                          "threads", run->threads, "metadata", run->metadata, "figures", run->figures);
  json_dumpf(all, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
  printf("\n");
  json_decref(all);
}

int main(int argc, char **argv) {
  struct run run = {
      .options = bench_options_read(
          argc, argv, "\n\nAllocation and free: CPU time of an operation pair, two threads, and the records' size.", 15,
          5),
      .results = json_array(),
      .threads = json_array(),
      .metadata = json_array(),
      .figures = json_array()};
  double medians[WORKLOAD_COUNT][BENCH_KIND_COUNT] = {0};
  run.target_ns = run.options.quick ? 2000000 : 15000000;
  bench_start_idle_thread();
  if (!run.options.json) {
    bench_where_print();
    printf("\n%-16s %-18s %8s %8s %8s %8s   ns CPU a pair\n", "one thread", "", "median", "least", "p10", "p90");
  }
  for (int i = 0; i < WORKLOAD_COUNT; i++) run_workload(&run, &workloads[i], medians[i]);
  if (!run.options.json)
    printf("\n%-16s %-31s %6s %6s %6s  %8s %8s   scaling by wall, CPU, over the loop's; ns CPU alone, with the other\n",
           "two threads", "", "wall", "cpu", "/loop", "alone", "other");
  double pair = run_threads(&run, "hit pair 4 KiB", 4 * KIB), churn = run_threads(&run, "churn 2k", 0);
  if (!run.options.json) printf("\n");
  for (int i = 0; i < WORKLOAD_COUNT; i++)
    for (int kind = BENCH_GAPLESS; kind <= BENCH_CACHING && !workloads[i].pair_bytes; kind++)
      measure_metadata(&run, kind, &workloads[i]);
  put_figures(&run, medians, pair, churn);
  if (run.options.json) print_json(&run);
  json_decref(run.results);
  json_decref(run.threads);
  json_decref(run.metadata);
  json_decref(run.figures);
  return 0;
}
