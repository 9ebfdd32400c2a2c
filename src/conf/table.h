/* The table of options.def as data: what each key sets in struct gap__conf, and how it is read and shown. */
#ifndef GAP_CONF_TABLE_H
#define GAP_CONF_TABLE_H

#include "conf/conf.h"

#define GAP__CONF_MIB ((uint64_t)1 << 20)
#define GAP__CONF_PAGE (2 * GAP__CONF_MIB)
#define GAP__CONF_SIZE_MOST ((uint64_t)1 << 60) /* no request of this size or more is ever served */
#define GAP__CONF_SLOTS 16                      /* of roundup_power2_divisions */

enum gap__conf_kind {
  GAP__CONF_KIND_BOOL,
  GAP__CONF_KIND_MIB,    /* bytes; a plain number is MiB */
  GAP__CONF_KIND_SIZE,   /* bytes */
  GAP__CONF_KIND_AMOUNT, /* bytes or % */
  GAP__CONF_KIND_REAL,
  GAP__CONF_KIND_COUNT,        /* uint32_t */
  GAP__CONF_KIND_MILLISECONDS, /* uint64_t */
  GAP__CONF_KIND_BACKEND,
  GAP__CONF_KIND_STRATEGY,
  GAP__CONF_KIND_CONVERT,
  GAP__CONF_KIND_TORCH,
  GAP__CONF_KIND_SERVE,
  GAP__CONF_KIND_LOG,
  GAP__CONF_KIND_ROUNDUP,
  GAP__CONF_KIND_SIZES,
  GAP__CONF_KIND_OVERFLOW,
  GAP__CONF_KIND_TEXT,
  GAP__CONF_KIND_TIERS, /* a text that is read: tiers.h */
};

enum gap__conf_rules { GAP__CONF_NONE = 0, GAP__CONF_OPEN = 1, GAP__CONF_POWER = 2, GAP__CONF_PAGES = 4 };

struct gap__conf_piece {
  size_t offset, bytes; /* inside struct gap__conf */
};

struct gap__conf_entry {
  struct gap__conf_option about;
  const char *alias; /* "" = none */
  enum gap__conf_kind kind;
  double least, most; /* every limit is a whole number below 2^53 or a power of two: exact */
  unsigned rules;
  struct gap__conf_piece pieces[2]; /* [0] is the member that the kind speaks of */
};

/* Indices of options.def, for code that speaks of one key: GAP__CONF_OPTION_max_memory. */
enum gap__conf_index {
#define GAP_OPTION(field, ...) GAP__CONF_OPTION_##field,
#include "conf/options.def"
  GAP__CONF_OPTION_COUNT
};

extern const struct gap__conf_entry gap__conf_table[GAP__CONF_OPTION_COUNT];
extern const char *const gap__conf_strategy_words[GAP__STRATEGY_COUNT];
extern const char *const gap__conf_torch_words[2];
extern const char *const gap__conf_convert_words[3];
extern const char *const gap__conf_serve_words[3];
extern const char *const gap__conf_log_words[4];

/* The entry's first member inside `values`. */
static inline void *gap__conf_member(const struct gap__conf_entry *entry, struct gap__conf *values) {
  return (char *)values + entry->pieces[0].offset;
}
static inline const void *gap__conf_member_const(const struct gap__conf_entry *entry, const struct gap__conf *values) {
  return (const char *)values + entry->pieces[0].offset;
}

/* The entry with this key or alias; -1: none. */
int gap__conf_find(const char *key);
/* A key of torch after 2.11. */
bool gap__conf_is_newer(const char *key);
const char *gap__conf_newer_at(uint32_t index); /* NULL behind the last */
/* The index of `word` among `count` words; -1: none. */
int gap__conf_find_word(const char *word, const char *const *words, int count);
/* Copies what the entry sets. */
void gap__conf_copy_option(const struct gap__conf_entry *, struct gap__conf *to, const struct gap__conf *from);
bool gap__conf_same_option(const struct gap__conf_entry *, const struct gap__conf *, const struct gap__conf *);
/* The table's defaults, all bytes written (padding too), so that equal values compare equal. */
void gap__conf_defaults(struct gap__conf *out);

#endif
