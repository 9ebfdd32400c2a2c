#include "tier/spans.h"

uint64_t gap__spans_bytes(struct gap__spans s) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < s.count; i++) {
    uint64_t bytes = s.spans[i].bytes;
    if (!s.spans[i].addr || !bytes || bytes > UINT64_MAX - sum) return UINT64_MAX;
    sum += bytes;
  }
  return sum;
}

int gap__spans_copy(struct gap__dev *dev, struct gap__spans s, uint64_t at, uint64_t bytes, unsigned char *memory,
                    bool out, gap_stream stream) {
  uint64_t end = at + bytes, begin = s.from;
  int rc = 0;
  for (uint32_t i = 0; i < s.count && begin < end && !rc; begin += s.spans[i++].bytes) {
    uint64_t from = begin > at ? begin : at, stop = begin + s.spans[i].bytes;
    uint64_t to = stop < end ? stop : end;
    if (from >= to) continue;
    gap_addr there = s.spans[i].addr + (from - begin), here = (gap_addr)(uintptr_t)(memory + (from - at));
    rc = gap__dev_copy(dev, out ? here : there, out ? there : here, to - from, stream);
  }
  return rc;
}
