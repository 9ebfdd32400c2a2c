#include "conf/check.h"

#include <stdio.h>

#include "base/text.h"
#include "conf/report.h"
#include "conf/tiers.h"

#define BIT(field) gap__conf_bit(GAP__CONF_OPTION_##field)
#define SAY(check, level, ...) gap__conf_say((check)->report, level, __VA_ARGS__)

/* Who set the option: messages name the source to look at. */
static const char *setter(const struct gap__conf_check *check, int index) {
  int source = check->merged->sources[index];
  return source == (int)check->source ? check->variable : check->set->layers[source].variable;
}
#define SETTER(check, field) setter(check, GAP__CONF_OPTION_##field)

static bool watched(const struct gap__conf_check *check, uint64_t keys) { return check->watched & keys; }

/* torch wants both limits to be at least a large segment. */
static bool limit_below_segment(const struct gap__conf_check *check, int index, uint64_t limit) {
  const char *key = gap__conf_table[index].about.key;
  char size[GAP__TEXT_BYTES], least[GAP__TEXT_BYTES];
  if (limit >= check->merged->values.large_segment_size) return false;
  gap__text_size(limit, size);
  gap__text_size(check->merged->values.large_segment_size, least);
  if (check->named & gap__conf_bit(index)) {
    SAY(check, GAP__CONF_ERROR,
        "%s: bad value for %s: %s is refused, %s is the least (it cannot be below large_segment_size_mb). Nothing of "
        "the string is "
        "applied.",
        setter(check, index), key, size, least);
    return true;
  }
  if (watched(check, BIT(large_segment_size)))
    SAY(check, GAP__CONF_WARNING, "%s: %s is raised from %s to %s, the large_segment_size_mb now in force",
        setter(check, index), key, size, least);
  return false;
}

static void note_old_least(const struct gap__conf_check *check) {
  if (watched(check, BIT(max_split_size)) && check->merged->values.max_split_size == 20 * GAP__CONF_MIB)
    SAY(check, GAP__CONF_NOTE, "%s: max_split_size_mb:20 is refused by torch before 2.9, which wants more than 20",
        SETTER(check, max_split_size));
}

static bool rounds_up(const struct gap__conf *values) {
  for (int i = 0; i < GAP__CONF_SLOTS; i++)
    if (values->roundup_power2_divisions[i] > 1) return true;
  return false;
}

/* The driver's allocator knows none of the settings of PyTorch's own. */
static void warn_async(const struct gap__conf_check *check) {
  const struct gap__conf *values = &check->merged->values;
  uint64_t keys = BIT(expandable_segments) | BIT(max_split_size) | BIT(garbage_collection_threshold) |
                  BIT(roundup_power2_divisions);
  if (!values->backend_async || !watched(check, BIT(backend_async) | keys)) return;
  const char *ignored[] = {values->expandable_segments ? " expandable_segments" : "",
                           values->max_split_size != GAP__CONF_UNLIMITED ? " max_split_size_mb" : "",
                           values->garbage_collection_threshold > 0 ? " garbage_collection_threshold" : "",
                           rounds_up(values) ? " roundup_power2_divisions" : ""};
  if (!*ignored[0] && !*ignored[1] && !*ignored[2] && !*ignored[3]) return;
  SAY(check, GAP__CONF_WARNING, "%s: backend:cudaMallocAsync ignores%s%s%s%s: pick one", SETTER(check, backend_async),
      ignored[0], ignored[1], ignored[2], ignored[3]);
}

static bool has_amount(struct gap__conf_amount amount) { return amount.bytes > 0 || amount.fraction > 0; }

static void warn_two_limits(const struct gap__conf_check *check) {
  const struct gap__conf *values = &check->merged->values;
  if (!has_amount(values->max_memory) || values->per_process_memory_fraction >= 1) return;
  if (!watched(check, BIT(max_memory) | BIT(per_process_memory_fraction))) return;
  SAY(check, GAP__CONF_WARNING,
      "%s: max_memory and per_process_memory_fraction both limit the memory held; max_memory holds",
      SETTER(check, max_memory));
}

