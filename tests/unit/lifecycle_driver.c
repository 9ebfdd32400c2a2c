/* Drivers that are old, small, partitioned or broken: the library works, or falls back and says so in one line; a device that is lost
 * is reported once.  Children and the end of a program leave the driver alone. */
#include <pthread.h>
#include <stdbool.h>

#include "gapless/restore.h"
#include "gapless/share.h"
#include "support/child.h"
#include "support/fake_driver.h"

enum { STREAMS = 20 };
static gap_stream streams[STREAMS]; /* of device 0; the driver knows no others */

static void start_driver(const struct fake_cuda_settings *settings) {
  fake_cuda_reset(settings);
  for (int i = 1; i < STREAMS; i++) streams[i] = fake_cuda_stream(0, true);
}

static gap_heap *begin(const struct fake_cuda_settings *settings, struct api_log *log) {
  gap_heap *heap = NULL;
  start_driver(settings);
  api_listen(log);
  assert_int_equal(gap_heap_default(&heap), 0);
  return heap;
}

static void end(void) {
  gap_shutdown();
  gap_set_log(NULL, NULL);
  assert_int_equal(fake_cuda_wrong(), 0);
  for (int i = 0; i < 4; i++) assert_int_equal(fake_cuda_retained(i), 0);
}

/* Small and large blocks on several streams, all in use at once, twice. */
static void work(gap_heap *heap) {
  gap_addr at[20];
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 20; i++) at[i] = api_get(heap, streams[i % 3], i % 2 ? 2 * MIB + 512 : 5000);
    for (int i = 0; i < 20; i++) assert_int_equal(gap_record_stream(heap, at[i], streams[1]), 0);
    for (int i = 0; i < 20; i++) api_give(heap, at[i]);
  }
  assert_int_equal(gap_trim(heap, 0, NONE, NULL), 0);
  api_check(heap);
}

/* ---- what a driver lacks ---- */

struct poor {
  struct fake_cuda_settings settings;
  int lines;
  const char *words; /* in the line, if there is one */
};

static void works(const struct poor *poor) {
  struct api_log log;
  gap_heap *heap = begin(&poor->settings, &log);
  work(heap);
  if (log.count != poor->lines || !strstr(log.lines, poor->words))
    fail_msg("%d lines instead of %d with '%s': %s", log.count, poor->lines, poor->words, log.lines);
  end();
}

static void without_pages_one_line(void **state) {
  static const struct poor drivers[] = {
      {{.lacks = FAKE_CUDA_VMM}, 1, "no virtual memory management"},              /* an old card, or WSL */
      {{.refuses = FAKE_CUDA_VMM}, 1, "no page can be mapped"},                   /* a vGPU says that it can */
      {{.window_max_bytes = 1}, 1, "no page can be mapped: cuMemAddressReserve"}, /* no address at all */
      {{.granularity_bytes = 8 * MIB}, 1, "granularity is not 2 MiB"},
      {{.missing = "cuMemMap"}, 1, "entry points are missing"},
      {{.missing = "cuMemAddressReserve cuMemCreate cuMemSetAccess"}, 1, "entry points are missing"}};
  (void)state;
  for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) works(&drivers[i]);
}

static void without_extras_no_line(void **state) {
  static const struct poor drivers[] = {
      {{0}, 0, ""},
      {{.lacks = FAKE_CUDA_EXPORT | FAKE_CUDA_RDMA | FAKE_CUDA_HOST_CHUNKS | FAKE_CUDA_PEERS}, 0, ""},
      {{.refuses = FAKE_CUDA_EXPORT | FAKE_CUDA_RDMA | FAKE_CUDA_HOST_CHUNKS | FAKE_CUDA_VALUES}, 0, ""},
      {{.missing = "cuStreamGetId cuStreamWaitValue32 cuStreamWriteValue32 cuDeviceGetUuid"}, 0, ""}};
  (void)state;
  for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) works(&drivers[i]);
}

