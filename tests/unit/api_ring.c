/* `trace_ring:FILE`: the last events are in the file in their order, and what the heap held can be told from them, however the
 * program ends. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "gapless/convert.h"
#include "gapless/explain.h"
#include "record/ring.h"
#include "support/record_try.h"

/* Children make heaps, which have threads: the thread sanitizer would rather end them. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

enum { KEPT = 120 };

static gap_heap *open_on(gap_backend backend, const char *name, const char *more) {
  char conf[256];
  snprintf(conf, sizeof conf, "trace_ring:%s,page_maker:False%s", path_of(name), more);
  return api_open(backend, 256 * MIB, conf);
}

static gap_heap *open_ringed(const char *name, const char *more) { return open_on(GAP_BACKEND_HOST, name, more); }

/* ---- what is in it ---- */

static void every_event_is_in_the_ring(void **state) {
  static const gap_pool_id pools[] = {{0, 77}, {5, 0}, {3, 77}}; /* the last one takes two slots an event */
  struct heard *heard = calloc(1, sizeof *heard);
  gap_addr kept[KEPT], none;
  (void)state;
  assert_non_null(heard);
  gap_heap *heap = open_ringed("all", ",max_memory:200M");
  assert_int_equal(gap_set_events(heap, keep_event, heard), 0);
  work(heap, kept, KEPT);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(gap_pool_adopt(heap, 0, GAP_POOL_PRIVATE, NULL, pools[i]), 0);
    api_get_in(heap, 8, pools[i], 3 * MIB);
  }
  assert_int_equal(gap_alloc(heap, 0, 8, 250 * MIB, &none), GAP_ENOMEM);
  gap_usage usage = api_usage(heap, 0);
  gap_heap_destroy(heap);
  struct gap__history *history = read_trace("all");
  assert_true(history->by_gapless && !history->is_torn && history->lost_events == 0 && history->earlier_events == 0);
  assert_int_equal(history->process, getpid());
  assert_int_equal(history->devices[0].event_count, heard->count);
  for (uint64_t i = 0; i < heard->count; i++) same_event(history, &history->devices[0].events[i], &heard->events[i]);
  expect_consistent(history);
  assert_int_equal(active_bytes(history), usage.live_bytes + usage.pending_bytes);
  assert_int_equal(history->devices[0].facts.refusals, 1);
  assert_false(history->devices[0].wrapped);
  free(heard);
  drop("all", history);
}

static void the_last_events_stay(void **state) {
  struct heard *heard = calloc(1, sizeof *heard);
  (void)state;
  assert_non_null(heard);
  gap_heap *heap = open_ringed("last", ",trace_ring_events:1024");
  gap_addr old_block = api_get(heap, 20, MIB);
  assert_int_equal(gap_set_events(heap, keep_event, heard), 0);
  churn_for(heap, 3000);
  gap_heap_destroy(heap);
  struct gap__history *history = read_trace("last");
  const struct gap__hist_device *device = &history->devices[0];
  assert_in_range(device->event_count, 1024 - 70, 1024); /* slots of the clock are among them */
  assert_true(device->wrapped && history->earlier_events > 8000 && history->lost_events == 0);
  for (uint64_t i = 0; i < device->event_count; i++)
    same_event(history, &device->events[i], &heard->events[heard->count - device->event_count + i]);
  expect_consistent(history);
  assert_true(old_block && active_bytes(history) == MIB);
  free(heard);
  drop("last", history);
}

static void times_are_those_of_the_clock(void **state) {
  (void)state;
  gap_heap *heap = open_ringed("times", "");
  churn_for(heap, 100);
  nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
  churn_for(heap, 100);
  gap_heap_destroy(heap);
  struct gap__history *history = read_trace("times");
  const struct gap__hist_device *device = &history->devices[0];
  int64_t longest = 0;
  for (uint64_t i = 1; i < device->event_count; i++) {
    int64_t pause = device->events[i].time_us - device->events[i - 1].time_us;
    assert_true(pause >= 0);
    if (pause > longest) longest = pause;
  }
  assert_in_range(longest, 199000, 5000000);
  assert_true(history->time_base_us > 1600000000000000);
  drop("times", history);
}

static void pytorchs_policies_are_in_it_too(void **state) {
  static const char *const more[] = {",strategy:caching_allocator,trace_ring_events:1024",
                                     ",strategy:caching_allocator,expandable_segments:True,trace_ring_events:1024"};
  (void)state;
  for (int i = 0; i < 2; i++) {
    gap_addr kept[KEPT];
    gap_heap *heap = open_ringed("torch", more[i]);
    work(heap, kept, KEPT);
    churn_for(heap, 2000);
    give_all(heap, kept, KEPT);
    gap_usage usage = api_usage(heap, 0);
    api_close(heap);
    struct gap__history *history = read_trace("torch");
    assert_true(!history->by_gapless && !history->is_torn && history->devices[0].wrapped);
    expect_consistent(history);
    assert_int_equal(held_bytes(history), usage.held_bytes);
    drop("torch", history);
  }
}

