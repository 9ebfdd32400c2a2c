#include "conf/set.h"

#include <stdlib.h>
#include <string.h>

void gap__conf_layer_init(struct gap__conf_layer *layer, const struct gap__conf *defaults, const char *variable) {
  memset(layer, 0, sizeof *layer);
  layer->values = *defaults;
  memccpy(layer->variable, variable, 0, sizeof layer->variable - 1);
}

struct gap__conf_set *gap__conf_new(void) {
  struct gap__conf_set *set = calloc(1, sizeof *set);
  if (!set) return NULL;
  struct gap__conf defaults;
  gap__conf_defaults(&defaults);
  for (int i = 0; i < GAP__CONF_SOURCES; i++) gap__conf_layer_init(&set->layers[i], &defaults, i ? "" : "default");
  set->layers[GAP__CONF_DEFAULT].named = ~(uint64_t)0;
  gap__conf_preview(set, GAP__CONF_DEFAULT, &set->layers[GAP__CONF_DEFAULT], &set->merged);
  return set;
}

struct gap__conf_set *gap__conf_copy(const struct gap__conf_set *set) {
  struct gap__conf_set *copy = malloc(sizeof *copy);
  if (copy) memcpy(copy, set, sizeof *copy);
  return copy;
}

void gap__conf_free(struct gap__conf_set *set) { free(set); }

static const struct gap__conf_layer *layer_of(const struct gap__conf_set *set, int source,
                                              enum gap__conf_source replaced, const struct gap__conf_layer *next) {
  return source == (int)replaced ? next : &set->layers[source];
}

/* The default of max_non_split_rounding follows another key. */
static void derive(struct gap__conf_merged *merged) {
  if (merged->sources[GAP__CONF_OPTION_max_non_split_rounding] == GAP__CONF_DEFAULT)
    merged->values.max_non_split_rounding = merged->values.large_segment_size;
}

void gap__conf_preview(const struct gap__conf_set *set, enum gap__conf_source source,
                       const struct gap__conf_layer *next, struct gap__conf_merged *out) {
  memset(out, 0, sizeof *out);
  for (int i = 0; i < GAP__CONF_OPTION_COUNT; i++) {
    const struct gap__conf_entry *entry = &gap__conf_table[i];
    if (set->frozen && !entry->about.mutable_) {
      gap__conf_copy_option(entry, &out->values, &set->merged.values);
      out->sources[i] = set->merged.sources[i];
      continue;
    }
    int from = GAP__CONF_SOURCES - 1;
    while (!(layer_of(set, from, source, next)->named & gap__conf_bit(i))) from--;
    gap__conf_copy_option(entry, &out->values, &layer_of(set, from, source, next)->values);
    out->sources[i] = (uint8_t)from;
  }
  derive(out);
}

/* A limit from one source may lie below the large_segment_size_mb of another: torch's policy needs it to be as large. */
static void raise_limits(struct gap__conf *values) {
  uint64_t least = values->large_segment_size;
  if (values->max_split_size < least) values->max_split_size = least;
  if (values->max_non_split_rounding < least) values->max_non_split_rounding = least;
}

void gap__conf_commit(struct gap__conf_set *set, enum gap__conf_source source, const struct gap__conf_layer *next,
                      const struct gap__conf_merged *merged) {
  set->layers[source] = *next;
  set->merged = *merged;
  set->merged.values.no_caching = set->no_caching;
  raise_limits(&set->merged.values);
}

void gap__conf_freeze(struct gap__conf_set *set) { set->frozen = true; }

const struct gap__conf *gap__conf_values(const struct gap__conf_set *set) { return &set->merged.values; }

enum gap__conf_source gap__conf_value_source(const struct gap__conf_set *set, uint32_t index, const char **variable) {
  enum gap__conf_source source = index < GAP__CONF_OPTION_COUNT ? set->merged.sources[index] : GAP__CONF_DEFAULT;
  if (variable) *variable = set->layers[source].variable;
  return source;
}
