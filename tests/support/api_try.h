/* Heaps of the C interface for tests. */
#ifndef GAP_TESTS_API_TRY_H
#define GAP_TESTS_API_TRY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gapless/gapless.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define NONE ((gap_pool_id){0, 0})

/* Two devices of `bytes` (0: the backend's default). */
static inline gap_heap *api_open(gap_backend backend, uint64_t bytes, const char *conf) {
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  gap_heap *heap = NULL;
  options.backend = backend;
  options.flags = GAP_HEAP_NO_ENVIRONMENT;
  options.device_count = 2;
  options.device_bytes = bytes;
  options.conf = conf;
  assert_int_equal(gap_heap_create(&options, &heap), 0);
  return heap;
}

static inline void api_check(gap_heap *heap) {
  char text[300] = "";
  for (int i = 0; i < gap_device_count(heap); i++)
    if (gap_check(heap, i, text, sizeof text)) fail_msg("%s", text);
}

static inline void api_close(gap_heap *heap) {
  api_check(heap);
  gap_heap_destroy(heap);
}

static inline int64_t api_stat(gap_heap *heap, int device, const char *name) {
  int64_t value = -1;
  assert_int_equal(gap_stat(heap, device, name, &value), 0);
  return value;
}

static inline gap_usage api_usage(gap_heap *heap, int device) {
  gap_usage usage = {.size = sizeof usage};
  assert_int_equal(gap_get_usage(heap, device, &usage), 0);
  return usage;
}

static inline gap_addr api_get(gap_heap *heap, gap_stream stream, uint64_t bytes) {
  gap_addr addr;
  assert_int_equal(gap_alloc(heap, 0, stream, bytes, &addr), 0);
  return addr;
}

static inline gap_addr api_get_in(gap_heap *heap, gap_stream stream, gap_pool_id pool, uint64_t bytes) {
  gap_addr addr;
  assert_int_equal(gap_alloc_in(heap, 0, stream, pool, bytes, &addr), 0);
  return addr;
}

static inline void api_give(gap_heap *heap, gap_addr addr) { assert_int_equal(gap_free(heap, addr), 0); }

/* Messages. */
struct api_log {
  char lines[4000];
  int count, worst;
};
static inline void api_keep_line(void *arg, int level, const char *line) {
  struct api_log *log = arg;
  size_t used = strlen(log->lines);
  snprintf(log->lines + used, sizeof log->lines - used, "%d %s\n", level, line);
  if (!log->count++ || level < log->worst) log->worst = level;
}
static inline void api_listen(struct api_log *log) {
  memset(log, 0, sizeof *log);
  gap_set_log(api_keep_line, log);
}

#endif
