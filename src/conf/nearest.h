/* "Did you mean ...?"  The distance is the number of edits (insert, delete or exchange one letter); case does not count, and
 * - is the same as _. */
#ifndef GAP_CONF_NEAREST_H
#define GAP_CONF_NEAREST_H

#include <stdbool.h>

/* The word nearest to `word`; NULL when none is near enough to be meant. Words have at most 63 letters. */
const char *gap__conf_nearest(const char *word, const char *const *words, int count);
/* The nearest key, alias or strategy's word, never NULL; *close says whether it may have been meant. */
const char *gap__conf_nearest_key(const char *key, bool *close);

#endif
