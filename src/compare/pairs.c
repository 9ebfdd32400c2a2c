/* Parts of two files side by side. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/parts.h"
#include "gapless/gapless.h"

enum { SIZES_MAX = 4096 }; /* of more, only equal ones are matched: each is held against each */

int64_t gap__pair_change(const struct gap__pair *pair) {
  int64_t first = pair->side[0] ? (int64_t)pair->side[0]->bytes : 0;
  return (pair->side[1] ? (int64_t)pair->side[1]->bytes : 0) - first;
}

/* Both lists are in the order of their names. */
static void match_names(const struct gap__parts sides[2], struct gap__pairs *pairs) {
  uint32_t a = 0, b = 0;
  while (a < sides[0].count || b < sides[1].count) {
    int order = a == sides[0].count ? 1 : b == sides[1].count ? -1 : strcmp(sides[0].at[a].name, sides[1].at[b].name);
    pairs->at[pairs->count++] =
        (struct gap__pair){.side = {order <= 0 ? &sides[0].at[a] : NULL, order >= 0 ? &sides[1].at[b] : NULL}};
    a += order <= 0;
    b += order >= 0;
  }
}

/* ---- lines that moved ---------------------------------------------------------------------------------------------- */

/* "model.py:12 forward" without the number, and the number. */
struct place {
  char text[GAP__PART_NAME_BYTES];
  unsigned long line;
  uint32_t pair;
};

static void find_place(const char *name, struct place *place) {
  size_t length = 0;
  while (*name) {
    bool number = *name == ':' && isdigit((unsigned char)name[1]);
    place->text[length++] = *name++;
    if (!number) continue;
    char *end;
    unsigned long line = strtoul(name, &end, 10);
    if (!place->line) place->line = line;
    name = end;
  }
}

static int by_place(const void *left, const void *right) {
  const struct place *a = left, *b = right;
  int order = strcmp(a->text, b->text);
  if (order) return order;
  return a->line != b->line ? (a->line < b->line ? -1 : 1) : a->pair < b->pair ? -1 : 1;
}

static uint32_t list_alone(const struct gap__pairs *pairs, int side, struct place *places) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < pairs->count; i++) {
    const struct gap__pair *pair = &pairs->at[i];
    if (!pair->side[side] || pair->side[1 - side]) continue;
    memset(&places[count], 0, sizeof places[count]);
    find_place(pair->side[side]->name, &places[count]);
    if (places[count].line) places[count++].pair = i;
  }
  qsort(places, count, sizeof *places, by_place);
  return count;
}

/* The second side's part moves to the first's pair, and leaves an empty one. */
static void join_places(struct gap__pairs *pairs, const struct place *first, uint32_t first_count,
                        const struct place *second, uint32_t second_count) {
  uint32_t a = 0, b = 0;
  while (a < first_count && b < second_count) {
    int order = strcmp(first[a].text, second[b].text);
    if (order == 0) {
      pairs->at[first[a].pair].side[1] = pairs->at[second[b].pair].side[1];
      pairs->at[second[b].pair].side[1] = NULL;
    }
    a += order <= 0;
    b += order >= 0;
  }
}

static void drop_empty(struct gap__pairs *pairs) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < pairs->count; i++)
    if (pairs->at[i].side[0] || pairs->at[i].side[1]) pairs->at[kept++] = pairs->at[i];
  pairs->count = kept;
}

static int match_places(struct gap__pairs *pairs) {
  struct place *places = calloc((size_t)2 * pairs->count + 1, sizeof *places);
  if (!places) return GAP_ENOMETA;
  uint32_t first = list_alone(pairs, 0, places);
  uint32_t second = list_alone(pairs, 1, places + pairs->count);
  join_places(pairs, places, first, places + pairs->count, second);
  drop_empty(pairs);
  free(places);
  return 0;
}

/* ---- sizes that changed a little ------------------------------------------------------------------------------------ */

static double size_of(const struct gap__part *part) { return (double)part->bytes / (double)part->blocks; }

/* How far apart two sizes are, as a part of the larger; 1 where it is not the same number of blocks. */
static double distance(const struct gap__part *a, const struct gap__part *b) {
  if (a->blocks != b->blocks) return 1;
  return fabs(size_of(a) - size_of(b)) / fmax(size_of(a), size_of(b));
}

/* As many blocks of nearly the same size: a dimension of the program that varies. */
static void match_sizes(struct gap__pairs *pairs) {
  for (uint32_t i = 0; i < pairs->count; i++) {
    struct gap__pair *alone = &pairs->at[i], *best = NULL;
    double least = 0.1;
    for (uint32_t j = 0; alone->side[0] && !alone->side[1] && j < pairs->count; j++) {
      struct gap__pair *other = &pairs->at[j];
      if (other->side[0] || !other->side[1] || distance(alone->side[0], other->side[1]) >= least) continue;
      least = distance(alone->side[0], other->side[1]);
      best = other;
    }
    if (!best) continue;
    alone->side[1] = best->side[1];
    best->side[1] = NULL;
  }
  drop_empty(pairs);
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

static uint64_t larger(const struct gap__pair *pair) {
  uint64_t a = pair->side[0] ? pair->side[0]->bytes : 0, b = pair->side[1] ? pair->side[1]->bytes : 0;
  return a > b ? a : b;
}

static const char *name_of(const struct gap__pair *pair) {
  return pair->side[1] ? pair->side[1]->name : pair->side[0]->name;
}

static int by_change(const void *left, const void *right) {
  const struct gap__pair *a = left, *b = right;
  int64_t x = llabs(gap__pair_change(a)), y = llabs(gap__pair_change(b));
  if (x != y) return x < y ? 1 : -1;
  if (larger(a) != larger(b)) return larger(a) < larger(b) ? 1 : -1;
  return strcmp(name_of(a), name_of(b));
}

int gap__pairs_match(enum gap__cut cut, const struct gap__parts sides[2], struct gap__pairs *pairs) {
  *pairs = (struct gap__pairs){.at = calloc((size_t)sides[0].count + sides[1].count + 1, sizeof *pairs->at)};
  if (!pairs->at) return GAP_ENOMETA;
  match_names(sides, pairs);
  int rc = cut == GAP__CUT_SITES ? match_places(pairs) : 0;
  if (cut == GAP__CUT_SIZES && pairs->count <= SIZES_MAX) match_sizes(pairs);
  qsort(pairs->at, pairs->count, sizeof *pairs->at, by_change);
  return rc;
}

void gap__pairs_free(struct gap__pairs *pairs) {
  free(pairs->at);
  *pairs = (struct gap__pairs){0};
}
