/* The input window: every encoding gives the same bytes, and what is cut or corrupt is named with its place. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gapless/gapless.h"
#include "trace/input.h"

static unsigned char *load(const char *name, size_t *count) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", GAP_TEST_DATA, name);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  unsigned char *bytes = malloc(1 << 20);
  *count = fread(bytes, 1, 1 << 20, file);
  fclose(file);
  return bytes;
}

/* Takes everything, in pieces of an awkward length. */
static int take_all(struct gap__input *input, unsigned char *to, size_t room, size_t *total, char **message) {
  size_t got = 1;
  int rc = 0;
  for (*total = 0; !rc && got; *total += got) {
    size_t want = room - *total < 777 ? room - *total : 777;
    got = 0;
    rc = gap__input_take(input, to + *total, want, &got, message);
  }
  return rc;
}

static void expect_file(const char *name, const unsigned char *wanted, size_t wanted_bytes) {
  char path[512], *message = NULL;
  unsigned char bytes[8192];
  struct gap__input input;
  size_t total;
  snprintf(path, sizeof path, "%s/%s", GAP_TEST_DATA, name);
  assert_int_equal(gap__input_open(&input, path, NULL, NULL, &message), 0);
  assert_int_equal(take_all(&input, bytes, sizeof bytes, &total, &message), 0);
  assert_int_equal(total, wanted_bytes);
  assert_memory_equal(bytes, wanted, wanted_bytes);
  assert_true(input.at_end);
  assert_int_equal(gap__input_position(&input), wanted_bytes);
  gap__input_close(&input);
}

/* The compressed files are each two members or frames one behind the other. */
static void every_encoding_gives_the_same_bytes(void **state) {
  (void)state;
  size_t count;
  unsigned char *wanted = load("made/small.4.pickle", &count);
  expect_file("made/small.4.pickle", wanted, count);
  expect_file("made/small.pickle.gz", wanted, count);
  expect_file("made/small.pickle.xz", wanted, count);
  expect_file("made/small.pickle.zst", wanted, count);
  free(wanted);
}

static int drain_memory(const unsigned char *bytes, size_t count, char **message) {
  struct gap__input input;
  int rc = gap__input_open_memory(&input, bytes, count, message);
  if (!rc) rc = gap__input_drain(&input, message);
  gap__input_close(&input);
  return rc;
}

/* Not where a member has just ended: there a shorter file is a whole one. */
static void a_cut_compressed_file_is_an_error(void **state) {
  static const char *const names[] = {"made/small.pickle.gz", "made/small.pickle.xz", "made/small.pickle.zst"};
  (void)state;
  for (unsigned i = 0; i < 3; i++) {
    size_t count, whole = 0;
    unsigned char *bytes = load(names[i], &count);
    for (size_t cut = 8; cut < count; cut++) {
      char *message = NULL;
      int rc = drain_memory(bytes, cut, &message);
      whole += rc == 0;
      assert_true(rc == 0 || rc == GAP_EFORMAT);
      if (rc) assert_non_null(strstr(message, "byte "));
      free(message);
    }
    assert_true(whole <= 1);
    free(bytes);
  }
}

static void a_corrupt_compressed_file_is_an_error(void **state) {
  static const char *const names[] = {"made/small.pickle.gz", "made/small.pickle.xz"};
  (void)state;
  for (unsigned i = 0; i < 2; i++) {
    char *message = NULL;
    size_t count;
    unsigned char *bytes = load(names[i], &count);
    bytes[count / 3] ^= 0x55;
    assert_int_equal(drain_memory(bytes, count, &message), GAP_EFORMAT);
    assert_non_null(strstr(message, "corrupt"));
    free(message);
    free(bytes);
  }
}

