/* What may happen to the process round a heap: fork and exec, exit from anywhere, signals, the library closed, several heaps.  What
 * a child does is played in a child; what it prints is counted. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/child.h"

/* ---- the heap of a program ---- */

static void print_line(void *arg, int level, const char *line) {
  (void)arg, (void)level;
  fprintf(stderr, "%s\n", line);
}

/* A heap with its thread, one block with contents, what it says printed. */
static gap_heap *left;
static gap_addr block;
enum { BYTES = 8 << 20, WORD = 0x5a };

static void begin(void) {
  gap_set_log(print_line, NULL);
  left = api_open(GAP_BACKEND_HOST, 256 * MIB, "reserve:0");
  block = api_get(left, 8, BYTES);
  memset((void *)(uintptr_t)block, WORD, BYTES);
}

static void block_is_whole(void) {
  const unsigned char *bytes = (void *)(uintptr_t)block;
  for (size_t i = 0; i < BYTES; i++)
    if (bytes[i] != WORD) fail_msg("byte %zu", i);
}

static void finish(void) {
  block_is_whole();
  api_give(left, block);
  api_close(left);
  left = NULL;
  gap_set_log(NULL, NULL);
}

/* ---- fork ---- */

static void frees_and_exits(void *arg) {
  (void)arg;
  gap_free(left, block);
  gap_free(left, block);
  exit(3);
}

static void leaves_at_once(void *arg) {
  (void)arg;
  _exit(3);
}

static void destroys(void *arg) {
  (void)arg;
  gap_heap_destroy(left);
  exit(3);
}

static void execs(void *arg) {
  (void)arg;
  execlp("sh", "sh", "-c", "exit 3", (char *)NULL);
}

static void forks_again(void *arg) {
  (void)arg;
  struct child child = run_child(frees_and_exits, NULL);
  exit(WIFEXITED(child.status) ? WEXITSTATUS(child.status) : 9);
}

static void children_of_all_kinds(void **state) {
  (void)state;
  void (*plays[])(void *) = {frees_and_exits, leaves_at_once, destroys, execs, forks_again};
  begin();
  for (int round = 0; round < 3; round++)
    for (size_t i = 0; i < sizeof plays / sizeof *plays; i++) {
      gap_addr busy = api_get(left, 16, (uint64_t)(round + 1) * 3 * MIB); /* the page maker is awake */
      ended(run_child(plays[i], NULL), 3);
      api_give(left, busy);
      block_is_whole();
      api_check(left);
    }
  finish();
}

/* Whatever the other threads of the parent are in the middle of, and whatever lock they hold. */
static atomic_bool enough;

static void *allocate_until(void *arg) {
  gap_addr addr;
  for (unsigned i = 0; !enough; i++) {
    if (gap_alloc(left, 0, (gap_stream)(uintptr_t)arg, i % 3 ? 5000 : 3 * MIB, &addr)) continue;
    gap_record_stream(left, addr, 24);
    gap_free(left, addr);
    if (i % 64 == 0) gap_trim(left, 0, NONE, NULL);
  }
  return NULL;
}

static void *ask_until(void *arg) {
  char text[100];
  (void)arg;
  while (!enough) {
    gap_conf_value(left, "nmalloc", text, sizeof text);
    gap_configure(left, "reserve:0");
    api_usage(left, 0);
  }
  return NULL;
}

static void *listen_until(void *arg) {
  while (!enough) gap_set_log(print_line, arg);
  return NULL;
}

static void *open_until(void *arg) {
  gap_addr addr;
  (void)arg;
  while (!enough) {
    gap_heap *heap = api_open(GAP_BACKEND_SIM, GIB, "");
    if (gap_alloc(heap, 1, 8, MIB, &addr) == 0) gap_free(heap, addr);
    gap_heap_destroy(heap);
  }
  return NULL;
}

static void uses_everything(void *arg) {
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  gap_heap *own = NULL;
  gap_addr addr;
  char text[100];
  (void)arg;
  gap_set_log(print_line, NULL);
  bool good = gap_free(left, block) == 0 && gap_alloc(left, 0, 8, MIB, &addr) == GAP_EFORKED &&
              gap_configure(left, "") == GAP_EFORKED && gap_trim(left, 0, NONE, NULL) == GAP_EFORKED &&
              gap_conf_value(left, "nmalloc", text, sizeof text) == GAP_EFORKED;
  options.backend = GAP_BACKEND_HOST;
  options.flags = GAP_HEAP_NO_THREAD;
  good = good && gap_heap_create(&options, &own) == 0 && gap_alloc(own, 0, 8, MIB, &addr) == 0;
  gap_heap_destroy(own);
  gap_heap_destroy(left);
  exit(good ? 3 : 4);
}

