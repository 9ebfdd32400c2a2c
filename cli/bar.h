/* A progress bar on standard error, drawn only when that is a terminal; elsewhere not a byte is written. */
#ifndef GAP_BAR_H
#define GAP_BAR_H

#include <stdbool.h>
#include <stdint.h>

struct bar {
  const char *label;
  bool on, drawn;
  uint64_t last_ms;
};

/* `wanted` false: never draws. The label must outlive the bar. */
void bar_begin(struct bar *, const char *label, bool wanted);
/* A gap_progress_fn; `arg` is the bar.  total 0: only the number of tries is known. */
void bar_update(void *arg, uint64_t done, uint64_t total);
/* Wipes it, so that what is printed next starts on a clean line. */
void bar_end(struct bar *);

#endif
