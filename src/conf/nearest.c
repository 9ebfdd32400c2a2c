/* Levenshtein's distance, one row at a time: keys x length x length steps, all lengths below GAP__CONF_KEY_BYTES. */
#include "conf/nearest.h"

#include <string.h>

#include "conf/table.h"
#include "conf/tokens.h"

static char fold(char c) {
  if (c >= 'A' && c <= 'Z') return (char)(c + ('a' - 'A'));
  return c == '-' ? '_' : c;
}

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

static unsigned edit_distance(const char *a, const char *b) {
  unsigned row[GAP__CONF_KEY_BYTES];
  unsigned columns = (unsigned)strlen(b);
  for (unsigned j = 0; j <= columns; j++) row[j] = j;
  for (unsigned i = 1; a[i - 1]; i++) {
    unsigned diagonal = row[0]; /* of the row before, one to the left */
    row[0] = i;
    for (unsigned j = 1; j <= columns; j++) {
      unsigned exchange = diagonal + (fold(a[i - 1]) != fold(b[j - 1]));
      diagonal = row[j];
      row[j] = least(exchange, least(row[j], row[j - 1]) + 1);
    }
  }
  return row[columns];
}

struct search {
  const char *word, *best;
  unsigned distance;
};

static void consider(struct search *search, const char *candidate) {
  if (!*candidate || strlen(candidate) >= GAP__CONF_KEY_BYTES) return;
  unsigned found = edit_distance(search->word, candidate);
  if (search->best && found >= search->distance) return;
  search->best = candidate;
  search->distance = found;
}

/* One edit in three letters: "foo" is no "log", "trce" is "trace". */
static bool is_close(const struct search *search) { return search->distance * 3 <= strlen(search->word) + 1; }

const char *gap__conf_nearest(const char *word, const char *const *words, int count) {
  struct search search = {.word = word};
  for (int i = 0; i < count; i++) consider(&search, words[i]);
  return search.best && is_close(&search) ? search.best : NULL;
}

const char *gap__conf_nearest_key(const char *key, bool *close) {
  struct search search = {.word = key};
  for (int i = 0; i < GAP__CONF_OPTION_COUNT; i++) {
    consider(&search, gap__conf_table[i].about.key);
    consider(&search, gap__conf_table[i].alias);
  }
  for (int i = 0; i < GAP__STRATEGY_COUNT; i++) consider(&search, gap__conf_strategy_words[i]);
  *close = is_close(&search);
  return search.best;
}
