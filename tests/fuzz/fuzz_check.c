/* Limits and saved figures of arbitrary bytes: what is before the first 0 is a limit, what is after it a file of figures.  Both are
 * refused or taken; what was taken is held against itself, put into words, and saved and read again. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compare/check.h"
#include "fuzz.h"
#include "gapless/gapless.h"

static int read_figures(const void *data, size_t bytes, struct gap__figures_set *set) {
  char path[40], message[256] = "";
  int fd = memfd_create("figures", MFD_CLOEXEC);
  FUZZ_CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  int rc = gap__baseline_read(path, set, message, sizeof message);
  close(fd);
  FUZZ_CHECK(rc == 0 || rc == GAP_ENOTSUP || (rc == GAP_EFORMAT && message[0]));
  return rc;
}

static void save_and_read(const struct gap__figures_set *set) {
  struct gap__figures_set again = {0};
  char *text = gap__baseline_json(set);
  FUZZ_CHECK(text && read_figures(text, strlen(text), &again) == 0);
  for (int i = 0; i < GAP__FIGURE_COUNT; i++) FUZZ_CHECK(set->at[i].known == again.at[i].known);
  gap__figures_set_free(&again);
  free(text);
}

static void check_words(const struct gap_limits *check) {
  char *words = gap__limits_words(check), *json = gap__limits_json(check, check->files),
       *junit = gap__limits_junit(check);
  FUZZ_CHECK(words && json && junit);
  free(words);
  free(json);
  free(junit);
}

/* A file whose figures are the baseline's passes every rule that allows more. */
static void judge(struct gap_limits *check) {
  struct gap__checked checked = {.figures = check->baseline};
  check->files = &checked;
  check->count = 1;
  gap__rules_default(check);
  gap__rules_judge(check, &checked);
  for (int i = 0; i < GAP__FIGURE_COUNT; i++)
    if (check->rules[i].kind == GAP__RULE_AMOUNT_OVER && check->baseline.at[i].known)
      FUZZ_CHECK(checked.results[i].answer == GAP_LIMITS_PASSED);
  check_words(check);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  const uint8_t *end = bytes ? memchr(data, 0, bytes) : NULL;
  size_t length = end ? (size_t)(end - data) : bytes;
  struct gap_limits check = {.options = {.tolerance = 0.05}};
  char *rule = calloc(length + 1, 1);
  FUZZ_CHECK(rule);
  if (length) memcpy(rule, data, length);
  for (int i = 0; i < GAP__FIGURE_COUNT; i++) {
    int rc = gap__rule_parse((enum gap__figure)i, rule, &check.rules[i]);
    FUZZ_CHECK(rc == (check.rules[i].kind == GAP__RULE_NONE ? GAP_EVALUE : 0));
    FUZZ_CHECK(check.rules[i].amount >= 0);
  }
  if (end && read_figures(end + 1, bytes - length - 1, &check.baseline) == 0) {
    judge(&check);
    save_and_read(&check.baseline);
  }
  gap__figures_set_free(&check.baseline);
  free(rule);
  return 0;
}