static void warn_collection(const struct gap__conf_check *check) {
  const struct gap__conf *values = &check->merged->values;
  if (values->garbage_collection_threshold <= 0 || !watched(check, BIT(garbage_collection_threshold))) return;
  if (has_amount(values->max_memory) || values->per_process_memory_fraction < 1) return;
  SAY(check, GAP__CONF_WARNING,
      "%s: garbage_collection_threshold acts only where there is a limit: set max_memory or "
      "per_process_memory_fraction too",
      SETTER(check, garbage_collection_threshold));
}

/* A share and bytes can only be compared when the card is known. */
static bool leaves_nothing(struct gap__conf_amount reserve, struct gap__conf_amount most) {
  if (reserve.fraction > 0) return reserve.fraction >= (has_amount(most) && most.fraction > 0 ? most.fraction : 1);
  return reserve.bytes > 0 && most.bytes > 0 && reserve.bytes >= most.bytes;
}

static bool reserve_too_large(const struct gap__conf_check *check) {
  const struct gap__conf *values = &check->merged->values;
  uint64_t keys = BIT(reserve) | BIT(max_memory);
  if (!leaves_nothing(values->reserve, values->max_memory)) return false;
  bool refused = check->named & keys;
  if (refused || watched(check, keys))
    SAY(check, refused ? GAP__CONF_ERROR : GAP__CONF_WARNING,
        "%s: reserve is as large as all that may be held (%s): nothing would be left%s", check->variable,
        has_amount(values->max_memory) ? "max_memory" : "the card",
        refused ? ". Nothing of the string is applied." : "");
  return refused;
}

static void warn_overflow(const struct gap__conf_check *check) {
  const struct gap__conf *values = &check->merged->values;
  struct gap__conf_tiers tiers;
  bool without = values->tiers[0] && !gap__conf_tiers_read(values->tiers, &tiers) && !tiers.host;
  if (values->overflow && without && watched(check, BIT(overflow) | BIT(tiers)))
    SAY(check, GAP__CONF_WARNING, "%s: overflow does nothing: it needs host memory, which tiers does not name",
        SETTER(check, overflow));
}

static void warn_passage(const struct gap__conf_check *check) {
  const struct gap__conf *values = &check->merged->values;
  struct gap__conf_tiers tiers;
  if (!values->tiers[0] || gap__conf_tiers_read(values->tiers, &tiers) || !watched(check, BIT(tiers))) return;
  bool narrow = tiers.host_bytes && tiers.host_bytes < GAP__CONF_TIERS_PASSAGE;
  if (narrow && (tiers.disk[0] || tiers.remote[0]))
    SAY(check, GAP__CONF_WARNING,
        "%s: tiers gives less than 32 MiB of host memory, through which all passes to a disk or to servers: nothing "
        "will go there",
        SETTER(check, tiers));
}

static void note_pool_sizes(const struct gap__conf_check *check) {
  const struct gap__conf *values = &check->merged->values;
  bool used = values->strategy == GAP__STRATEGY_POOLED || values->strategy == GAP__STRATEGY_HEURISTIC;
  if (values->pool_size_count && !used && watched(check, BIT(pool_sizes)))
    SAY(check, GAP__CONF_NOTE, "%s: pool_sizes is for the strategies pooled and heuristic, the strategy is %s",
        SETTER(check, pool_sizes), gap__conf_strategy_words[values->strategy]);
}

bool gap__conf_contradicts(const struct gap__conf_check *check) {
  const struct gap__conf *values = &check->merged->values;
  bool refused = limit_below_segment(check, GAP__CONF_OPTION_max_split_size, values->max_split_size);
  refused |= limit_below_segment(check, GAP__CONF_OPTION_max_non_split_rounding, values->max_non_split_rounding);
  refused |= reserve_too_large(check);
  if (refused) return true;
  note_old_least(check);
  warn_async(check);
  warn_two_limits(check);
  warn_collection(check);
  warn_overflow(check);
  warn_passage(check);
  note_pool_sizes(check);
  return false;
}