/* ---- ends of all kinds ---- */

static void heap_without_threads(int fd) {
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  gap_heap *heap;
  gap_addr addr;
  char conf[200];
  snprintf(conf, sizeof conf, "trace_ring:%s", path_of("alone"));
  options.backend = GAP_BACKEND_SIM;
  options.flags = GAP_HEAP_NO_ENVIRONMENT | GAP_HEAP_NO_THREAD;
  options.conf = conf;
  if (gap_heap_create(&options, &heap) || gap_alloc(heap, 0, 8, 3 * MIB, &addr)) return;
  if (write(fd, "x", 1) == 1) pause();
}

static void kill_when_told(void (*inside)(int fd), void *told, size_t bytes) {
  int from, status;
  pid_t child = run_child(inside, &from);
  assert_int_equal(read(from, told, bytes), bytes);
  close(from);
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, &status, 0), child);
}

static void a_heap_without_threads_has_a_ring(void **state) {
  char told;
  (void)state;
  kill_when_told(heap_without_threads, &told, 1);
  struct gap__history *history = read_trace("alone");
  assert_int_equal(active_bytes(history), 3 * MIB);
  drop("alone", history);
}

/* The last word is the event's: nothing is waited for between it and the end. */
static void wrap_and_wait(int fd) {
  static gap_addr kept[KEPT];
  gap_heap *heap = open_ringed("killed", ",trace_ring_events:65536");
  work(heap, kept, KEPT);
  for (int i = 0; i < 100; i++) {
    churn_for(heap, 700);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  for (int i = 1; i < KEPT; i += 4) gap_free(heap, kept[i]);
  api_get(heap, 30, 9 * MIB);
  gap_usage usage = api_usage(heap, 0);
  if (write(fd, &usage, sizeof usage) == sizeof usage) pause();
}

static void a_killed_program_leaves_what_it_held(void **state) {
  gap_usage usage;
  (void)state;
  kill_when_told(wrap_and_wait, &usage, sizeof usage);
  struct gap__history *history = read_trace("killed");
  assert_true(history->earlier_events > 100000 && history->devices[0].wrapped);
  assert_false(history->is_torn || history->lost_events);
  expect_consistent(history);
  assert_int_equal(active_bytes(history), usage.live_bytes + usage.pending_bytes);
  assert_int_equal(held_bytes(history), usage.held_bytes);
  drop("killed", history);
}

/* Threads at work until the end, in both kinds of file. */
static void *churn_on(void *heap) {
  for (;;) churn(heap);
  return NULL;
}

static void churn_to_the_end(int fd) {
  pthread_t thread;
  struct stat about;
  char conf[256];
  snprintf(conf, sizeof conf, "trace_ring:%s,trace_ring_events:16384,trace:%s", path_of("ring"), path_of("file"));
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 256 * MIB, conf);
  for (int i = 0; i < 3; i++)
    if (pthread_create(&thread, NULL, churn_on, heap)) return;
  do nanosleep(&(struct timespec){.tv_nsec = 20000000 + getpid() % 64 * 1000000}, NULL);
  while (stat(path_of("file"), &about) == 0 && about.st_size < 30000); /* some thousand events were written */
  if (write(fd, "x", 1) == 1) pause();
}

/* What the tools are asked to do with a file that nobody finished. */
static void expect_usable(const char *name) {
  gap_explain_options explain;
  gap_explanation *explanation;
  gap_convert_options convert;
  gap_convert_result converted;
  char message[300];
  gap_explain_defaults(&explain);
  if (gap_explain_open(path_of(name), &explain, &explanation, message, sizeof message)) fail_msg("%s", message);
  char *words = gap_explain_words(explanation, 100);
  assert_non_null(words);
  if (gap_explain_verdict_of(explanation) == GAP_EXPLAIN_CONTRADICTORY) fail_msg("%s: %s", name, words);
  free(words);
  gap_explain_close(explanation);
  gap_convert_defaults(&convert);
  if (gap_convert(path_of(name), path_of("it.pickle"), &convert, &converted, message, sizeof message))
    fail_msg("%s", message);
  assert_string_equal(converted.to, "pickle");
  struct gap__history *history = read_trace("it.pickle");
  assert_int_equal(history->devices[0].event_count, converted.events);
  expect_consistent(history);
  drop("it.pickle", history);
}

