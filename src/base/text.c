#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"

/* "1.69 GiB"; a whole number shows no fraction. */
static char *put_scaled(uint64_t value, uint64_t unit, const char *name, char *out) {
  uint64_t whole = value / unit, rest = value % unit;
  unsigned down = unit > (uint64_t)1 << 40 ? 20 : 0; /* keeps rest * 100 below 2^64 */
  unsigned hundredths = (unsigned)(((rest >> down) * 100 + (unit >> down) / 2) / (unit >> down));
  if (hundredths == 100) whole++, hundredths = 0;
  if (rest == 0) snprintf(out, GAP__TEXT_BYTES, "%llu %s", (unsigned long long)whole, name);
  else snprintf(out, GAP__TEXT_BYTES, "%llu.%02u %s", (unsigned long long)whole, hundredths, name);
  return out;
}

char *gap__text_size(uint64_t bytes, char out[GAP__TEXT_BYTES]) {
  static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  unsigned step = 0;
  while (step < 6 && bytes >> (10 * (step + 1))) step++;
  /* 1023.996 MiB reads "1 GiB", not "1024.00 MiB" */
  if (step < 6 && step > 0) {
    uint64_t unit = (uint64_t)1 << (10 * step);
    if (bytes / unit == 1023 && (bytes % unit) * 200 >= unit * 199) bytes = (uint64_t)1 << (10 * ++step);
  }
  return put_scaled(bytes, (uint64_t)1 << (10 * step), names[step], out);
}

char *gap__text_duration(uint64_t ns, char out[GAP__TEXT_BYTES]) {
  const uint64_t second = 1000000000;
  if (ns < 1000) return put_scaled(ns, 1, "ns", out);
  if (ns < 999995) return put_scaled(ns, 1000, "us", out);
  if (ns < 999995000) return put_scaled(ns, 1000000, "ms", out);
  if (ns < 120 * second) return put_scaled(ns, second, "s", out);
  unsigned long long seconds = ns / second + (ns % second >= second / 2), minutes = seconds / 60;
  if (minutes < 120) snprintf(out, GAP__TEXT_BYTES, "%llu min %02llu s", minutes, seconds % 60);
  else snprintf(out, GAP__TEXT_BYTES, "%llu h %02llu min", minutes / 60, minutes % 60);
  return out;
}

char *gap__text_thousands(uint64_t number, char out[GAP__TEXT_BYTES]) {
  char digits[GAP__TEXT_BYTES];
  int count = snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
  char *to = out;
  for (int i = 0; i < count; i++) {
    if (i && (count - i) % 3 == 0) *to++ = ',';
    *to++ = digits[i];
  }
  *to = 0;
  return out;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c; }

/* Digits from text[*at]; GAP_ELIMIT when the number does not fit. */
static int take_digits(const char *text, size_t length, size_t *at, uint64_t *out) {
  uint64_t value = 0;
  for (; *at < length && is_digit(text[*at]); ++*at) {
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, (uint64_t)(text[*at] - '0'), &value))
      return GAP_ELIMIT;
  }
  *out = value;
  return 0;
}

int gap__text_parse_u64(const char *text, size_t length, uint64_t *out) {
  size_t at = 0;
  uint64_t value = 0;
  while (at < length && is_digit(text[at])) at++;
  if (length == 0 || at != length) return GAP_EVALUE;
  at = 0;
  int rc = take_digits(text, length, &at, &value);
  if (rc == 0) *out = value;
  return rc;
}

/* "", "B", "K", "KB" or "KiB" and so on: the shift that the unit stands for, or -1. */
static int unit_shift(const char *unit, size_t length) {
  if (length == 0 || (length == 1 && lower(unit[0]) == 'b')) return 0;
  const char *letters = "kmgt", *found = strchr(letters, lower(unit[0]));
  if (!found || *found == 0) return -1;
  bool plain = length == 1, with_b = length == 2 && lower(unit[1]) == 'b';
  bool with_ib = length == 3 && lower(unit[1]) == 'i' && lower(unit[2]) == 'b';
  return plain || with_b || with_ib ? 10 * (int)(found - letters + 1) : -1;
}

/* The digits after a point, in bytes: floor(0.ddd x 2^shift), last digit first.  Nested floors of divisions are exact. */
static uint64_t fraction_bytes(const char *digits, size_t count, int shift) {
  uint64_t bytes = 0;
  while (count-- > 0) bytes = (((uint64_t)(digits[count] - '0') << shift) + bytes) / 10;
  return bytes;
}

int gap__text_parse_size(const char *text, size_t length, uint64_t *out) {
  size_t at = 0;
  while (at < length && is_digit(text[at])) at++;
  size_t whole_count = at, fraction = at, fraction_count = 0;
  if (at < length && text[at] == '.') {
    fraction = ++at;
    while (at < length && is_digit(text[at])) at++;
    fraction_count = at - fraction;
  }
  int shift = unit_shift(text + at, length - at);
  if (whole_count + fraction_count == 0 || shift < 0) return GAP_EVALUE;
  uint64_t whole = 0, bytes;
  size_t start = 0;
  if (take_digits(text, whole_count, &start, &whole) != 0) return GAP_ELIMIT;
  if (__builtin_mul_overflow(whole, (uint64_t)1 << shift, &bytes)) return GAP_ELIMIT;
  *out =
      bytes + fraction_bytes(text + fraction, fraction_count, shift); /* the fraction is below one unit: no overflow */
  return 0;
}

static double power_of_ten(int exponent) {
  double value = 1;
  for (int i = exponent < 0 ? -exponent : exponent; i > 0; i--) value *= 10;
  return exponent < 0 ? 1 / value : value;
}

