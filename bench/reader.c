/* The reader of histories: reader [--json] [--rounds N] [FILE]
 * Without FILE it takes the largest history of the tests, decompressed beforehand.  Each round reads the whole file;
 * median and range of the wall time, rates, and the peak of resident memory. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "trace/history.h"
#include "trace/input.h"

#define ROUNDS_MAX 1000

struct result {
  const char *path;
  const char *name;      /* in the output */
  double ms[ROUNDS_MAX]; /* sorted */
  unsigned rounds;
  uint64_t file_bytes, events;
};

static double now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static int compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static uint64_t peak_resident_bytes(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (uint64_t)usage.ru_maxrss * 1024;
}

static int read_once(struct result *result, unsigned round) {
  struct gap__history *history;
  char *message;
  double start = now_ms();
  int rc = gap__history_read(result->path, NULL, NULL, &history, &message);
  result->ms[round] = now_ms() - start;
  if (rc) {
    fprintf(stderr, "%s: %s\n", result->path, message);
    free(message);
    return 1;
  }
  result->events = 0;
  for (uint32_t i = 0; i < history->device_count; i++) result->events += history->devices[i].event_count;
  gap__history_free(history);
  return 0;
}

static void print(const struct result *result, bool json) {
  double median = result->ms[result->rounds / 2], seconds = median / 1e3;
  double mb = (double)result->file_bytes / 1e6, resident = (double)peak_resident_bytes();
  const char *format =
      json ? "{\"bench\":\"reader\",\"file\":\"%s\",\"file_bytes\":%llu,\"events\":%llu,\"rounds\":%u,"
             "\"median_ms\":%.3f,\"least_ms\":%.3f,\"most_ms\":%.3f,\"mb_per_s\":%.1f,\"events_per_s\":%.0f,"
             "\"peak_resident_bytes\":%.0f,\"peak_resident_per_file_byte\":%.3f}\n"
           : "%s: %llu bytes, %llu events, %u rounds: median %.1f ms (%.1f to %.1f), %.0f MB/s, %.0f events/s, "
             "peak memory %.0f bytes, %.2f x the file\n";
  printf(format, result->name, (unsigned long long)result->file_bytes, (unsigned long long)result->events,
         result->rounds, median, result->ms[0], result->ms[result->rounds - 1], mb / seconds,
         (double)result->events / seconds, resident, resident / (double)result->file_bytes);
}

/* Decompresses the history of the tests into a temporary file, which the caller removes. */
static int prepare(char path[]) {
  static unsigned char bytes[1 << 16];
  struct gap__input input;
  char *message = NULL;
  size_t got = 1;
  int rc = gap__input_open(&input, GAP_BENCH_DATA "/rlhf_cut.pickle.xz", NULL, NULL, &message), fd = mkstemp(path);
  while (!rc && got) {
    rc = gap__input_take(&input, bytes, sizeof bytes, &got, &message);
    if (!rc && write(fd, bytes, got) != (ssize_t)got) rc = -1;
  }
  if (rc) fprintf(stderr, "%s\n", message ? message : "cannot write a temporary file");
  free(message);
  gap__input_close(&input);
  close(fd);
  return rc ? 1 : 0;
}

static int measure(struct result *result, bool json) {
  struct stat status;
  if (stat(result->path, &status) != 0) {
    perror(result->path);
    return 1;
  }
  result->file_bytes = (uint64_t)status.st_size;
  for (unsigned i = 0; i < result->rounds; i++)
    if (read_once(result, i)) return 1;
  qsort(result->ms, result->rounds, sizeof *result->ms, compare);
  print(result, json);
  return 0;
}

int main(int count, char **arguments) {
  struct result result = {.rounds = 11};
  char made[] = "/tmp/gapless-reader-XXXXXX";
  bool json = false;
  for (int i = 1; i < count; i++) {
    if (strcmp(arguments[i], "--json") == 0) json = true;
    else if (strcmp(arguments[i], "--rounds") == 0 && i + 1 < count)
      result.rounds = (unsigned)strtoul(arguments[++i], NULL, 10);
    else result.path = arguments[i];
  }
  if (result.rounds == 0 || result.rounds > ROUNDS_MAX) {
    fprintf(stderr, "usage: reader [--json] [--rounds 1..%d] [FILE]\n", ROUNDS_MAX);
    return 2;
  }
  if (result.path) {
    const char *slash = strrchr(result.path, '/');
    result.name = slash ? slash + 1 : result.path;
    return measure(&result, json);
  }
  result.path = made;
  result.name = "rlhf_cut.pickle";
  int rc = prepare(made);
  if (!rc) rc = measure(&result, json);
  unlink(made);
  return rc;
}
