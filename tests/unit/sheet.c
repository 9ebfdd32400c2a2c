/* What a process publishes of its memory: the same as it would say itself, whole while it is written, to its own user alone, and gone when it
 * is.  And a glance disturbs nothing. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/glance.h"
#include "support/api_try.h"
#include "toolsapi/sheets_say.h"

__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

enum { PATIENCE_MS = 5000 };

/* ---- support ---- */

static char runtime_folder[64];

static int set_up(void **state) {
  (void)state;
  snprintf(runtime_folder, sizeof runtime_folder, "/tmp/gapless-sheet-XXXXXX");
  if (!mkdtemp(runtime_folder)) return -1;
  return setenv("XDG_RUNTIME_DIR", runtime_folder, 1);
}

static char *in_folder(const char *name) {
  static char path[200];
  snprintf(path, sizeof path, "%s/gapless/%s", runtime_folder, name);
  return path;
}

static int tear_down(void **state) {
  (void)state;
  rmdir(in_folder(""));
  return rmdir(runtime_folder); /* fails where something was left behind */
}

static char *sheet_of(pid_t process) {
  char name[40];
  snprintf(name, sizeof name, "%ld.sheet", (long)process);
  return in_folder(name);
}

static bool is_there(const char *path) {
  struct stat about;
  return lstat(path, &about) == 0;
}

static void pause_ms(long ms) {
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static uint64_t now_ns(void) { return gap__sheet_now_ns(); }

/* The sheet of a process once it has figures that are younger than this call. */
static struct gap__sheets fresh(pid_t process, uint32_t devices) {
  uint64_t since = now_ns();
  struct gap__sheets sheets = {0};
  for (int waited = 0; waited < PATIENCE_MS; waited += 10) {
    gap__sheets_free(&sheets);
    assert_int_equal(gap__sheets_read(NULL, process, &sheets), 0);
    bool is_fresh = sheets.count == 1 && sheets.views[0].device_count >= devices;
    for (uint32_t i = 0; is_fresh && i < devices; i++)
      is_fresh = gap__sheet_device(&sheets.views[0], i)->taken_ns > since;
    if (is_fresh) return sheets;
    pause_ms(10);
  }
  fail_msg("no sheet of %ld within %d ms", (long)process, PATIENCE_MS);
  return sheets;
}

static uint32_t count_of(pid_t process) {
  struct gap__sheets sheets;
  assert_int_equal(gap__sheets_read(NULL, process, &sheets), 0);
  uint32_t count = sheets.count;
  gap__sheets_free(&sheets);
  return count;
}

static pid_t child_with(void (*work)(void)) {
  int ready[2];
  char byte;
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    work();
    if (write(ready[1], "r", 1) != 1) _exit(2);
    for (;;) pause();
  }
  close(ready[1]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  return child;
}

static void publish_ten(void) {
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "serve:True");
  api_get(heap, 8, 10 * MIB);
}

/* ---- what is told ---- */

/* Every figure by its name, but for those that a look itself changes. */
static int same_figure(void *arg, const char *name, int64_t value) {
  const struct gap__sheet_view *view = arg;
  int64_t told;
  bool has = gap__sheet_figure(view, 0, name, &told);
  assert_int_equal(has, strncmp(name, "inactive_split", 14) != 0);
  if (!has || strstr(name, "driver") || strstr(name, "background") || strstr(name, "metadata")) return 0;
  if (told != value) fail_msg("%s: %lld is told, %lld is so", name, (long long)told, (long long)value);
  return 0;
}

static void the_sheet_tells_what_the_process_would(void **state) {
  (void)state;
  static const char *const strategies[] = {"gapless", "caching_allocator", "pooled"};
  for (int i = 0; i < 3; i++) {
    char conf[120];
    snprintf(conf, sizeof conf, "serve:True,max_memory:100M,page_maker:False,strategy:%s", strategies[i]);
    gap_heap *heap = api_open(GAP_BACKEND_HOST, 256 * MIB, conf);
    gap_addr a = api_get(heap, 8, 10 * MIB + 100), b = api_get(heap, 8, 3 * MIB), c = api_get(heap, 16, 700), none;
    api_give(heap, b);
    assert_int_equal(gap_alloc(heap, 0, 8, 200 * MIB, &none), GAP_ENOMEM);
    api_usage(heap, 0); /* merges what is kept for the next request, as a look of the program's own does */
    struct gap__sheets sheets = fresh(getpid(), 1);
    const struct gap__sheet_view *view = &sheets.views[0];
    const struct gap__sheet_device *device = gap__sheet_device(view, 0);
    assert_int_equal(gap_stats(heap, 0, same_figure, (void *)(uintptr_t)view), 0);
    assert_string_equal(device->strategy, strategies[i]);
    assert_string_equal(device->backend, "host");
    assert_string_equal(view->release, gap_version());
    assert_int_equal(view->process, getpid());
    assert_int_equal(device->card_bytes, 256 * MIB);
    assert_non_null(strstr(device->refusal, "200"));
    gap__sheets_free(&sheets);
    api_give(heap, a);
    api_give(heap, c);
    api_close(heap);
  }
}

