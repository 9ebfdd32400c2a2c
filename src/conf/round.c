/* How a request is rounded: torch's granularity and roundup_power2_divisions. */
#include "conf/number.h"

#define MIN_BLOCK_BYTES 512
#define FIRST_SLOT_LOG2 20

static uint64_t round_up(uint64_t bytes, uint64_t step) { /* step: a power of two */
  return bytes > UINT64_MAX - (step - 1) ? UINT64_MAX : (bytes + step - 1) & ~(step - 1);
}

static int log2_floor(uint64_t number) { return 63 - __builtin_clzll(number); }

/* `divisions` equal steps between the powers of two around `bytes`; bytes > 512 x divisions, so a step has at least 512. */
static uint64_t round_to_division(uint64_t bytes, uint32_t divisions) {
  if (gap__conf_is_power(bytes)) return bytes;
  return round_up(bytes, ((uint64_t)1 << log2_floor(bytes)) / divisions);
}

static uint32_t divisions_of(const struct gap__conf *conf, uint64_t bytes) {
  int slot = log2_floor(bytes) - FIRST_SLOT_LOG2;
  if (slot < 0) slot = 0;
  if (slot >= GAP__CONF_SLOTS) slot = GAP__CONF_SLOTS - 1;
  return conf->roundup_power2_divisions[slot];
}

uint64_t gap__conf_round(const struct gap__conf *conf, uint64_t bytes) {
  if (bytes <= MIN_BLOCK_BYTES) return conf->granularity;
  uint32_t divisions = divisions_of(conf, bytes);
  if (divisions > 1 && bytes > (uint64_t)MIN_BLOCK_BYTES * divisions) bytes = round_to_division(bytes, divisions);
  return round_up(bytes, conf->granularity);
}