static void expect_replayable(const struct gap__history *history) {
  gap_replay_options options;
  gap_replay_result result;
  char message[300] = "";
  gap_replay_defaults(&options);
  options.speed = 0;
  if (gap_replay(history, &options, &result, message, sizeof message)) fail_msg("%s", message);
  assert_true(result.events > 0);
}

static void both_kinds_survive_a_kill_in_the_middle(void **state) {
  static const char *const names[] = {"ring", "file"};
  char told;
  (void)state;
  for (int round = 0; round < 3; round++) {
    kill_when_told(churn_to_the_end, &told, 1);
    for (int i = 0; i < 2; i++) {
      struct gap__history *history = read_trace(names[i]);
      assert_true(history->devices[0].event_count > 1000);
      if (i == 0) assert_in_range(history->lost_events, 0, 2 * 3); /* a number or two of each thread */
      if (history->lost_events == 0) expect_consistent(history);
      if (history->lost_events == 0) expect_usable(names[i]);
      expect_replayable(history);
      drop(names[i], history);
    }
  }
}

__attribute__((weak)) void __lsan_disable(void);

static void leave_at_once(int fd) {
  static gap_addr kept[KEPT];
  if (__lsan_disable) __lsan_disable();
  gap_heap *heap = open_ringed("left", "");
  work(heap, kept, KEPT);
  close(fd);
  exit(0);
}

static void exit_without_destroying_is_an_end(void **state) {
  int from, status;
  (void)state;
  pid_t child = run_child(leave_at_once, &from);
  close(from);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  struct gap__history *history = read_trace("left");
  assert_true(history->devices[0].facts.present);
  expect_consistent(history);
  drop("left", history);
}

static void a_forked_child_leaves_the_ring_alone(void **state) {
  gap_addr kept[KEPT];
  int status;
  (void)state;
  gap_heap *heap = open_ringed("parent", "");
  work(heap, kept, KEPT);
  pid_t child = fork();
  if (child == 0) {
    gap_free(heap, kept[1]);
    gap_heap_destroy(heap);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  give_all(heap, kept, KEPT);
  gap_usage usage = api_usage(heap, 0);
  api_close(heap);
  struct gap__history *history = read_trace("parent");
  expect_consistent(history);
  assert_int_equal(history->lost_events, 0);
  assert_int_equal(active_bytes(history), usage.pending_bytes);
  drop("parent", history);
}

/* ---- the disk ---- */

/* Room is had at the start or not at all: a page of a mapped file that the disk has no room for would end the program. */
static void a_full_disk_is_said_once(void **state) {
  struct rlimit before, limit;
  struct api_log log;
  struct stat about;
  (void)state;
  getrlimit(RLIMIT_FSIZE, &before);
  limit = before;
  limit.rlim_cur = 1000000;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  api_listen(&log);
  gap_heap *heap = open_on(GAP_BACKEND_SIM, "full", "");
  churn_for(heap, 3000);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  api_close(heap);
  gap_set_log(NULL, NULL);
  assert_int_equal(log.count, 1);
  assert_non_null(strstr(log.lines, "trace_ring"));
  assert_non_null(strstr(log.lines, "no trace is written"));
  assert_int_equal(stat(path_of("full"), &about), 0);
  assert_int_equal(about.st_size, 0);
  unlink(path_of("full"));
}

static void rings_do_not_share_a_file(void **state) {
  char other[32];
  (void)state;
  gap_heap *one = open_ringed("shared", ""), *two = open_ringed("shared", "");
  churn_for(one, 10);
  churn_for(two, 20);
  api_close(one);
  api_close(two);
  snprintf(other, sizeof other, "shared.%ld", (long)getpid());
  struct gap__history *first = read_trace("shared"), *second = read_trace(other);
  assert_true(second->devices[0].event_count > first->devices[0].event_count);
  drop("shared", first);
  drop(other, second);
}

/* ---- damage ---- */

static void change(const char *name, off_t at, int bytes) {
  unsigned char piece[4096] = {0};
  int fd = open(path_of(name), O_RDWR);
  assert_true(fd >= 0 && bytes <= (int)sizeof piece);
  assert_int_equal(pread(fd, piece, (size_t)bytes, at), bytes);
  for (int i = 0; i < bytes; i++) piece[i] ^= 0x55;
  assert_int_equal(pwrite(fd, piece, (size_t)bytes, at), bytes);
  close(fd);
}

static struct gap__ring_head head_of(const char *name) {
  struct gap__ring_head head;
  int fd = open(path_of(name), O_RDONLY);
  assert_int_equal(read(fd, &head, sizeof head), sizeof head);
  close(fd);
  return head;
}

static void make(const char *name) {
  gap_heap *heap = open_ringed(name, ",trace_ring_events:1024");
  gap_addr kept = api_get(heap, 8, MIB);
  churn_for(heap, 1000);
  api_give(heap, kept);
  api_close(heap);
}

static void what_is_damaged_is_counted(void **state) {
  (void)state;
  for (int word = 0; word < GAP__RING_SLOT_WORDS; word++) {
    make("damaged");
    struct gap__ring_head head = head_of("damaged");
    change("damaged", (off_t)gap__ring_slots_at(&head) + 100 * GAP__RING_SLOT_BYTES + word * 8, 1);
    struct gap__history *history = read_trace("damaged");
    assert_int_equal(history->lost_events, 1);
    drop("damaged", history);
  }
}

static void a_file_that_is_cut_off_has_what_is_left(void **state) {
  (void)state;
  make("cut");
  struct gap__ring_head head = head_of("cut");
  assert_int_equal(truncate(path_of("cut"), (off_t)gap__ring_slots_at(&head) + 500 * GAP__RING_SLOT_BYTES + 7), 0);
  struct gap__history *history = read_trace("cut");
  assert_int_equal(history->lost_events, 524);
  drop("cut", history);
}

/* Without a state that is whole the events alone tell. */
static void a_damaged_state_is_passed_over(void **state) {
  (void)state;
  make("state");
  struct gap__ring_head head = head_of("state");
  for (unsigned i = 0; i < GAP__RING_STATES; i++) change("state", (off_t)gap__ring_state_at(&head, i) + 40, 8);
  struct gap__history *history = read_trace("state");
  assert_false(history->devices[0].facts.present);
  assert_int_equal(history->lost_events, 0);
  drop("state", history);
}

static void expect_refusal(const char *name, const char *words) {
  struct gap__history *history;
  char *message;
  assert_int_equal(gap__history_read(path_of(name), NULL, NULL, &history, &message), GAP_EFORMAT);
  if (!strstr(message, words)) fail_msg("\"%s\" does not say \"%s\"", message, words);
  free(message);
  unlink(path_of(name));
}

static void a_head_that_cannot_be_is_refused(void **state) {
  (void)state;
  make("head");
  change("head", offsetof(struct gap__ring_head, version), 1);
  expect_refusal("head", "of version 84");
  make("head");
  change("head", offsetof(struct gap__ring_head, slots), 8);
  expect_refusal("head", "head cannot be");
  make("head");
  change("head", GAP__RING_HEAD_BYTES, 1);
  expect_refusal("head", "without its words");
  make("head");
  assert_int_equal(truncate(path_of("head"), 100), 0);
  expect_refusal("head", "without a whole head");
}

/* ---- threads ---- */

/* Four threads on two streams, no lock: one order of events, in which no address is in use twice. */
static void events_of_threads_are_in_order(void **state) {
  pthread_t threads[4];
  (void)state;
  gap_heap *heap = open_ringed("threads", "");
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, churn, heap), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  api_close(heap);
  struct gap__history *history = read_trace("threads");
  assert_int_equal(history->lost_events, 0);
  assert_in_range(history->devices[0].event_count, 4 * 6000 * 3, 4 * 6000 * 4);
  expect_consistent(history);
  drop("threads", history);
}

