#include "conf/table.h"

#include <string.h>

#include "conf/tokens.h"
#include "conf/values.h"

#define MIB (1024.0 * 1024.0)
#define GIB (1024.0 * MIB)
#define SIZE_MOST ((double)GAP__CONF_SIZE_MOST)
#define TORCH true
#define OURS false
#define LIVE true
#define START false
#define OPEN GAP__CONF_OPEN
#define POWER GAP__CONF_POWER
#define PAGES GAP__CONF_PAGES
#define NONE GAP__CONF_NONE

#define TYPE_BOOL "bool"
#define TYPE_MIB "MiB"
#define TYPE_SIZE "size"
#define TYPE_AMOUNT "size or %"
#define TYPE_REAL "real"
#define TYPE_COUNT "count"
#define TYPE_MILLISECONDS "ms"
#define TYPE_BACKEND "word"
#define TYPE_STRATEGY "word"
#define TYPE_CONVERT "word"
#define TYPE_TORCH "version"
#define TYPE_SERVE "word"
#define TYPE_LOG "word"
#define TYPE_ROUNDUP "divisions"
#define TYPE_SIZES "sizes"
#define TYPE_OVERFLOW "bool or size"
#define TYPE_TEXT "text"
#define TYPE_TIERS "places"

#define PIECE(member) \
  { offsetof(struct gap__conf, member), sizeof(((struct gap__conf *)0)->member) }
#define GAP_OPTION(field, also, key, alias, kind, least, most, rules, range, unit, standard, origin, when, help) \
  {{key, TYPE_##kind, range, unit, standard, help, origin, when}, \
   alias, \
   GAP__CONF_KIND_##kind, \
   least, \
   most, \
   rules, \
   {PIECE(field), PIECE(also)}},
const struct gap__conf_entry gap__conf_table[GAP__CONF_OPTION_COUNT] = {
#include "conf/options.def"
};

_Static_assert(GAP__CONF_OPTION_COUNT <= 64, "a layer's named keys are bits of one word");

const char *const gap__conf_strategy_words[GAP__STRATEGY_COUNT] = {
#define GAP_STRATEGY(suffix, word) [GAP__STRATEGY_##suffix] = word,
#include "conf/options.def"
};
const char *const gap__conf_torch_words[2] = {"2.11", "2.12"};
const char *const gap__conf_convert_words[3] = {"off", "safe_points", "gated"};
const char *const gap__conf_serve_words[3] = {"auto", "True", "False"};
const char *const gap__conf_log_words[4] = {"error", "warning", "info", "debug"};

static const char *const newer_keys[] = {
#define GAP_NEWER(key) key,
#include "conf/options.def"
};
#define NEWER_COUNT (int)(sizeof newer_keys / sizeof *newer_keys)

int gap__conf_find(const char *key) {
  if (!*key) return -1;
  for (int i = 0; i < GAP__CONF_OPTION_COUNT; i++)
    if (!strcmp(key, gap__conf_table[i].about.key) || !strcmp(key, gap__conf_table[i].alias)) return i;
  return -1;
}

int gap__conf_find_word(const char *word, const char *const *words, int count) {
  for (int i = 0; i < count; i++)
    if (!strcmp(word, words[i])) return i;
  return -1;
}

bool gap__conf_is_newer(const char *key) { return gap__conf_find_word(key, newer_keys, NEWER_COUNT) >= 0; }

const char *gap__conf_newer_at(uint32_t index) { return index < (uint32_t)NEWER_COUNT ? newer_keys[index] : NULL; }

void gap__conf_copy_option(const struct gap__conf_entry *entry, struct gap__conf *to, const struct gap__conf *from) {
  for (int i = 0; i < 2; i++) {
    struct gap__conf_piece piece = entry->pieces[i];
    memcpy((char *)to + piece.offset, (const char *)from + piece.offset, piece.bytes);
  }
}

bool gap__conf_same_option(const struct gap__conf_entry *entry, const struct gap__conf *a, const struct gap__conf *b) {
  for (int i = 0; i < 2; i++) {
    struct gap__conf_piece piece = entry->pieces[i];
    if (memcmp((const char *)a + piece.offset, (const char *)b + piece.offset, piece.bytes) != 0) return false;
  }
  return true;
}

/* Such a default is all zeroes. */
static bool no_value(const char *text) {
  return !strcmp(text, "off") || !strcmp(text, "not set") || !strncmp(text, "as ", 3);
}

/* The table writes "20 MiB" for people; values are read without blanks. */
static void read_default(const struct gap__conf_entry *entry, struct gap__conf *out) {
  char value[GAP__CONF_VALUE_BYTES], reason[GAP__CONF_REASON_BYTES];
  const char *text = entry->about.default_text;
  (void)gap__conf_squeeze((struct gap__conf_span){text, strlen(text)}, value, sizeof value);
  (void)gap__conf_read_value(entry, value, out, reason);
}

void gap__conf_defaults(struct gap__conf *out) {
  memset(out, 0, sizeof *out);
  for (int i = 0; i < GAP__CONF_OPTION_COUNT; i++) {
    if (!no_value(gap__conf_table[i].about.default_text)) read_default(&gap__conf_table[i], out);
  }
  out->max_non_split_rounding = out->large_segment_size;
}

uint32_t gap__conf_option_count(void) { return GAP__CONF_OPTION_COUNT; }

const struct gap__conf_option *gap__conf_option_at(uint32_t index) {
  return index < GAP__CONF_OPTION_COUNT ? &gap__conf_table[index].about : NULL;
}
