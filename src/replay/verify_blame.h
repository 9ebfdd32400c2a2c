/* Which of two contradicting events is the odd one?  The pass sees only the past, so it names the event at which the
 * contradiction shows; once it has failed, the rest of the history may be asked for a third witness. */
#ifndef GAP_VERIFY_BLAME_H
#define GAP_VERIFY_BLAME_H

#include <stddef.h>
#include <stdint.h>

#include "trace/history.h"

/* The index to name instead of `fault`: an earlier event that the others contradict, or `fault` itself.  When another one
 * is named, `text` says why. */
uint64_t gap__verify_blame(const struct gap__hist_device *, uint64_t fault, char *text, size_t bytes);

#endif
