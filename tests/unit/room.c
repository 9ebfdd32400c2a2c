/* Where address space is limited: RLIMIT_AS, in a child of its own. */
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/meta.h"
#include "base/room.h"
#include "support/api_try.h"

enum { STREAMS = 12 };

static bool limit_to(uint64_t bytes) {
  struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
  return setrlimit(RLIMIT_AS, &limit) == 0;
}

/* The number of the first check that failed in a child, 0 when none did.  Sanitizers need the addresses for themselves. */
static int in_child(int (*work)(void)) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)work;
  skip();
#endif
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) _exit(work());
  assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

/* ---- asking ---- */

static int ask(void) {
  if (!limit_to(GIB)) return 1;
  uint64_t before = gap__room_addresses();
  if (before == 0 || before >= GIB || gap__room_memory() > before) return 2;
  void *taken = mmap(NULL, 256 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint64_t after = gap__room_addresses();
  if (taken == MAP_FAILED || before - after < 256 * MIB || before - after > 257 * MIB) return 3;
  uint32_t most = gap__meta_fitting(64, 1u << 24);
  if (most < MIB / 64 || most > GIB / 64 / 64) return 4;
  return gap__meta_fitting(64, 100) == 100 ? 0 : 5;
}

static void room(void **state) {
  (void)state;
  assert_int_equal(in_child(ask), 0);
  assert_int_equal(gap__meta_fitting(64, 1u << 24), 1u << 24); /* nothing limits this process */
}

/* ---- a heap within 4 GiB ---- */

static const char *strategy;

/* Every stream has memory, and the program can still allocate. */
static int serve_all(void) {
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  options.backend = GAP_BACKEND_HOST;
  options.flags = GAP_HEAP_NO_ENVIRONMENT;
  options.conf = strategy;
  gap_heap *heap;
  if (!limit_to(4 * GIB) || gap_heap_create(&options, &heap)) return 1;
  gap_addr addrs[STREAMS][2];
  for (gap_stream i = 0; i < STREAMS; i++)
    for (int kind = 0; kind < 2; kind++) {
      if (gap_alloc(heap, 0, i * 16, kind ? 5 * MIB : 1000, &addrs[i][kind])) return 2;
      memset((void *)(uintptr_t)addrs[i][kind], (int)i, 1000);
    }
  for (gap_stream i = 0; i < STREAMS; i++)
    for (int kind = 0; kind < 2; kind++)
      if (((unsigned char *)(uintptr_t)addrs[i][kind])[999] != i || gap_free(heap, addrs[i][kind])) return 3;
  void *own = malloc(256 * MIB);
  if (!own || gap__room_addresses() < 256 * MIB) return 4;
  free(own);
  gap_heap_destroy(heap);
  return 0;
}

static void gapless_within_4_gib(void **state) {
  (void)state;
  strategy = "strategy:gapless";
  assert_int_equal(in_child(serve_all), 0);
}

static void caching_allocator_within_4_gib(void **state) {
  (void)state;
  strategy = "strategy:caching_allocator";
  assert_int_equal(in_child(serve_all), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(room),
      cmocka_unit_test(gapless_within_4_gib),
      cmocka_unit_test(caching_allocator_within_4_gib),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
