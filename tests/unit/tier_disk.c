/* The disk: what is written is read again, by both ways; a full file system, a size that is used up, a torn file, a file that can no
 * longer be written, limits on files, and a ring that is denied. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "gapless/gapless.h"
#include "tier/disk.h"

#define MIB ((uint64_t)1 << 20)
#define UNIT GAP__DISK_UNIT

enum { CANNOT = 77 }; /* status of a child that is not allowed what it needs */

static char folder[] = "/tmp/tier_disk.XXXXXX";

static void in_child(int (*what)(void)) {
  pid_t child = fork();
  if (child == 0) _exit(what());
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT) skip();
  assert_int_equal(status, 0);
}

static int make_folder(void **state) {
  (void)state;
  return mkdtemp(folder) ? 0 : -1;
}
static int remove_folder(void **state) {
  (void)state;
  return rmdir(folder); /* nothing is left in it */
}

static unsigned char *memory_of(uint64_t bytes) {
  void *got = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(got != MAP_FAILED);
  return got;
}

static void fill(unsigned char *at, uint64_t bytes, uint64_t seed) {
  for (uint64_t i = 0; i < bytes; i += 8) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    memcpy(at + i, &seed, 8);
  }
}

static struct gap__disk open_disk(uint64_t most, bool plain) {
  struct gap__disk d;
  assert_int_equal(gap__disk_open(&d, folder, most, plain), 0);
  assert_int_equal(d.units_most, most / UNIT);
  return d;
}

static void round_trip(bool plain) {
  struct gap__disk d = open_disk(64 * MIB, plain);
  assert_true(!plain || !d.io.ringed);
  unsigned char *out = memory_of(24 * MIB), *in = memory_of(24 * MIB);
  uint32_t first[4], got;
  fill(out, 24 * MIB, 5);
  for (unsigned i = 0; i < 4; i++) { /* four transfers at once, more operations than the ring is deep */
    assert_int_equal(gap__disk_take(&d, 3, &first[i], &got), 0);
    assert_int_equal(got, 3);
    gap__disk_begin(&d, i, true, out + i * 6 * MIB, first[i], 3);
  }
  for (unsigned i = 0; i < 4; i++) assert_int_equal(gap__disk_wait(&d, i), 0);
  for (unsigned i = 0; i < 4; i++) gap__disk_begin(&d, 7 - i, false, in + i * 6 * MIB, first[i], 3);
  for (unsigned i = 0; i < 4; i++) assert_int_equal(gap__disk_wait(&d, 7 - i), 0);
  assert_memory_equal(in, out, 24 * MIB);
  munmap(out, 24 * MIB);
  munmap(in, 24 * MIB);
  gap__disk_close(&d);
}
static void round_trip_by_ring(void **state) {
  (void)state;
  round_trip(false);
}
static void round_trip_plainly(void **state) {
  (void)state;
  round_trip(true);
}

static uint64_t held_by_file(const struct gap__disk *d) {
  struct stat about;
  assert_int_equal(fstat(d->file, &about), 0);
  return (uint64_t)about.st_blocks * 512;
}

/* Holes are made behind the caller. */
static void await_holes(struct gap__disk *d) {
  uint64_t at;
  assert_int_equal(gap__io_wait(&d->io, GAP__DISK_HOLES, &at), 0);
}

/* Units are used again, side by side where they are. */
static void space(void **state) {
  (void)state;
  struct gap__disk d = open_disk(20 * MIB, false);
  uint32_t a, b, c, got;
  assert_int_equal(gap__disk_take(&d, 4, &a, &got), 0);
  assert_int_equal(got, 4);
  assert_int_equal(gap__disk_take(&d, 4, &b, &got), 0);
  assert_int_equal(gap__disk_take(&d, 4, &c, &got), 0);
  assert_int_equal(got, 2);
  assert_int_equal(gap__disk_unused(&d), 0);
  assert_int_equal(gap__disk_take(&d, 1, &c, &got), GAP_ELIMIT);
  assert_non_null(strstr(d.refusal, "all of the 20 MiB that tiers allows"));
  gap__disk_give(&d, b, 2);
  assert_int_equal(gap__disk_take(&d, 8, &c, &got), 0);
  assert_true(c == b && got == 2);
  gap__disk_give(&d, a, 4);
  gap__disk_give(&d, b, 4);
  gap__disk_tidy(&d);
  assert_int_equal(d.units_held, d.units_used + 8); /* few */
  gap__disk_give(&d, 8, 2);
  gap__disk_tidy(&d);
  assert_int_equal(d.units_held, 0);
  await_holes(&d);
  assert_true(held_by_file(&d) <= MIB);
  gap__disk_close(&d);
}

