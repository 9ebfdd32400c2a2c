/* A string as torch's own parsers take it, and whether it asks for gapless.
 *
 * torch reads its variable with parsers of its own (the pinned allocator's settings are theirs) and refuses the whole string for
 * one key that it does not know; so under gapless they are shown what is left when everything else is taken out. */
#ifndef GAP_CONF_REDUCE_H
#define GAP_CONF_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

struct gap__conf_report;

/* Writes the keys of torch 2.11 that `string` sets, but for `backend`, in torch's spelling and order of the table. At most `bytes`
 * with the closing 0 are written; *needed is the whole length. 0; GAP_EVALUE or GAP_EKEY when the string is refused (then the
 * text is empty), GAP_ENOMETA. The report, which may be NULL, is added to. */
int gap__conf_reduce(const char *string, char *out, size_t bytes, size_t *needed, struct gap__conf_report *);
/* backend:gapless, or a strategy's word, in a string that may be wrong elsewhere; of several, the last counts. */
bool gap__conf_asks_gapless(const char *string);

#endif
