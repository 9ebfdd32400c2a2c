/* Explanations of arbitrary bytes: whatever the reader takes is explained, and the parts add up. */
#include <string.h>

#include "explain/altered.h"
#include "explain/report.h"
#include "explain/subject.h"
#include "fuzz.h"

static void check_sums(const struct gap__subject *subject) {
  const struct gap__figures *figures = &subject->figures;
  FUZZ_CHECK(figures->held == figures->live + figures->pending + figures->idle);
  FUZZ_CHECK(figures->idle == figures->returnable + figures->stuck && figures->returnable <= figures->idle);
  FUZZ_CHECK(figures->largest_own <= figures->own_idle && figures->own_idle <= figures->idle);
  FUZZ_CHECK(subject->verdict < GAP_EXPLAIN_VERDICT_COUNT);
  for (uint32_t i = 1; i < subject->steps.count; i++)
    FUZZ_CHECK(subject->steps.at[i].first == subject->steps.at[i - 1].end);
}

static void check_words(const struct gap__subject *subject) {
  char *words = gap__report_words(subject, 100), *json = gap__subject_json(subject, "file");
  FUZZ_CHECK(words && json && strchr(json, '\n') == NULL);
  free(words);
  free(json);
}

static void alter(const struct gap__subject *subject) {
  struct gap__altered altered = {0};
  FUZZ_CHECK(gap__altered_none(subject, &altered) == 0);
  gap__altered_free(&altered);
  FUZZ_CHECK(gap__altered_scale(subject, 0.5, &altered) == 0);
  gap__altered_free(&altered);
  FUZZ_CHECK(gap__altered_offload(subject, &altered) == 0);
  gap__altered_free(&altered);
  FUZZ_CHECK(gap__altered_checkpoint(subject, 4, &altered) == 0);
  gap__altered_free(&altered);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct gap__subject subject = {0};
  char *message;
  gap_explain_defaults(&subject.options);
  subject.options.request_bytes = (uint64_t)1 << 24;
  int rc = gap__history_read_memory(data, bytes, &subject.history, &message);
  free(message);
  if (rc) return 0;
  rc = gap__subject_study(&subject);
  FUZZ_CHECK(rc == 0 || (rc == GAP_EINVAL && subject.history->device_count == 0));
  if (rc == 0) {
    check_sums(&subject);
    check_words(&subject);
    alter(&subject);
  }
  gap__subject_free(&subject);
  return 0;
}
