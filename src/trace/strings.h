/* Interned strings: equal text, equal id. */
#ifndef GAP_TRACE_STRINGS_H
#define GAP_TRACE_STRINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "trace/vec.h"

enum gap__word {
#define WORD(name, text) GAP__WORD_##name,
#include "trace/keys.def"
#undef WORD
  GAP__WORD_COUNT
};

struct gap__string {
  uint64_t head;           /* the first 8 bytes, or all of them: short strings compare without looking at the text */
  uint32_t offset, length; /* into text */
  uint32_t hash;
};

struct gap__strings {
  GAP__VEC(char) text; /* NUL after each */
  GAP__VEC(struct gap__string) ids;
  uint32_t *slots; /* id + 1, 0 empty; at most half full */
  uint32_t slot_count;
  uint32_t last; /* id of the last string interned */
};

int gap__strings_init(struct gap__strings *); /* the words of keys.def; 0 or GAP_ENOMETA */
void gap__strings_destroy(struct gap__strings *);
/* 0, GAP_ELIMIT or GAP_ENOMETA. */
int gap__strings_intern(struct gap__strings *, const void *bytes, uint32_t length, uint32_t *id);
/* The same for `length` bytes that the caller has put behind the last string, at text.at + text.count. */
int gap__strings_intern_tail(struct gap__strings *, uint32_t length, uint32_t *id);

/* The first 8 bytes as a number; where there are fewer, one that differs whenever strings of one length differ. */
static inline uint64_t gap__strings_head(const unsigned char *bytes, uint32_t length) {
  uint64_t head = 0;
  uint32_t low = 0, high = 0;
  if (length >= 8) {
    memcpy(&head, bytes, 8);
  } else if (length >= 4) {
    memcpy(&low, bytes, 4);
    memcpy(&high, bytes + length - 4, 4);
    head = low | (uint64_t)high << 32;
  } else if (length) {
    head = (uint64_t)bytes[0] | (uint64_t)bytes[length / 2] << 8 | (uint64_t)bytes[length - 1] << 16;
  }
  return head;
}

/* Is the string of this id at most 8 bytes long and the one given? */
static inline bool gap__strings_is_short(const struct gap__strings *strings, uint32_t id, const unsigned char *bytes,
                                         uint32_t length) {
  const struct gap__string *known = &strings->ids.at[id];
  return length == known->length && length <= 8 && gap__strings_head(bytes, length) == known->head;
}

static inline const char *gap__strings_text(const struct gap__strings *strings, uint32_t id) {
  return strings->text.at + strings->ids.at[id].offset;
}

#endif