/* Without each entry point in turn: it works, or the heap is refused and its name is said; one line at most. */
static void without_any_entry_point(void **state) {
  static const char *const names[] = {
#define GAP_CUDA_ENTRY(entry, version, group, parameters) #entry,
#include "dev/cuda/entry_points.def"
#undef GAP_CUDA_ENTRY
  };
  (void)state;
  int refused = 0, served = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    struct api_log log;
    gap_heap *heap = NULL;
    fake_cuda_reset(&(struct fake_cuda_settings){.missing = names[i]});
    api_listen(&log);
    int rc = gap_heap_default(&heap);
    if (!rc) work(heap), served++;
    else if (rc != GAP_ENOTSUP || !strstr(log.lines, names[i])) fail_msg("%s: %d %s", names[i], rc, log.lines);
    else refused++;
    if (log.count > 1) fail_msg("%s: %s", names[i], log.lines);
    end();
  }
  assert_true(refused > 5 && served > 5);
}

static void addresses_for_some(void **state) {
  struct api_log log;
  gap_heap *heap = begin(&(struct fake_cuda_settings){.window_max_bytes = 64 * MIB}, &log);
  (void)state;
  work(heap);
  assert_int_equal(log.count, 0);
  for (int i = 0; i < 3; i++) api_give(heap, api_get(heap, streams[1], 80 * MIB)); /* longer than any window */
  assert_int_equal(log.count, 1);
  assert_non_null(strstr(log.lines, "driver allocations serve such requests"));
  work(heap);
  assert_int_equal(log.count, 1);
  end();
}

/* The driver has addresses for a few streams' windows, or for hardly one. */
static void addresses_in_all(void **state) {
  static const uint64_t budgets[] = {2 * MIB, 64 * MIB, 192 * MIB};
  (void)state;
  for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
    struct api_log log;
    struct fake_cuda_settings few = {.window_max_bytes = 64 * MIB, .address_bytes = budgets[i]};
    gap_heap *heap = begin(&few, &log);
    work(heap);
    for (int k = 0; k < STREAMS; k++) api_give(heap, api_get(heap, streams[k], 3 * MIB));
    for (int round = 0; round < 3; round++) api_give(heap, api_get(heap, streams[1], 80 * MIB));
    work(heap);
    if (log.count != 1) fail_msg("%d MiB: %d lines: %s", (int)(budgets[i] / MIB), log.count, log.lines);
    end();
  }
}

/* ---- a part of a card ---- */

/* What a MIG instance has is all that the driver tells of. */
static void a_small_instance(void **state) {
  struct api_log log;
  gap_heap *heap = begin(&(struct fake_cuda_settings){.total_bytes = 24 * MIB}, &log);
  gap_addr addr, most;
  char text[500];
  (void)state;
  assert_int_equal(gap_alloc(heap, 0, 0, 26 * MIB, &addr), GAP_ENOMEM);
  assert_int_equal(gap_explain(heap, 0, text, sizeof text, NULL), 0);
  if (!strstr(text, "larger than all that may be held")) fail_msg("%s", text);
  most = api_get(heap, 0, 24 * MIB);
  assert_int_equal(gap_alloc(heap, 0, 0, 1, &addr), GAP_ENOMEM);
  api_give(heap, most);
  assert_int_equal(log.count, 0);
  end();
}

/* A vGPU's frame buffer may end before the free memory that the driver reports does. */
static void less_than_was_said(void **state) {
  struct api_log log;
  gap_heap *heap = begin(&(struct fake_cuda_settings){0}, &log);
  gap_addr at[64], addr;
  int count = 0;
  (void)state;
  at[count++] = api_get(heap, 0, 2 * MIB);
  fake_cuda_fail("cuMemCreate", 2 /* out of memory */, 10, UINT64_MAX);
  while (count < 64 && gap_alloc(heap, 0, 0, 2 * MIB, &at[count]) == 0) count++;
  assert_true(count > 1 && count <= 12);
  assert_int_equal(gap_alloc(heap, 0, 0, 5 * MIB, &addr), GAP_ENOMEM);
  api_give(heap, at[--count]); /* what there is goes on serving */
  at[count++] = api_get(heap, 0, 2 * MIB);
  fake_cuda_fail(NULL, 0, 0, 0);
  api_give(heap, api_get(heap, 0, 30 * MIB));
  while (count) api_give(heap, at[--count]);
  assert_int_equal(log.count, 0);
  end();
}

