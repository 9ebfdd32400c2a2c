/* `trace:FILE`: every event is in the file, in order; what a killed, full or forked program leaves behind can be read. */
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "support/record_try.h"
#include "trace/recording.h"

/* Children make heaps, which have threads: the thread sanitizer would rather end them. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

/* ---- support ---- */

static gap_heap *open_on(gap_backend backend, const char *name, const char *more) {
  char conf[256];
  snprintf(conf, sizeof conf, "trace:%s,page_maker:False%s", path_of(name), more);
  return api_open(backend, 256 * MIB, conf);
}

static gap_heap *open_traced(const char *name, const char *more) { return open_on(GAP_BACKEND_HOST, name, more); }

/* ---- what is written ---- */

enum { KEPT = 120 };

static void every_event_is_in_the_file(void **state) {
  struct heard *heard = calloc(1, sizeof *heard);
  gap_addr kept[KEPT], none;
  gap_pool_id pool;
  (void)state;
  assert_non_null(heard);
  gap_heap *heap = open_traced("all", ",max_memory:200M");
  assert_int_equal(gap_set_events(heap, keep_event, heard), 0);
  work(heap, kept, KEPT);
  assert_int_equal(gap_pool_create(heap, 0, GAP_POOL_PRIVATE, NULL, &pool), 0);
  gap_addr private = api_get_in(heap, 8, pool, 5 * MIB);
  assert_int_equal(gap_alloc(heap, 0, 8, 250 * MIB, &none), GAP_ENOMEM);
  gap_usage usage = api_usage(heap, 0);
  gap_heap_destroy(heap);
  struct gap__history *history = read_trace("all");
  assert_false(history->is_torn);
  assert_true(history->by_gapless && history->lost_events == 0);
  assert_int_equal(history->devices[0].event_count, heard->count);
  for (uint64_t i = 0; i < heard->count; i++) same_event(history, &history->devices[0].events[i], &heard->events[i]);
  expect_consistent(history);
  assert_int_equal(active_bytes(history), usage.live_bytes + usage.pending_bytes);
  assert_int_equal(history->devices[0].facts.refusals, 1);
  assert_true(private != 0);
  free(heard);
  drop("all", history);
}

/* The end as the heap tells it, and as the events tell it. */
static void the_end_can_be_found_from_the_events(void **state) {
  gap_addr kept[KEPT];
  (void)state;
  gap_heap *heap = open_traced("end", "");
  work(heap, kept, KEPT);
  gap_heap_destroy(heap);
  struct gap__history *told = read_trace("end");
  assert_true(told->devices[0].facts.present);
  struct stat about;
  assert_int_equal(stat(path_of("end"), &about), 0);
  assert_int_equal(truncate(path_of("end"), about.st_size - 1), 0); /* the last parcel has the state */
  struct gap__history *found = read_trace("end");
  assert_true(found->is_torn && !found->devices[0].facts.present);
  assert_int_equal(found->devices[0].event_count, told->devices[0].event_count);
  assert_int_equal(active_bytes(found), active_bytes(told));
  assert_int_equal(held_bytes(found), held_bytes(told));
  assert_int_equal(found->segment_count, told->segment_count);
  for (uint64_t i = 0; i < found->segment_count; i++) {
    const struct gap__hist_segment *a = &found->segments[i], *b = NULL;
    for (uint64_t j = 0; j < told->segment_count && !b; j++)
      if (told->segments[j].addr == a->addr) b = &told->segments[j];
    assert_non_null(b);
    assert_int_equal(a->total_size, b->total_size);
    assert_int_equal(a->stream, b->stream);
    assert_int_equal(a->active_size, b->active_size);
    assert_int_equal(a->requested_size, b->requested_size);
  }
  gap__history_free(told);
  drop("end", found);
}

static void pytorchs_policies_are_written_too(void **state) {
  static const char *const more[] = {",strategy:caching_allocator",
                                     ",strategy:caching_allocator,expandable_segments:True"};
  (void)state;
  for (int i = 0; i < 2; i++) {
    gap_addr kept[KEPT];
    gap_heap *heap = open_traced("torch", more[i]);
    work(heap, kept, KEPT);
    give_all(heap, kept, KEPT);
    api_close(heap);
    struct gap__history *history = read_trace("torch");
    assert_false(history->by_gapless || history->is_torn);
    assert_int_equal(history->devices[0].events[0].action, i ? GAP__ACT_SEGMENT_MAP : GAP__ACT_SEGMENT_ALLOC);
    expect_consistent(history);
    drop("torch", history);
  }
}

/* ---- ends of all kinds ---- */

static void tell_and_wait(int fd) {
  static gap_addr kept[KEPT];
  gap_heap *heap = open_traced("killed", "");
  work(heap, kept, KEPT);
  gap_usage usage = api_usage(heap, 0);
  nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
  if (write(fd, &usage, sizeof usage) == sizeof usage) pause();
}

