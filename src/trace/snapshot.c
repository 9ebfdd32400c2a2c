#include "trace/snapshot.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"
#include "trace/message.h"

#define EXPECTED_MAX ((uint64_t)1 << 30) /* bytes of a file that are prepared for */

/* ---- records by table ---------------------------------------------------------------------------------------------- */

enum field_type { FIELD_NONE, FIELD_U64, FIELD_I32, FIELD_BOOL, FIELD_TEXT, FIELD_STACK, FIELD_VALUE };

struct field {
  enum field_type type;
  size_t offset;
};

struct record_kind {
  const char *name;
  uint32_t mark; /* the key that tells this kind from the others */
  struct field fields[GAP__WORD_KEY_COUNT];
};

#define FIELD(record, type, member) \
  { FIELD_##type, offsetof(struct record, member) }

static const struct record_kind record_kinds[] = {
    [GAP__DICT_FRAME] = {"frame",
                         GAP__WORD_FILENAME,
                         {[GAP__WORD_NAME] = FIELD(gap__hist_frame, TEXT, name),
                          [GAP__WORD_FILENAME] = FIELD(gap__hist_frame, TEXT, filename),
                          [GAP__WORD_LINE] = FIELD(gap__hist_frame, I32, line)}},
    [GAP__DICT_BLOCK] = {"block",
                         GAP__WORD_STATE,
                         {[GAP__WORD_ADDRESS] = FIELD(gap__block_record, U64, address),
                          [GAP__WORD_SIZE] = FIELD(gap__block_record, U64, size),
                          [GAP__WORD_REQUESTED_SIZE] = FIELD(gap__block_record, U64, requested_size),
                          [GAP__WORD_STATE] = FIELD(gap__block_record, VALUE, state),
                          [GAP__WORD_HISTORY] = FIELD(gap__block_record, VALUE, history),
                          [GAP__WORD_FRAMES] = FIELD(gap__block_record, STACK, stack)}},
    [GAP__DICT_BLOCK_HISTORY] = {"block history",
                                 GAP__WORD_REAL_SIZE,
                                 {[GAP__WORD_REAL_SIZE] = FIELD(gap__block_history, U64, real_size),
                                  [GAP__WORD_FRAMES] = FIELD(gap__block_history, STACK, stack)}},
    [GAP__DICT_SEGMENT] = {"segment",
                           GAP__WORD_TOTAL_SIZE,
                           {[GAP__WORD_DEVICE] = FIELD(gap__segment_record, I32, device),
                            [GAP__WORD_ADDRESS] = FIELD(gap__segment_record, U64, address),
                            [GAP__WORD_TOTAL_SIZE] = FIELD(gap__segment_record, U64, total_size),
                            [GAP__WORD_ALLOCATED_SIZE] = FIELD(gap__segment_record, U64, allocated_size),
                            [GAP__WORD_ACTIVE_SIZE] = FIELD(gap__segment_record, U64, active_size),
                            [GAP__WORD_REQUESTED_SIZE] = FIELD(gap__segment_record, U64, requested_size),
                            [GAP__WORD_STREAM] = FIELD(gap__segment_record, U64, stream),
                            [GAP__WORD_SEGMENT_TYPE] = FIELD(gap__segment_record, VALUE, type),
                            [GAP__WORD_SEGMENT_POOL_ID] = FIELD(gap__segment_record, VALUE, pool),
                            [GAP__WORD_IS_EXPANDABLE] = FIELD(gap__segment_record, BOOL, is_expandable),
                            [GAP__WORD_BLOCKS] = FIELD(gap__segment_record, VALUE, blocks)}},
    [GAP__DICT_ANNOTATION] = {"annotation",
                              GAP__WORD_STAGE,
                              {[GAP__WORD_NAME] = FIELD(gap__annotation_record, VALUE, name),
                               [GAP__WORD_STAGE] = FIELD(gap__annotation_record, VALUE, stage),
                               [GAP__WORD_DEVICE] = FIELD(gap__annotation_record, VALUE, device),
                               [GAP__WORD_TIME_US] = FIELD(gap__annotation_record, VALUE, time_us)}},
};

static int store_i32(struct gap__snapshot *snapshot, gap__value value, int32_t *out) {
  int64_t number = gap__value_tag(value) == GAP__TAG_NONE ? 0 : gap__value_int(value);
  if (gap__value_tag(value) != GAP__TAG_INT && gap__value_tag(value) != GAP__TAG_NONE) return GAP_EFORMAT;
  if (number < INT32_MIN || number > INT32_MAX)
    return gap__unpickle_fail(&snapshot->pickle, GAP_EFORMAT, "%lld is no device or line number", (long long)number);
  *out = (int32_t)number;
  return 0;
}

static int store_text(struct gap__snapshot *snapshot, gap__value value, uint32_t *out) {
  if (gap__value_tag(value) == GAP__TAG_NONE) return 0;
  if (gap__value_tag(value) != GAP__TAG_STRING) return GAP_EFORMAT;
  *out = snapshot->pickle.strings.ids.at[gap__value_index(value)].offset;
  return 0;
}

static int store_bool(gap__value value, bool *out) {
  *out = gap__value_index(value) != 0;
  return gap__value_tag(value) == GAP__TAG_BOOL ? 0 : GAP_EFORMAT;
}

static int store(struct gap__snapshot *snapshot, const struct field *field, void *record, gap__value value) {
  void *to = (char *)record + field->offset;
  switch (field->type) {
    case FIELD_NONE: return 0;
    case FIELD_U64: return gap__unpickle_u64(&snapshot->pickle, value, to) ? 0 : GAP_EFORMAT;
    case FIELD_I32: return store_i32(snapshot, value, to);
    case FIELD_BOOL: return store_bool(value, to);
    case FIELD_TEXT: return store_text(snapshot, value, to);
    case FIELD_STACK: return gap__snapshot_stack(snapshot, value, to);
    case FIELD_VALUE: *(gap__value *)to = value; return 0;
  }
  return 0;
}

static int unsuitable(struct gap__snapshot *snapshot, int code, const char *record, gap__value key, gap__value value) {
  struct gap__unpickler *pickle = &snapshot->pickle;
  if (code != GAP_EFORMAT) return code;
  return gap__unpickle_fail(pickle, code, "'%s' of a %s cannot be %s",
                            gap__strings_text(&pickle->strings, gap__value_index(key)), record, gap__value_kind(value));
}

static int set_fields(struct gap__snapshot *snapshot, const struct record_kind *kind, void *record,
                      const gap__value *items, uint32_t count) {
  for (uint32_t i = 0; i < count; i += 2) {
    uint32_t key = gap__value_index(items[i]);
    if (gap__value_tag(items[i]) != GAP__TAG_STRING || key >= GAP__WORD_KEY_COUNT) continue;
    int rc = store(snapshot, &kind->fields[key], record, items[i + 1]);
    if (rc) return unsuitable(snapshot, rc, kind->name, items[i], items[i + 1]);
  }
  return 0;
}

/* ---- dicts by kind ------------------------------------------------------------------------------------------------- */

static enum gap__dict_kind kind_of(const gap__value *items, uint32_t count) {
  uint64_t keys = 0;
  for (uint32_t i = 0; i < count; i += 2)
    if (gap__value_tag(items[i]) == GAP__TAG_STRING && gap__value_index(items[i]) < GAP__WORD_KEY_COUNT)
      keys |= (uint64_t)1 << gap__value_index(items[i]);
  if (keys >> GAP__WORD_ACTION & 1) return GAP__DICT_ENTRY;
  for (enum gap__dict_kind kind = GAP__DICT_FRAME; kind <= GAP__DICT_ANNOTATION; kind++)
    if (keys >> record_kinds[kind].mark & 1) return kind;
  return GAP__DICT_LOOSE;
}

static int make_entry(struct gap__snapshot *snapshot, struct gap__dict *dict, const gap__value *items, uint32_t count) {
  static const char name[] = "trace entry";
  struct gap__entry_draft draft = {0};
  for (uint32_t i = 0; i < count; i += 2) {
    if (gap__value_tag(items[i]) != GAP__TAG_STRING) continue;
    int rc = gap__entry_set(snapshot, &draft, gap__value_index(items[i]), items[i + 1]);
    if (rc) return unsuitable(snapshot, rc, name, items[i], items[i + 1]);
  }
  if (draft.unknown_action) {
    *dict = (struct gap__dict){GAP__DICT_UNKNOWN_ENTRY, 0};
    return 0;
  }
  if (!gap__entry_is_complete(&draft))
    return gap__unpickle_fail(&snapshot->pickle, GAP_EFORMAT, "a trace entry without 'addr' or 'size'");
  if (!GAP__VEC_ROOM(snapshot->entries, 1)) return gap__unpickle_no_room(&snapshot->pickle);
  *dict = (struct gap__dict){GAP__DICT_ENTRY, snapshot->entries.count};
  snapshot->entries.at[snapshot->entries.count++] = draft.event;
  return 0;
}

#define MAKE_RECORD(vec) \
  { \
    if (!GAP__VEC_ROOM(snapshot->vec, 1)) return gap__unpickle_no_room(&snapshot->pickle); \
    dict->index = snapshot->vec.count; \
    record = &snapshot->vec.at[snapshot->vec.count++]; \
    memset(record, 0, sizeof *snapshot->vec.at); \
  }

static int make_record(struct gap__snapshot *snapshot, struct gap__dict *dict, enum gap__dict_kind kind,
                       const gap__value *items, uint32_t count) {
  void *record = NULL;
  dict->kind = kind;
  switch (kind) {
    case GAP__DICT_FRAME: MAKE_RECORD(frames); break;
    case GAP__DICT_BLOCK: MAKE_RECORD(blocks); break;
    case GAP__DICT_BLOCK_HISTORY: MAKE_RECORD(block_histories); break;
    case GAP__DICT_SEGMENT: MAKE_RECORD(segments); break;
    case GAP__DICT_ANNOTATION: MAKE_RECORD(annotations); break;
    default: return 0;
  }
  return set_fields(snapshot, &record_kinds[kind], record, items, count);
}

static int keep_pairs(struct gap__snapshot *snapshot, struct gap__dict *dict, const gap__value *items, uint32_t count) {
  if (!GAP__VEC_ROOM(snapshot->pairs, count / 2)) return gap__unpickle_no_room(&snapshot->pickle);
  for (uint32_t i = 0; i < count; i += 2) {
    snapshot->pairs.at[snapshot->pairs.count++] = (struct gap__pair){items[i], items[i + 1], dict->index};
    dict->index = snapshot->pairs.count;
  }
  return 0;
}

static int begin_dict(void *arg, gap__value *out) {
  struct gap__snapshot *snapshot = arg;
  if (!snapshot->plain_way_only && gap__entry_quick(snapshot, out)) return 0;
  if (!GAP__VEC_ROOM(snapshot->dicts, 1)) return gap__unpickle_no_room(&snapshot->pickle);
  snapshot->dicts.at[snapshot->dicts.count] = (struct gap__dict){GAP__DICT_LOOSE, 0};
  *out = gap__value_of(GAP__TAG_DICT, snapshot->dicts.count++);
  return 0;
}

static int fill_dict(void *arg, gap__value value, const gap__value *items, uint32_t count, bool whole) {
  struct gap__snapshot *snapshot = arg;
  struct gap__dict *dict = &snapshot->dicts.at[gap__value_index(value)];
  if (gap__value_tag(value) != GAP__TAG_DICT || dict->kind != GAP__DICT_LOOSE)
    return gap__unpickle_fail(&snapshot->pickle, GAP_EFORMAT, "a dict is changed after it was complete");
  enum gap__dict_kind kind = whole && dict->index == 0 ? kind_of(items, count) : GAP__DICT_LOOSE;
  if (kind == GAP__DICT_LOOSE) return keep_pairs(snapshot, dict, items, count);
  if (kind == GAP__DICT_ENTRY) return make_entry(snapshot, dict, items, count);
  return make_record(snapshot, dict, kind, items, count);
}

/* A dict that was filled item by item becomes the record that it is. */
static int settle(struct gap__snapshot *snapshot, enum gap__dict_kind wanted, struct gap__dict *dict) {
  GAP__VEC(gap__value) items = {0};
  int rc = 0;
  for (uint32_t pair = dict->index; pair && !rc; pair = snapshot->pairs.at[pair - 1].before) {
    if (!GAP__VEC_ROOM(items, 2)) rc = gap__unpickle_no_room(&snapshot->pickle);
    if (!rc) items.at[items.count++] = snapshot->pairs.at[pair - 1].value;
    if (!rc) items.at[items.count++] = snapshot->pairs.at[pair - 1].key;
  }
  for (uint32_t i = 0; i < items.count / 2; i++) { /* they were met last to first */
    gap__value kept = items.at[i];
    items.at[i] = items.at[items.count - 1 - i];
    items.at[items.count - 1 - i] = kept;
  }
  enum gap__dict_kind kind = items.count ? kind_of(items.at, items.count) : GAP__DICT_LOOSE;
  if (!rc && kind == wanted)
    rc = kind == GAP__DICT_ENTRY ? make_entry(snapshot, dict, items.at, items.count)
                                 : make_record(snapshot, dict, kind, items.at, items.count);
  free(items.at);
  return rc;
}

int gap__snapshot_resolve(struct gap__snapshot *snapshot, gap__value value, enum gap__dict_kind wanted,
                          struct gap__dict *out) {
  *out = (struct gap__dict){GAP__DICT_LOOSE, 0};
  if (gap__value_tag(value) == GAP__TAG_ENTRY) *out = (struct gap__dict){GAP__DICT_ENTRY, gap__value_index(value)};
  if (gap__value_tag(value) != GAP__TAG_DICT) return 0;
  *out = snapshot->dicts.at[gap__value_index(value)];
  if (out->kind != GAP__DICT_LOOSE || out->index == 0) return 0;
  int rc = settle(snapshot, wanted, out);
  if (!rc) snapshot->dicts.at[gap__value_index(value)] = *out; /* else a second look fails again */
  return rc;
}

bool gap__snapshot_get(const struct gap__snapshot *snapshot, gap__value value, uint32_t key, gap__value *out) {
  if (gap__value_tag(value) != GAP__TAG_DICT) return false;
  const struct gap__dict *dict = &snapshot->dicts.at[gap__value_index(value)];
  if (dict->kind != GAP__DICT_LOOSE) return false;
  for (uint32_t pair = dict->index; pair; pair = snapshot->pairs.at[pair - 1].before) {
    if (snapshot->pairs.at[pair - 1].key != gap__value_of(GAP__TAG_STRING, key)) continue;
    *out = snapshot->pairs.at[pair - 1].value;
    return true;
  }
  return false;
}

/* ---- stacks -------------------------------------------------------------------------------------------------------- */

static int add_frames(struct gap__snapshot *snapshot, uint32_t first, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    struct gap__dict dict;
    int rc = gap__snapshot_resolve(snapshot, snapshot->pickle.items.at[first + i], GAP__DICT_FRAME, &dict);
    if (rc) return rc;
    if (dict.kind != GAP__DICT_FRAME) return GAP_EFORMAT;
    if (!GAP__VEC_ROOM(snapshot->stack_frames, 1)) return gap__unpickle_no_room(&snapshot->pickle);
    snapshot->stack_frames.at[snapshot->stack_frames.count++] = dict.index;
  }
  return 0;
}

