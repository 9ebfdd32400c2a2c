#include "kv/worth.h"

enum { MEMORY = 8 }; /* transfers that an estimate remembers, about */

gap_kv_rate *gap__kv_worth_rate(gap_kv_rates *rates, enum kv_place place) {
  return place == KV_PLACE_HOST ? &rates->host : place == KV_PLACE_DISK ? &rates->disk : &rates->remote;
}

static double bytes_ns(const gap_kv_rate *rate, uint64_t bytes) { return (double)bytes / (double)rate->bytes_s * 1e9; }

uint32_t gap__kv_worth(const gap_kv_rates *rates, const uint8_t *places, uint32_t count, uint64_t bytes,
                       uint32_t tokens) {
  gap_kv_rates r = *rates;
  bool begun[KV_PLACES] = {false};
  double saved = 0, most = 0;
  uint32_t best = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (places[i] != KV_PLACE_HERE) {
      const gap_kv_rate *rate = gap__kv_worth_rate(&r, (enum kv_place)places[i]);
      if (!rate->bytes_s) break;
      saved -= bytes_ns(rate, bytes) + (begun[places[i]] ? 0 : (double)rate->latency_ns);
      begun[places[i]] = true;
    }
    saved += (double)r.token_ns * tokens;
    if (!r.token_ns) best = i + 1;
    if (saved <= most) continue;
    most = saved;
    best = i + 1;
  }
  return best;
}

void gap__kv_worth_learn(gap_kv_rate *rate, uint64_t bytes, uint64_t ns) {
  if (!bytes || !ns) return;
  uint64_t moving = ns > rate->latency_ns ? ns - rate->latency_ns : 1;
  double seen = (double)bytes / (double)moving * 1e9, now = (double)rate->bytes_s;
  if (seen > 1e15) return; /* it was there already */
  rate->bytes_s = (uint64_t)(rate->bytes_s ? now + (seen - now) / MEMORY : seen);
  if (!rate->bytes_s) rate->bytes_s = 1;
}