static void streams_and_pools_are_told(void **state) {
  (void)state;
  static const char *const strategies[] = {"gapless", "caching_allocator"};
  for (int i = 0; i < 2; i++) {
    char conf[120];
    snprintf(conf, sizeof conf, "serve:True,page_maker:False,strategy:%s", strategies[i]);
    gap_heap *heap = api_open(GAP_BACKEND_HOST, 256 * MIB, conf);
    gap_pool_id pool;
    assert_int_equal(gap_pool_create(heap, 0, 0, "weights", &pool), 0);
    gap_addr a = api_get(heap, 8, 4 * MIB), b = api_get_in(heap, 16, pool, 12 * MIB), c = api_get(heap, 8, 4 * MIB);
    api_give(heap, c);
    struct gap__sheets sheets = fresh(getpid(), 1);
    const struct gap__sheet_device *device = gap__sheet_device(&sheets.views[0], 0);
    const struct gap__sheet_usage *first = &device->usage[0], *second = &device->usage[1];
    assert_int_equal(device->usage_count, 2);
    if (first->stream != 8) first = &device->usage[1], second = &device->usage[0];
    assert_int_equal(first->live_bytes, 4 * MIB);
    assert_int_equal(first->live_blocks, 1);
    assert_true(first->idle_bytes >= 4 * MIB);
    assert_int_equal(second->stream, 16);
    assert_int_equal(second->live_bytes, 12 * MIB);
    assert_string_equal(second->tag, "weights");
    gap__sheets_free(&sheets);
    api_give(heap, a);
    api_give(heap, b);
    assert_int_equal(gap_pool_release(heap, 0, pool), 0);
    api_close(heap);
  }
}

/* A glance leaves cached blocks cached: placement goes on as if nobody had looked. */
static gap_addr addresses[2][600];
static void play(gap_heap *heap, gap_addr *out, bool glances) {
  gap_addr live[16] = {0};
  uint64_t seed = 7;
  for (int i = 0; i < 600; i++) {
    struct gap__glance glance;
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    int at = (int)(seed >> 60);
    if (live[at]) api_give(heap, live[at]);
    live[at] = out[i] = api_get(heap, 8 + (at & 1) * 8, 512 * (1 + (seed >> 33) % (seed >> 62 ? 100 : 20000)));
    if (glances) assert_int_equal(gap__heap_glance(heap, 0, &glance), 0);
  }
  for (int i = 0; i < 16; i++)
    if (live[i]) api_give(heap, live[i]);
}

static void a_glance_changes_nothing(void **state) {
  (void)state;
  static const char *const confs[] = {"page_maker:False", "page_maker:False,strategy:caching_allocator",
                                      "page_maker:False,strategy:pooled"};
  for (int i = 0; i < 3; i++) {
    for (int glances = 0; glances < 2; glances++) {
      gap_heap *heap = api_open(GAP_BACKEND_SIM, GIB, confs[i]);
      play(heap, addresses[glances], glances);
      api_close(heap);
    }
    assert_memory_equal(addresses[0], addresses[1], sizeof addresses[0]);
  }
}

static void a_glance_adds_up(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 256 * MIB, "page_maker:False");
  gap_addr blocks[40];
  struct gap__glance glance;
  assert_int_equal(gap__heap_glance(heap, 0, &glance), GAP_EINVAL); /* not opened yet */
  for (int i = 0; i < 40; i++) blocks[i] = api_get(heap, 8, 5000 + (uint64_t)i * 60000);
  for (int i = 0; i < 40; i += 2) api_give(heap, blocks[i]);
  assert_int_equal(gap__heap_glance(heap, 0, &glance), 0);
  int64_t held = glance.stats.reserved_bytes[0].current, active = glance.stats.active_bytes[0].current;
  assert_int_equal(glance.stats.idle_returnable_bytes + glance.stats.idle_stuck_bytes, held - active);
  assert_int_equal(glance.usage[0].idle_bytes, held - active);
  assert_int_equal(glance.usage[0].live_blocks, 20);
  for (int i = 1; i < 40; i += 2) api_give(heap, blocks[i]);
  api_close(heap);
}

