/* The pinned pool: exactly the bytes that were asked for, runs of units, giving back, registrations that fail, budgets of a machine
 * and of a control group. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "dev/host/host.h"
#include "support/fault.h"
#include "tier/crew.h"
#include "tier/pinned.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

struct pool {
  struct gap__dev *dev;
  struct gap__allowance allowance;
  struct gap__pinned p;
};

static void open_pool(struct pool *pool, const char *root) {
  const struct gap__host_params params = {.total_bytes = 64 * MIB};
  memset(pool, 0, sizeof *pool);
  assert_int_equal(gap__host_create(0, &params, &pool->dev), 0);
  pool->allowance.root = root;
  gap__pinned_init(&pool->p, pool->dev, &pool->allowance);
}

static void close_pool(struct pool *pool) {
  gap__pinned_destroy(&pool->p);
  assert_int_equal(pool->allowance.locked_bytes, 0);
  assert_int_equal(gap__host_faults(pool->dev), 0);
  gap__dev_destroy(pool->dev);
}

/* What the kernel counts, not what we do. */
static uint64_t resident(void) {
  unsigned long long pages = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  assert_int_equal(fscanf(file, "%*u %llu", &pages), 1);
  fclose(file);
  return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void true_sizes(void **state) {
  (void)state;
  struct pool pool;
  open_pool(&pool, "");
  uint64_t before = resident();
  assert_int_equal(gap__pinned_resize(&pool.p, 150 * MIB), 0);
  assert_int_equal(pool.p.locked_bytes, 150 * MIB);
  assert_int_equal(pool.p.slab_count, 3);
  uint64_t took = resident() - before;
  assert_true(took >= 148 * MIB && took <= 150 * MIB * 103 / 100 + 2 * MIB);
  assert_int_equal(gap__pinned_resize(&pool.p, 151 * MIB), 0);
  assert_int_equal(pool.p.locked_bytes, 152 * MIB);
  assert_int_equal(gap__pinned_resize(&pool.p, 0), 0);
  assert_int_equal(pool.p.locked_bytes, 0);
  assert_true(resident() < before + 16 * MIB);
  close_pool(&pool);
}

static void runs(void **state) {
  (void)state;
  struct pool pool;
  unsigned char *a, *b, *c, *d;
  open_pool(&pool, "");
  assert_int_equal(gap__pinned_take(&pool.p, 1, &a), 0);
  assert_int_equal(gap__pinned_ensure(&pool.p, 70 * MIB), 0); /* 32 units and 3 */
  assert_int_equal(gap__pinned_take(&pool.p, 3, &a), 3);
  assert_int_equal(gap__pinned_take(&pool.p, 40, &b), 29); /* as long as one slab has */
  assert_true(b == a + 3 * GAP__UNIT_PAGE);
  assert_int_equal(gap__pinned_take(&pool.p, 40, &c), 3);
  assert_int_equal(gap__pinned_take(&pool.p, 1, &d), 0);
  assert_int_equal(pool.p.used_bytes, 70 * MIB);
  memset(a, 1, 6 * MIB);
  memset(b, 2, 58 * MIB);
  memset(c, 3, 6 * MIB);
  assert_true(a[6 * MIB - 1] == 1 && b[0] == 2 && c[0] == 3);
  gap__pinned_give(&pool.p, b + 4 * MIB, 2);
  assert_int_equal(gap__pinned_take(&pool.p, 5, &d), 2);
  assert_true(d == b + 4 * MIB);
  gap__pinned_give(&pool.p, b, 29);
  assert_int_equal(gap__pinned_resize(&pool.p, 0), 0);
  assert_int_equal(pool.p.locked_bytes, 70 * MIB); /* both slabs are used */
  gap__pinned_give(&pool.p, a, 3);
  assert_int_equal(gap__pinned_resize(&pool.p, 0), 0);
  assert_int_equal(pool.p.locked_bytes, 6 * MIB);
  assert_true(c[0] == 3 && c[6 * MIB - 1] == 3);
  assert_int_equal(gap__pinned_ensure(&pool.p, 2 * MIB), 0);
  gap__pinned_give(&pool.p, c, 3);
  assert_int_equal(pool.p.used_bytes, 0);
  close_pool(&pool);
}

/* The n-th registration fails: what was registered before stays and is counted, the rest is gone. */
static void registrations_fail(void **state) {
  (void)state;
  for (uint64_t nth = 1; nth <= 3; nth++) {
    struct pool pool;
    struct fault f;
    open_pool(&pool, "");
    fault_attach(&f, pool.dev, &(struct fault_plan){.kind = GAP__CALL_pin, .nth = nth, .code = GAP_EDEVICE});
    for (unsigned slab = 1; slab <= 3; slab++) {
      int rc = gap__pinned_resize(&pool.p, slab * 20 * MIB);
      assert_int_equal(rc, slab == nth ? GAP_EDEVICE : 0);
      assert_int_equal(pool.p.locked_bytes, (slab - (nth <= slab && slab == nth)) * 20 * MIB);
      if (rc) {
        assert_non_null(strstr(pool.p.refusal, "driver"));
        assert_int_equal(gap__pinned_resize(&pool.p, slab * 20 * MIB), 0);
      }
    }
    assert_int_equal(pool.allowance.locked_bytes, pool.p.locked_bytes);
    close_pool(&pool);
  }
}

static void what_the_driver_keeps_stays(void **state) {
  (void)state;
  struct pool pool;
  struct fault f;
  open_pool(&pool, "");
  fault_attach(&f, pool.dev, &(struct fault_plan){.kind = GAP__CALL_unpin, .nth = 1, .code = GAP_EDEVICE});
  assert_int_equal(gap__pinned_resize(&pool.p, 20 * MIB), 0);
  assert_int_equal(gap__pinned_resize(&pool.p, 0), GAP_EDEVICE);
  assert_int_equal(pool.p.locked_bytes, 20 * MIB);
  close_pool(&pool);
}

static void a_configured_limit(void **state) {
  (void)state;
  struct pool pool;
  open_pool(&pool, "");
  pool.allowance.most_bytes = 16 * MIB;
  assert_int_equal(gap__pinned_resize(&pool.p, 18 * MIB), GAP_ELIMIT);
  assert_non_null(strstr(pool.p.refusal, "16 MiB may be"));
  assert_non_null(strstr(pool.p.refusal, "the limit is that of tiers"));
  assert_int_equal(pool.p.locked_bytes, 0);
  assert_int_equal(gap__pinned_reach(&pool.p), 16 * MIB);
  assert_int_equal(gap__pinned_resize(&pool.p, 16 * MIB), 0);
  assert_int_equal(gap__pinned_ensure(&pool.p, 18 * MIB), GAP_ELIMIT);
  assert_int_equal(gap__pinned_resize(&pool.p, UINT64_MAX), GAP_EINVAL);
  close_pool(&pool);
}

/* A machine without files to look at: nothing limits it, and what it cannot have it does not get. */
static void beyond_all_addresses(void **state) {
  (void)state;
  struct pool pool;
  open_pool(&pool, "/nowhere/at/all");
  for (unsigned shift = 50; shift < 64; shift++)
    assert_int_equal(gap__pinned_resize(&pool.p, (uint64_t)1 << shift), GAP_ENOMETA);
  assert_int_equal(pool.p.locked_bytes, 0);
  assert_int_equal(gap__pinned_resize(&pool.p, 4 * MIB), 0);
  close_pool(&pool);
}

/* Runs are had from what is unused, from slabs of their own, and in the place of slabs that are too short. */
static void whole_runs(void **state) {
  (void)state;
  struct pool pool;
  unsigned char *a, *b, *c;
  open_pool(&pool, "");
  pool.allowance.most_bytes = 16 * MIB;
  for (uint64_t bytes = 2 * MIB; bytes <= 16 * MIB; bytes += 2 * MIB)
    assert_int_equal(gap__pinned_resize(&pool.p, bytes), 0);
  assert_int_equal(gap__pinned_take(&pool.p, 1, &a), 1);
  *a = 7;
  assert_int_equal(gap__pinned_take_run(&pool.p, 7, &b), 0);
  assert_int_equal(pool.p.used_bytes, 16 * MIB);
  memset(b, 1, 14 * MIB);
  assert_int_equal(gap__pinned_take_run(&pool.p, 1, &c), GAP_ELIMIT);
  gap__pinned_give(&pool.p, b, 7);
  assert_int_equal(gap__pinned_take_run(&pool.p, 8, &c), GAP_ELIMIT);
  assert_non_null(strstr(pool.p.refusal, "the limit is that of tiers"));
  assert_int_equal(*a, 7);
  gap__pinned_give(&pool.p, a, 1);
  close_pool(&pool);
}

static void put(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

/* A group of 64 MiB of which 4 are used: 48 may be locked, and not one more in small steps. */
static void a_control_group(void **state) {
  (void)state;
  struct pool pool;
  char root[] = "tier_pinned.XXXXXX", here[256];
  assert_non_null(mkdtemp(root));
  assert_non_null(getcwd(here, sizeof here));
  assert_int_equal(chdir(root), 0);
  for (const char *const *folder = (const char *const[]){"proc", "proc/self", "sys", "sys/fs", "sys/fs/cgroup", NULL};
       *folder; folder++)
    mkdir(*folder, 0700);
  put("proc/meminfo", "MemAvailable: 104857600 kB\n");
  put("proc/self/cgroup", "0::/\n");
  put("sys/fs/cgroup/memory.max", "67108864\n");
  put("sys/fs/cgroup/memory.current", "4194304\n");
  open_pool(&pool, ".");
  assert_int_equal(gap__pinned_resize(&pool.p, 50 * MIB), GAP_ELIMIT);
  assert_non_null(strstr(pool.p.refusal, "left in the control group: 60 MiB"));
  assert_int_equal(gap__pinned_resize(&pool.p, 48 * MIB), 0);
  put("sys/fs/cgroup/memory.current", "54525952\n");
  assert_int_equal(gap__pinned_resize(&pool.p, 50 * MIB), GAP_ELIMIT);
  close_pool(&pool);
  static const char *const files[] = {"proc/meminfo",
                                      "proc/self/cgroup",
                                      "proc/self",
                                      "proc",
                                      "sys/fs/cgroup/memory.max",
                                      "sys/fs/cgroup/memory.current",
                                      "sys/fs/cgroup",
                                      "sys/fs",
                                      "sys"};
  for (unsigned i = 0; i < sizeof files / sizeof *files; i++) remove(files[i]);
  assert_int_equal(chdir(here), 0);
  assert_int_equal(rmdir(root), 0);
}

/* ---- a real group, where one can be made ---- */

static bool write_file(const char *folder, const char *name, const char *text) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
  if (fd >= 0) close(fd);
  return done;
}

/* In the child: asks for too much, then for more and more until it is refused. */
static int greedy(void) {
  struct pool pool;
  uint64_t got = 0;
  open_pool(&pool, "");
  int rc = gap__pinned_resize(&pool.p, 4 * GIB);
  if (rc != GAP_ELIMIT || !strstr(pool.p.refusal, "control group")) return 2;
  while ((rc = gap__pinned_resize(&pool.p, got + 128 * MIB)) == 0) got += 128 * MIB;
  if (rc != GAP_ELIMIT || got < GIB || got > 2 * GIB) return 3;
  close_pool(&pool);
  return 0;
}

static const char *make_group(char path[200]) {
  static const char *const roots[][2] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                         {"/sys/fs/cgroup", "memory.max"}};
  for (unsigned i = 0; i < 2; i++) {
    snprintf(path, 200, "%s/gapless_test_%d", roots[i][0], (int)getpid());
    if (mkdir(path, 0700) == 0 && write_file(path, roots[i][1], "2147483648")) return path;
    rmdir(path);
  }
  return NULL;
}