static void a_killed_program_leaves_its_history(void **state) {
  gap_usage usage;
  int from, status;
  (void)state;
  pid_t child = run_child(tell_and_wait, &from);
  assert_int_equal(read(from, &usage, sizeof usage), sizeof usage);
  close(from);
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  struct gap__history *history = read_trace("killed");
  assert_true(history->is_torn);
  expect_consistent(history);
  assert_int_equal(active_bytes(history), usage.live_bytes + usage.pending_bytes);
  assert_int_equal(held_bytes(history), usage.held_bytes);
  assert_false(history->devices[0].wrapped);
  drop("killed", history);
}

__attribute__((weak)) void __lsan_disable(void);

static void leave_at_once(int fd) {
  static gap_addr kept[KEPT];
  if (__lsan_disable) __lsan_disable();
  gap_heap *heap = open_traced("left", "");
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
  assert_false(history->is_torn);
  assert_true(history->devices[0].facts.present);
  expect_consistent(history);
  drop("left", history);
}

static void a_forked_child_leaves_the_file_alone(void **state) {
  gap_addr kept[KEPT];
  int status;
  (void)state;
  gap_heap *heap = open_traced("parent", "");
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
  assert_false(history->is_torn);
  expect_consistent(history);
  assert_int_equal(active_bytes(history), usage.pending_bytes);
  drop("parent", history);
}

/* ---- the disk ---- */

static void wait_for_thread(void) { nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); }

/* A limit on the size of files is a disk that is full. */
static void a_full_disk_is_said_once(void **state) {
  struct rlimit before, limit;
  struct api_log log;
  (void)state;
  getrlimit(RLIMIT_FSIZE, &before);
  limit = before;
  limit.rlim_cur = 100000;
  gap_heap *heap = open_on(GAP_BACKEND_SIM, "full", ""); /* its memory is no file */
  api_listen(&log);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  for (int i = 0; i < 3; i++) {
    churn_for(heap, 30000);
    wait_for_thread();
  }
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  api_close(heap);
  gap_set_log(NULL, NULL);
  assert_int_equal(log.count, 1);
  assert_non_null(strstr(log.lines, "no trace is written"));
  struct gap__history *history = read_trace("full");
  assert_true(history->is_torn && history->devices[0].event_count > 1000);
  expect_consistent(history);
  drop("full", history);
}

static void a_large_file_is_turned(void **state) {
  (void)state;
  gap_heap *heap = open_traced("turned", ",trace_max:1M");
  gap_addr old_block = api_get(heap, 20, MIB);
  for (int i = 0; i < 10; i++) {
    churn_for(heap, 10000);
    wait_for_thread();
  }
  gap_heap_destroy(heap);
  struct gap__history *old = read_trace("turned.1"), *new = read_trace("turned");
  assert_false(old->is_torn || new->is_torn);
  assert_true(new->devices[0].wrapped);
  assert_int_equal(active_bytes(new), MIB);
  assert_true(old_block != 0);
  expect_consistent(old);
  expect_consistent(new);
  assert_int_equal(old->devices[0].events[0].time_us, 0);
  assert_int_equal(new->devices[0].events[0].time_us, 0);
  struct stat about;
  assert_int_equal(stat(path_of("turned.1"), &about), 0);
  assert_in_range(about.st_size, 1 << 20, 3 << 20);
  drop("turned.1", old);
  drop("turned", new);
}

static void turn_and_wait(int fd) {
  gap_heap *heap = open_traced("turned", ",trace_max:1M");
  api_get(heap, 20, 3 * MIB);
  gap_addr pending = api_get(heap, 21, 700);
  assert_int_equal(gap_record_stream(heap, pending, 22), 0);
  for (int i = 0; i < 10; i++) {
    churn_for(heap, 10000);
    wait_for_thread();
  }
  api_get(heap, 20, 5 * MIB);
  api_give(heap, pending);
  gap_usage usage = api_usage(heap, 0);
  wait_for_thread();
  if (write(fd, &usage, sizeof usage) == sizeof usage) pause();
}

/* What was there when the last file began is in it. */
static void a_killed_program_leaves_its_blocks_from_before_the_file(void **state) {
  gap_usage usage;
  int from, status;
  (void)state;
  pid_t child = run_child(turn_and_wait, &from);
  assert_int_equal(read(from, &usage, sizeof usage), sizeof usage);
  close(from);
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  struct gap__history *old = read_trace("turned.1"), *new = read_trace("turned");
  assert_true(new->is_torn &&new->devices[0].wrapped);
  expect_consistent(new);
  assert_int_equal(active_bytes(new), usage.live_bytes + usage.pending_bytes);
  assert_int_equal(held_bytes(new), usage.held_bytes);
  drop("turned.1", old);
  drop("turned", new);
}