enum { PROBES_MAX = 8 };

static uint64_t hash_of(const uint32_t *frames, uint32_t count) {
  uint64_t hash = count;
  for (uint32_t i = 0; i < count; i++) hash = (hash ^ frames[i]) * 0x9E3779B97F4A7C15u + (hash >> 29);
  return hash;
}

static bool is_stack(const struct gap__snapshot *snapshot, uint32_t stack, const uint32_t *frames, uint32_t count) {
  const struct gap__hist_stack *at = &snapshot->stacks.at[stack];
  return at->count == count && memcmp(snapshot->stack_frames.at + at->first, frames, count * sizeof *frames) == 0;
}

/* Every allocation has a list of its own, but programs have few stacks: the frames from `first` on, as one that is known or as a new one.
 * Where a file was made to have many of one hash, some are kept twice. */
static int intern_stack(struct gap__snapshot *snapshot, uint32_t first, uint32_t *stack) {
  const uint32_t *frames = snapshot->stack_frames.at + first;
  uint32_t count = snapshot->stack_frames.count - first;
  uint64_t key = hash_of(frames, count), known, probes = 0;
  for (; probes < PROBES_MAX && gap__map_get(&snapshot->known_stacks, key, &known); key++, probes++) {
    *stack = (uint32_t)known;
    if (!is_stack(snapshot, *stack, frames, count)) continue;
    snapshot->stack_frames.count = first;
    return 0;
  }
  if (!GAP__VEC_ROOM(snapshot->stacks, 1)) return gap__unpickle_no_room(&snapshot->pickle);
  *stack = snapshot->stacks.count++;
  snapshot->stacks.at[*stack] = (struct gap__hist_stack){first, count};
  if (probes == PROBES_MAX || gap__map_put(&snapshot->known_stacks, key, *stack) == 0) return 0;
  return gap__unpickle_no_room(&snapshot->pickle);
}

