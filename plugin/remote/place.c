#include "place.h"

#include <stdbool.h>

static bool before(const uint64_t *servers, uint32_t a, uint32_t b, uint64_t key) {
  uint64_t score_a = gap__place_score(servers[a], key), score_b = gap__place_score(servers[b], key);
  return score_a != score_b ? score_a > score_b : servers[a] < servers[b];
}

void gap__place_rank(const uint64_t *servers, uint32_t count, uint64_t key, uint32_t wanted, uint16_t *out) {
  uint32_t have = 0;
  for (uint32_t s = 0; s < count; s++) { /* insertion into the best so far */
    uint32_t at = have < wanted ? have++ : wanted;
    for (; at > 0 && before(servers, s, out[at - 1], key); at--)
      if (at < wanted) out[at] = out[at - 1];
    if (at < wanted) out[at] = (uint16_t)s;
  }
}