static void a_file_in_use_is_left_alone(void **state) {
  char other[32];
  (void)state;
  gap_heap *one = open_traced("shared", ""), *two = open_traced("shared", "");
  churn_for(one, 10);
  churn_for(two, 20);
  api_close(one);
  api_close(two);
  snprintf(other, sizeof other, "shared.%ld", (long)getpid());
  struct gap__history *first = read_trace("shared"), *second = read_trace(other);
  assert_false(first->is_torn || second->is_torn);
  assert_true(second->devices[0].event_count > first->devices[0].event_count);
  drop("shared", first);
  drop(other, second);
}

/* In a folder that others write to, a name may lead to a file that is to be lost. */
static void write_words(const char *name) {
  FILE *file = fopen(path_of(name), "w");
  assert_non_null(file);
  assert_true(fputs("words\n", file) > 0 && fclose(file) == 0);
}

static void expect_words(const char *name) {
  char text[8] = "";
  FILE *file = fopen(path_of(name), "r");
  assert_non_null(file);
  assert_non_null(fgets(text, sizeof text, file));
  fclose(file);
  assert_string_equal(text, "words\n");
}

static void must_not_open(const char *name) {
  struct api_log log;
  api_listen(&log);
  gap_heap *heap = open_traced(name, "");
  gap_set_log(NULL, NULL);
  churn_for(heap, 10);
  api_close(heap);
  if (log.count != 1 || !strstr(log.lines, "is not this user's alone")) fail_msg("%s: %s", name, log.lines);
}

static void files_of_others_are_left_alone(void **state) {
  (void)state;
  write_words("precious");
  assert_int_equal(symlink(path_of("precious"), path_of("soft")), 0);
  must_not_open("soft");
  assert_int_equal(symlink(path_of("nowhere"), path_of("dangling")), 0);
  must_not_open("dangling");
  assert_int_equal(access(path_of("nowhere"), F_OK), -1);
  assert_int_equal(link(path_of("precious"), path_of("hard")), 0);
  must_not_open("hard");
  expect_words("precious");
  const char *names[] = {"soft", "dangling", "hard", "precious"};
  for (int i = 0; i < 4; i++) assert_int_equal(unlink(path_of(names[i])), 0);
}

static void a_file_of_another_user_is_left_alone(void **state) {
  (void)state;
  if (geteuid() != 0) skip(); /* cannot make one */
  write_words("foreign");
  assert_int_equal(chown(path_of("foreign"), 65534, 65534), 0);
  must_not_open("foreign");
  expect_words("foreign");
  assert_int_equal(unlink(path_of("foreign")), 0);
}

static void without_a_file_the_heap_works(void **state) {
  struct api_log log;
  (void)state;
  api_listen(&log);
  gap_heap *heap = open_traced("nowhere/file", "");
  gap_set_log(NULL, NULL);
  assert_int_equal(log.count, 1);
  assert_non_null(strstr(log.lines, "cannot be opened"));
  churn_for(heap, 10);
  api_close(heap);
}

/* ---- threads ---- */

/* Four threads on two streams: one order of events, in which no address is in use twice. */
static void events_of_threads_are_in_order(void **state) {
  pthread_t threads[4];
  (void)state;
  gap_heap *heap = open_traced("threads", "");
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, churn, heap), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  api_close(heap);
  struct gap__history *history = read_trace("threads");
  assert_false(history->is_torn);
  assert_int_equal(history->lost_events, 0);
  assert_in_range(history->devices[0].event_count, 4 * 6000 * 3, 4 * 6000 * 4);
  expect_consistent(history);
  for (uint64_t i = 1; i < history->devices[0].event_count; i++)
    assert_true(history->devices[0].events[i].time_us >= history->devices[0].events[i - 1].time_us);
  drop("threads", history);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_event_is_in_the_file),
      cmocka_unit_test(the_end_can_be_found_from_the_events),
      cmocka_unit_test(pytorchs_policies_are_written_too),
      cmocka_unit_test(a_killed_program_leaves_its_history),
      cmocka_unit_test(exit_without_destroying_is_an_end),
      cmocka_unit_test(a_forked_child_leaves_the_file_alone),
      cmocka_unit_test(a_full_disk_is_said_once),
      cmocka_unit_test(a_large_file_is_turned),
      cmocka_unit_test(a_file_in_use_is_left_alone),
      cmocka_unit_test(files_of_others_are_left_alone),
      cmocka_unit_test(a_file_of_another_user_is_left_alone),
      cmocka_unit_test(without_a_file_the_heap_works),
      cmocka_unit_test(events_of_threads_are_in_order),
      cmocka_unit_test(a_killed_program_leaves_its_blocks_from_before_the_file),
  };
  return cmocka_run_group_tests(tests, record_set_up, record_tear_down);
}
