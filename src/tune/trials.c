#include "tune/trials.h"

#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"

/* The first whose cap is not below. */
static uint32_t place(const struct gap__trials *trials, uint64_t cap_bytes) {
  uint32_t at = 0;
  while (at < trials->count && trials->at[at].cap_bytes < cap_bytes) at++;
  return at;
}

const struct gap__trial *gap__trials_find(const struct gap__trials *trials, uint64_t cap_bytes) {
  uint32_t at = place(trials, cap_bytes);
  return at < trials->count && trials->at[at].cap_bytes == cap_bytes ? &trials->at[at] : NULL;
}

static int reserve(struct gap__trials *trials) {
  if (trials->count < trials->max) return 0;
  uint32_t max = trials->max ? trials->max * 2 : 8;
  struct gap__trial *at = realloc(trials->at, max * sizeof *at);
  if (!at) return GAP_ENOMETA;
  trials->at = at;
  trials->max = max;
  return 0;
}

int gap__trials_add(struct gap__trials *trials, const struct gap__trial *trial) {
  uint32_t at = place(trials, trial->cap_bytes);
  if (at < trials->count && trials->at[at].cap_bytes == trial->cap_bytes)
    return memcmp(&trials->at[at], trial, sizeof *trial) == 0 ? 0 : GAP_EMISMATCH;
  if (reserve(trials) != 0) return GAP_ENOMETA;
  memmove(&trials->at[at + 1], &trials->at[at], (trials->count - at) * sizeof *trials->at);
  trials->at[at] = *trial;
  trials->count++;
  return 0;
}

void gap__trials_free(struct gap__trials *trials) {
  free(trials->at);
  *trials = (struct gap__trials){0};
}