static void a_real_group_of_2_gib(void **state) {
  (void)state;
  char path[200];
  struct gap__budget now;
  gap__budget_look("", &now);
  if (gap__budget_room(&now, 0) < 3 * GIB || !make_group(path)) {
    print_message("no control group can be made here, or there is too little memory\n");
    skip();
  }
  pid_t child = fork();
  if (child == 0) _exit(write_file(path, "cgroup.procs", "0") ? greedy() : 77);
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  for (int i = 0; i < 100 && rmdir(path); i++) usleep(10000);
  assert_true(WIFEXITED(status)); /* not killed */
  assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
}

/* ---- crews ---- */

struct tally {
  _Atomic uint32_t done[100];
  uint32_t bad;
};
static int note(void *arg, uint32_t index) {
  struct tally *tally = arg;
  atomic_fetch_add(&tally->done[index], 1);
  return index == tally->bad ? -7 : 0;
}

static void crews(void **state) {
  (void)state;
  for (uint32_t threads = 0; threads <= 4; threads += 2)
    for (int fails = 0; fails < 2; fails++) {
      struct tally tally = {.bad = fails ? 40 : 1000};
      struct gap__crew crew;
      gap__crew_start(&crew, threads, note, &tally);
      gap__crew_let(&crew, 1);
      gap__crew_let(&crew, 30);
      gap__crew_let(&crew, 20);
      gap__crew_let(&crew, 90);
      assert_int_equal(gap__crew_end(&crew), fails ? -7 : 0);
      for (uint32_t i = 0; i < 100; i++) assert_true(tally.done[i] == (i < 90) || (fails && i > 40 && !tally.done[i]));
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(true_sizes),
                                     cmocka_unit_test(runs),
                                     cmocka_unit_test(registrations_fail),
                                     cmocka_unit_test(what_the_driver_keeps_stays),
                                     cmocka_unit_test(a_configured_limit),
                                     cmocka_unit_test(beyond_all_addresses),
                                     cmocka_unit_test(whole_runs),
                                     cmocka_unit_test(a_control_group),
                                     cmocka_unit_test(a_real_group_of_2_gib),
                                     cmocka_unit_test(crews)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
