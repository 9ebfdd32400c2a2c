/* Comparisons of arbitrary bytes: a history is the same as itself, and its parts add up; against another one every sum holds. */
#include <string.h>

#include "compare/diff.h"
#include "fuzz.h"

static int take(struct gap__measure *side, const uint8_t *data, size_t bytes) {
  struct gap__measure_options options = {.device = -1, .step = -1};
  struct gap__history *history;
  char *text, message[256];
  int rc = gap__history_read_memory(data, bytes, &history, &text);
  free(text);
  return rc ? rc : gap__measure_history(side, history, &options, message, sizeof message);
}

static void check_words(const struct gap_diff *diff) {
  char *words = gap__diff_words(diff, 100, 10), *json = gap__diff_json(diff, 0);
  FUZZ_CHECK(words && json && strchr(json, '\n') == NULL);
  free(words);
  free(json);
}

static void check_with_itself(const struct gap_diff *diff) {
  FUZZ_CHECK(diff->is_same);
  for (int cut = 0; cut < GAP__CUT_COUNT; cut++)
    for (uint32_t i = 0; i < diff->pairs[cut].count; i++) FUZZ_CHECK(gap__pair_change(&diff->pairs[cut].at[i]) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct gap_diff diff = {0};
  if (take(&diff.sides[0], data, bytes) == 0 && take(&diff.sides[1], data, bytes) == 0) {
    FUZZ_CHECK(gap__diff_find(&diff) == 0);
    check_with_itself(&diff);
    check_words(&diff);
  }
  gap__diff_free(&diff);
  return 0;
}
