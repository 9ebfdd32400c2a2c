/* Trace entries: nearly all of a snapshot's bytes, and so the one kind of dict with a way of its own. */
#include <string.h>

#include "gapless/gapless.h"
#include "trace/snapshot.h"

#define BIT(word) ((uint64_t)1 << GAP__WORD_##word)
#define KEYS_WANTED (BIT(ACTION) | BIT(SIZE))
_Static_assert(GAP__WORD_KEY_COUNT <= 64, "the keys seen are a mask of 64 bits");
_Static_assert(GAP__WORD_LARGE - GAP__WORD_ACT_FIRST == GAP__ACT_COUNT, "keys.def lists the actions in their order");

static bool set_action(struct gap__entry_draft *draft, gap__value value) {
  uint32_t action = gap__value_index(value) - GAP__WORD_ACT_FIRST;
  if (gap__value_tag(value) != GAP__TAG_STRING) return false;
  draft->unknown_action = action >= GAP__ACT_COUNT;
  draft->event.action = (uint8_t)action;
  return true;
}

static bool set_time(struct gap__snapshot *snapshot, struct gap__entry_draft *draft, gap__value value) {
  if (gap__value_tag(value) != GAP__TAG_INT) return false;
  if (!snapshot->has_time_base) {
    snapshot->time_base = gap__value_int(value);
    snapshot->has_time_base = true;
  }
  draft->event.time_us = gap__value_int(value) - snapshot->time_base;
  return true;
}

int gap__entry_set(struct gap__snapshot *snapshot, struct gap__entry_draft *draft, uint32_t key, gap__value value) {
  struct gap__unpickler *pickle = &snapshot->pickle;
  bool fits = true;
  switch (key) {
    case GAP__WORD_ACTION: fits = set_action(draft, value); break;
    case GAP__WORD_ADDR:
    case GAP__WORD_DEVICE_FREE: fits = gap__unpickle_u64(pickle, value, &draft->event.addr); break;
    case GAP__WORD_SIZE: fits = gap__unpickle_u64(pickle, value, &draft->event.size); break;
    case GAP__WORD_STREAM: fits = gap__unpickle_u64(pickle, value, &draft->event.stream); break;
    case GAP__WORD_TIME_US: fits = set_time(snapshot, draft, value); break;
    case GAP__WORD_FRAMES: return gap__snapshot_stack(snapshot, value, &draft->event.stack);
    default: break;
  }
  if (key < GAP__WORD_KEY_COUNT) draft->seen |= (uint64_t)1 << key;
  return fits ? 0 : GAP_EFORMAT;
}

bool gap__entry_is_complete(const struct gap__entry_draft *draft) {
  return (draft->seen & KEYS_WANTED) == KEYS_WANTED && draft->seen & (BIT(ADDR) | BIT(DEVICE_FREE));
}

/* ---- the quick way ------------------------------------------------------------------------------------------------- */

/* Reads ahead in the window; `at` is NULL once something unusual was met. */
struct scan {
  const unsigned char *at;
  struct gap__unpickler *pickle;
};

static uint32_t load32(const unsigned char *bytes) {
  uint32_t number;
  memcpy(&number, bytes, sizeof number);
  return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? __builtin_bswap32(number) : number;
}

static uint64_t load64(const unsigned char *bytes) {
  uint64_t number;
  memcpy(&number, bytes, sizeof number);
  return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? __builtin_bswap64(number) : number;
}

static inline gap__value unusual(struct scan *scan) {
  scan->at = NULL;
  return 0;
}

static inline gap__value scan_memo(struct scan *scan, uint32_t index, uint32_t bytes) {
  if (index >= scan->pickle->memo.count) return unusual(scan);
  scan->at += bytes;
  return scan->pickle->memo.at[index];
}