/* Space is had by strides, and goes back when a stride of it is unused, wherever it lies. */
static void space_by_strides(void **state) {
  (void)state;
  struct gap__disk d = open_disk(5 * GAP__DISK_STRIDE * UNIT, false);
  uint32_t first, got;
  for (uint32_t i = 0; i < 2 * GAP__DISK_STRIDE + 2; i += 2) {
    assert_int_equal(gap__disk_take(&d, 2, &first, &got), 0);
    assert_true(first == i && got == 2);
  }
  assert_int_equal(d.units_held, 3 * GAP__DISK_STRIDE);
  bool tells =
      held_by_file(&d) >= 3 * GAP__DISK_STRIDE * UNIT; /* a file system may take no space before it is written */
  gap__disk_tidy(&d);
  assert_int_equal(d.units_held, 3 * GAP__DISK_STRIDE);
  gap__disk_give(&d, 0, 1);
  gap__disk_give(&d, 7, 3);
  gap__disk_tidy(&d);
  assert_int_equal(d.units_held, d.units_used);
  await_holes(&d);
  assert_true(!tells || held_by_file(&d) <= (uint64_t)d.units_used * UNIT + MIB);
  assert_int_equal(gap__disk_take(&d, 4, &first, &got), 0);
  assert_true(first == 0 && got == 1);
  assert_int_equal(d.units_held, d.units_used); /* all between uses is held */
  assert_int_equal(gap__disk_take(&d, 4, &first, &got), 0);
  assert_true(first == 7 && got == 3);
  gap__disk_close(&d);
}

/* Space that goes back in the background and is wanted again at once: a hole may not swallow what is written next, and it is not for
 * who gives back to wait. */
static void space_again_at_once(bool plain) {
  enum { UNITS = 32 };
  struct gap__disk d = open_disk(UNITS * UNIT, plain);
  unsigned char *out = memory_of(UNITS * UNIT), *in = memory_of(UNITS * UNIT);
  uint32_t first, got;
  for (unsigned round = 0; round < 8; round++) {
    fill(out, UNITS * UNIT, round);
    assert_int_equal(gap__disk_take(&d, UNITS, &first, &got), 0);
    assert_true(first == 0 && got == UNITS && d.io.transfers[GAP__DISK_HOLES].left == 0);
    gap__disk_begin(&d, 0, true, out, first, UNITS);
    assert_int_equal(gap__disk_wait(&d, 0), 0);
    gap__disk_begin(&d, 1, false, in, first, UNITS);
    assert_int_equal(gap__disk_wait(&d, 1), 0);
    assert_memory_equal(in, out, UNITS * UNIT);
    gap__disk_give(&d, first, UNITS);
    gap__disk_tidy(&d);
    assert_int_equal(d.units_held, 0);
    assert_int_equal(d.io.transfers[GAP__DISK_HOLES].left, d.io.ringed ? 1 : 0);
  }
  gap__disk_close(&d);
  munmap(out, UNITS * UNIT);
  munmap(in, UNITS * UNIT);
}
static void space_again_by_ring(void **state) {
  (void)state;
  space_again_at_once(false);
}
static void space_again_plainly(void **state) {
  (void)state;
  space_again_at_once(true);
}

/* On a file system that has less than what goes back, whoever gives back waits: the next one who needs as much finds it. */
static int tight_in_child(void) {
  struct gap__disk d;
  uint32_t first, got;
  if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) return 77;
  if (mount("none", folder, "tmpfs", 0, "size=80M")) return 77;
  if (gap__disk_open(&d, folder, 32 * MIB, false)) return 1;
  if (!d.io.ringed) return 77;
  int other = open(folder, O_TMPFILE | O_RDWR, 0600);
  for (int tight = 0; tight < 2; tight++) {
    if (tight && (other < 0 || fallocate(other, 0, 0, 32 * MIB))) return 2;
    if (gap__disk_take(&d, 16, &first, &got) || got != 16) return 3;
    gap__disk_give(&d, first, got);
    gap__disk_tidy(&d);
    if (d.io.transfers[GAP__DISK_HOLES].left != (tight ? 0 : 1)) return 4;
  }
  if (held_by_file(&d) > MIB) return 5;
  gap__disk_close(&d);
  close(other);
  return 0;
}
static void tight(void **state) {
  (void)state;
  in_child(tight_in_child); /* which may not be allowed to mount, or have no ring */
}

static void no_such_folder(void **state) {
  (void)state;
  struct gap__disk d;
  assert_int_equal(gap__disk_open(&d, "/nowhere at all", 20 * MIB, false), GAP_EIO);
  assert_non_null(strstr(d.refusal, "/nowhere at all: no file can be made there"));
}

