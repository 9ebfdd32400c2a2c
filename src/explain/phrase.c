#include "explain/phrase.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

void gap__phrase_paragraph(struct gap__text *out, const char *text, unsigned columns, unsigned indent, size_t column) {
  for (bool first = true; *text; first = false) {
    size_t word = strcspn(text, " ");
    if (!first && columns && column + 1 + word > columns) {
      gap__text_add(out, "\n%*s", (int)indent, "");
      column = indent;
    } else if (!first) {
      gap__text_add_char(out, ' ');
      column++;
    }
    size_t before = out->length;
    gap__text_add_bytes(out, text, word);
    if (out->length > before) gap__text_make_plain(out->bytes + before);
    column += word;
    text += word;
    text += strspn(text, " ");
  }
  gap__text_add_char(out, '\n');
}
