/* Tuned histories in order; the same history from two files is joined. */
#include <stdlib.h>
#include <string.h>

#include "tune/store.h"

void gap__tuned_list_free(struct gap__tuned_list *list) {
  for (uint32_t i = 0; i < list->count; i++) gap__tuned_free(list->at[i]);
  free(list->at);
  *list = (struct gap__tuned_list){0};
}

/* The name says nothing about which history it is. */
static bool same_history(const struct gap__tune_facts *left, const struct gap__tune_facts *right) {
  return strcmp(left->hash, right->hash) == 0 && left->device == right->device && left->lag_us == right->lag_us;
}

static int order(const struct gap__tune_facts *left, const struct gap__tune_facts *right) {
  int names = strcmp(left->file, right->file), hashes = strcmp(left->hash, right->hash);
  if (names != 0) return names;
  if (hashes != 0) return hashes;
  if (left->device != right->device) return left->device < right->device ? -1 : 1;
  return left->lag_us < right->lag_us ? -1 : left->lag_us > right->lag_us;
}

static bool same_facts(const struct gap__tune_facts *left, const struct gap__tune_facts *right) {
  return left->busy_devices == right->busy_devices && left->events == right->events &&
         left->peak_live_bytes == right->peak_live_bytes && left->recorded_us == right->recorded_us &&
         left->wrapped == right->wrapped && left->recorded_policy == right->recorded_policy &&
         left->recorded_index == right->recorded_index && strcmp(left->recorded_conf, right->recorded_conf) == 0;
}

static int join(struct gap__tuned *into, const struct gap__tuned *from) {
  int rc = same_facts(&into->facts, &from->facts) ? 0 : GAP_EMISMATCH;
  for (uint32_t i = 0; rc == 0 && i < into->count; i++)
    for (uint32_t t = 0; rc == 0 && t < from->tried[i].trials.count; t++)
      rc = gap__trials_add(&into->tried[i].trials, &from->tried[i].trials.at[t]);
  return rc;
}

static struct gap__tuned *take_same(struct gap__tuned_list *list, const struct gap__tuned *tuned) {
  for (uint32_t i = 0; i < list->count; i++) {
    struct gap__tuned *found = list->at[i];
    if (!same_history(&found->facts, &tuned->facts)) continue;
    memmove(&list->at[i], &list->at[i + 1], (--list->count - i) * sizeof *list->at);
    return found;
  }
  return NULL;
}

static int reserve(struct gap__tuned_list *list) {
  if (list->count < list->max) return 0;
  uint32_t max = list->max ? list->max * 2 : 16;
  struct gap__tuned **at = realloc(list->at, max * sizeof *at);
  if (!at) return GAP_ENOMETA;
  list->at = at;
  list->max = max;
  return 0;
}

static void put_in_place(struct gap__tuned_list *list, struct gap__tuned *tuned) {
  uint32_t at = list->count++;
  for (; at > 0 && order(&tuned->facts, &list->at[at - 1]->facts) < 0; at--) list->at[at] = list->at[at - 1];
  list->at[at] = tuned;
}

/* Of two names for one history the first in the alphabet stays, so that the order of joining does not matter. */
static void choose_name(struct gap__tuned *known, struct gap__tuned *other) {
  if (strcmp(other->facts.file, known->facts.file) >= 0) return;
  char *file = known->facts.file;
  known->facts.file = other->facts.file;
  other->facts.file = file;
}

int gap__tuned_list_add(struct gap__tuned_list *list, struct gap__tuned *tuned) {
  int rc = reserve(list);
  struct gap__tuned *known = rc == 0 ? take_same(list, tuned) : NULL;
  if (known) {
    rc = join(known, tuned);
    if (rc == 0) choose_name(known, tuned);
  }
  if (known || rc != 0) gap__tuned_free(tuned);
  if (known || rc == 0) put_in_place(list, known ? known : tuned);
  return rc;
}