/* ---- whose it is, and how long ---- */

static void only_the_user_may_read_it(void **state) {
  (void)state;
  struct stat about;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "serve:True");
  assert_int_equal(lstat(sheet_of(getpid()), &about), 0);
  assert_true(S_ISREG(about.st_mode));
  assert_int_equal(about.st_mode & 0777, 0600);
  api_close(heap);
  assert_false(is_there(sheet_of(getpid())));
}

static void without_serve_there_is_none(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "");
  assert_false(is_there(sheet_of(getpid())));
  assert_int_equal(gap_configure(heap, "serve:True"), 0);
  assert_true(is_there(sheet_of(getpid())));
  assert_int_equal(gap_configure(heap, "serve:False"), 0);
  assert_false(is_there(sheet_of(getpid())));
  api_close(heap);
}

/* What lay there under the name is taken away, not followed. */
static void a_link_is_not_followed(void **state) {
  (void)state;
  char target[100], unfinished[40];
  snprintf(target, sizeof target, "%s/target", runtime_folder);
  snprintf(unfinished, sizeof unfinished, ".%ld.sheet", (long)getpid());
  mkdir(in_folder(""), 0700);
  int fd = open(target, O_CREAT | O_WRONLY, 0600);
  assert_int_equal(write(fd, "mine", 4), 4);
  close(fd);
  assert_int_equal(symlink(target, sheet_of(getpid())), 0);
  assert_int_equal(symlink(target, in_folder(unfinished)), 0);
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "serve:True");
  struct stat about;
  assert_int_equal(stat(target, &about), 0);
  assert_int_equal(about.st_size, 4);
  assert_int_equal(lstat(sheet_of(getpid()), &about), 0);
  assert_true(S_ISREG(about.st_mode));
  api_close(heap);
  unlink(target);
}

static void a_reader_follows_no_link(void **state) {
  (void)state;
  pid_t child = child_with(publish_ten);
  struct gap__sheets sheets = fresh(child, 1);
  gap__sheets_free(&sheets);
  char target[40];
  snprintf(target, sizeof target, "%ld.sheet", (long)child);
  assert_int_equal(symlink(target, in_folder("77.sheet")), 0);
  assert_int_equal(count_of(77), 0);
  unlink(in_folder("77.sheet"));
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  assert_int_equal(count_of(child), 0);
  assert_false(is_there(sheet_of(child))); /* swept */
  char door[40];
  snprintf(door, sizeof door, "%ld", (long)child);
  unlink(in_folder(door)); /* its door is swept by the next process, not by readers */
}

/* The heap is left as it is when a program ends; its sheet is not. */
static void the_end_takes_it_away(void **state) {
  (void)state;
  int status;
  pid_t child = fork();
  if (child == 0) {
    api_open(GAP_BACKEND_HOST, 64 * MIB, "serve:True");
    exit(is_there(sheet_of(getpid())) ? 7 : 8);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(WEXITSTATUS(status), 7);
  assert_false(is_there(sheet_of(child)));
}

/* A sheet under another process's name is not that process's. */
static void a_sheet_is_what_its_name_says(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "serve:True");
  char other[200];
  snprintf(other, sizeof other, "%s", in_folder("77.sheet"));
  assert_int_equal(link(sheet_of(getpid()), other), 0);
  assert_int_equal(count_of(77), 0);
  assert_int_equal(count_of(getpid()), 1);
  unlink(other);
  api_close(heap);
}

/* A stopped process is seen, and how old its figures are. */
static void a_stopped_process_is_seen(void **state) {
  (void)state;
  pid_t child = child_with(publish_ten);
  struct gap__sheets sheets = fresh(child, 1);
  gap__sheets_free(&sheets);
  int status;
  kill(child, SIGSTOP);
  assert_int_equal(waitpid(child, &status, WUNTRACED), child);
  pause_ms(1200);
  assert_int_equal(gap__sheets_read(NULL, child, &sheets), 0);
  assert_int_equal(sheets.count, 1);
  struct gap__sheet_brief brief = gap__sheet_brief(&sheets.views[0], 0, now_ns());
  assert_int_equal(brief.live, 10 * MIB);
  assert_true(brief.age_s > 1);
  gap__sheets_free(&sheets);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  assert_int_equal(count_of(child), 0);
  char door[40];
  snprintf(door, sizeof door, "%ld", (long)child);
  unlink(in_folder(door));
}

