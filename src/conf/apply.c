/* One string on behalf of one source: read into a layer of its own, compared with the rest, then put in force as a whole. */
#include <stdlib.h>
#include <string.h>

#include "conf/check.h"
#include "conf/nearest.h"
#include "conf/report.h"
#include "conf/set.h"
#include "conf/tokens.h"
#include "conf/values.h"
#include "gapless/gapless.h"

struct reading {
  const struct gap__conf_set *set;
  const char *variable;
  struct gap__conf_span string;
  char quoted[GAP__CONF_QUOTE_BYTES]; /* the string, for messages */
  struct gap__conf_layer next;
  struct gap__conf_report *report;
  uint64_t keys_given;  /* bit i: key i stands in the string; next.named also has what the article's words set */
  const char *strategy; /* the word that chose it last; NULL: none yet */
  bool word_given;      /* by a word of the article, which chooses gapless too */
  bool strict;
  bool equals_noted;
  bool bad_value, bad_key;
};

static void refuse(struct reading *reading, const struct gap__conf_item *item, const struct gap__conf_option *about,
                   const char *reason) {
  char value[GAP__CONF_QUOTE_BYTES];
  gap__conf_quote(item->raw_value, 40, value);
  gap__conf_say(reading->report, GAP__CONF_ERROR,
                "%s: bad value '%s' for %s: %s; it takes %s%s%s%s. Nothing of \"%s\" is applied.", reading->variable,
                value, about->key, reason, about->range, *about->unit ? " (" : "", about->unit, *about->unit ? ")" : "",
                reading->quoted);
  reading->bad_value = true;
}

static const char *fate(const struct reading *reading) {
  return reading->strict ? "Nothing of the string is applied (strict)." : "It is ignored.";
}

/* The search for the nearest key is not cheap: a flood of unknown keys is only counted once the report is full. */
static void unknown_key(struct reading *reading, const struct gap__conf_item *item) {
  enum gap__conf_level level = reading->strict ? GAP__CONF_ERROR : GAP__CONF_WARNING;
  char key[GAP__CONF_QUOTE_BYTES];
  bool close = false;
  const char *nearest = gap__conf_has_room(reading->report) ? gap__conf_nearest_key(item->key, &close) : "";
  gap__conf_quote((struct gap__conf_span){item->key, strlen(item->key)}, 60, key);
  gap__conf_say(reading->report, level, "%s: unknown key '%s' in \"%s\": %s '%s'%s %s", reading->variable, key,
                reading->quoted, close ? "did you mean" : "the nearest is", nearest, close ? "?" : ".", fate(reading));
  reading->bad_key |= reading->strict;
  if (reading->report) reading->report->unknown++;
}

static void newer_key(struct reading *reading, const struct gap__conf_item *item) {
  gap__conf_say(reading->report, reading->strict ? GAP__CONF_ERROR : GAP__CONF_WARNING,
                "%s: '%s' in \"%s\" is newer than torch 2.11, whose keys are known here. %s", reading->variable,
                item->key, reading->quoted, fate(reading));
  reading->bad_key |= reading->strict;
  if (reading->report) reading->report->unknown++;
}

static void choose_strategy(struct reading *reading, const char *word, bool by_word) {
  if (reading->strategy && strcmp(reading->strategy, word) != 0)
    gap__conf_say(reading->report, GAP__CONF_WARNING,
                  "%s: '%s' and '%s' both choose the strategy in \"%s\": the last, '%s', wins", reading->variable,
                  reading->strategy, word, reading->quoted, word);
  int index = gap__conf_find_word(word, gap__conf_strategy_words, GAP__STRATEGY_COUNT);
  reading->strategy = gap__conf_strategy_words[index];
  reading->next.values.strategy = (enum gap__strategy)index;
  reading->next.named |= gap__conf_bit(GAP__CONF_OPTION_strategy);
  if (!by_word) return;
  if (reading->next.named & gap__conf_bit(GAP__CONF_OPTION_backend_async) && !reading->next.values.backend_gapless)
    gap__conf_say(reading->report, GAP__CONF_WARNING,
                  "%s: '%s' chooses gapless, and overrules the backend named before it in \"%s\"", reading->variable,
                  word, reading->quoted);
  reading->word_given = true;
  reading->next.values.backend_gapless = true;
  reading->next.values.backend_async = false;
  reading->next.named |= gap__conf_bit(GAP__CONF_OPTION_backend_async);
}

