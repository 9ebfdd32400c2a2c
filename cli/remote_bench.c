#include "remote_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bar.h"

enum { TIMEOUT_MS = 60000, SAMPLES = 1 << 16 };

struct lane { /* one value under way */
  gap_remote_ticket ticket;
  gap_remote_item item;
  char key[40];
  uint8_t *value;
  uint64_t begun_ns;
};

struct run {
  gap_remote *remote;
  const struct remote_bench *bench;
  struct lane *lanes;
  uint64_t *samples;
  uint64_t sample_count;
  struct bar bar;
};

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

typedef int begin_fn(gap_remote *, gap_remote_item *, uint32_t, uint32_t, gap_remote_ticket *);

static int begin_lane(struct run *run, struct lane *lane, begin_fn *begin) {
  lane->item.bytes = run->bench->value_bytes;
  lane->begun_ns = now_ns();
  return begin(run->remote, &lane->item, 1, TIMEOUT_MS, &lane->ticket);
}

static int end_lane(struct run *run, struct lane *lane, struct remote_speed *speed) {
  int rc = gap_remote_wait(run->remote, lane->ticket, 2 * TIMEOUT_MS);
  if (rc) return rc;
  lane->ticket = 0;
  speed->values++;
  if (lane->item.outcome != GAP_REMOTE_DONE) speed->failed++;
  run->samples[run->sample_count++ % SAMPLES] = now_ns() - lane->begun_ns;
  return 0;
}

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static void sum_up(struct run *run, struct remote_speed *speed, uint64_t ns) {
  uint64_t count = run->sample_count < SAMPLES ? run->sample_count : SAMPLES;
  qsort(run->samples, count, sizeof *run->samples, compare);
  speed->seconds = (double)ns / 1e9;
  speed->values_per_s = (double)(speed->values - speed->failed) / speed->seconds;
  speed->bytes_per_s = speed->values_per_s * (double)run->bench->value_bytes;
  if (count) speed->median_ns = run->samples[count / 2], speed->p99_ns = run->samples[count - 1 - count / 100];
}

/* Lanes take turns: as soon as the oldest is done it begins anew. */
static int measure(struct run *run, begin_fn *begin, struct remote_speed *speed) {
  uint64_t start = now_ns(), length = (uint64_t)(run->bench->seconds * 1e9), passed = 0;
  int rc = 0;
  *speed = (struct remote_speed){0};
  run->sample_count = 0;
  for (uint32_t i = 0; passed < length && rc == 0; i = (i + 1) % run->bench->depth) {
    if (run->lanes[i].ticket) rc = end_lane(run, &run->lanes[i], speed);
    if (rc == 0) rc = begin_lane(run, &run->lanes[i], begin);
    passed = now_ns() - start;
    bar_update(&run->bar, passed, length);
  }
  for (uint32_t i = 0; i < run->bench->depth && rc == 0; i++)
    if (run->lanes[i].ticket) rc = end_lane(run, &run->lanes[i], speed);
  sum_up(run, speed, now_ns() - start);
  return rc;
}

static int prepare(struct run *run) {
  const struct remote_bench *b = run->bench;
  run->lanes = calloc(b->depth, sizeof *run->lanes);
  run->samples = malloc(SAMPLES * sizeof *run->samples);
  if (!run->lanes || !run->samples) return GAP_ENOMETA;
  for (uint32_t i = 0; i < b->depth; i++) {
    struct lane *lane = &run->lanes[i];
    lane->value = malloc(b->value_bytes ? b->value_bytes : 1);
    if (!lane->value) return GAP_ENOMETA;
    for (uint64_t at = 0; at < b->value_bytes; at++) lane->value[at] = (uint8_t)(at * 2654435761u >> 13);
    int length = snprintf(lane->key, sizeof lane->key, "bench/%d/%u", (int)getpid(), i);
    lane->item = (gap_remote_item){.key = lane->key, .key_bytes = (uint32_t)length, .value = lane->value};
  }
  return 0;
}

/* A value belongs to the store until its ticket is done. */
static void dispose(struct run *run) {
  for (uint32_t i = 0; run->lanes && i < run->bench->depth; i++) {
    struct lane *lane = &run->lanes[i];
    if (lane->ticket && gap_remote_cancel(run->remote, lane->ticket) == 0)
      gap_remote_wait(run->remote, lane->ticket, TIMEOUT_MS);
    free(lane->value);
  }
  free(run->lanes);
  free(run->samples);
}

static int measure_both(struct run *run, struct remote_speed *put, struct remote_speed *get) {
  bar_begin(&run->bar, "putting", !run->bench->quiet);
  int rc = measure(run, gap_remote_put, put);
  bar_end(&run->bar);
  if (rc) return rc;
  bar_begin(&run->bar, "getting", !run->bench->quiet);
  rc = measure(run, gap_remote_get, get);
  bar_end(&run->bar);
  return rc;
}

int remote_bench_run(gap_remote *remote, const struct remote_bench *bench, struct remote_speed *put,
                     struct remote_speed *get) {
  struct run run = {.remote = remote, .bench = bench};
  int rc = prepare(&run);
  if (rc == 0) rc = measure_both(&run, put, get);
  dispose(&run);
  return rc;
}
