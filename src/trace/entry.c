/* Trace entries: nearly all of a snapshot's bytes, and so the one kind of dict with a way of its own. */
#include <string.h>

#include "gapless/gapless.h"
#include "trace/snapshot.h"

#define BIT(word) ((uint64_t)1 << GAP__WORD_##word)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
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

ALWAYS_INLINE int set(struct gap__snapshot *snapshot, struct gap__entry_draft *draft, uint32_t key, gap__value value) {
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

int gap__entry_set(struct gap__snapshot *snapshot, struct gap__entry_draft *draft, uint32_t key, gap__value value) {
  return set(snapshot, draft, key, value);
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

ALWAYS_INLINE gap__value unusual(struct scan *scan) {
  scan->at = NULL;
  return 0;
}

ALWAYS_INLINE bool is_get(unsigned char op) { return op == 'h' || op == 'j'; }

ALWAYS_INLINE gap__value scan_get(struct scan *scan) {
  bool is_long = *scan->at == 'j';
  uint32_t index = is_long ? load32(scan->at + 1) : scan->at[1];
  if (index >= scan->pickle->memo.count) return unusual(scan);
  scan->at += is_long ? 5 : 2;
  return scan->pickle->memo.at[index];
}

/* LONG1 of 1 to 7 bytes: loaded as 8, the rest shifted out, the sign kept. */
ALWAYS_INLINE gap__value scan_long(struct scan *scan) {
  unsigned count = scan->at[1];
  if (count - 1 > 6) return unusual(scan);
  int64_t number = (int64_t)(load64(scan->at + 2) << (64 - 8 * count)) >> (64 - 8 * count);
  scan->at += 2 + count;
  return gap__value_of_int(number);
}

/* Stores a value where a memo opcode follows, in the sequence that every pickler uses. */
ALWAYS_INLINE void scan_memoize(struct scan *scan, gap__value value) {
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

ALWAYS_INLINE gap__value scan_string(struct scan *scan, uint32_t length, uint32_t before) {
  uint32_t id = scan->pickle->strings.last;
  if (length > 255) return unusual(scan);
  if (!gap__strings_is_short(&scan->pickle->strings, id, scan->at + before, length) &&
      gap__strings_intern(&scan->pickle->strings, scan->at + before, length, &id))
    return unusual(scan);
  gap__value value = gap__value_of(GAP__TAG_STRING, id);
  scan->at += before + length;
  scan_memoize(scan, value);
  return value;
}

/* By how often they occur; comparisons are cheaper here than a jump table, whose target depends on the data. */
ALWAYS_INLINE gap__value scan_value(struct scan *scan) {
  const unsigned char *at = scan->at, op = *at;
  if (op == 0x8a) return scan_long(scan);
  if (is_get(op)) return scan_get(scan);
  if (op == 'K') return scan->at += 2, gap__value_of_int(at[1]);
  if (op == 0x8c) return scan_string(scan, at[1], 2);
  if (op == 'J') return scan->at += 5, gap__value_of_int((int32_t)load32(at + 1));
  if (op == 'M') return scan->at += 3, gap__value_of_int(at[1] | at[2] << 8);
  if (op == 'X') return scan_string(scan, load32(at + 1), 5);
  return unusual(scan);
}

/* One key and its value.  `likely` is a constant at each place of use: the compiler makes a copy for each, whose branches
 * the processor predicts apart. */
ALWAYS_INLINE bool scan_item(struct gap__snapshot *snapshot, struct scan *scan, struct gap__entry_draft *draft,
                             uint32_t likely) {
  if (!is_get(*scan->at)) return false;
  gap__value key = scan_get(scan);
  if (!scan->at || gap__value_tag(key) != GAP__TAG_STRING) return false;
  gap__value value = scan_value(scan);
  if (!scan->at || value == 0) return false;
  if (gap__value_index(key) == likely) return !set(snapshot, draft, likely, value);
  return !set(snapshot, draft, gap__value_index(key), value);
}

/* Items until SETITEMS, in the usual order or in another. */
static bool scan_items(struct gap__snapshot *snapshot, struct scan *scan, struct gap__entry_draft *draft) {
  static const uint32_t usual[] = {GAP__WORD_ACTION,       GAP__WORD_ADDR,    GAP__WORD_SIZE,
                                   GAP__WORD_STREAM,       GAP__WORD_TIME_US, GAP__WORD_COMPILE_CONTEXT,
                                   GAP__WORD_USER_METADATA};
  const unsigned char *last = snapshot->pickle.input->end - GAP__INPUT_SLACK;
#pragma GCC unroll 7
  for (unsigned i = 0; i < 7; i++) {
    if (*scan->at == 'u') break;
    if (!scan_item(snapshot, scan, draft, usual[i]) || scan->at > last) return false;
    if (i == 0 && !(draft->seen & BIT(ACTION))) return false; /* some other dict: do not read it twice */
  }
  while (*scan->at != 'u')
    if (!scan_item(snapshot, scan, draft, GAP__WORD_FRAMES) || scan->at > last) return false;
  scan->at++;
  return gap__entry_is_complete(draft) && !draft->unknown_action;
}

/* One entry from input->next on; leaves everything as it was where it is not of the usual shape. */
static bool scan_entry(struct gap__snapshot *snapshot, gap__value value) {
  struct gap__unpickler *pickle = &snapshot->pickle;
  struct gap__entry_draft draft = {0};
  struct scan scan = {pickle->input->next, pickle};
  uint32_t memo_count = pickle->memo.count;
  if (pickle->input->end - scan.at < 2 * GAP__INPUT_SLACK || !GAP__VEC_ROOM(snapshot->entries, 1)) return false;
  scan_memoize(&scan, value);
  if (!scan.at || *scan.at++ != '(' || !scan_items(snapshot, &scan, &draft)) {
    pickle->memo.count = memo_count;
    return false;
  }
  snapshot->entries.at[snapshot->entries.count++] = draft.event;
  pickle->input->next = scan.at;
  return true;
}

bool gap__entry_quick(struct gap__snapshot *snapshot, gap__value *out) {
  struct gap__unpickler *pickle = &snapshot->pickle;
  *out = gap__value_of(GAP__TAG_ENTRY, snapshot->entries.count);
  if (!scan_entry(snapshot, *out)) return false;
  while (*pickle->input->next == '}' && GAP__VEC_ROOM(pickle->stack, 1)) {
    gap__value next = gap__value_of(GAP__TAG_ENTRY, snapshot->entries.count);
    pickle->input->next++;
    if (!scan_entry(snapshot, next)) {
      pickle->input->next--;
      break;
    }
    pickle->stack.at[pickle->stack.count++] = *out;
    *out = next;
  }
  return true;
}
