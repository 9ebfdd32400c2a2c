#include "explain/phrase.h"

#include <inttypes.h>
#include <stdio.h>

char *gap__phrase_part(uint64_t bytes, char out[GAP__TEXT_BYTES]) {
  uint64_t gib = (uint64_t)1 << 30, whole = bytes / gib;
  if (whole == 0 || bytes % gib == 0) return gap__text_size(bytes, out);
  uint64_t thousandths = (bytes % gib * 1000 + gib / 2) / gib;
  snprintf(out, GAP__TEXT_BYTES, "%" PRIu64 ".%03" PRIu64 " GiB", whole + thousandths / 1000, thousandths % 1000);
  return out;
}

char *gap__phrase_percent(uint64_t part, uint64_t whole, char out[GAP__TEXT_BYTES]) {
  double share = whole ? 100.0 * (double)part / (double)whole : 0;
  uint64_t tenths = (uint64_t)(share * 10 + 0.5);
  if (tenths < 100 && tenths % 10)
    snprintf(out, GAP__TEXT_BYTES, "%" PRIu64 ".%" PRIu64 " %%", tenths / 10, tenths % 10);
  else snprintf(out, GAP__TEXT_BYTES, "%" PRIu64 " %%", (tenths + 5) / 10);
  return out;
}