static void forks_while_others_work(void **state) {
  void *(*bodies[])(void *) = {allocate_until, ask_until, listen_until, open_until};
  pthread_t threads[4];
  (void)state;
#ifdef __SANITIZE_ADDRESS__
  skip(); /* the sanitizer's allocator: a child finds its locks as other threads held them at the fork */
#endif
  enough = false;
  begin();
  for (uintptr_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, bodies[i], (void *)(8 * (i + 1)));
  for (int i = 0; i < 25; i++) ended(run_child(uses_everything, NULL), 3);
  enough = true;
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  api_check(left);
  finish();
}

/* No descriptor of a heap survives exec. */
static int descriptors(void) {
  int count = 0;
  for (int fd = 3; fd < 256; fd++) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

static int inherited(void) {
  int count = 0;
  for (int fd = 3; fd < 256; fd++) count += fcntl(fd, F_GETFD) == 0;
  return count;
}

static void nothing_is_inherited(void **state) {
  (void)state;
  int before = descriptors(), passed_on = inherited();
  begin();
  assert_true(descriptors() > before);
  assert_int_equal(inherited(), passed_on);
  finish();
  assert_int_equal(descriptors(), before);
}

/* ---- exit ---- */

static bool free_in_destructor, use_in_destructor;
__attribute__((destructor)) static void late(void) {
  gap_addr more;
  if (free_in_destructor && gap_free(left, block)) _exit(8);
  if (use_in_destructor && (gap_alloc(left, 0, 8, MIB, &more) || gap_free(left, more))) _exit(9);
}

static void returns_with_live_blocks(void *arg) {
  free_in_destructor = use_in_destructor = arg != NULL;
  begin();
  exit(0);
}

static void *exit_here(void *arg) {
  (void)arg;
  usleep(2000);
  exit(0);
}

static void *allocate_for_ever(void *arg) {
  for (gap_addr addr;; gap_free(left, addr))
    if (gap_alloc(left, 0, (gap_stream)(uintptr_t)arg, 3 * MIB, &addr)) return NULL;
}

/* While others go on allocating. */
static void a_second_thread_exits(void *arg) {
  pthread_t thread;
  free_in_destructor = arg != NULL;
  begin();
  for (uintptr_t i = 1; i < 3; i++) pthread_create(&thread, NULL, allocate_for_ever, (void *)(i * 8));
  pthread_create(&thread, NULL, exit_here, NULL);
  allocate_for_ever((void *)(uintptr_t)8);
}

/* The main thread ends, the process does not; then the last thread. */
static void the_first_thread_ends_first(void *arg) {
  (void)arg;
  pthread_t thread;
  begin();
  pthread_create(&thread, NULL, exit_here, NULL);
  pthread_exit(NULL);
}

static void exits_of_all_kinds(void **state) {
  (void)state;
  int yes;
  for (int round = 0; round < 3; round++) {
    ended(run_child(returns_with_live_blocks, NULL), 0);
    ended(run_child(returns_with_live_blocks, &yes), 0);
    ended(run_child(a_second_thread_exits, NULL), 0);
    ended(run_child(a_second_thread_exits, &yes), 0);
    ended(run_child(the_first_thread_ends_first, NULL), 0);
  }
}

/* ---- signals ---- */

static _Atomic int signals, elsewhere;
static pid_t here;
static void count_signal(int number) {
  (void)number;
  signals++;
  if (syscall(SYS_gettid) != here) elsewhere++;
}

/* One a millisecond, calls are interrupted: nothing fails, and no handler runs in a thread of the library's. */
static void signals_all_the_time(void **state) {
  (void)state;
  struct sigaction action = {.sa_handler = count_signal}, before;
  struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
  here = (pid_t)syscall(SYS_gettid);
  signals = elsewhere = 0;
  sigaction(SIGALRM, &action, &before);
  setitimer(ITIMER_REAL, &often, NULL);
  begin();
  for (int i = 0; signals < 100; i++) {
    gap_addr a = api_get(left, 8, (uint64_t)(i % 40 + 1) * MIB), b = api_get(left, 16, 20 * MIB);
    memset((void *)(uintptr_t)a, i, 4096);
    assert_int_equal(gap_record_stream(left, a, 24), 0);
    api_give(left, a), api_give(left, b);
    if (i % 16 == 0) assert_int_equal(gap_trim(left, 0, NONE, NULL), 0);
  }
  setitimer(ITIMER_REAL, &never, NULL);
  sigset_t alarm_set, old;
  sigemptyset(&alarm_set), sigaddset(&alarm_set, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &alarm_set, &old); /* now only another thread could take one */
  int so_far = signals;
  for (int i = 0; i < 20; i++) kill(getpid(), SIGALRM), usleep(1000);
  assert_int_equal(signals, so_far);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  assert_int_equal(elsewhere, 0);
  finish();
  sigaction(SIGALRM, &before, NULL);
}

static void waits_for_a_signal(void *arg) {
  begin();
  kill(getpid(), (int)(intptr_t)arg);
  pause();
}

static void signals_that_end_the_program_do(void **state) {
  (void)state;
  int numbers[] = {SIGTERM, SIGINT, SIGKILL, SIGHUP};
  for (int i = 0; i < 4; i++) {
    struct child child = run_child(waits_for_a_signal, (void *)(intptr_t)numbers[i]);
    assert_true(WIFSIGNALED(child.status));
    assert_int_equal(WTERMSIG(child.status), numbers[i]);
  }
}

/* ---- the library closed ---- */

struct library {
  int (*create)(const gap_heap_options *, gap_heap **);
  int (*alloc)(gap_heap *, int, gap_stream, uint64_t, gap_addr *);
  int (*free)(gap_heap *, gap_addr);
  void (*destroy)(gap_heap *);
  gap_heap *heap;
};

static void find(void *handle, const char *name, void *out) {
  void *found = dlsym(handle, name);
  assert_non_null(found);
  memcpy(out, &found, sizeof found);
}

static void *use_and_end(void *arg) {
  struct library *lib = arg;
  gap_addr addr;
  if (lib->alloc(lib->heap, 0, 2, MIB, &addr) || lib->free(lib->heap, addr)) return arg;
  return NULL; /* its per-thread default stream is retired now, by code of the library */
}

static void run_thread(struct library *lib) {
  pthread_t thread;
  void *wrong;
  assert_int_equal(pthread_create(&thread, NULL, use_and_end, lib), 0);
  pthread_join(thread, &wrong);
  assert_null(wrong);
}

static void closed_while_in_use(void **state) {
  (void)state;
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  options.backend = GAP_BACKEND_HOST;
  options.flags = GAP_HEAP_NO_ENVIRONMENT;
  struct library lib;
  gap_addr addr;
  void *handle = dlopen(GAP_TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  assert_non_null(handle);
  find(handle, "gap_heap_create", &lib.create);
  find(handle, "gap_alloc", &lib.alloc);
  find(handle, "gap_free", &lib.free);
  find(handle, "gap_heap_destroy", &lib.destroy);
  assert_int_equal(lib.create(&options, &lib.heap), 0);
  assert_int_equal(lib.alloc(lib.heap, 0, 8, BYTES, &addr), 0);
  run_thread(&lib);
  assert_int_equal(dlclose(handle), 0);
  run_thread(&lib);
  assert_int_equal(lib.free(lib.heap, addr), 0); /* late, as from a destructor of an object loaded before */
  void *again = dlopen(GAP_TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  assert_non_null(again); /* it never went */
  lib.destroy(lib.heap);
  dlclose(again);
}

/* ---- several heaps ---- */

static void heaps_know_their_own(void **state) {
  (void)state;
  enum { COUNT = 4 };
  gap_heap *heaps[COUNT];
  gap_addr at[COUNT];
  for (int i = 0; i < COUNT; i++) {
    heaps[i] =
        api_open(i % 2 ? GAP_BACKEND_SIM : GAP_BACKEND_HOST, 256 * MIB, i < 2 ? "" : "strategy:caching_allocator");
    at[i] = api_get(heaps[i], 8, (uint64_t)(i + 1) * 4 * MIB);
  }
  for (int i = 0; i < COUNT; i += 2)
    for (int j = 0; j < COUNT; j += 2)
      if (i != j) assert_int_equal(gap_free(heaps[i], at[j]), GAP_ENOTMINE);
  for (int i = 0; i < COUNT; i++) {
    assert_int_equal(api_usage(heaps[i], 0).live_bytes, (uint64_t)(i + 1) * 4 * MIB);
    if (i) api_give(heaps[i], at[i]), api_close(heaps[i]);
  }
  memset((void *)(uintptr_t)at[0], 1, 4 * MIB); /* the others took nothing of it along */
  api_give(heaps[0], at[0]);
  api_close(heaps[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(children_of_all_kinds), cmocka_unit_test(forks_while_others_work),
      cmocka_unit_test(nothing_is_inherited),  cmocka_unit_test(exits_of_all_kinds),
      cmocka_unit_test(signals_all_the_time),  cmocka_unit_test(signals_that_end_the_program_do),
      cmocka_unit_test(closed_while_in_use),   cmocka_unit_test(heaps_know_their_own),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
