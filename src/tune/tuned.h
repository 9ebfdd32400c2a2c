/* One device of one history with all that was tried on it. */
#ifndef GAP_TUNE_TUNED_H
#define GAP_TUNE_TUNED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sha256.h"
#include "replay/live.h"
#include "trace/history.h"
#include "tune/settings.h"
#include "tune/trials.h"

/* What is known of a history without reading it. */
struct gap__tune_facts {
  char *file; /* as it was given */
  char hash[GAP__SHA256_TEXT_BYTES];
  uint32_t device, busy_devices; /* those of the file that have events */
  uint64_t lag_us;
  uint64_t events, peak_live_bytes, recorded_us;
  uint64_t wrapped;
  enum gap_policy recorded_policy;
  char recorded_conf[GAP__SETTING_BYTES]; /* as the program had it set */
  uint64_t recorded_index;                /* the setting of the table that it was; settings->count: none of them */
};

struct gap__tried {
  struct gap__trials trials;
  /* The least cap lies above `fails_bytes` and is at most `least_bytes`, under which it fits; 0: not found. */
  uint64_t least_bytes, fails_bytes;
  bool known;    /* the search came to its end */
  uint32_t step; /* of the grid, at which the search ended */
};

struct gap__tuned {
  struct gap__tune_facts facts;
  const struct gap__settings *settings;
  struct gap__tried *tried; /* one a setting, and one more for the recorded setting where it is none of the table */
  uint32_t count;
  uint64_t *grid; /* caps from P upwards, each 1 % or a page above the one before */
  uint32_t grid_count;
  const struct gap__history *history; /* NULL: nothing but what is known can be said */
  struct gap__live peaks;
  uint64_t replays; /* made, not looked up */
  double seconds;
};

/* Caps reach 64 P. */
#define GAP__TUNE_PEAK_MAX ((uint64_t)1 << 54)

/* Takes `facts` over, file name included.  0, GAP_ENOMETA, or GAP_ELIMIT when more is live than any machine has. */
int gap__tuned_new(const struct gap__settings *, struct gap__tune_facts *facts, struct gap__tuned **out);
void gap__tuned_free(struct gap__tuned *);
/* The facts of a device of a history; `file` is copied.  0, GAP_ENOMETA, GAP_EFORMAT. */
int gap__tuned_facts(const struct gap__history *, uint32_t device, uint64_t lag_us, const struct gap__settings *,
                     const char *file, const char *hash, struct gap__tune_facts *out, struct gap__live *peaks);

/* The run that shows what happens under the least cap; NULL when none is known. */
const struct gap__trial *gap__tried_least(const struct gap__tried *);

/* What a setting is called: its policy and configuration; that of the recorded one is index settings->count. */
enum gap_policy gap__tuned_policy(const struct gap__tuned *, uint32_t index);
const char *gap__tuned_conf(const struct gap__tuned *, uint32_t index);
/* A limit that refuses nothing may change what it does, or how much it may hold. */
bool gap__tuned_minds_limit(const struct gap__tuned *, uint32_t index);
/* The setting that was recorded, in `tried`. */
uint32_t gap__tuned_recorded(const struct gap__tuned *);

/* P in whole pages: no allocator can do with less. */
uint64_t gap__tuned_ideal(const struct gap__tuned *);
/* What one page or 0.05 % is: two caps that lie closer are equally good. */
uint64_t gap__tuned_fine(const struct gap__tuned *);

/* Looks a trial up or makes it.  0; GAP_ESTATE where it is unknown and there is no history; errors of the replay. */
int gap__tuned_try(struct gap__tuned *, uint32_t index, uint64_t cap_bytes, const struct gap__trial **out);

#endif
