/* Values with provenance: a layer a source, and the values in force made from them.
 *
 * Invariant: set->values == merge of the layers, the strongest that names a key wins; keys that are kept from the start on
 * come from `frozen` once the set is frozen. */
#ifndef GAP_CONF_SET_H
#define GAP_CONF_SET_H

#include "conf/table.h"

#define GAP__CONF_SOURCES 4

struct gap__conf_layer {
  struct gap__conf values;
  uint64_t named;    /* bit i: this source sets option i */
  char variable[48]; /* what a person calls the source */
};

struct gap__conf_merged {
  struct gap__conf values;
  uint8_t sources[GAP__CONF_OPTION_COUNT]; /* enum gap__conf_source */
};

struct gap__conf_set {
  struct gap__conf_layer layers[GAP__CONF_SOURCES]; /* by enum gap__conf_source; the default's names every key */
  struct gap__conf_merged merged;
  bool frozen;
  bool no_caching;
};

static inline uint64_t gap__conf_bit(int index) { return (uint64_t)1 << index; }

/* A layer that names nothing; its values are the defaults. */
void gap__conf_layer_init(struct gap__conf_layer *, const struct gap__conf *defaults, const char *variable);
/* What the set's values would be with `next` in the place of `source`'s layer; contradictions are not looked at. */
void gap__conf_preview(const struct gap__conf_set *, enum gap__conf_source source, const struct gap__conf_layer *next,
                       struct gap__conf_merged *out);
/* Puts the layer and its preview in force. */
void gap__conf_commit(struct gap__conf_set *, enum gap__conf_source source, const struct gap__conf_layer *next,
                      const struct gap__conf_merged *);

/* Applies a string as gap__conf_apply does. `also_watched`: keys of other sources whose contradictions are reported now too;
 * `quiet`: contradictions that are only warned of are left to a later call that watches them. */
int gap__conf_load(struct gap__conf_set *, enum gap__conf_source source, const char *variable, const char *string,
                   uint64_t also_watched, bool quiet, struct gap__conf_report *);

#endif