static void a_missing_file_is_told(void **state) {
  struct gap__input input;
  char *message = NULL;
  (void)state;
  assert_int_equal(gap__input_open(&input, "/nowhere/at all", NULL, NULL, &message), GAP_EIO);
  assert_non_null(strstr(message, "No such file")); /* its name is what the caller knows */
  free(message);
  message = NULL;
  assert_int_equal(gap__input_open(&input, "/", NULL, NULL, &message), GAP_EIO); /* opens, but cannot be read */
  assert_non_null(strstr(message, "directory"));
  free(message);
}

static void an_empty_input_is_at_its_end(void **state) {
  struct gap__input input;
  char *message = NULL;
  (void)state;
  assert_int_equal(gap__input_open_memory(&input, "", 0, &message), 0);
  assert_true(input.at_end && input.next == input.end);
  gap__input_close(&input);
}

/* More than a window: the bytes come in order and the slack rule holds at every step. */
static void the_window_slides(void **state) {
  enum { COUNT = 1000000 };
  unsigned char *bytes = malloc(COUNT);
  struct gap__input input;
  char *message = NULL;
  size_t at = 0;
  (void)state;
  for (size_t i = 0; i < COUNT; i++) bytes[i] = (unsigned char)(i * 2654435761u >> 13);
  assert_int_equal(gap__input_open_memory(&input, bytes, COUNT, &message), 0);
  while (at < COUNT) {
    size_t step = 1 + at % 500;
    assert_int_equal(gap__input_fill(&input, &message), 0);
    size_t have = (size_t)(input.end - input.next);
    assert_true(input.at_end || have >= GAP__INPUT_SLACK);
    if (step > have) step = have;
    assert_int_equal(gap__input_position(&input), at);
    assert_memory_equal(input.next, bytes + at, step);
    input.next += step;
    at += step;
  }
  gap__input_close(&input);
  free(bytes);
}

struct seen {
  uint64_t last, total;
  unsigned calls;
};

static void note(void *arg, uint64_t done, uint64_t total) {
  struct seen *seen = arg;
  assert_true(done > seen->last && done <= total);
  seen->last = done;
  seen->total = total;
  seen->calls++;
}

static void progress_reaches_the_file_size(void **state) {
  char path[512], *message = NULL;
  struct gap__input input;
  struct seen seen = {0};
  (void)state;
  snprintf(path, sizeof path, "%s/llama_sft.pickle.xz", GAP_TEST_DATA);
  assert_int_equal(gap__input_open(&input, path, note, &seen, &message), 0);
  assert_int_equal(gap__input_drain(&input, &message), 0);
  gap__input_close(&input);
  assert_true(seen.calls > 1);
  assert_int_equal(seen.last, seen.total);
}

static void a_dash_is_standard_input(void **state) {
  char path[512], *message = NULL;
  struct gap__input input;
  unsigned char bytes[8192], *wanted;
  size_t count, total;
  (void)state;
  snprintf(path, sizeof path, "%s/made/small.pickle.gz", GAP_TEST_DATA);
  int kept = dup(STDIN_FILENO), file = open(path, O_RDONLY);
  assert_true(file >= 0 && dup2(file, STDIN_FILENO) == STDIN_FILENO);
  assert_int_equal(gap__input_open(&input, "-", NULL, NULL, &message), 0);
  assert_int_equal(take_all(&input, bytes, sizeof bytes, &total, &message), 0);
  gap__input_close(&input);
  wanted = load("made/small.4.pickle", &count);
  assert_int_equal(total, count);
  assert_memory_equal(bytes, wanted, count);
  free(wanted);
  dup2(kept, STDIN_FILENO);
  close(kept);
  close(file);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_encoding_gives_the_same_bytes),   cmocka_unit_test(a_cut_compressed_file_is_an_error),
      cmocka_unit_test(a_corrupt_compressed_file_is_an_error), cmocka_unit_test(a_missing_file_is_told),
      cmocka_unit_test(an_empty_input_is_at_its_end),          cmocka_unit_test(the_window_slides),
      cmocka_unit_test(progress_reaches_the_file_size),        cmocka_unit_test(a_dash_is_standard_input),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
