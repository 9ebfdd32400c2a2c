#include "trace/json_text.h"

#include <stdlib.h>

#include "base/text.h"
#include "gapless/gapless.h"

static const char instead[] = "\xef\xbf\xbd";

json_t *gap__json_text(const char *text) {
  json_t *string = text ? json_string(text) : json_null();
  if (string) return string;
  struct gap__text clean = {0};
  gap__text_add_utf8(&clean, text, instead);
  string = json_string(gap__text_str(&clean));
  gap__text_free(&clean);
  return string ? string : json_null();
}

static int add(const char *bytes, size_t count, void *arg) {
  struct gap__text *text = arg;
  gap__text_add_bytes(text, bytes, count);
  return text->failed ? -1 : 0;
}

char *gap__json_take(json_t *document, size_t flags) {
  struct gap__text text = {0};
  int rc = document ? json_dump_callback(document, add, &text, flags) : -1;
  json_decref(document);
  if (rc == 0) return gap__text_take(&text);
  gap__text_free(&text);
  return NULL;
}

void gap__json_put(struct gap__output *out, const char *text) {
  struct gap__text clean = {0};
  gap__text_add_utf8(&clean, text, instead);
  for (const char *at = gap__text_str(&clean); *at; at++) {
    unsigned char c = (unsigned char)*at;
    if (c == '"' || c == '\\') gap__output_print(out, "\\%c", c);
    else if (c < ' ' || c == 0x7f) gap__output_print(out, "\\u%04x", c);
    else gap__output_byte(out, c);
  }
  if (clean.failed && !out->rc) out->rc = GAP_ENOMETA;
  gap__text_free(&clean);
}
