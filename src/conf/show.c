/* Values as text that the parser takes back. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "conf/set.h"

struct text {
  char *out;
  size_t bytes, used;
};

static void add(struct text *text, const char *piece) {
  size_t length = strlen(piece);
  if (text->used + length + 1 > text->bytes) length = text->bytes - text->used - 1;
  memcpy(text->out + text->used, piece, length);
  text->used += length;
  text->out[text->used] = 0;
}

static void add_count(struct text *text, uint64_t number) {
  char digits[24];
  (void)snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
  add(text, digits);
}

/* In the largest unit that is exact: a rounded "1.69 GiB" could not be read back. */
static void add_size(struct text *text, uint64_t bytes) {
  static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  int unit = 0;
  if (bytes == GAP__CONF_UNLIMITED) {
    add(text, "unlimited");
    return;
  }
  for (; unit < 4 && bytes && bytes % 1024 == 0; unit++) bytes /= 1024;
  add_count(text, bytes);
  add(text, units[unit]);
}

/* number x scale in the shortest form that reads back as the same number; the locale's decimal comma does not get in. */
static void shortest(double number, double scale, char digits[40]) {
  bool plain = number * scale >= 1e-4 && number * scale < 1e6;
  for (int precision = plain ? 0 : 1; precision <= 20; precision++) {
    double back;
    int length = snprintf(digits, 40, plain ? "%.*f" : "%.*g", precision, number * scale);
    for (char *c = digits; *c; c++)
      if (*c == ',') *c = '.';
    if (!gap__text_parse_real(digits, (size_t)length, &back) && back / scale == number) return;
  }
}

static void add_real(struct text *text, double number) {
  char digits[40];
  shortest(number, 1, digits);
  add(text, digits);
  if (!strpbrk(digits, ".e")) add(text, ".0");
}

static void add_amount(struct text *text, const struct gap__conf_amount *amount) {
  if (amount->fraction > 0) {
    char digits[40];
    shortest(amount->fraction, 100, digits);
    add(text, digits);
    add(text, "%");
  } else if (amount->bytes || amount->given) {
    add_size(text, amount->bytes);
  } else {
    add(text, "not set");
  }
}

static int same_from(const uint32_t *slots, int first) {
  int last = first;
  while (last + 1 < GAP__CONF_SLOTS && slots[last + 1] == slots[first]) last++;
  return last;
}

static void add_boundary(struct text *text, const char *lead, const uint32_t *slots, int slot) {
  add(text, lead);
  add_count(text, (uint64_t)1 << slot);
  add(text, ":");
  add_count(text, slots[slot]);
}

/* The first boundary stands for all slots before it, > for all slots after the last. */
static void add_roundup(struct text *text, const uint32_t *slots) {
  int slot = same_from(slots, 0);
  if (slot == GAP__CONF_SLOTS - 1) {
    if (slots[0]) add_count(text, slots[0]);
    else add(text, "off");
    return;
  }
  add_boundary(text, "[", slots, slot++);
  for (; same_from(slots, slot) < GAP__CONF_SLOTS - 1; slot++) add_boundary(text, ",", slots, slot);
  add(text, ",>:");
  add_count(text, slots[slot]);
  add(text, "]");
}

static void add_sizes(struct text *text, const struct gap__conf *values) {
  if (!values->pool_size_count) add(text, "not set");
  for (uint32_t i = 0; i < values->pool_size_count; i++) {
    add(text, i ? "," : "[");
    add_size(text, values->pool_sizes[i]);
  }
  if (values->pool_size_count) add(text, "]");
}

static void add_backend(struct text *text, const struct gap__conf *values) {
  add(text, values->backend_async ? "cudaMallocAsync" : values->backend_gapless ? "gapless" : "native");
}

static void add_overflow(struct text *text, const struct gap__conf *values) {
  if (values->overflow && values->overflow_bytes) add_size(text, values->overflow_bytes);
  else add(text, values->overflow ? "True" : "False");
}

/* "off" for the keys whose zero means that. */
static void add_mib(struct text *text, const struct gap__conf_entry *entry, uint64_t bytes) {
  if (!bytes && !strcmp(entry->about.default_text, "off")) add(text, "off");
  else add_size(text, bytes);
}

static void add_share(struct text *text, const struct gap__conf_entry *entry, double number) {
  if (number == 0 && !strcmp(entry->about.default_text, "off")) add(text, "off");
  else add_real(text, number);
}

static void add_value(struct text *text, const struct gap__conf_entry *entry, const struct gap__conf *values) {
  const void *member = gap__conf_member_const(entry, values);
  switch (entry->kind) {
    case GAP__CONF_KIND_BOOL: add(text, *(const bool *)member ? "True" : "False"); break;
    case GAP__CONF_KIND_MIB: add_mib(text, entry, *(const uint64_t *)member); break;
    case GAP__CONF_KIND_SIZE: add_size(text, *(const uint64_t *)member); break;
    case GAP__CONF_KIND_AMOUNT: add_amount(text, member); break;
    case GAP__CONF_KIND_REAL: add_share(text, entry, *(const double *)member); break;
    case GAP__CONF_KIND_COUNT: add_count(text, *(const uint32_t *)member); break;
    case GAP__CONF_KIND_MILLISECONDS: add_count(text, *(const uint64_t *)member); break;
    case GAP__CONF_KIND_BACKEND: add_backend(text, values); break;
    case GAP__CONF_KIND_STRATEGY: add(text, gap__conf_strategy_words[values->strategy]); break;
    case GAP__CONF_KIND_TORCH: add(text, gap__conf_torch_words[values->torch]); break;
    case GAP__CONF_KIND_CONVERT: add(text, gap__conf_convert_words[values->convert]); break;
    case GAP__CONF_KIND_SERVE: add(text, gap__conf_serve_words[*(const enum gap__serve *)member]); break;
    case GAP__CONF_KIND_LOG: add(text, gap__conf_log_words[values->log_level]); break;
    case GAP__CONF_KIND_ROUNDUP: add_roundup(text, member); break;
    case GAP__CONF_KIND_SIZES: add_sizes(text, values); break;
    case GAP__CONF_KIND_OVERFLOW: add_overflow(text, values); break;
    case GAP__CONF_KIND_TIERS:
    case GAP__CONF_KIND_TEXT: add(text, *(const char *)member ? member : "not set"); break;
  }
}

void gap__conf_value_text(const struct gap__conf_set *set, uint32_t index, char *out, size_t bytes) {
  struct text text = {out, bytes, 0};
  if (!bytes) return;
  *out = 0;
  if (index < GAP__CONF_OPTION_COUNT) add_value(&text, &gap__conf_table[index], &set->merged.values);
}
