/* What settings come to in bytes. */
#include "conf/table.h"
#include "toolsapi/conf_view.h"

/* Three requests of 1.1, 1.3 and 1.7 times the boundary of the first, the middle and the last slot that rounds. */
bool gap__conf_samples(const struct gap__conf *conf, struct gap__conf_sample out[GAP__CONF_SAMPLES]) {
  static const double factors[GAP__CONF_SAMPLES] = {1.1, 1.3, 1.7};
  int slots[GAP__CONF_SLOTS], count = 0;
  for (int i = 0; i < GAP__CONF_SLOTS; i++)
    if (conf->roundup_power2_divisions[i] > 1) slots[count++] = i;
  if (!count) return false;
  const int chosen[GAP__CONF_SAMPLES] = {slots[0], slots[count / 2], slots[count - 1]};
  for (int i = 0; i < GAP__CONF_SAMPLES; i++) {
    out[i].request_bytes = (uint64_t)((double)(GAP__CONF_MIB << chosen[i]) * factors[i]);
    out[i].rounded_bytes = gap__conf_round(conf, out[i].request_bytes);
  }
  return true;
}

uint64_t gap__conf_limit(const struct gap__conf *conf, uint64_t card_bytes) {
  double card = (double)card_bytes;
  if (conf->max_memory.bytes) return conf->max_memory.bytes;
  if (conf->max_memory.fraction > 0) return (uint64_t)(conf->max_memory.fraction * card);
  return conf->per_process_memory_fraction < 1 ? (uint64_t)(conf->per_process_memory_fraction * card) : 0;
}

uint64_t gap__conf_collection_start(const struct gap__conf *conf, uint64_t card_bytes) {
  return (uint64_t)(conf->garbage_collection_threshold * (double)gap__conf_limit(conf, card_bytes));
}
