/* What may happen to a process that uses a real card: exit with live blocks from main and from a second thread while others allocate, with
 * destructors that free; children of a fork that free, allocate and exit, while the parent's contents stay; signals that end it.  Each
 * is played by this program, started anew: a context does not survive a fork.  Status 0 and at most one line are wanted. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/heap.h"
#include "dev/cuda/cuda.h"
#include "gpu/kernels.h"

#define MIB ((uint64_t)1 << 20)
#define DEFAULT ((gap_pool_id){0, 0})
enum { BLOCKS = 16, CHILDREN = 8, SKIPPED = 77, PATTERN = 0x5a5a };

/* ---- what is played ---- */

static void *blocks[BLOCKS];
static bool free_late;

static void print_line(void *arg, int level, const char *line) {
  (void)arg, (void)level;
  fprintf(stderr, "%s\n", line);
}

static void begin(void) {
  gap_set_log(print_line, NULL);
  for (int i = 0; i < BLOCKS; i++)
    if (gap_malloc(&blocks[i], (size_t)(i % 4 + 1) * MIB, 0)) exit(5);
}

/* When the driver's own destructors may have run already. */
__attribute__((destructor)) static void late(void) {
  for (int i = 0; free_late && i < BLOCKS; i++)
    if (gap_mfree(blocks[i], 0)) _exit(6);
}

static int return_from_main(void) {
  begin();
  free_late = true;
  return 0;
}

static void *allocate_for_ever(void *arg) {
  for (void *memory; gap_malloc(&memory, 3 * MIB, (gap_stream)(uintptr_t)arg) == 0;) gap_mfree(memory, 0);
  return NULL;
}

static void *exit_here(void *arg) {
  (void)arg;
  usleep(50000);
  exit(0);
}

static int exit_from_a_second_thread(void) {
  pthread_t threads[3];
  begin();
  free_late = true;
  for (uintptr_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, allocate_for_ever, (void *)(i + 1));
  pthread_create(&threads[2], NULL, exit_here, NULL);
  pthread_join(threads[2], NULL);
  return 7;
}

static int wait_for_a_signal(void) {
  begin();
  raise(SIGTERM);
  return 8;
}

/* ---- fork ---- */

static void be_a_child(int number, gap_heap *heap, gap_addr addr) {
  void *memory;
  gap_addr more;
  bool good = gap_malloc(&memory, MIB, 0) == GAP_EFORKED && gap__heap_free(heap, addr) == 0 &&
              gap__heap_alloc(heap, 0, 0, DEFAULT, MIB, &more) == GAP_EFORKED;
  free_late = true;
  if (!good) _exit(9);
  if (number % 2) _exit(0);
  exit(0); /* handlers and destructors, the driver's too */
}

static bool wait_for_children(void) {
  bool good = true;
  for (int status; wait(&status) > 0;) good &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return good;
}

static int fork_children(void) {
  struct gap__dev *dev;
  struct kernels *k;
  gap_heap *heap;
  gap_addr addr, other;
  begin();
  if (gap__cuda_create(0, NULL, &dev) || kernels_open(dev, &k)) return 10;
  struct gap__heap_params params = {.devs = &dev, .dev_count = 1, .maker = GAP__MAKER_THREAD};
  if (gap__heap_create(&params, &heap) || gap__heap_alloc(heap, 0, 0, DEFAULT, 64 * MIB, &addr)) return 11;
  if (kernels_fill(k, addr, 64 * MIB, PATTERN, 0) || kernels_wait(k)) return 12;
  for (int i = 0; i < CHILDREN; i++) {
    if (gap__heap_alloc(heap, 0, 0, DEFAULT, (uint64_t)(i + 1) * 8 * MIB, &other))
      return 13; /* the page maker is awake */
    pid_t child = fork();
    if (child == 0) be_a_child(i, heap, addr);
    if (kernels_fill(k, other, 8 * MIB, 1, 0) || gap__heap_free(heap, other)) return 14;
  }
  if (!wait_for_children()) return 15;
  if (kernels_expect(k, addr, 64 * MIB, PATTERN, 0) || kernels_wrong(k)) return 16;
  char text[256];
  if (gap__heap_check(heap, 0, text, sizeof text) || gap__heap_free(heap, addr)) return 17;
  kernels_close(k);
  gap__heap_destroy(heap);
  free_late = true;
  return 0;
}

static int look_for_a_device(void) {
  int devices = 0;
  return gap__cuda_device_count(NULL, &devices) != 0 || devices == 0 ? SKIPPED : 0;
}

static const struct play {
  const char *name;
  int (*body)(void);
  int signal; /* that ends it */
} plays[] = {{"look", look_for_a_device, 0},
             {"return", return_from_main, 0},
             {"thread", exit_from_a_second_thread, 0},
             {"fork", fork_children, 0},
             {"signal", wait_for_a_signal, SIGTERM}};
enum { PLAYS = sizeof plays / sizeof *plays };

/* ---- playing it ---- */

static int run(const char *name, int *lines) {
  int ends[2], status = 0;
  char text[4096];
  if (pipe(ends)) return -1;
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1), dup2(ends[1], 2);
    close(ends[0]), close(ends[1]);
    alarm(60);
    execl("/proc/self/exe", "life", name, (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  *lines = 0;
  for (ssize_t got; (got = read(ends[0], text, sizeof text)) > 0;) {
    for (ssize_t i = 0; i < got; i++) *lines += text[i] == '\n';
    fwrite(text, 1, (size_t)got, stdout);
  }
  close(ends[0]);
  waitpid(child, &status, 0);
  return status;
}

static bool is_good(const struct play *play, int status, int lines) {
  bool ended = play->signal ? WIFSIGNALED(status) && WTERMSIG(status) == play->signal
                            : WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!ended || lines > 1) printf("life %s: status %#x, %d lines\n", play->name, (unsigned)status, lines);
  return ended && lines <= 1;
}

int main(int argc, char **argv) {
  int passed = 0, failed = 0, lines;
  for (int i = 0; argc > 1 && i < PLAYS; i++)
    if (strcmp(argv[1], plays[i].name) == 0) return plays[i].body();
  if (WEXITSTATUS(run("look", &lines)) == SKIPPED) {
    puts("life skipped: no CUDA device");
    return SKIPPED;
  }
  for (int round = 0; round < 3; round++)
    for (int i = 1; i < PLAYS; i++) {
      int status = run(plays[i].name, &lines);
      bool good = is_good(&plays[i], status, lines);
      passed += good;
      failed += !good;
    }
  printf("life: %d passed, %d failed\n", passed, failed);
  return failed != 0;
}
