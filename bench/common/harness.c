/* Options, clocks, medians, and where it ran: see harness.h. */
#include "harness.h"

#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "commit.h" /* made by the build: GAP_BENCH_COMMIT */

enum { REPEAT_MAX = 1000 };

/* ---- options ---- */

static _Noreturn void say_usage(const char *program, const char *about, unsigned repeat, unsigned repeat_quick,
                                int status) {
  fprintf(status ? stderr : stdout,
          "usage: %s [--json] [--quick] [--repeat N]%s\n\n"
          "  --json      one JSON object\n"
          "  --quick     a short run: %u repeats, for a first look\n"
          "  --repeat N  repeats of each measurement, 1 to %d; default %u\n",
          program, about, repeat_quick, REPEAT_MAX, repeat);
  exit(status);
}

static unsigned repeat_from(const char *text) {
  char *end;
  unsigned long value = strtoul(text, &end, 10);
  return *text && !*end && value <= REPEAT_MAX ? (unsigned)value : 0;
}

struct bench_options bench_options_read(int argc, char **argv, const char *about, unsigned repeat,
                                        unsigned repeat_quick) {
  static const struct option known[] = {{"json", no_argument, NULL, 'j'},
                                        {"quick", no_argument, NULL, 'q'},
                                        {"repeat", required_argument, NULL, 'r'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  struct bench_options options = {0};
  bool given = false, good = true, help = false;
  for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
    if (option == 'j') options.json = true;
    else if (option == 'q') options.quick = true;
    else if (option == 'r') given = true, good = good && (options.repeat = repeat_from(optarg));
    else if (option == 'h') help = true;
    else good = false;
  }
  if (help || !good) say_usage(argv[0], about, repeat, repeat_quick, help ? 0 : 2);
  if (!given) options.repeat = options.quick ? repeat_quick : repeat;
  options.first = optind;
  return options;
}

/* ---- clocks and threads ---- */

static uint64_t clock_ns(clockid_t id) {
  struct timespec time;
  clock_gettime(id, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t bench_thread_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }
uint64_t bench_wall_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static void *sleep_for_good(void *unused) {
  (void)unused;
  for (;;) pause();
  return NULL;
}

void bench_start_idle_thread(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, sleep_for_good, NULL)) {
    fprintf(stderr, "cannot start a thread\n");
    exit(1);
  }
  pthread_detach(thread);
}

void *bench_alloc(size_t bytes) {
  void *memory = calloc(1, bytes);
  if (memory) return memory;
  fprintf(stderr, "no memory\n");
  exit(1);
}

/* ---- medians ---- */

static int compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

/* Between the two nearest ranks. */
static double quantile(const double *sorted, unsigned count, double part) {
  double at = part * (count - 1);
  unsigned below = (unsigned)at, above = below + 1 < count ? below + 1 : below;
  return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
}

struct bench_spread bench_spread_of(const double *values, unsigned count) {
  struct bench_spread spread = {.count = count};
  if (!count) return spread;
  double *sorted = bench_alloc(count * sizeof *sorted);
  memcpy(sorted, values, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, compare);
  spread.median = quantile(sorted, count, 0.5);
  spread.least = sorted[0];
  spread.p10 = quantile(sorted, count, 0.1);
  spread.p90 = quantile(sorted, count, 0.9);
  spread.most = sorted[count - 1];
  free(sorted);
  return spread;
}

json_t *bench_spread_json(const struct bench_spread *spread) {
  return json_pack("{s:f, s:f, s:f, s:f, s:f, s:i}", "median", spread->median, "min", spread->least, "p10", spread->p10,
                   "p90", spread->p90, "max", spread->most, "count", (int)spread->count);
}

/* ---- where it ran ---- */

static void read_cpu_model(char *out, size_t bytes) {
  snprintf(out, bytes, "unknown");
  FILE *file = fopen("/proc/cpuinfo", "r");
  char line[256];
  while (file && fgets(line, sizeof line, file)) {
    char *value = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || !value) continue;
    snprintf(out, bytes, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
    break;
  }
  if (file) fclose(file);
}

static void read_time(char *out, size_t bytes) {
  time_t now = time(NULL);
  struct tm parts;
  strftime(out, bytes, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
}

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

json_t *bench_where(void) {
  char cpu[128], now[32];
  struct utsname system;
  double load = 0;
  uname(&system);
  read_cpu_model(cpu, sizeof cpu);
  read_time(now, sizeof now);
  if (getloadavg(&load, 1) != 1) load = -1;
  return json_pack("{s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:f}", "cpu", cpu, "cores", (int)sysconf(_SC_NPROCESSORS_ONLN),
                   "kernel", system.release, "arch", system.machine, "compiler", COMPILER, "commit", GAP_BENCH_COMMIT,
                   "time", now, "load", load);
}

void bench_where_print(void) {
  json_t *where = bench_where();
  printf("%s, %lld cores, load %.2f, Linux %s; %s; commit %s; %s\n", json_string_value(json_object_get(where, "cpu")),
         (long long)json_integer_value(json_object_get(where, "cores")),
         json_real_value(json_object_get(where, "load")), json_string_value(json_object_get(where, "kernel")),
         json_string_value(json_object_get(where, "compiler")), json_string_value(json_object_get(where, "commit")),
         json_string_value(json_object_get(where, "time")));
  json_decref(where);
}