static void without_a_size(void **state) {
  (void)state;
  struct gap__disk d;
  assert_int_equal(gap__disk_open(&d, folder, 0, false), 0);
  assert_true(d.units_most > 0);
  gap__disk_close(&d);
}

/* The file is cut behind our back. */
static void torn(bool plain) {
  struct gap__disk d = open_disk(20 * MIB, plain);
  unsigned char *out = memory_of(4 * MIB);
  uint32_t first, got;
  fill(out, 4 * MIB, 8);
  assert_int_equal(gap__disk_take(&d, 2, &first, &got), 0);
  gap__disk_begin(&d, 0, true, out, first, 2);
  assert_int_equal(gap__disk_wait(&d, 0), 0);
  assert_int_equal(ftruncate(d.file, 3 * MIB + 8192), 0);
  gap__disk_begin(&d, 0, false, out, first, 2);
  assert_int_equal(gap__disk_wait(&d, 0), GAP_EIO);
  assert_non_null(strstr(d.refusal, "the file ends where it should not, at byte 3153920"));
  gap__disk_begin(&d, 0, false, out, first, 1); /* what is whole can still be read */
  assert_int_equal(gap__disk_wait(&d, 0), 0);
  munmap(out, 4 * MIB);
  gap__disk_close(&d);
}
static void torn_by_ring(void **state) {
  (void)state;
  torn(false);
}
static void torn_plainly(void **state) {
  (void)state;
  torn(true);
}

/* Writes are refused from some moment on: the file is another one, which may only be read. */
static void unwritable(bool plain) {
  struct gap__disk d = open_disk(20 * MIB, plain);
  unsigned char *out = memory_of(2 * MIB);
  uint32_t first, got;
  assert_int_equal(gap__disk_take(&d, 1, &first, &got), 0);
  int other = open("/dev/null", O_RDONLY);
  assert_true(other >= 0 && dup2(other, d.file) == d.file);
  close(other);
  gap__disk_begin(&d, 3, true, out, first, 1);
  assert_int_equal(gap__disk_wait(&d, 3), GAP_EIO);
  assert_non_null(strstr(d.refusal, strerror(EBADF)));
  assert_int_equal(gap__disk_wait(&d, 3), 0); /* it is told once */
  munmap(out, 2 * MIB);
  gap__disk_close(&d);
}
static void unwritable_by_ring(void **state) {
  (void)state;
  unwritable(false);
}
static void unwritable_plainly(void **state) {
  (void)state;
  unwritable(true);
}

/* A file system without space, told before anything is written.  The limit on the size of files stands for it, in a child. */
static int full_in_child(void) {
  struct gap__disk d;
  uint32_t first, got;
  signal(SIGXFSZ, SIG_IGN);
  if (gap__disk_open(&d, folder, 20 * MIB, false)) return 1;
  struct rlimit limit = {4 * MIB, 4 * MIB};
  setrlimit(RLIMIT_FSIZE, &limit);
  if (gap__disk_take(&d, 2, &first, &got)) return 2;
  if (gap__disk_take(&d, 1, &first, &got) != GAP_EIO || d.units_used != 2) return 3;
  return strstr(d.refusal, "no more space for what is to be kept") ? 0 : 4;
}
/* A limit on the size of files from the start, and a process that a larger file would end. */
static int limited_in_child(void) {
  struct gap__disk d;
  uint32_t first, got;
  struct rlimit limit = {5 * MIB, 5 * MIB};
  setrlimit(RLIMIT_FSIZE, &limit);
  if (gap__disk_open(&d, folder, 20 * MIB, false)) return 1;
  if (gap__disk_take(&d, 4, &first, &got) || got != 2) return 2;
  if (gap__disk_take(&d, 1, &first, &got) != GAP_ELIMIT) return 3;
  limit.rlim_cur = 1000;
  setrlimit(RLIMIT_FSIZE, &limit);
  if (gap__disk_open(&d, folder, 20 * MIB, false) != GAP_EIO) return 4;
  return strstr(d.refusal, "there is no room for a file of 2 MiB") ? 0 : 5;
}

/* ---- what a container denies ---- */

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF(test, value, yes, no) BPF_JUMP(BPF_JMP | (test) | BPF_K, (value), (yes), (no))
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, (value))

