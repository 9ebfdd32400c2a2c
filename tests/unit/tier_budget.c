/* Host budgets: what a machine has available, groups of versions 1 and 2, limits of parents, containers that see their own group
 * only.  A machine is a folder with the files that are read. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tier/budget.h"

#define GIB ((uint64_t)1 << 30)

static char root[] = "tier_budget.XXXXXX", made[16][512];
static unsigned made_count;

static void put(const char *path, const char *text) {
  char whole[512];
  snprintf(whole, sizeof whole, "%s/%s", root, path);
  for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
    *at = '\0';
    mkdir(whole, 0700);
    *at = '/';
  }
  FILE *file = fopen(whole, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
  strcpy(made[made_count++], whole);
}

static int begin(void **state) {
  (void)state;
  strcpy(root, "tier_budget.XXXXXX");
  made_count = 0;
  return mkdtemp(root) ? 0 : -1;
}
static int end(void **state) {
  (void)state;
  for (unsigned i = 0; i < made_count; i++) {
    remove(made[i]);
    for (char *slash; (slash = strrchr(made[i], '/')) != NULL && remove((*slash = '\0', made[i])) == 0;) continue;
  }
  return 0;
}

static struct gap__budget look(void) {
  struct gap__budget out;
  gap__budget_look(root, &out);
  return out;
}

static void memory(const char *available_kib) {
  char text[200];
  snprintf(text, sizeof text, "MemTotal:  99999999 kB\nMemFree: 1 kB\nMemAvailable:  %s kB\n", available_kib);
  put("proc/meminfo", text);
}

static uint64_t room(uint64_t locked) {
  struct gap__budget now = look();
  return gap__budget_room(&now, locked);
}

static void nothing_to_read(void **state) {
  (void)state;
  struct gap__budget b = look();
  assert_true(b.available_bytes == UINT64_MAX && b.group_bytes == UINT64_MAX && gap__budget_room(&b, 5) == UINT64_MAX);
}

static void no_group(void **state) {
  (void)state;
  memory("10485760");
  struct gap__budget b = look();
  assert_int_equal(b.available_bytes, 10 * GIB);
  assert_int_equal(b.group_bytes, UINT64_MAX);
  assert_int_equal(gap__budget_room(&b, 0), 10 * GIB / 5 * 4);
}

static void version2_own_group(void **state) {
  (void)state;
  memory("104857600");
  put("proc/self/cgroup", "0::/user/job\n");
  put("sys/fs/cgroup/user/job/memory.max", "2147483648\n");
  put("sys/fs/cgroup/user/job/memory.current", "1073741824\n");
  put("sys/fs/cgroup/user/job/memory.stat", "anon 5\ninactive_file 536870912\nactive_file 7\n");
  assert_int_equal(look().group_bytes, 3 * GIB / 2);
  assert_int_equal(room(0), 3 * GIB / 2 / 5 * 4);
}

static void a_parent_is_tighter(void **state) {
  (void)state;
  memory("104857600");
  put("proc/self/cgroup", "0::/user/job\n");
  put("sys/fs/cgroup/user/job/memory.max", "max\n");
  put("sys/fs/cgroup/user/job/memory.current", "0\n");
  put("sys/fs/cgroup/user/memory.max", "4294967296\n");
  put("sys/fs/cgroup/user/memory.high", "3221225472\n");
  put("sys/fs/cgroup/user/memory.current", "1073741824\n");
  assert_int_equal(look().group_bytes, 2 * GIB);
}

static void a_container_sees_its_own_group_at_the_mount(void **state) {
  (void)state;
  memory("104857600");
  put("proc/self/cgroup", "0::/docker/0123456789\n");
  put("sys/fs/cgroup/memory.max", "2147483648\n");
  put("sys/fs/cgroup/memory.current", "2147483647\n");
  assert_int_equal(look().group_bytes, 1);
  assert_int_equal(room(0), 0);
}

static void version1(void **state) {
  (void)state;
  memory("104857600");
  put("proc/self/cgroup", "9:name=systemd:/\n5:cpu,memory:/job\n4:cpuset:/\n0::/\n");
  put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2147483648\n");
  put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "3221225472\n");
  put("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 2147483648\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "3221225472\n");
  assert_int_equal(look().group_bytes, GIB);
}

static void the_machine_is_tighter(void **state) {
  (void)state;
  memory("1048576");
  put("proc/self/cgroup", "0::/\n");
  put("sys/fs/cgroup/memory.max", "2147483648\n");
  put("sys/fs/cgroup/memory.current", "0\n");
  assert_int_equal(room(0), GIB / 5 * 4);
}

/* What is locked counts as if it were there still: small steps end where a large one does. */
static void growing_in_steps(void **state) {
  (void)state;
  memory("10485760");
  assert_int_equal(room(0), 8 * GIB);
  memory("2097152");
  assert_int_equal(room(8 * GIB), 0);
  memory("6291456");
  assert_int_equal(room(4 * GIB), 4 * GIB);
}

/* A figure that cannot be read is not one that does not exist: who locks without it is killed. */
static void no_descriptors_left(void **state) {
  (void)state;
  struct rlimit before, none;
  memory("10485760");
  put("proc/self/cgroup", "0::/\n");
  put("sys/fs/cgroup/memory.max", "2147483648\n");
  put("sys/fs/cgroup/memory.current", "0\n");
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  none = before;
  for (none.rlim_cur = 0; none.rlim_cur < 64;
       none.rlim_cur++) { /* some are open: each file in turn is the first that is not to be had */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    struct gap__budget b = look();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(gap__budget_room(&b, 0) <= 2 * GIB);
    if (none.rlim_cur == 0) assert_int_equal(b.unread, EMFILE);
  }
  assert_int_equal(look().unread, 0);
}

static void this_machine(void **state) {
  (void)state;
  struct gap__budget b;
  gap__budget_look("", &b);
  assert_true(gap__budget_room(&b, 0) > 0 && b.available_bytes != UINT64_MAX);
}

#define IN_FOLDER(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {IN_FOLDER(nothing_to_read),
                                     IN_FOLDER(no_group),
                                     IN_FOLDER(version2_own_group),
                                     IN_FOLDER(a_parent_is_tighter),
                                     IN_FOLDER(a_container_sees_its_own_group_at_the_mount),
                                     IN_FOLDER(version1),
                                     IN_FOLDER(the_machine_is_tighter),
                                     IN_FOLDER(growing_in_steps),
                                     IN_FOLDER(no_descriptors_left),
                                     cmocka_unit_test(this_machine)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