/* heuristic, heuristic:1, heuristic:True choose it; heuristic:0 chooses nothing. */
static void read_word(struct reading *reading, const struct gap__conf_item *item) {
  static const struct gap__conf_option about = {.key = "a strategy's word", .range = "nothing, or True", .unit = ""};
  bool on = true;
  if (item->separator && !gap__conf_read_bool(item->value, &on)) {
    refuse(reading, item, &about, "it is neither True nor False");
  } else if (on) {
    choose_strategy(reading, item->key, true);
    gap__conf_say(reading->report, GAP__CONF_NOTE,
                  "%s: no release of torch knows '%s'; here it chooses gapless with that strategy", reading->variable,
                  item->key);
  } else {
    gap__conf_say(reading->report, GAP__CONF_NOTE, "%s: %s is not chosen; this changes nothing", reading->variable,
                  item->key);
  }
}

static void note_given(struct reading *reading, int index) {
  if (reading->keys_given & gap__conf_bit(index) &&
      index != GAP__CONF_OPTION_strategy) /* choose_strategy speaks of that one */
    gap__conf_say(reading->report, GAP__CONF_WARNING, "%s: %s is given more than once in \"%s\": the last one wins",
                  reading->variable, gap__conf_table[index].about.key, reading->quoted);
  reading->keys_given |= gap__conf_bit(index);
  reading->next.named |= gap__conf_bit(index);
}

/* The value's text as its kind wants it: only paths keep their blanks. NULL with a reason when there is none. */
static const char *value_text(const struct gap__conf_entry *entry, const struct gap__conf_item *item,
                              char buffer[GAP__CONF_VALUE_BYTES], const char **reason) {
  *reason = item->bracket_open     ? "its [ is never closed"
            : !item->separator     ? "the key stands without a value"
            : !item->value[0]      ? "there is no value after the key"
            : item->value_too_long ? "it is longer than any value can be"
                                   : NULL;
  if (*reason) return NULL;
  if ((entry->kind != GAP__CONF_KIND_TEXT && entry->kind != GAP__CONF_KIND_TIERS) ||
      item->raw_value.length >= GAP__CONF_VALUE_BYTES)
    return item->value;
  memcpy(buffer, item->raw_value.start, item->raw_value.length);
  buffer[item->raw_value.length] = 0;
  return buffer;
}

static void read_option(struct reading *reading, const struct gap__conf_item *item, int index) {
  const struct gap__conf_entry *entry = &gap__conf_table[index];
  char buffer[GAP__CONF_VALUE_BYTES], words[GAP__CONF_REASON_BYTES];
  const char *reason;
  const char *text = value_text(entry, item, buffer, &reason);
  if (text && gap__conf_read_value(entry, text, &reading->next.values, words)) reason = words;
  if (reason) {
    refuse(reading, item, &entry->about, reason);
    return;
  }
  note_given(reading, index);
  if (index == GAP__CONF_OPTION_strategy) choose_strategy(reading, text, false);
  bool other_word =
      index == GAP__CONF_OPTION_backend_async && reading->next.values.backend_gapless && strcmp(text, "gapless") != 0;
  if (other_word) choose_strategy(reading, text, true);
}

static void note_equals(struct reading *reading, const struct gap__conf_item *item) {
  if (item->separator != '=' || reading->equals_noted) return;
  reading->equals_noted = true;
  gap__conf_say(reading->report, GAP__CONF_NOTE, "%s: key=value is read as key:value; torch itself takes only ':'",
                reading->variable);
}

static void read_item(struct reading *reading, const struct gap__conf_item *item) {
  int index = gap__conf_find(item->key);
  bool word = gap__conf_find_word(item->key, gap__conf_strategy_words, GAP__STRATEGY_COUNT) >= 0;
  note_equals(reading, item);
  if (index >= 0) read_option(reading, item, index);
  else if (word) read_word(reading, item);
  else if (gap__conf_is_newer(item->key)) newer_key(reading, item);
  else unknown_key(reading, item);
}

