/* "Did you mean ...?" */
#ifndef GAP_NEAREST_H
#define GAP_NEAREST_H

/* The name that takes the fewest edits to become `word`; NULL when even that one shares too little with it. */
const char *nearest_name(const char *word, const char *const *names, int count);

#endif