/* Laps of a small ring overtake threads that write, and states are taken all the time. */
static void threads_that_are_lapped_lose_little(void **state) {
  pthread_t threads[4];
  (void)state;
  gap_heap *heap = open_ringed("lapped", ",trace_ring_events:1024");
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, churn, heap), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  api_close(heap);
  struct gap__history *history = read_trace("lapped");
  assert_in_range(history->lost_events, 0, 8);
  assert_in_range(history->devices[0].event_count, 900, 1024);
  drop("lapped", history);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_event_is_in_the_ring),
      cmocka_unit_test(the_last_events_stay),
      cmocka_unit_test(times_are_those_of_the_clock),
      cmocka_unit_test(pytorchs_policies_are_in_it_too),
      cmocka_unit_test(a_heap_without_threads_has_a_ring),
      cmocka_unit_test(a_killed_program_leaves_what_it_held),
      cmocka_unit_test(both_kinds_survive_a_kill_in_the_middle),
      cmocka_unit_test(exit_without_destroying_is_an_end),
      cmocka_unit_test(a_forked_child_leaves_the_ring_alone),
      cmocka_unit_test(a_full_disk_is_said_once),
      cmocka_unit_test(rings_do_not_share_a_file),
      cmocka_unit_test(what_is_damaged_is_counted),
      cmocka_unit_test(a_file_that_is_cut_off_has_what_is_left),
      cmocka_unit_test(a_damaged_state_is_passed_over),
      cmocka_unit_test(a_head_that_cannot_be_is_refused),
      cmocka_unit_test(events_of_threads_are_in_order),
      cmocka_unit_test(threads_that_are_lapped_lose_little),
  };
  return cmocka_run_group_tests(tests, record_set_up, record_tear_down);
}