/* A list that several entries share becomes one stack: its note remembers which. */
int gap__snapshot_stack(struct gap__snapshot *snapshot, gap__value frames, uint32_t *stack) {
  const struct gap__list *list = gap__unpickle_any_list(&snapshot->pickle, frames);
  *stack = list ? list->note : 0;
  if (!list) return gap__value_tag(frames) == GAP__TAG_NONE ? 0 : GAP_EFORMAT;
  if (*stack || list->count == 0) return 0;
  uint32_t first = snapshot->stack_frames.count;
  int rc = add_frames(snapshot, list->first, list->count);
  if (!rc) rc = intern_stack(snapshot, first, stack);
  if (!rc) gap__unpickle_take_list(&snapshot->pickle, frames, *stack);
  return rc;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

static void destroy(struct gap__snapshot *snapshot) {
  gap__unpickler_destroy(&snapshot->pickle);
  free(snapshot->dicts.at);
  free(snapshot->pairs.at);
  free(snapshot->entries.at);
  free(snapshot->frames.at);
  free(snapshot->blocks.at);
  free(snapshot->block_histories.at);
  free(snapshot->segments.at);
  free(snapshot->annotations.at);
  free(snapshot->stacks.at);
  free(snapshot->stack_frames.at);
  gap__map_free(&snapshot->known_stacks);
}

/* Entries take 60 to 80 bytes of a file.  Room for all of them at once, which costs addresses only, saves growing the two
 * largest arrays; where it is refused or too little they grow as they fill. */
static void expect(struct gap__snapshot *snapshot, const struct gap__input *input) {
  uint64_t bytes = input->decoder.encoding == GAP__ENC_PLAIN ? input->raw_total : 0;
  if (bytes > EXPECTED_MAX) bytes = EXPECTED_MAX;
  (void)GAP__VEC_ROOM(snapshot->entries, (uint32_t)(bytes / 64));
  (void)GAP__VEC_ROOM(snapshot->pickle.memo, (uint32_t)(bytes / 32));
  (void)GAP__VEC_ROOM(snapshot->pickle.items, (uint32_t)(bytes / 64));
}

static int read_into(struct gap__snapshot *snapshot, struct gap__history *history) {
  gap__value root = 0;
  expect(snapshot, snapshot->pickle.input);
  if (!GAP__VEC_ROOM(snapshot->stacks, 1)) return gap__unpickle_no_room(&snapshot->pickle);
  snapshot->stacks.at[snapshot->stacks.count++] = (struct gap__hist_stack){0, 0};
  int rc = gap__unpickler_run(&snapshot->pickle, &root);
  return rc ? rc : gap__snapshot_build(snapshot, root, history);
}

int gap__snapshot_read(struct gap__input *input, bool plain_way_only, struct gap__history **out, char **message) {
  static const struct gap__dict_sink sink = {begin_dict, fill_dict};
  struct gap__snapshot snapshot = {.plain_way_only = plain_way_only};
  struct gap__history *history = calloc(1, sizeof *history);
  *out = NULL;
  if (!history) return GAP_ENOMETA;
  int rc = gap__unpickler_init(&snapshot.pickle, input, &sink, &snapshot, message);
  if (!rc) rc = read_into(&snapshot, history);
  destroy(&snapshot);
  if (rc) gap__history_free(history);
  else *out = history;
  return rc;
}
