/* Comparisons for the public header: both files are read and measured, then laid side by side. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/diff.h"

void gap_diff_defaults(gap_diff_options *options) {
  *options = (gap_diff_options){.size = sizeof *options, .device = {-1, -1}, .step = {-1, -1}, .tolerance = 0.01};
}

static int measure(struct gap_diff *diff, const char *const files[2], char *message, size_t bytes) {
  for (int i = 0; i < 2; i++) {
    const gap_diff_options *options = &diff->options;
    struct gap__measure_options one = {options->device[i], options->step[i], options->progress, options->progress_arg};
    char reason[800];
    int rc = gap__measure_file(&diff->sides[i], files[i], &one, reason, sizeof reason);
    if (!rc && diff->sides[i].subject.honest.is_empty) {
      snprintf(reason, sizeof reason, "it holds neither segments nor events%s: there is nothing to compare",
               diff->sides[i].subject.history->is_torn ? " before it ends in the middle" : "");
      rc = GAP_EINVAL;
    }
    if (rc) snprintf(message, bytes, "%s: %s", files[i], reason);
    if (rc) return rc;
  }
  return 0;
}

int gap_diff_open(const char *const files[2], const gap_diff_options *options, gap_diff **out, char *message,
                  size_t bytes) {
  gap_diff *diff = calloc(1, sizeof *diff);
  *out = NULL;
  snprintf(message, bytes, "%s", gap_strerror(GAP_ENOMETA));
  if (!diff) return GAP_ENOMETA;
  diff->options = *options;
  int rc = measure(diff, files, message, bytes);
  if (!rc) rc = gap__diff_find(diff);
  if (rc) gap_diff_close(diff);
  else *out = diff;
  return rc;
}

void gap_diff_close(gap_diff *diff) {
  if (!diff) return;
  gap__diff_free(diff);
  free(diff);
}

int gap_diff_is_same(const gap_diff *diff) { return diff->is_same; }

char *gap_diff_words(const gap_diff *diff, unsigned columns, unsigned rows) {
  return gap__diff_words(diff, columns, rows);
}

char *gap_diff_json(const gap_diff *diff) { return gap__diff_json(diff, 0); }
