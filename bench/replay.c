/* How fast histories are replayed: events a second through gapless and through torch's native policy, without the
 * checker. Reading is not part of it (see reader.c), nor is the search for a least cap. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gapless/tools.h"
#include "harness.h"

static const char *const files[] = {"llama_sft", "diffusion_serve", "gnn", "unet_multires", "streams", "rlhf_cut"};
enum { FILE_COUNT = sizeof files / sizeof *files };
static const enum gap_policy policies[] = {GAP_POLICY_GAPLESS, GAP_POLICY_NATIVE};
static const double asked[] = {2e6, 3e6};
enum { POLICY_COUNT = 2 };

struct run {
  struct bench_options options;
  json_t *results;
  uint64_t events[POLICY_COUNT]; /* over all files */
  double seconds[POLICY_COUNT];  /* by medians */
};

static int replay_once(const gap_history *history, uint32_t device, enum gap_policy policy, gap_replay_result *result) {
  gap_replay_options options;
  char message[512] = "";
  gap_replay_defaults(&options);
  options.device = device, options.policy = policy, options.check = GAP_CHECK_OFF;
  int rc = gap_replay(history, &options, result, message, sizeof message);
  if (rc) fprintf(stderr, "%s: %s\n", gap_policy_name(policy), message);
  return rc;
}

static void report(struct run *run, const char *file, uint32_t device, int policy, const double *seconds,
                   const gap_replay_result *result) {
  struct bench_spread spread = bench_spread_of(seconds, run->options.repeat);
  double events = (double)result->events;
  const char *base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
  run->events[policy] += result->events;
  run->seconds[policy] += spread.median;
  json_array_append_new(run->results,
                        json_pack("{s:s, s:i, s:s, s:I, s:o, s:f}", "file", base, "device", (int)device, "policy",
                                  gap_policy_name(policies[policy]), "events", (json_int_t)result->events, "seconds",
                                  bench_spread_json(&spread), "events_per_second", events / spread.median));
  if (!run->options.json)
    printf("%-30s %-8s %9.0f events %8.2f  (%.2f to %.2f) million a second\n", base, gap_policy_name(policies[policy]),
           events, events / spread.median / 1e6, events / spread.p90 / 1e6, events / spread.p10 / 1e6);
}

/* Policies in turns. */
static int measure_device(struct run *run, const char *file, const gap_history *history, uint32_t device) {
  double *seconds[POLICY_COUNT];
  gap_replay_result *results = bench_alloc(POLICY_COUNT * sizeof *results);
  int rc = 0;
  for (int p = 0; p < POLICY_COUNT; p++) seconds[p] = bench_alloc(run->options.repeat * sizeof **seconds);
  for (unsigned repeat = 0; repeat < run->options.repeat && !rc; repeat++)
    for (int p = 0; p < POLICY_COUNT && !rc; p++) {
      rc = replay_once(history, device, policies[p], &results[p]);
      seconds[p][repeat] = results[p].seconds;
    }
  for (int p = 0; p < POLICY_COUNT; p++) {
    if (!rc) report(run, file, device, p, seconds[p], &results[p]);
    free(seconds[p]);
  }
  free(results);
  return rc;
}

static int measure_file(struct run *run, const char *file) {
  gap_history *history;
  char message[512] = "";
  int rc = gap_history_open(file, NULL, NULL, &history, message, sizeof message);
  if (rc) {
    fprintf(stderr, "%s: %s\n", file, message);
    return rc;
  }
  for (uint32_t device = 0; device < gap_history_device_count(history) && !rc; device++)
    if (gap_history_event_count(history, device)) rc = measure_device(run, file, history, device);
  gap_history_close(history);
  return rc;
}

static json_t *figures(const struct run *run) {
  json_t *array = json_array();
  for (int p = 0; p < POLICY_COUNT; p++) {
    double reached = (double)run->events[p] / run->seconds[p];
    char what[64];
    snprintf(what, sizeof what, "replay, %s", gap_policy_name(policies[p]));
    json_array_append_new(
        array, json_pack("{s:s, s:s, s:f, s:f, s:f, s:b}", "what", what, "unit", "events/s", "asked", asked[p],
                         "reached", reached, "ratio", reached / asked[p], "met", reached >= asked[p]));
    if (!run->options.json)
      printf("%-24s asked %.1f, reached %.2f million events a second, ratio %.2f: %s\n", what, asked[p] / 1e6,
             reached / 1e6, reached / asked[p], reached >= asked[p] ? "met" : "NOT MET");
  }
  return array;
}

static void finish(struct run *run) {
  json_t *array = figures(run);
  json_t *all = json_pack("{s:s, s:o, s:i, s:O, s:o}", "bench", "replay", "where", bench_where(), "repeat",
                          (int)run->options.repeat, "results", run->results, "figures", array);
  if (run->options.json) {
    json_dumpf(all, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    printf("\n");
  }
  json_decref(all);
}

int main(int argc, char **argv) {
  struct run run = {.options = bench_options_read(argc, argv,
                                                  " [FILE...]\n\nEvents a second of replays, by gapless and by torch's "
                                                  "native policy; without FILE: histories of the tests.",
                                                  7, 3),
                    .results = json_array()};
  int rc = 0, given = run.options.first;
  if (!run.options.json) bench_where_print();
  for (int i = given; i < argc && !rc; i++) rc = measure_file(&run, argv[i]);
  for (int i = 0; given == argc && i < FILE_COUNT && !rc; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.pickle.xz", GAP_BENCH_DATA, files[i]);
    rc = measure_file(&run, path);
  }
  if (!rc && run.seconds[0] > 0) finish(&run);
  json_decref(run.results);
  return rc ? 2 : 0;
}