/* strict counts for the whole string wherever it stands, so it is looked for first. */
static bool find_strict(const struct reading *reading, struct gap__conf_item *item, bool otherwise) {
  struct gap__conf_span rest = reading->string;
  bool strict = otherwise;
  while (gap__conf_next_item(&rest, item))
    if (gap__conf_find(item->key) == GAP__CONF_OPTION_strict) (void)gap__conf_read_bool(item->value, &strict);
  return strict;
}

static void read_string(struct reading *reading, struct gap__conf_item *item) {
  struct gap__conf_span rest = reading->string;
  while (gap__conf_next_item(&rest, item)) read_item(reading, item);
  if (reading->word_given && !reading->next.values.backend_gapless)
    gap__conf_say(reading->report, GAP__CONF_WARNING,
                  "%s: the strategy '%s' is not used: \"%s\" chooses another backend after it", reading->variable,
                  reading->strategy, reading->quoted);
}

/* Says which keys of the string come too late. */
static void warn_late(const struct reading *reading) {
  if (!reading->set->frozen) return;
  for (int i = 0; i < GAP__CONF_OPTION_COUNT; i++) {
    const struct gap__conf_entry *entry = &gap__conf_table[i];
    if (entry->about.mutable_ || !(reading->next.named & gap__conf_bit(i))) continue;
    if (!gap__conf_same_option(entry, &reading->next.values, &reading->set->merged.values))
      gap__conf_say(reading->report, GAP__CONF_WARNING,
                    "%s: too late for %s: it is read when the program starts, and keeps its value", reading->variable,
                    entry->about.key);
  }
}

static void begin(struct reading *reading, const char *string) {
  bool quoted;
  reading->string = gap__conf_unquote(string, &quoted);
  gap__conf_quote(reading->string, 60, reading->quoted);
  gap__conf_layer_init(&reading->next, &reading->set->layers[GAP__CONF_DEFAULT].values, reading->variable);
  if (quoted)
    gap__conf_say(reading->report, GAP__CONF_NOTE,
                  "%s: the quotes are part of the value; they are dropped here, torch itself would refuse them",
                  reading->variable);
}

int gap__conf_load(struct gap__conf_set *set, enum gap__conf_source source, const char *variable, const char *string,
                   uint64_t also_watched, bool quiet, struct gap__conf_report *report) {
  struct work {
    struct reading reading;
    struct gap__conf_item item;
    struct gap__conf_merged merged;
  } *work = calloc(1, sizeof *work); /* several KiB: not for a caller's small stack */
  if (!work) return GAP_ENOMETA;
  struct reading *reading = &work->reading;
  *reading = (struct reading){.set = set, .variable = variable, .report = report};
  begin(reading, string);
  gap__conf_preview(set, source, &reading->next, &work->merged);
  reading->strict = find_strict(reading, &work->item, work->merged.values.strict);
  read_string(reading, &work->item);
  int result = reading->bad_value ? GAP_EVALUE : reading->bad_key ? GAP_EKEY : 0;
  if (!result) {
    uint64_t named = reading->next.named;
    gap__conf_preview(set, source, &reading->next, &work->merged);
    struct gap__conf_check check = {set,   source, variable, &work->merged, named, quiet ? 0 : named | also_watched,
                                    report};
    if (gap__conf_contradicts(&check)) result = GAP_EVALUE;
  }
  if (!result) {
    warn_late(reading);
    gap__conf_commit(set, source, &reading->next, &work->merged);
  }
  free(work);
  return result;
}

int gap__conf_apply(struct gap__conf_set *set, enum gap__conf_source source, const char *variable, const char *string,
                    struct gap__conf_report *report) {
  if (source <= GAP__CONF_DEFAULT || source > GAP__CONF_RUNTIME || !variable || !string) return GAP_EINVAL;
  return gap__conf_load(set, source, variable, string, 0, false, report);
}