/* ---- numbers of devices ---- */

/* The driver numbers what it shows anew: the library asks nobody else. */
static void devices_that_are_shown(void **state) {
  struct api_log log;
  gap_addr addr;
  (void)state;
  setenv("CUDA_VISIBLE_DEVICES", "7,GPU-5a5a", 1);
  gap_heap *heap = begin(&(struct fake_cuda_settings){.device_count = 2}, &log);
  assert_int_equal(gap_device_count(heap), 2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(gap_alloc(heap, i, 0, 3 * MIB, &addr), 0);
    int device = -1;
    gap_block block;
    assert_int_equal(gap_find_block(heap, addr, &block, &device), 0);
    assert_int_equal(device, i);
    api_give(heap, addr);
  }
  assert_int_equal(gap_alloc(heap, 2, 8, MIB, &addr), GAP_EINVAL);
  assert_int_equal(gap_alloc(heap, -1, 8, MIB, &addr), GAP_EINVAL);
  assert_int_equal(log.count, 0);
  end();
  unsetenv("CUDA_VISIBLE_DEVICES");
}

static void no_device_is_shown(void **state) {
  struct api_log log;
  gap_heap *heap = NULL;
  void *memory;
  (void)state;
  fake_cuda_reset(&(struct fake_cuda_settings){0});
  fake_cuda_fail("cuInit", 100 /* no device */, 0, UINT64_MAX);
  api_listen(&log);
  assert_int_equal(gap_heap_default(&heap), GAP_EDEVICE);
  assert_null(heap);
  assert_int_equal(log.count, 1);
  assert_non_null(strstr(log.lines, "CUDA_ERROR_NO_DEVICE"));
  assert_int_equal(gap_malloc(&memory, 100, 0), GAP_EDEVICE);
  gap_set_log(NULL, NULL);
}

/* ---- a device is lost ---- */

/* From some call on everything fails, as after a kernel's wild write; the program goes on for a while. */
static void a_lost_device(uint64_t after) {
  struct api_log log;
  gap_heap *heap = begin(&(struct fake_cuda_settings){.total_bytes = 512 * MIB}, &log);
  gap_addr at[8], addr;
  for (int i = 0; i < 8; i++) at[i] = api_get(heap, streams[i], 3 * MIB);
  fake_cuda_fail(NULL, 700 /* illegal address */, after, UINT64_MAX);
  int failed = 0;
  for (int i = 0; i < 500; i++) {
    int rc = gap_alloc(heap, 0, streams[i % 9], (uint64_t)(i % 30 + 1) * MIB, &addr);
    if (!rc) gap_record_stream(heap, addr, streams[1]), gap_free(heap, addr);
    else failed++;
    assert_true(rc == 0 || rc == GAP_EDEVICE || rc == GAP_ENOMEM);
    if (i % 50 == 0) gap_trim(heap, 0, NONE, NULL);
  }
  for (int i = 0; i < 8; i++) assert_int_equal(gap_free(heap, at[i]), 0); /* frees need no driver */
  gap_shutdown();
  assert_true(failed > 0);
  if (log.count != 1 || !strstr(log.lines, "device 0 is lost")) fail_msg("after %d: %s", (int)after, log.lines);
  fake_cuda_fail(NULL, 0, 0, 0);
  gap_set_log(NULL, NULL);
}

static void a_lost_device_is_reported_once(void **state) {
  static const char *const confs[] = {"reserve:0", "strategy:caching_allocator",
                                      "strategy:caching_allocator,expandable_segments:True",
                                      "strategy:pooled,reserve:0", "strategy:heuristic,reserve:0"};
  (void)state;
  for (size_t i = 0; i < sizeof confs / sizeof *confs; i++) {
    setenv("GAPLESS_CONF", confs[i], 1);
    for (uint64_t after = 0; after < 60; after += 7) a_lost_device(after);
  }
  setenv("GAPLESS_CONF", "reserve:0", 1);
}

