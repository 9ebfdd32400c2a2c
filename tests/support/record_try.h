/* Programs that write down what they do, and what is read of it afterwards. */
#ifndef GAP_TESTS_RECORD_TRY_H
#define GAP_TESTS_RECORD_TRY_H

#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/api_try.h"
#include "trace/history.h"

static char record_folder[64];

static inline int record_set_up(void **state) {
  (void)state;
  snprintf(record_folder, sizeof record_folder, "/tmp/gapless-trace-XXXXXX");
  return mkdtemp(record_folder) ? 0 : -1;
}

static inline int record_tear_down(void **state) {
  (void)state;
  return rmdir(record_folder); /* fails where a test left something behind */
}

static inline const char *path_of(const char *name) {
  static char path[4][128];
  static unsigned turn;
  char *out = path[turn++ % 4];
  snprintf(out, sizeof path[0], "%s/%s", record_folder, name);
  return out;
}

static inline struct gap__history *read_trace(const char *name) {
  struct gap__history *history;
  char *message;
  if (gap__history_read(path_of(name), NULL, NULL, &history, &message)) fail_msg("%s: %s", name, message);
  return history;
}

static inline void expect_consistent(const struct gap__history *history) {
  for (uint32_t i = 0; i < history->device_count; i++) {
    uint64_t event;
    char *message;
    if (gap__history_check(history, i, &event, &message))
      fail_msg("event %llu: %s", (unsigned long long)event, message);
  }
}

static inline void drop(const char *name, struct gap__history *history) {
  gap__history_free(history);
  assert_int_equal(unlink(path_of(name)), 0);
}

static inline uint64_t active_bytes(const struct gap__history *history) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < history->segment_count; i++) sum += history->segments[i].active_size;
  return sum;
}

static inline uint64_t held_bytes(const struct gap__history *history) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < history->segment_count; i++) sum += history->segments[i].total_size;
  return sum;
}

/* Blocks of many sizes on three streams, some of them used by a second one; half of them stay. */
static inline void work(gap_heap *heap, gap_addr *kept, int count) {
  for (int i = 0; i < count; i++) {
    kept[i] = api_get(heap, 8 + (gap_stream)(i % 3), 100 + (uint64_t)i * i * 700 % (3 * MIB));
    if (i % 5 == 0) assert_int_equal(gap_record_stream(heap, kept[i], 77), 0);
    if (i % 2) continue;
    api_give(heap, kept[i]);
    kept[i] = 0;
  }
}

static inline void give_all(gap_heap *heap, const gap_addr *kept, int count) {
  for (int i = 0; i < count; i++) api_give(heap, kept[i]);
}

static inline void churn_for(gap_heap *heap, int rounds) {
  for (int i = 0; i < rounds; i++) {
    gap_addr addr = api_get(heap, 8 + (gap_stream)(i % 3), 512 + (uint64_t)i % 50 * 3000);
    api_give(heap, addr);
  }
}

/* Blocks come and go on two streams; what is there at the end is freed.  For a thread. */
static inline void *churn(void *arg) {
  gap_heap *heap = arg;
  gap_addr kept[32] = {0};
  for (unsigned i = 0; i < 6000; i++) {
    gap_addr *at = &kept[i * 7 % 32];
    if (*at) gap_free(heap, *at);
    if (gap_alloc(heap, 0, 8 + i % 2, 512 + (uint64_t)i % 97 * 9000, at)) *at = 0;
  }
  for (int i = 0; i < 32; i++) gap_free(heap, kept[i]);
  return NULL;
}

/* Events as the program hears them. */
enum { HEARD_MOST = 20000 };

struct heard {
  gap_event events[HEARD_MOST];
  uint64_t count;
};

static inline void keep_event(void *arg, const gap_event *event) {
  struct heard *heard = arg;
  if (heard->count < HEARD_MOST) heard->events[heard->count++] = *event;
}

static inline void same_event(const struct gap__history *history, const struct gap__hist_event *read,
                              const gap_event *heard) {
  assert_int_equal(read->action, (int)heard->kind + (heard->kind == GAP_EVENT_OOM ? 1 : 0));
  assert_int_equal(read->addr, heard->addr);
  assert_int_equal(read->size, heard->requested);
  assert_int_equal(read->stream, heard->stream);
  assert_int_equal(history->pools[read->pool].id[0], heard->pool.first);
  assert_int_equal(history->pools[read->pool].id[1], heard->pool.second);
}

/* `inside` is given an end of a pipe whose other one is *from. */
static inline pid_t run_child(void (*inside)(int fd), int *from) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    inside(ends[1]);
    _exit(1);
  }
  close(ends[1]);
  *from = ends[0];
  return child;
}

#endif
