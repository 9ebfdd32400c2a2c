/* One call of `gapless tune`: histories come in, from files, the cache or other machines' results. */
#ifndef GAP_TUNE_SESSION_H
#define GAP_TUNE_SESSION_H

#include "tune/store.h"
#include "tune/tuner.h"

struct gap_tune {
  struct gap__settings settings;
  struct gap__tuned_list list;
  uint32_t threads;
  uint64_t lag_us;
  char *cache; /* NULL: none */
};

/* As gap_tune_file. */
int gap__session_file(struct gap_tune *, const char *path, gap_progress_fn, void *arg, char *message, size_t bytes);
/* As gap_tune_merge. */
int gap__session_merge(struct gap_tune *, const char *path, char *message, size_t bytes);

/* Finds the best of each history from the trials that have come together, whoever made them. */
void gap__session_conclude(struct gap_tune *);

#endif
