/* Why a request failed, in plain words with numbers; and the figures behind them. */
#ifndef GAP_DIAGNOSE_H
#define GAP_DIAGNOSE_H

#include "core/reclaim.h"

/* Where the idle bytes of a device are; under the device lock, no lane lock held. */
struct gap__idle {
  uint64_t returnable_bytes; /* idle whole chunks of lanes that are not pinned */
  uint64_t stuck_bytes;      /* idle, but on pages that live blocks share, or in a pinned pool */
  uint64_t pinned_bytes;     /* of them in pinned pools */
  uint64_t class_bytes;      /* stuck too: of size classes */
  uint64_t trays;
  uint64_t extents; /* idle blocks */
};
struct gap__idle gap__idle_figures(struct gap__policy_state *);
/* The same without merging what is kept whole for the next request of its size: of that only what covers whole pages by itself counts as
 * returnable. */
struct gap__idle gap__idle_glance(struct gap__policy_state *);

/* Explains the failure to the device, and says by which code the request fails: GAP_ENOMEM, or GAP_ENOMETA, GAP_ELIMIT,
 * GAP_EDEVICE where that is what it comes from.  Under the device lock, no lane lock held. */
int gap__diagnose_failure(struct gap__lane *, const struct gap__request *);

#endif