/* The driver may have ended before the program's destructors. */
static void a_driver_that_ended(void **state) {
  struct api_log log;
  gap_heap *heap = begin(&(struct fake_cuda_settings){0}, &log);
  gap_addr addr, mine = api_get(heap, streams[1], 3 * MIB);
  (void)state;
  fake_cuda_fail(NULL, 4 /* deinitialized */, 0, UINT64_MAX);
  assert_int_equal(gap_alloc(heap, 0, streams[1], 60 * MIB, &addr), GAP_EDEVICE);
  assert_int_equal(gap_free(heap, mine), 0);
  gap_shutdown();
  assert_int_equal(log.count, 0);
  fake_cuda_fail(NULL, 0, 0, 0);
  gap_set_log(NULL, NULL);
}

/* ---- children and the end ---- */

/* A context does not survive a fork: what a child calls the driver with is the parent's. */
static gap_heap *left;
static gap_addr block;
static bool free_late;
__attribute__((destructor)) static void late(void) {
  if (free_late && (gap_free(left, block) || gap_mfree((void *)(uintptr_t)block, 0) != GAP_EFREED)) _exit(8);
}

static void print_line(void *arg, int level, const char *line) {
  (void)arg, (void)level;
  fprintf(stderr, "%s\n", line);
}

static int no_block(void *arg, const gap_block *at) {
  (void)arg, (void)at;
  return 1;
}
static int no_stat(void *arg, const char *name, int64_t value) {
  (void)arg, (void)name, (void)value;
  return 1;
}

#define REFUSED(call) count_refusal(call, #call, &wrong)
static void count_refusal(int rc, const char *call, int *wrong) {
  if (rc == GAP_EFORKED) return;
  fprintf(stderr, "%s gives %d\n", call, rc);
  ++*wrong;
}

/* Every function of the interface, on a device that is open and on one that is not.  How many do something else than to refuse. */
static int ask_everything(int device) {
  int wrong = 0;
  void *memory;
  gap_addr addr;
  gap_pool_id pool = {1, 2};
  gap_block found;
  gap_usage usage = {.size = sizeof usage};
  gap_piece piece = {.bytes = 2 * MIB, .fd = -1};
  unsigned count;
  int64_t value;
  size_t needed;
  char text[100];
  REFUSED(gap_malloc(&memory, MIB, streams[1]));
  REFUSED(gap_alloc(left, device, streams[1], MIB, &addr));
  REFUSED(gap_alloc_in(left, device, streams[1], pool, MIB, &addr));
  REFUSED(gap_alloc_at(left, block + 2 * MIB, MIB));
  REFUSED(gap_retire_stream(left, device, streams[1]));
  REFUSED(gap_pool_create(left, device, GAP_POOL_CONTIGUOUS, NULL, &pool));
  REFUSED(gap_pool_adopt(left, device, GAP_POOL_PRIVATE, NULL, pool));
  REFUSED(gap_pool_retain(left, device, pool));
  REFUSED(gap_pool_release(left, device, pool));
  REFUSED(gap_pool_behave(left, device, pool, GAP_POOL_NO_SPLIT));
  REFUSED(gap_set_cap(left, device, MIB));
  REFUSED(gap_set_fraction(left, device, 0.5));
  REFUSED(gap_set_reserve(left, device, MIB));
  REFUSED(gap_trim(left, device, NONE, NULL));
  REFUSED(gap_enable_peer(left, device, device + 1));
  REFUSED(gap_configure(left, NULL));
  REFUSED(gap_conf_value(left, "nmalloc", text, sizeof text));
  REFUSED(gap_set_oom(left, NULL, NULL));
  REFUSED(gap_set_events(left, NULL, NULL));
  REFUSED(gap_get_usage(left, device, &usage));
  REFUSED(gap_stats(left, device, no_stat, NULL));
  REFUSED(gap_stat(left, device, "num_ooms", &value));
  REFUSED(gap_reset_peaks(left, device));
  REFUSED(gap_reset_accumulated(left, device));
  REFUSED(gap_walk(left, device, no_block, NULL));
  REFUSED(gap_find_block(left, block, &found, NULL));
  REFUSED(gap_summary(left, device, text, sizeof text, &needed));
  REFUSED(gap_explain(left, device, text, sizeof text, &needed));
  REFUSED(gap_check(left, device, text, sizeof text));
  REFUSED(gap_export_layout(left, block, &addr, &count));
  REFUSED(gap_export(left, block, 0, 1, &piece));
  REFUSED(gap_import(left, device, &piece, 1, &addr));
  return wrong;
}

