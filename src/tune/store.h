/* Results in files: a line of JSON for the version, one for each history, one for each setting tried on it.
 *
 *   {"gapless_tune":1,"model":"<64 digits>"}
 *   {"history":"<64 digits>","file":"rank0.pickle.xz","device":0,...}
 *   {"policy":"native","conf":"max_split_size_mb:128","trials":[[cap, fitted, peak, ...],...]}
 *
 * A setting's line belongs to the history above it.  Nothing in a file is believed: lengths, types and ranges are checked. */
#ifndef GAP_TUNE_STORE_H
#define GAP_TUNE_STORE_H

#include <stdio.h>

#include "tune/tuned.h"

struct gap__tuned_list {
  struct gap__tuned **at; /* by file name, hash, device, lag */
  uint32_t count, max;
};

void gap__tuned_list_free(struct gap__tuned_list *);
/* Takes it over, and in its place: where that history is known already the two are joined.  0; GAP_ENOMETA; GAP_EMISMATCH when they
 * contradict each other. It is freed on an error too. */
int gap__tuned_list_add(struct gap__tuned_list *, struct gap__tuned *);

int gap__store_write(FILE *, const struct gap__tuned_list *);
/* Adds what a file holds.  0; GAP_EIO, GAP_EFORMAT, GAP_ELIMIT, GAP_EMISMATCH (another version of the model, or results that contradict
 * known ones), GAP_ENOMETA, with the line and the reason in `message`. */
int gap__store_read(FILE *, const struct gap__settings *, struct gap__tuned_list *, char *message, size_t bytes);

#endif
