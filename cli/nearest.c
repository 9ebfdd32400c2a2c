/* Levenshtein's distance, row by row. */
#include "nearest.h"

#include <string.h>

enum { WORD_MAX = 31 };

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

static unsigned distance(const char *from, const char *to) {
  unsigned row[WORD_MAX + 1];
  unsigned width = (unsigned)strnlen(to, WORD_MAX);
  for (unsigned i = 0; i <= width; i++) row[i] = i;
  for (unsigned y = 1; y <= WORD_MAX && from[y - 1]; y++) {
    unsigned diagonal = row[0];
    row[0] = y;
    for (unsigned x = 1; x <= width; x++) {
      unsigned exchanged = diagonal + (from[y - 1] != to[x - 1]);
      diagonal = row[x];
      row[x] = least(exchanged, least(row[x], row[x - 1]) + 1);
    }
  }
  return row[width];
}

const char *nearest_name(const char *word, const char *const *names, int count) {
  const char *best = NULL;
  unsigned best_distance = 0;
  for (int i = 0; i < count; i++) {
    unsigned edits = distance(word, names[i]);
    if (!best || edits < best_distance) best = names[i], best_distance = edits;
  }
  return best && best_distance * 2 <= strlen(word) + 1 ? best : NULL;
}
