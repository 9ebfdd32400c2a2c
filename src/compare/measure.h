/* The figures of one device of one file, or of one step of it, and what was live at its peak. */
#ifndef GAP_COMPARE_MEASURE_H
#define GAP_COMPARE_MEASURE_H

#include "explain/subject.h"

enum gap__figure {
#define FIGURE(name, json, option, kind, words, unknown) GAP__FIGURE_##name,
#include "compare/figures.def"
#undef FIGURE
  GAP__FIGURE_COUNT
};

enum gap__figure_kind { GAP__FIGURE_BYTES, GAP__FIGURE_PERCENT, GAP__FIGURE_IN_GROWTH, GAP__FIGURE_COUNTED };

struct gap__figure_info {
  const char *name;   /* in JSON */
  const char *option; /* of gapless check, that limits it */
  enum gap__figure_kind kind;
  const char *words, *unknown; /* why a file may not tell it */
};

struct gap__figure_value {
  bool known;
  double value; /* bytes, percent or a number; whole but for percent; not beyond GAP__FIGURE_MOST */
};
#define GAP__FIGURE_MOST 9e18 /* below 2^63: it can be made an integer */

/* Signed, and with its unit: "-1.20 GiB", "+3.1 points" where `is_change`. */
char *gap__figure_text(enum gap__figure, double value, bool is_change, char out[GAP__TEXT_BYTES]);
const struct gap__figure_info *gap__figure_info(enum gap__figure);

struct gap__measure {
  struct gap__subject subject;
  char *file;
  int64_t step; /* -1: the whole file */
  uint32_t first, end, peak_event;
  uint64_t peak_bytes;
  bool tells_driver; /* segments, or events about them, are there */
  struct gap__figure_value figures[GAP__FIGURE_COUNT];
};

struct gap__measure_options {
  int64_t device, step; /* -1: the one that explain would take; the whole file */
  gap_progress_fn progress;
  void *progress_arg;
};

/* Measures a subject that was studied: the whole file.  0 or GAP_ENOMETA. */
int gap__measure_studied(struct gap__measure *);
/* Measures a history, which then belongs to the measure.  As the next. */
int gap__measure_history(struct gap__measure *, struct gap__history *, const struct gap__measure_options *,
                         char *message, size_t bytes);
/* Reads and measures.  0, or the reader's errors and GAP_EINVAL (no such device or step) with the reason in `message`.  To be freed
 * whatever is returned. */
int gap__measure_file(struct gap__measure *, const char *file, const struct gap__measure_options *, char *message,
                      size_t bytes);
void gap__measure_free(struct gap__measure *);

#endif