static bool enter(struct sock_filter *rules, unsigned short count) {
  struct sock_fprog program = {.len = count, .filter = rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* From now on this process has no io_uring, or no O_DIRECT, or neither. */
static bool deny(bool rings, bool direct) {
  struct sock_filter rules[] = {
      LOAD(nr),
      IF(BPF_JEQ, __NR_io_uring_setup, 0, 1),
      ANSWER(rings ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_ALLOW),
      IF(BPF_JEQ, __NR_fcntl, 0, 5),
      LOAD(args[1]),
      IF(BPF_JEQ, F_SETFL, 0, 3),
      LOAD(args[2]),
      IF(BPF_JSET, O_DIRECT, 0, 1),
      ANSWER(direct ? SECCOMP_RET_ERRNO | EINVAL : SECCOMP_RET_ALLOW),
      ANSWER(SECCOMP_RET_ALLOW),
  };
  return enter(rules, sizeof rules / sizeof *rules);
}

/* A sandbox that the process enters: the system call of the ring is not allowed any more. */
static bool deny_ring(void) {
  struct sock_filter rules[] = {LOAD(nr), IF(BPF_JEQ, __NR_io_uring_enter, 0, 1), ANSWER(SECCOMP_RET_ERRNO | EPERM),
                                ANSWER(SECCOMP_RET_ALLOW)};
  return enter(rules, sizeof rules / sizeof *rules);
}

static int ring_denied_in_child(void) {
  struct gap__disk d;
  uint32_t first, got;
  unsigned char *out = memory_of(6 * MIB), *in = memory_of(6 * MIB);
  fill(out, 6 * MIB, 9);
  if (gap__disk_open(&d, folder, 20 * MIB, false) || gap__disk_take(&d, 3, &first, &got) || got != 3) return 1;
  gap__disk_begin(&d, 0, true, out, first, 3);
  if (gap__disk_wait(&d, 0)) return 2;
  if (!deny_ring()) return CANNOT;
  for (int round = 0; round < 2; round++) {
    memset(in, 0, 6 * MIB);
    gap__disk_begin(&d, 1, false, in, first, 3);
    if (gap__disk_wait(&d, 1) || memcmp(in, out, 6 * MIB) != 0) return 3;
    fill(out, 6 * MIB, 10);
    gap__disk_begin(&d, 0, true, out, first, 3);
    if (gap__disk_wait(&d, 0)) return 4;
  }
  gap__disk_close(&d);
  return 0;
}

static void full(void **state) {
  (void)state;
  in_child(full_in_child);
}
static void limited(void **state) {
  (void)state;
  in_child(limited_in_child);
}
static void denied_later(void **state) {
  (void)state;
  in_child(ring_denied_in_child);
}

static int lines;
static char line[512];
static void hear(void *arg, int level, const char *message) {
  (void)arg;
  lines += level == GAP__LOG_WARNING;
  snprintf(line, sizeof line, "%s", message);
}

/* In a child: the disk works all the same, and one line says what it lacks. */
static struct { bool rings, direct; } denials[] = {{true, false}, {false, true}, {true, true}}, *denial;
static int denied_in_child(void) {
  bool rings = denial->rings, direct = denial->direct;
  struct gap__disk d;
  uint32_t first, got;
  if (!deny(rings, direct)) return CANNOT;
  gap_set_log(hear, NULL);
  if (gap__disk_open(&d, folder, 20 * MIB, false)) return 1;
  if ((rings && d.io.ringed) || (direct && d.direct)) return 2;
  unsigned char *out = memory_of(4 * MIB), *in = memory_of(4 * MIB);
  fill(out, 4 * MIB, 3);
  if (gap__disk_take(&d, 2, &first, &got)) return 3;
  gap__disk_begin(&d, 0, true, out, first, 2);
  if (gap__disk_wait(&d, 0)) return 4;
  gap__disk_begin(&d, 0, false, in, first, 2);
  if (gap__disk_wait(&d, 0) || memcmp(in, out, 4 * MIB) != 0) return 5;
  gap__disk_close(&d);
  if (lines != 1 || !strstr(line, folder)) return 6;
  return (rings && !strstr(line, "no io_uring (")) || (direct && !strstr(line, "no O_DIRECT")) ? 7 : 0;
}
static void denied(void **state) {
  (void)state;
  for (denial = denials; denial < denials + 3; denial++) in_child(denied_in_child);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip_by_ring),
                                     cmocka_unit_test(round_trip_plainly),
                                     cmocka_unit_test(space),
                                     cmocka_unit_test(space_by_strides),
                                     cmocka_unit_test(space_again_by_ring),
                                     cmocka_unit_test(space_again_plainly),
                                     cmocka_unit_test(tight),
                                     cmocka_unit_test(no_such_folder),
                                     cmocka_unit_test(without_a_size),
                                     cmocka_unit_test(torn_by_ring),
                                     cmocka_unit_test(torn_plainly),
                                     cmocka_unit_test(unwritable_by_ring),
                                     cmocka_unit_test(unwritable_plainly),
                                     cmocka_unit_test(full),
                                     cmocka_unit_test(denied),
                                     cmocka_unit_test(limited),
                                     cmocka_unit_test(denied_later)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
