/* Interned strings: equal text, equal id. */
#ifndef GAP_TRACE_STRINGS_H
#define GAP_TRACE_STRINGS_H

#include <stdint.h>

#include "trace/vec.h"

enum gap__word {
#define WORD(name, text) GAP__WORD_##name,
#include "trace/keys.def"
#undef WORD
  GAP__WORD_COUNT
};

struct gap__string {
  uint32_t offset, length, hash; /* into text */
};

struct gap__strings {
  GAP__VEC(char) text; /* NUL after each */
  GAP__VEC(struct gap__string) ids;
  uint32_t *slots; /* id + 1, 0 empty; at most half full */
  uint32_t slot_count;
};

int gap__strings_init(struct gap__strings *); /* the words of keys.def; 0 or GAP_ENOMETA */
void gap__strings_destroy(struct gap__strings *);
/* 0, GAP_ELIMIT or GAP_ENOMETA. */
int gap__strings_intern(struct gap__strings *, const void *bytes, uint32_t length, uint32_t *id);
/* The same for `length` bytes that the caller has put behind the last string, at text.at + text.count. */
int gap__strings_intern_tail(struct gap__strings *, uint32_t length, uint32_t *id);

static inline const char *gap__strings_text(const struct gap__strings *strings, uint32_t id) {
  return strings->text.at + strings->ids.at[id].offset;
}

#endif
