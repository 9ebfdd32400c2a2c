/* A snapshot pickle becomes a history: dicts are recognised by their keys and decoded into records as they close, so no
 * tree of the file is ever built.  The records meet at the end, in snapshot_build.c. */
#ifndef GAP_TRACE_SNAPSHOT_H
#define GAP_TRACE_SNAPSHOT_H

#include "base/map.h"
#include "trace/history.h"
#include "trace/unpickle.h"

enum gap__dict_kind {
  GAP__DICT_LOOSE,         /* kept as pairs: not filled yet, filled piece by piece, or of no kind that matters */
  GAP__DICT_ENTRY,         /* the others are indices of records */
  GAP__DICT_UNKNOWN_ENTRY, /* an entry of an action that we do not know */
  GAP__DICT_FRAME,
  GAP__DICT_BLOCK,
  GAP__DICT_BLOCK_HISTORY,
  GAP__DICT_SEGMENT,
  GAP__DICT_ANNOTATION
};

struct gap__dict {
  uint32_t kind;  /* enum gap__dict_kind */
  uint32_t index; /* of the record; of a loose one: its last pair + 1 */
};

struct gap__pair {
  gap__value key, value;
  uint32_t before; /* the pair that came before it in the same dict, + 1 */
};

struct gap__block_record {
  uint64_t address, size, requested_size;
  gap__value state, history;
  uint32_t stack;
};

struct gap__block_history { /* old layouts describe a block by its past allocations */
  uint64_t real_size;
  uint32_t stack;
};

struct gap__annotation_record { /* taken as it is: what does not suit is left out later */
  gap__value name, stage, device, time_us;
};

struct gap__segment_record {
  uint64_t address, total_size, allocated_size, active_size, requested_size, stream;
  gap__value type, pool, blocks;
  int32_t device;
  bool is_expandable;
};

struct gap__snapshot {
  struct gap__unpickler pickle;
  GAP__VEC(struct gap__dict) dicts;
  GAP__VEC(struct gap__pair) pairs;
  GAP__VEC(struct gap__hist_event) entries;
  GAP__VEC(struct gap__hist_frame) frames;
  GAP__VEC(struct gap__block_record) blocks;
  GAP__VEC(struct gap__block_history) block_histories;
  GAP__VEC(struct gap__segment_record) segments;
  GAP__VEC(struct gap__annotation_record) annotations;
  GAP__VEC(struct gap__hist_stack) stacks; /* [0] unused */
  GAP__VEC(uint32_t) stack_frames;
  struct gap__map known_stacks; /* hash of the frames -> stack */
  int64_t time_base;            /* of the first entry of the file, us since 1970 */
  bool has_time_base;
  bool plain_way_only; /* tests: entries take the same way as other dicts */
};

/* Reads the whole pickle; the history lacks what needs the events as a whole (pools, wrapped). */
int gap__snapshot_read(struct gap__input *, bool plain_way_only, struct gap__history **out, char **message);

/* ---- between the parts of the reader ---- */

/* A trace entry while its items arrive. */
struct gap__entry_draft {
  struct gap__hist_event event;
  uint64_t seen; /* bit: enum gap__word of a key */
  bool unknown_action;
};

/* One item of an entry.  0, GAP_EFORMAT (the value does not suit the key), GAP_ELIMIT. */
int gap__entry_set(struct gap__snapshot *, struct gap__entry_draft *, uint32_t key, gap__value);
bool gap__entry_is_complete(const struct gap__entry_draft *);
/* Decodes entries of the usual shape from the window, as many as follow each other there; all but the last are pushed on
 * the stack, *out is the last.  False: nothing was done, take the plain way. */
bool gap__entry_quick(struct gap__snapshot *, gap__value *out);

/* The index of the stack made of a list of frames; 0 for an empty list. */
int gap__snapshot_stack(struct gap__snapshot *, gap__value frames, uint32_t *stack);
/* What a value is as a dict: LOOSE where it is none.  A dict that was filled piece by piece becomes a record now, if it is
 * of the kind wanted; of no other, so that dicts inside each other cannot make this recurse further. */
int gap__snapshot_resolve(struct gap__snapshot *, gap__value, enum gap__dict_kind wanted, struct gap__dict *out);
/* The value of a key of a loose dict; false when it is absent or the dict is none. */
bool gap__snapshot_get(const struct gap__snapshot *, gap__value dict, uint32_t key, gap__value *out);
int gap__snapshot_build(struct gap__snapshot *, gap__value root, struct gap__history *);

#endif
