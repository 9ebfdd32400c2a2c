#include "conf/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/set.h"
#include "conf/tokens.h"
#include "conf/values.h"
#include "gapless/gapless.h"

#define VALUE_BYTES 1280

struct text {
  char *out;
  size_t bytes, length;
};

static void add(struct text *text, const char *piece) {
  for (; *piece; piece++, text->length++)
    if (text->length + 1 < text->bytes) text->out[text->length] = *piece;
}

/* torch reads whole numbers of MiB; what stands for "no value" is said to it by leaving the key out. */
static bool torch_value(const struct gap__conf_set *set, uint32_t index, char out[VALUE_BYTES]) {
  const struct gap__conf_entry *entry = &gap__conf_table[index];
  gap__conf_value_text(set, index, out, VALUE_BYTES);
  if (entry->kind == GAP__CONF_KIND_MIB) {
    uint64_t bytes = *(const uint64_t *)gap__conf_member_const(entry, gap__conf_values(set));
    (void)snprintf(out, VALUE_BYTES, "%llu", (unsigned long long)(bytes / GAP__CONF_MIB));
    return bytes && bytes != GAP__CONF_UNLIMITED;
  }
  return strcmp(out, "off") != 0;
}

static bool is_torchs(uint32_t index) {
  return gap__conf_table[index].about.torch && index != GAP__CONF_OPTION_backend_async;
}

static void add_options(const struct gap__conf_set *set, struct text *text) {
  char value[VALUE_BYTES];
  for (uint32_t i = 0; i < GAP__CONF_OPTION_COUNT; i++) {
    if (!is_torchs(i) || gap__conf_value_source(set, i, NULL) != GAP__CONF_RUNTIME || !torch_value(set, i, value))
      continue;
    if (text->length) add(text, ",");
    add(text, gap__conf_table[i].about.key);
    add(text, ":");
    add(text, value);
  }
}

int gap__conf_reduce(const char *string, char *out, size_t bytes, size_t *needed, struct gap__conf_report *report) {
  struct text text = {out, bytes, 0};
  struct gap__conf_set *set = gap__conf_new();
  if (!set) return GAP_ENOMETA;
  int result = gap__conf_apply(set, GAP__CONF_RUNTIME, "settings", string, report);
  if (!result) add_options(set, &text);
  if (bytes) out[text.length < bytes ? text.length : bytes - 1] = 0;
  *needed = text.length;
  gap__conf_free(set);
  return result;
}

static bool is_word(const char *text) {
  return gap__conf_find_word(text, gap__conf_strategy_words, GAP__STRATEGY_COUNT) >= 0;
}

bool gap__conf_asks_gapless(const char *string) {
  struct gap__conf_item *item = malloc(sizeof *item);
  bool quoted, asks = false, on;
  struct gap__conf_span rest = gap__conf_unquote(string, &quoted);
  while (item && gap__conf_next_item(&rest, item)) {
    if (gap__conf_find(item->key) == GAP__CONF_OPTION_backend_async) asks = is_word(item->value);
    else if (is_word(item->key)) asks |= !item->separator || (gap__conf_read_bool(item->value, &on) && on);
  }
  free(item);
  return asks;
}
