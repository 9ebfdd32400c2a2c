#include "replay/cap.h"

#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "dev/dev.h"

#define MIB ((uint64_t)1 << 20)

static const struct gap__card_preset presets[] = {
    {"24G", "GeForce RTX 4090", 24217 * MIB},
    {"80G", "H100", 81082 * MIB},
    {"141G", "H200", 143156 * MIB},
    {"192G", "B200", 182642 * MIB},
};

uint32_t gap__card_count(void) { return (uint32_t)(sizeof presets / sizeof presets[0]); }
const struct gap__card_preset *gap__card_at(uint32_t index) { return &presets[index]; }

const struct gap__card_preset *gap__card_find(const char *name) {
  for (uint32_t i = 0; i < gap__card_count(); i++)
    if (strcasecmp(presets[i].name, name) == 0) return &presets[i];
  return NULL;
}

uint64_t gap__cap_of(double factor, uint64_t peak_live_bytes) {
  /* Split, so that a P above 2^53 / 2^21 pages loses no byte: the factor is applied to the excess over 1 alone. */
  uint64_t whole = (uint64_t)factor;
  uint64_t bytes = peak_live_bytes * whole + (uint64_t)((factor - (double)whole) * (double)peak_live_bytes);
  return bytes / GAP__PAGE * GAP__PAGE;
}

/* The length of `text` without a trailing P or xP; 0 when it has none. */
static size_t factor_length(const char *text) {
  size_t length = strlen(text);
  if (length < 2 || text[length - 1] != 'P') return 0;
  length--;
  return text[length - 1] == 'x' ? length - 1 : length;
}

int gap__cap_parse(const char *text, uint64_t peak_live_bytes, uint64_t *out) {
  if (strcmp(text, "none") == 0) {
    *out = 0;
    return 0;
  }
  size_t length = factor_length(text);
  if (length > 0) {
    double factor;
    if (gap__text_parse_real(text, length, &factor) != 0 || !(factor > 0 && factor <= 1000)) return GAP_EVALUE;
    *out = gap__cap_of(factor, peak_live_bytes);
    return *out > 0 ? 0 : GAP_EVALUE;
  }
  uint64_t bytes;
  if (gap__text_parse_size(text, strlen(text), &bytes) != 0 || bytes == 0) return GAP_EVALUE;
  *out = bytes;
  return 0;
}
