#include "trace/strings.h"

#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"

static const char *const words[] = {
#define WORD(name, text) text,
#include "trace/keys.def"
#undef WORD
};

static uint32_t hash_of(const unsigned char *bytes, uint32_t length, uint64_t head) {
  uint64_t hash = (head ^ length * 0x9E3779B97F4A7C15u) * 0xff51afd7ed558ccdu;
  for (; length > 8; bytes += 8, length -= 8)
    hash = (hash ^ hash >> 32 ^ gap__strings_head(bytes + 8, length - 8)) * 0xff51afd7ed558ccdu;
  return (uint32_t)(hash >> 32);
}

/* The slot that holds the string, or the empty one where it belongs. */
static uint32_t slot_of(const struct gap__strings *strings, const void *bytes, uint32_t length, uint64_t head,
                        uint32_t hash) {
  uint32_t mask = strings->slot_count - 1, at = hash & mask;
  for (; strings->slots[at]; at = (at + 1) & mask) {
    const struct gap__string *known = &strings->ids.at[strings->slots[at] - 1];
    if (known->head != head || known->length != length) continue;
    if (length <= 8 || memcmp(strings->text.at + known->offset, bytes, length) == 0) break;
  }
  return at;
}

static int grow_slots(struct gap__strings *strings) {
  uint32_t count = strings->slot_count ? 2 * strings->slot_count : 256;
  uint32_t *slots = calloc(count, sizeof *slots);
  if (!slots) return GAP_ENOMETA;
  for (uint32_t id = 0; id < strings->ids.count; id++) {
    uint32_t at = strings->ids.at[id].hash & (count - 1);
    while (slots[at]) at = (at + 1) & (count - 1);
    slots[at] = id + 1;
  }
  free(strings->slots);
  strings->slots = slots;
  strings->slot_count = count;
  return 0;
}

static int room(struct gap__strings *strings, uint32_t length) {
  if (!GAP__VEC_ROOM(strings->text, (size_t)length + 1) || !GAP__VEC_ROOM(strings->ids, 1)) return GAP_ELIMIT;
  return 2 * (strings->ids.count + 1) > strings->slot_count ? grow_slots(strings) : 0;
}

static void add(struct gap__strings *strings, uint32_t slot, uint32_t length, uint64_t head, uint32_t hash,
                uint32_t *id) {
  strings->ids.at[strings->ids.count] = (struct gap__string){head, strings->text.count, length, hash};
  strings->text.at[strings->text.count + length] = 0;
  strings->text.count += length + 1;
  *id = strings->ids.count++;
  strings->slots[slot] = *id + 1;
}

int gap__strings_intern(struct gap__strings *strings, const void *bytes, uint32_t length, uint32_t *id) {
  uint64_t head = gap__strings_head(bytes, length);
  uint32_t hash = hash_of(bytes, length, head), slot = slot_of(strings, bytes, length, head, hash);
  if (strings->slots[slot]) {
    *id = strings->last = strings->slots[slot] - 1;
    return 0;
  }
  int rc = room(strings, length);
  if (rc) return rc;
  memcpy(strings->text.at + strings->text.count, bytes, length);
  add(strings, slot_of(strings, bytes, length, head, hash), length, head, hash, id);
  return 0;
}

int gap__strings_intern_tail(struct gap__strings *strings, uint32_t length, uint32_t *id) {
  int rc = room(strings, length);
  if (rc) return rc;
  const char *bytes = strings->text.at + strings->text.count;
  uint64_t head = gap__strings_head((const unsigned char *)bytes, length);
  uint32_t hash = hash_of((const unsigned char *)bytes, length, head);
  uint32_t slot = slot_of(strings, bytes, length, head, hash);
  if (strings->slots[slot]) *id = strings->slots[slot] - 1;
  else add(strings, slot, length, head, hash, id);
  return 0;
}

int gap__strings_init(struct gap__strings *strings) {
  *strings = (struct gap__strings){0};
  int rc = grow_slots(strings);
  for (uint32_t i = 0, id; !rc && i < GAP__WORD_COUNT; i++)
    rc = gap__strings_intern(strings, words[i], (uint32_t)strlen(words[i]), &id);
  return rc;
}

void gap__strings_destroy(struct gap__strings *strings) {
  free(strings->text.at);
  free(strings->ids.at);
  free(strings->slots);
  *strings = (struct gap__strings){0};
}
