/* Which of two contradicting events is the odd one?  The pass sees only the past, so it names the event at which the
 * contradiction shows; once it has failed, the rest of the history may be asked for a third witness. */
#ifndef GAP_VERIFY_BLAME_H
#define GAP_VERIFY_BLAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/history.h"

/* What the pass knows of the contradiction. */
struct gap__verify_fault {
  uint64_t event;
  uint64_t served; /* where the model serves the alloc, when that is what differs; else 0 */
  bool lone;       /* blocks complete, and no request and no empty_cache() is there to look for them */
};

/* The index to name instead of fault->event: another event that the rest contradicts, or that one itself.  When another one
 * is named, `text` says why. */
uint64_t gap__verify_blame(const struct gap__history *, uint32_t device, const struct gap__verify_fault *, char *text,
                           size_t bytes);

#endif