/* LONG1 of 1 to 7 bytes: loaded as 8, the rest shifted out, the sign kept. */
static inline gap__value scan_long(struct scan *scan) {
  unsigned count = scan->at[1];
  if (count - 1 > 6) return unusual(scan);
  int64_t number = (int64_t)(load64(scan->at + 2) << (64 - 8 * count)) >> (64 - 8 * count);
  scan->at += 2 + count;
  return gap__value_of_int(number);
}

/* Stores a value where a memo opcode follows, in the sequence that every pickler uses. */
static inline void scan_memoize(struct scan *scan, gap__value value) {
  struct gap__unpickler *pickle = scan->pickle;
  uint32_t bytes = 1;
  switch (*scan->at) {
    case 0x94: break;
    case 'q': bytes = scan->at[1] == pickle->memo.count ? 2 : 0; break;
    case 'r': bytes = load32(scan->at + 1) == pickle->memo.count ? 5 : 0; break;
    default: return;
  }
  if (bytes == 0 || !GAP__VEC_ROOM(pickle->memo, 1)) {
    unusual(scan);
    return;
  }
  pickle->memo.at[pickle->memo.count++] = value;
  scan->at += bytes;
}

static inline gap__value scan_string(struct scan *scan, uint32_t length, uint32_t before) {
  uint32_t id;
  if (length > 255 || gap__strings_intern(&scan->pickle->strings, scan->at + before, length, &id)) return unusual(scan);
  gap__value value = gap__value_of(GAP__TAG_STRING, id);
  scan->at += before + length;
  scan_memoize(scan, value);
  return value;
}

static inline gap__value scan_value(struct scan *scan) {
  const unsigned char *at = scan->at;
  switch (*at) {
    case 'h': return scan_memo(scan, at[1], 2);
    case 'j': return scan_memo(scan, load32(at + 1), 5);
    case 'K': scan->at += 2; return gap__value_of_int(at[1]);
    case 'M': scan->at += 3; return gap__value_of_int(at[1] | at[2] << 8);
    case 'J': scan->at += 5; return gap__value_of_int((int32_t)load32(at + 1));
    case 0x8a: return scan_long(scan);
    case 0x8c: return scan_string(scan, at[1], 2);
    case 'X': return scan_string(scan, load32(at + 1), 5);
    default: return unusual(scan);
  }
}

/* Key and value in turn until SETITEMS; the window is known to hold what one pair can take at most. */
static bool scan_items(struct gap__snapshot *snapshot, struct scan *scan, struct gap__entry_draft *draft) {
  const unsigned char *last = snapshot->pickle.input->end - GAP__INPUT_SLACK;
  while (*scan->at != 'u') {
    if (*scan->at != 'h' && *scan->at != 'j') return false;
    gap__value key = scan_value(scan);
    if (!scan->at || gap__value_tag(key) != GAP__TAG_STRING) return false;
    if (!draft->seen && gap__value_index(key) != GAP__WORD_ACTION) return false;
    gap__value value = scan_value(scan);
    if (!scan->at || value == 0 || scan->at > last) return false;
    if (gap__entry_set(snapshot, draft, gap__value_index(key), value)) return false;
  }
  scan->at++;
  return gap__entry_is_complete(draft) && !draft->unknown_action;
}

bool gap__entry_quick(struct gap__snapshot *snapshot, gap__value *out) {
  struct gap__unpickler *pickle = &snapshot->pickle;
  struct gap__input *input = pickle->input;
  uint32_t memo_count = pickle->memo.count;
  struct gap__entry_draft draft = {0};
  struct scan scan = {input->next, pickle};
  if (input->end - input->next < 2 * GAP__INPUT_SLACK || !GAP__VEC_ROOM(snapshot->entries, 1)) return false;
  *out = gap__value_of(GAP__TAG_ENTRY, snapshot->entries.count);
  scan_memoize(&scan, *out);
  bool plain = !scan.at || *scan.at++ != '(' || !scan_items(snapshot, &scan, &draft);
  if (plain) {
    pickle->memo.count = memo_count;
    return false;
  }
  snapshot->entries.at[snapshot->entries.count++] = draft.event;
  input->next = scan.at;
  return true;
}