/* The exponent after "e", if there is one: at most 3 digits. */
static bool take_exponent(const char *text, size_t length, size_t *at, int *exponent) {
  *exponent = 0;
  if (*at == length || lower(text[*at]) != 'e') return true;
  ++*at;
  bool negative = *at < length && text[*at] == '-';
  if (*at < length && (text[*at] == '-' || text[*at] == '+')) ++*at;
  size_t first = *at;
  for (; *at < length && is_digit(text[*at]) && *at - first < 3; ++*at) *exponent = *exponent * 10 + (text[*at] - '0');
  if (negative) *exponent = -*exponent;
  return *at > first;
}

int gap__text_parse_real(const char *text, size_t length, double *out) {
  size_t at = 0;
  bool negative = length && text[0] == '-';
  if (length && (text[0] == '-' || text[0] == '+')) at++;
  /* All digits go into one integer and one division: 0.9 becomes 9 / 10, the nearest double. */
  double mantissa = 0;
  int digits = 0, scale = 0, exponent;
  bool point = false;
  for (; at < length && (is_digit(text[at]) || (text[at] == '.' && !point)); at++) {
    if (text[at] == '.') {
      point = true;
    } else {
      mantissa = mantissa * 10 + (text[at] - '0');
      digits++;
      if (point) scale++;
    }
    if (digits > 300) return GAP_EVALUE;
  }
  if (digits == 0 || !take_exponent(text, length, &at, &exponent) || at != length) return GAP_EVALUE;
  exponent -= scale;
  if (exponent > 300 || exponent < -300) return GAP_EVALUE;
  double value = exponent < 0 ? mantissa / power_of_ten(-exponent) : mantissa * power_of_ten(exponent);
  if (value > 1e300) return GAP_EVALUE;
  *out = negative ? -value : value;
  return 0;
}

/* Room for `more` bytes and the NUL. */
static bool make_room(struct gap__text *text, size_t more) {
  if (text->failed) return false;
  size_t wanted;
  if (__builtin_add_overflow(text->length, more, &wanted) || wanted > SIZE_MAX / 4) return !(text->failed = true);
  if (wanted < text->capacity) return true;
  size_t capacity = text->capacity ? text->capacity : 64;
  while (capacity <= wanted) capacity *= 2;
  char *bytes = realloc(text->bytes, capacity);
  if (!bytes) return !(text->failed = true);
  text->bytes = bytes;
  text->capacity = capacity;
  return true;
}

void gap__text_free(struct gap__text *text) {
  free(text->bytes);
  *text = (struct gap__text){0};
}

void gap__text_clear(struct gap__text *text) {
  text->length = 0;
  if (text->bytes) text->bytes[0] = 0;
}

void gap__text_add_bytes(struct gap__text *text, const char *bytes, size_t length) {
  if (!make_room(text, length)) return;
  if (length) memcpy(text->bytes + text->length, bytes, length);
  text->length += length;
  text->bytes[text->length] = 0;
}

void gap__text_add_char(struct gap__text *text, char c) { gap__text_add_bytes(text, &c, 1); }

/* Bytes of the character that begins here; 0: none does.  Longer forms than needed, surrogates and what lies beyond U+10FFFF are no
 * characters. */
static size_t utf8_length(const unsigned char *at) {
  unsigned char low = at[0] == 0xe0   ? 0xa0
                      : at[0] == 0xf0 ? 0x90
                                      : 0x80,
                high = at[0] == 0xed   ? 0x9f
                       : at[0] == 0xf4 ? 0x8f
                                       : 0xbf;
  size_t length = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : 0;
  if (length > 1 && (at[1] < low || at[1] > high)) return 0;
  for (size_t i = 2; i < length; i++)
    if (at[i] < 0x80 || at[i] > 0xbf) return 0;
  return length;
}

int gap__text_fit(const char *text, int most) {
  size_t length = strnlen(text, (size_t)most + 1), back = 0;
  if (length <= (size_t)most) return (int)length;
  while (back < 3 && back < (size_t)most && ((unsigned char)text[(size_t)most - back] & 0xc0) == 0x80) back++;
  return most - (int)back;
}

void gap__text_make_plain(char *text) {
  for (unsigned char *at = (unsigned char *)text; *at; at++) {
    bool is_c1 = at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f;
    if (is_c1) at[1] = '?';
    if (is_c1 || at[0] < ' ' || at[0] == 0x7f) at[0] = '?';
  }
}

void gap__text_add_utf8(struct gap__text *text, const char *bytes, const char *instead) {
  while (*bytes) {
    size_t length = utf8_length((const unsigned char *)bytes);
    if (length) gap__text_add_bytes(text, bytes, length);
    else gap__text_add_bytes(text, instead, strlen(instead));
    bytes += length ? length : 1;
  }
}

void gap__text_addv(struct gap__text *text, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  if (length < 0) {
    text->failed = true;
  } else if (make_room(text, (size_t)length)) {
    vsnprintf(text->bytes + text->length, (size_t)length + 1, format, again);
    text->length += (size_t)length;
  }
  va_end(again);
}

void gap__text_add(struct gap__text *text, const char *format, ...) {
  va_list args;
  va_start(args, format);
  gap__text_addv(text, format, args);
  va_end(args);
}

const char *gap__text_str(const struct gap__text *text) { return text->bytes ? text->bytes : ""; }

char *gap__text_take(struct gap__text *text) {
  if (!text->bytes) gap__text_add_bytes(text, "", 0);
  if (text->failed) {
    gap__text_free(text);
    return NULL;
  }
  char *bytes = text->bytes;
  *text = (struct gap__text){0};
  return bytes;
}