/* A child of fork has not the lock, so the sheet of a parent that is gone is nobody's. */
static int fork_pipe[2];
static void publish_and_fork(void) {
  publish_ten();
  if (fork()) return;
  pid_t grandchild = getpid(); /* from here on it has forgotten what was its parent's */
  if (write(fork_pipe[1], &grandchild, sizeof grandchild) != sizeof grandchild) _exit(3);
  for (;;) pause();
}

static void a_child_does_not_keep_it(void **state) {
  (void)state;
  pid_t grandchild;
  assert_int_equal(pipe(fork_pipe), 0);
  pid_t child = child_with(publish_and_fork);
  assert_int_equal(read(fork_pipe[0], &grandchild, sizeof grandchild), sizeof grandchild);
  assert_int_equal(count_of(child), 1);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  assert_int_equal(count_of(child), 0);
  kill(grandchild, SIGKILL);
  char door[40];
  snprintf(door, sizeof door, "%ld", (long)child);
  unlink(in_folder(door));
  close(fork_pipe[0]);
  close(fork_pipe[1]);
}

/* ---- while it is written ---- */

static atomic_bool going;
static void *churn(void *arg) {
  gap_heap *heap = arg;
  for (uint64_t i = 0; atomic_load(&going); i++) {
    gap_addr addr = api_get(heap, 8, 512 * (1 + i % 5000));
    api_give(heap, addr);
  }
  return NULL;
}

struct publisher {
  struct gap__sheet *sheet;
  gap_heap *heap;
};
static void *publish(void *arg) {
  struct publisher *p = arg;
  while (atomic_load(&going)) gap__sheet_publish(p->sheet, &p->heap, 1);
  return NULL;
}

static bool read_file(void *arg, void *out, size_t bytes, uint64_t offset) {
  return pread(*(int *)arg, out, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* Published again and again without a pause: whatever is read is of one moment. */
static void what_is_read_is_whole(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 256 * MIB, "serve:False,page_maker:False");
  struct gap__sheet sheet;
  pthread_t threads[2];
  uint32_t seen = 0;
  mkdir(in_folder(""), 0700);
  int folder = open(in_folder(""), O_RDONLY | O_DIRECTORY);
  assert_int_equal(gap__sheet_make(&sheet, folder), 0);
  int fd = open(sheet_of(getpid()), O_RDONLY);
  atomic_store(&going, true);
  assert_int_equal(pthread_create(&threads[0], NULL, churn, heap), 0);
  assert_int_equal(pthread_create(&threads[1], NULL, publish, &(struct publisher){&sheet, heap}), 0);
  for (uint64_t until = now_ns() + 1000000000; now_ns() < until || (seen < 10 && now_ns() < until + 9000000000);) {
    struct gap__sheet_view view;
    assert_int_equal(gap__sheet_parse(read_file, &fd, &view), 0);
    for (uint32_t i = 0; i < view.device_count; i++, seen++) {
      const struct gap__sheet_device *device = gap__sheet_device(&view, i);
      int64_t held = gap__sheet_value(&view, i, "reserved_bytes.all.current");
      int64_t small = gap__sheet_value(&view, i, "reserved_bytes.small_pool.current");
      int64_t large = gap__sheet_value(&view, i, "reserved_bytes.large_pool.current");
      assert_int_equal(held, small + large);
      assert_true(device->usage_count <= 1);
      assert_string_equal(device->strategy, "gapless");
    }
    gap__sheet_view_free(&view);
  }
  atomic_store(&going, false);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  assert_true(seen >= 10);
  close(fd);
  gap__sheet_remove_name(&sheet, folder);
  gap__sheet_close(&sheet);
  close(folder);
  api_close(heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_sheet_tells_what_the_process_would),
      cmocka_unit_test(streams_and_pools_are_told),
      cmocka_unit_test(a_glance_changes_nothing),
      cmocka_unit_test(a_glance_adds_up),
      cmocka_unit_test(only_the_user_may_read_it),
      cmocka_unit_test(without_serve_there_is_none),
      cmocka_unit_test(a_link_is_not_followed),
      cmocka_unit_test(a_reader_follows_no_link),
      cmocka_unit_test(the_end_takes_it_away),
      cmocka_unit_test(a_sheet_is_what_its_name_says),
      cmocka_unit_test(a_stopped_process_is_seen),
      cmocka_unit_test(a_child_does_not_keep_it),
      cmocka_unit_test(what_is_read_is_whole),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