static void leaves_the_driver_alone(void *arg) {
  uint64_t before = fake_cuda_calls(NULL);
  gap_set_log(print_line, NULL);
  int wrong = ask_everything(0) + ask_everything(1);
  wrong += gap_free(left, block) || gap_free_on(left, block, 0) || gap_record_stream(left, block, streams[1]) ||
           gap_mfree((void *)(uintptr_t)block, streams[1]) || gap_import_release(left, block);
  if (arg) gap_shutdown();
  free_late = false;
  if (fake_cuda_calls(NULL) != before) _exit(7);
  exit(wrong ? 4 : 3);
}

static void children_leave_the_driver_alone(void **state) {
  static const char *const confs[] = {"reserve:0", "strategy:caching_allocator", "strategy:pooled,reserve:0"};
  (void)state;
  for (size_t i = 0; i < sizeof confs / sizeof *confs; i++) {
    struct api_log log;
    setenv("GAPLESS_CONF", confs[i], 1);
    left = begin(&(struct fake_cuda_settings){0}, &log);
    block = api_get(left, streams[1], 5 * MIB);
    for (int round = 0; round < 3; round++) {
      ended(run_child(leaves_the_driver_alone, NULL), 3);
      ended(run_child(leaves_the_driver_alone, &round), 3);
      work(left);
    }
    api_give(left, block);
    assert_int_equal(log.count, 0);
    end();
  }
  setenv("GAPLESS_CONF", "reserve:0", 1);
}

static void *allocate_for_ever(void *arg) {
  for (gap_addr addr;; gap_free(left, addr))
    if (gap_alloc(left, 0, *(gap_stream *)arg, 3 * MIB, &addr)) return NULL;
}

static void *exit_here(void *arg) {
  (void)arg;
  usleep(3000);
  exit(0);
}

/* The driver goes on, or it has ended by then. */
static void exits_from_a_second_thread(void *arg) {
  pthread_t threads[2];
  start_driver(&(struct fake_cuda_settings){0});
  gap_set_log(print_line, NULL);
  if (gap_heap_default(&left) || gap_alloc(left, 0, streams[1], MIB, &block)) exit(5);
  free_late = true;
  pthread_create(&threads[0], NULL, allocate_for_ever, &streams[2]);
  pthread_create(&threads[1], NULL, exit_here, NULL);
  pthread_detach(threads[0]); /* it ends by itself where the driver has: that is no leak */
  usleep(1000);
  if (arg) fake_cuda_fail(NULL, 4 /* deinitialized */, 0, UINT64_MAX);
  allocate_for_ever(&streams[3]);
  pause();
}

static void exits_of_all_kinds(void **state) {
  (void)state;
  int yes;
  for (int round = 0; round < 5; round++) {
    ended(run_child(exits_from_a_second_thread, NULL), 0);
    ended(run_child(exits_from_a_second_thread, &yes), 0);
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_pages_one_line),  cmocka_unit_test(without_extras_no_line),
      cmocka_unit_test(without_any_entry_point), cmocka_unit_test(addresses_for_some),
      cmocka_unit_test(addresses_in_all),        cmocka_unit_test(a_small_instance),
      cmocka_unit_test(less_than_was_said),      cmocka_unit_test(devices_that_are_shown),
      cmocka_unit_test(no_device_is_shown),      cmocka_unit_test(a_lost_device_is_reported_once),
      cmocka_unit_test(a_driver_that_ended),     cmocka_unit_test(children_leave_the_driver_alone),
      cmocka_unit_test(exits_of_all_kinds),
  };
  (void)argc;
  fake_driver_find(argv);
  setenv("GAPLESS_CONF", "reserve:0", 1);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  fake_cuda_reset(&(struct fake_cuda_settings){0}); /* what a lost device has lost goes here */
  fake_driver_forget();
  return failed;
}
