#include "report/emit.h"

#include <string.h>

static void before_value(struct gap__emit *emit) {
  if (emit->follows) gap__text_add_char(&emit->text, ',');
  emit->follows = true;
}

void gap__emit_name(struct gap__emit *emit, const char *name) {
  before_value(emit);
  gap__text_add_char(&emit->text, '"');
  gap__text_add_bytes(&emit->text, name, strlen(name));
  gap__text_add_bytes(&emit->text, "\":", 2);
  emit->follows = false;
}

void gap__emit_begin(struct gap__emit *emit, char bracket) {
  before_value(emit);
  gap__text_add_char(&emit->text, bracket);
  emit->follows = false;
}

void gap__emit_end(struct gap__emit *emit, char bracket) {
  gap__text_add_char(&emit->text, bracket);
  emit->follows = true;
}

/* Most of a page are numbers: printf would be most of the time. */
void gap__emit_number(struct gap__emit *emit, uint64_t value) {
  char digits[20];
  size_t at = sizeof digits;
  do digits[--at] = (char)('0' + value % 10);
  while (value /= 10);
  before_value(emit);
  gap__text_add_bytes(&emit->text, digits + at, sizeof digits - at);
}

void gap__emit_signed(struct gap__emit *emit, int64_t value) {
  if (value >= 0) {
    gap__emit_number(emit, (uint64_t)value);
    return;
  }
  before_value(emit);
  gap__text_add_char(&emit->text, '-');
  emit->follows = false;
  gap__emit_number(emit, ~(uint64_t)value + 1);
}

/* The digits are put together by hand: a locale may have printf write a comma. */
void gap__emit_real(struct gap__emit *emit, double value) {
  int64_t whole = (int64_t)value;
  uint64_t rest = (uint64_t)((value < 0 ? (double)whole - value : value - (double)whole) * 10000 + 0.5);
  before_value(emit);
  if (value < 0) gap__text_add_char(&emit->text, '-');
  uint64_t size = (uint64_t)(whole < 0 ? -whole : whole) + rest / 10000;
  gap__text_add(&emit->text, "%llu.%04llu", (unsigned long long)size, (unsigned long long)(rest % 10000));
}

void gap__emit_bool(struct gap__emit *emit, bool value) {
  before_value(emit);
  gap__text_add(&emit->text, "%s", value ? "true" : "false");
}

void gap__emit_null(struct gap__emit *emit) {
  before_value(emit);
  gap__text_add_bytes(&emit->text, "null", 4);
}

static void put_escaped(struct gap__text *out, const char *text) {
  for (const char *at = text; *at; at++) {
    unsigned char c = (unsigned char)*at;
    if (c == '"' || c == '\\') gap__text_add_char(out, '\\');
    if (c < ' ' || c == 0x7f) gap__text_add(out, "\\u%04x", c);
    else gap__text_add_char(out, (char)c);
  }
}

void gap__emit_start(struct gap__emit *emit, const char *text, size_t most) {
  struct gap__text start = {0};
  gap__text_add_bytes(&start, text, strnlen(text, most));
  gap__emit_text(emit, gap__text_str(&start));
  emit->text.failed |= start.failed;
  gap__text_free(&start);
}

void gap__emit_text(struct gap__emit *emit, const char *text) {
  struct gap__text clean = {0};
  if (!text) {
    gap__emit_null(emit);
    return;
  }
  gap__text_add_utf8(&clean, text, "\xef\xbf\xbd");
  before_value(emit);
  gap__text_add_char(&emit->text, '"');
  put_escaped(&emit->text, gap__text_str(&clean));
  gap__text_add_char(&emit->text, '"');
  emit->text.failed |= clean.failed;
  gap__text_free(&clean);
}

void gap__emit_address(struct gap__emit *emit, uint64_t address) {
  before_value(emit);
  gap__text_add(&emit->text, "\"0x%llx\"", (unsigned long long)address);
}

void gap__emit_json(struct gap__emit *emit, const char *json) {
  before_value(emit);
  emit->text.failed |= json == NULL;
  if (json) gap__text_add_bytes(&emit->text, json, strlen(json));
}

void gap__emit_members(struct gap__emit *emit, const char *json) {
  size_t length = json ? strlen(json) : 0;
  emit->text.failed |= json == NULL;
  if (length <= 2) return; /* {} */
  before_value(emit);
  gap__text_add_bytes(&emit->text, json + 1, length - 2);
}
