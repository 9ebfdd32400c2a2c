/* Do our models of torch's native allocator, with and without expandable segments, do what torch did?  A recorded
 * history is fed to the strategy caching_allocator and every answer is compared: addresses, sizes and order of driver
 * calls, which blocks complete, refusals, snapshots, the segments at the end, and the statistics where the history has
 * them. */
#ifndef GAP_VERIFY_NATIVE_H
#define GAP_VERIFY_NATIVE_H

#include <stdint.h>

#include "conf/conf.h"
#include "core/heap.h"
#include "gapless/tools.h"
#include "trace/history.h"

struct gap__verify_result {
  uint64_t events;          /* verified: all of them, or those before the one that differs */
  uint64_t event;           /* index of the first event that differs; event_count when the end state does */
  uint64_t trims;           /* bursts of segment_free taken for an empty_cache() of the program */
  uint64_t hidden_segments; /* taken for those of private pools that were gone when the history was saved */
  struct gap__stats stats;  /* of the model, at the end or at the difference */
  char text[512];           /* on a difference: what was expected and what came; why, when it cannot be verified */
};

/* The configuration under which the history was recorded: `conf` with what the history knows of its settings. */
void gap__verify_conf(const struct gap__history *, const struct gap__conf *conf, struct gap__conf *out);

/* Was the device's history recorded with expandable segments?  Its first growth says so; without one, the settings. */
bool gap__verify_expandable(const struct gap__history *, uint32_t device);

/* The policy that was recorded: gapless, native or expandable. */
enum gap_policy gap__verify_policy(const struct gap__history *, uint32_t device);

/* The cap torch ran under: memory_fraction x total_bytes, rounded down; 0 when unknown or when the fraction is 1. */
uint64_t gap__verify_cap(const struct gap__history *);

/* Replays the events of `device`, one at a time; only those that the recorder writes inside one call of the program are seen
 * together.  `cap_bytes` 0: as gap__verify_cap says; without a known cap, refusals are the driver's.
 * A program may switch expandable segments on and off: the model does so when it sees growth of the other kind.
 * 0 when everything agrees; GAP_EMISMATCH; GAP_ENOTSUP for a history that cannot be verified: wrapped; GAP_EINVAL, GAP_ENOMETA. */
int gap__verify_native(const struct gap__history *, uint32_t device, const struct gap__conf *conf, uint64_t cap_bytes,
                       struct gap__verify_result *out);

#endif
