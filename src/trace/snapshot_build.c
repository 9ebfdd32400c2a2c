/* The last step of a snapshot: from the records to the arrays of a history. */
#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"
#include "trace/snapshot.h"

#define DEVICES_MAX 1024
#define POOLS_MAX UINT16_MAX

static int fail_wrong(struct gap__snapshot *snapshot, const char *what, gap__value value) {
  return gap__unpickle_fail(&snapshot->pickle, GAP_EFORMAT, "%s cannot be %s", what, gap__value_kind(value));
}

static int allocate(struct gap__snapshot *snapshot, size_t count, size_t bytes, void *out) {
  void *at = calloc(count ? count : 1, bytes);
  memcpy(out, &at, sizeof at); /* a pointer of any type */
  if (at) return 0;
  return gap__unpickle_fail(&snapshot->pickle, GAP_ENOMETA, "out of host memory");
}

static gap__value item(const struct gap__snapshot *snapshot, const struct gap__list *list, uint32_t index) {
  return snapshot->pickle.items.at[list->first + index];
}

/* ---- events -------------------------------------------------------------------------------------------------------- */

/* The entries of one device's list, as indices; unknown ones are counted and left out. */
static int entry_indices(struct gap__snapshot *snapshot, const struct gap__list *list, struct gap__history *history,
                         uint32_t *indices, uint32_t *count) {
  for (uint32_t i = 0; i < list->count; i++) {
    struct gap__dict dict;
    int rc = gap__snapshot_resolve(snapshot, item(snapshot, list, i), GAP__DICT_ENTRY, &dict);
    if (rc) return rc;
    if (dict.kind == GAP__DICT_UNKNOWN_ENTRY) {
      history->unknown_actions++;
    } else if (dict.kind == GAP__DICT_ENTRY) {
      indices[(*count)++] = dict.index;
    } else {
      return fail_wrong(snapshot, "an item of 'device_traces'", item(snapshot, list, i));
    }
  }
  return 0;
}

/* Nearly always every entry is listed once and in the order of the file. */
static bool is_run(struct gap__snapshot *snapshot, const struct gap__list *list, uint64_t first) {
  for (uint32_t i = 0; i < list->count; i++) {
    gap__value value = item(snapshot, list, i);
    struct gap__dict dict;
    if (value == gap__value_of(GAP__TAG_ENTRY, first + i)) continue;
    if (gap__value_tag(value) != GAP__TAG_DICT) return false;
    dict = snapshot->dicts.at[gap__value_index(value)];
    if (dict.kind != GAP__DICT_ENTRY || dict.index != first + i) return false;
  }
  return true;
}

static int device_list(struct gap__snapshot *snapshot, gap__value traces, uint32_t device,
                       const struct gap__list **out) {
  const struct gap__list *all = gap__unpickle_list(&snapshot->pickle, traces);
  *out = gap__unpickle_list(&snapshot->pickle, item(snapshot, all, device));
  return *out ? 0 : fail_wrong(snapshot, "the trace of a device", item(snapshot, all, device));
}

static int listed_total(struct gap__snapshot *snapshot, gap__value traces, uint32_t devices, uint64_t *total) {
  const struct gap__list *list;
  *total = 0;
  for (uint32_t i = 0; i < devices; i++) {
    int rc = device_list(snapshot, traces, i, &list);
    if (rc) return rc;
    *total += list->count;
  }
  if (*total <= (uint64_t)snapshot->entries.count + snapshot->dicts.count) return 0;
  return gap__unpickle_fail(&snapshot->pickle, GAP_EFORMAT, "trace entries are listed more than once");
}

static int gather(struct gap__snapshot *snapshot, gap__value traces, struct gap__history *history, uint32_t *indices) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < history->device_count; i++) {
    const struct gap__list *list;
    uint32_t before = count;
    int rc = device_list(snapshot, traces, i, &list);
    if (!rc) rc = entry_indices(snapshot, list, history, indices, &count);
    if (rc) return rc;
    history->devices[i].event_count = count - before;
  }
  int rc = allocate(snapshot, count, sizeof *history->event_storage, &history->event_storage);
  for (uint32_t i = 0; !rc && i < count; i++) history->event_storage[i] = snapshot->entries.at[indices[i]];
  return rc;
}

static int gather_any_order(struct gap__snapshot *snapshot, gap__value traces, uint64_t total,
                            struct gap__history *history) {
  uint32_t *indices = NULL;
  int rc = allocate(snapshot, (size_t)total, sizeof *indices, &indices);
  if (!rc) rc = gather(snapshot, traces, history, indices);
  free(indices);
  return rc;
}

/* Uses the array of entries as it is, if their lists follow each other without a gap. */
static bool take_as_they_are(struct gap__snapshot *snapshot, gap__value traces, struct gap__history *history) {
  const struct gap__list *list;
  uint64_t count = 0;
  for (uint32_t i = 0; i < history->device_count; i++, count += list->count) {
    if (device_list(snapshot, traces, i, &list) || !is_run(snapshot, list, count)) return false;
    history->devices[i].event_count = list->count;
  }
  history->event_storage = gap__vec_trim(snapshot->entries.at, (uint32_t)count, sizeof *snapshot->entries.at);
  snapshot->entries.at = NULL;
  return history->event_storage != NULL;
}

static int build_events(struct gap__snapshot *snapshot, gap__value traces, struct gap__history *history) {
  const struct gap__list *list = gap__unpickle_list(&snapshot->pickle, traces);
  uint64_t total = 0;
  if (!list) return fail_wrong(snapshot, "'device_traces'", traces);
  if (list->count > DEVICES_MAX)
    return gap__unpickle_fail(&snapshot->pickle, GAP_ELIMIT, "%u devices; at most %d can be read", list->count,
                              DEVICES_MAX);
  int rc = listed_total(snapshot, traces, list->count, &total);
  if (!rc) rc = allocate(snapshot, list->count, sizeof *history->devices, &history->devices);
  if (rc) return rc;
  history->device_count = list->count;
  if (!take_as_they_are(snapshot, traces, history)) rc = gather_any_order(snapshot, traces, total, history);
  struct gap__hist_event *at = history->event_storage;
  for (uint32_t i = 0; !rc && i < history->device_count; at += history->devices[i++].event_count)
    history->devices[i].events = at;
  return rc;
}

/* ---- segments ------------------------------------------------------------------------------------------------------ */

static int block_state(struct gap__snapshot *snapshot, gap__value value, uint8_t *state) {
  uint32_t word = gap__value_index(value);
  if (gap__value_tag(value) != GAP__TAG_STRING) return fail_wrong(snapshot, "the state of a block", value);
  *state = word == GAP__WORD_INACTIVE ? 0 : word == GAP__WORD_ACTIVE_ALLOCATED ? 1 : 2;
  if (word >= GAP__WORD_INACTIVE && word <= GAP__WORD_ACTIVE_AWAITING_FREE) return 0;
  return gap__unpickle_fail(&snapshot->pickle, GAP_EFORMAT, "a block of the unknown state '%s'",
                            gap__strings_text(&snapshot->pickle.strings, word));
}

/* Old layouts have what is known of a block in its last past allocation. */
static int apply_history(struct gap__snapshot *snapshot, const struct gap__block_record *record,
                         struct gap__hist_block *block) {
  const struct gap__list *list = gap__unpickle_list(&snapshot->pickle, record->history);
  struct gap__dict dict;
  if (!list || list->count == 0) return 0;
  int rc = gap__snapshot_resolve(snapshot, item(snapshot, list, 0), GAP__DICT_BLOCK_HISTORY, &dict);
  if (rc || dict.kind != GAP__DICT_BLOCK_HISTORY) return rc;
  if (!block->requested) block->requested = snapshot->block_histories.at[dict.index].real_size;
  if (!block->stack) block->stack = snapshot->block_histories.at[dict.index].stack;
  return 0;
}

static int add_block(struct gap__snapshot *snapshot, gap__value value, uint64_t expected,
                     struct gap__history *history) {
  struct gap__hist_block *block = &history->blocks[history->block_count];
  struct gap__dict dict;
  int rc = gap__snapshot_resolve(snapshot, value, GAP__DICT_BLOCK, &dict);
  if (rc) return rc;
  if (dict.kind != GAP__DICT_BLOCK) return fail_wrong(snapshot, "an item of 'blocks'", value);
  const struct gap__block_record *record = &snapshot->blocks.at[dict.index];
  *block = (struct gap__hist_block){.addr = record->address ? record->address : expected,
                                    .size = record->size,
                                    .requested = record->requested_size,
                                    .stack = record->stack};
  if (block->addr + block->size < block->addr)
    return gap__unpickle_fail(&snapshot->pickle, GAP_EFORMAT, "a block ends beyond the last address");
  rc = block_state(snapshot, record->state, &block->state);
  if (!rc) rc = apply_history(snapshot, record, block);
  history->block_count++;
  return rc;
}

static int pool_index(struct gap__snapshot *snapshot, const uint64_t id[2], struct gap__history *history,
                      uint16_t *out) {
  for (uint32_t i = history->pool_count; i-- > 0;)
    if (history->pools[i].id[0] == id[0] && history->pools[i].id[1] == id[1]) {
      *out = (uint16_t)i;
      return 0;
    }
  if (history->pool_count == POOLS_MAX)
    return gap__unpickle_fail(&snapshot->pickle, GAP_ELIMIT, "more than %d pools", POOLS_MAX);
  if ((history->pool_count & (history->pool_count - 1)) == 0) { /* full: the capacity is the next power of two */
    void *grown = realloc(history->pools, 2 * (size_t)history->pool_count * sizeof *history->pools);
    if (!grown) return gap__unpickle_fail(&snapshot->pickle, GAP_ENOMETA, "out of host memory");
    history->pools = grown;
  }
  history->pools[history->pool_count] = (struct gap__hist_pool){{id[0], id[1]}};
  *out = (uint16_t)history->pool_count++;
  return 0;
}

static int segment_pool(struct gap__snapshot *snapshot, gap__value value, struct gap__history *history, uint16_t *out) {
  const struct gap__unpickler *pickle = &snapshot->pickle;
  const struct gap__list *pair = gap__unpickle_list(pickle, value);
  uint64_t id[2];
  *out = 0;
  if (gap__value_tag(value) == GAP__TAG_UNSET || gap__value_tag(value) == GAP__TAG_NONE) return 0;
  if (!pair || pair->count != 2 || !gap__unpickle_u64(pickle, item(snapshot, pair, 0), &id[0]) ||
      !gap__unpickle_u64(pickle, item(snapshot, pair, 1), &id[1]))
    return gap__unpickle_fail(&snapshot->pickle, GAP_EFORMAT, "'segment_pool_id' of a segment is no pair of numbers");
  return pool_index(snapshot, id, history, out);
}

static int add_blocks(struct gap__snapshot *snapshot, const struct gap__segment_record *record,
                      struct gap__history *history) {
  const struct gap__list *list = gap__unpickle_list(&snapshot->pickle, record->blocks);
  uint64_t expected = record->address;
  if (!list && record->blocks != 0) return fail_wrong(snapshot, "'blocks'", record->blocks);
  if (list && list->count > snapshot->dicts.count - history->block_count)
    return gap__unpickle_fail(&snapshot->pickle, GAP_EFORMAT, "blocks are listed more than once");
  for (uint32_t i = 0; list && i < list->count; i++) {
    int rc = add_block(snapshot, item(snapshot, list, i), expected, history);
    if (rc) return rc;
    expected = history->blocks[history->block_count - 1].addr + history->blocks[history->block_count - 1].size;
  }
  return 0;
}

static int add_segment(struct gap__snapshot *snapshot, gap__value value, struct gap__history *history) {
  struct gap__hist_segment *segment = &history->segments[history->segment_count];
  struct gap__dict dict;
  int rc = gap__snapshot_resolve(snapshot, value, GAP__DICT_SEGMENT, &dict);
  if (rc) return rc;
  if (dict.kind != GAP__DICT_SEGMENT) return fail_wrong(snapshot, "an item of 'segments'", value);
  const struct gap__segment_record *record = &snapshot->segments.at[dict.index];
  *segment = (struct gap__hist_segment){.addr = record->address,
                                        .total_size = record->total_size,
                                        .allocated_size = record->allocated_size,
                                        .active_size = record->active_size,
                                        .requested_size = record->requested_size,
                                        .stream = record->stream,
                                        .block_first = (uint32_t)history->block_count,
                                        .device = record->device,
                                        .is_large = record->type != gap__value_of(GAP__TAG_STRING, GAP__WORD_SMALL),
                                        .is_expandable = record->is_expandable};
  if (segment->device < 0 || segment->device >= DEVICES_MAX)
    return gap__unpickle_fail(&snapshot->pickle, GAP_EFORMAT, "a segment of device %d", segment->device);
  if (segment->addr + segment->total_size < segment->addr)
    return gap__unpickle_fail(&snapshot->pickle, GAP_EFORMAT, "a segment ends beyond the last address");
  history->segment_count++;
  rc = segment_pool(snapshot, record->pool, history, &segment->pool);
  if (!rc) rc = add_blocks(snapshot, record, history);
  segment->block_count = (uint32_t)history->block_count - segment->block_first;
  return rc;
}

/* Segments may name devices that have no trace. */
static int widen_devices(struct gap__snapshot *snapshot, struct gap__history *history) {
  uint32_t count = history->device_count ? history->device_count : 1;
  for (uint64_t i = 0; i < history->segment_count; i++)
    if ((uint32_t)history->segments[i].device >= count) count = (uint32_t)history->segments[i].device + 1;
  if (count == history->device_count) return 0;
  struct gap__hist_device *grown = realloc(history->devices, count * sizeof *grown);
  if (!grown) return gap__unpickle_fail(&snapshot->pickle, GAP_ENOMETA, "out of host memory");
  memset(grown + history->device_count, 0, (count - history->device_count) * sizeof *grown);
  history->devices = grown;
  history->device_count = count;
  return 0;
}

static int build_segments(struct gap__snapshot *snapshot, gap__value segments, struct gap__history *history) {
  const struct gap__list *list = gap__unpickle_list(&snapshot->pickle, segments);
  if (!list) return fail_wrong(snapshot, "'segments'", segments);
  if (list->count > snapshot->dicts.count)
    return gap__unpickle_fail(&snapshot->pickle, GAP_EFORMAT, "segments are listed more than once");
  int rc = allocate(snapshot, list->count, sizeof *history->segments, &history->segments);
  if (!rc) rc = allocate(snapshot, snapshot->dicts.count, sizeof *history->blocks, &history->blocks);
  for (uint32_t i = 0; !rc && i < list->count; i++) rc = add_segment(snapshot, item(snapshot, list, i), history);
  if (!rc) history->blocks = gap__vec_trim(history->blocks, (uint32_t)history->block_count, sizeof *history->blocks);
  return rc ? rc : widen_devices(snapshot, history);
}

/* ---- settings ------------------------------------------------------------------------------------------------------ */

static int get_u64(struct gap__snapshot *snapshot, gap__value dict, uint32_t key, uint64_t *out) {
  gap__value value;
  if (!gap__snapshot_get(snapshot, dict, key, &value) || gap__unpickle_u64(&snapshot->pickle, value, out)) return 0;
  return gap__unpickle_fail(&snapshot->pickle, GAP_EFORMAT, "'%s' of the settings cannot be %s",
                            gap__strings_text(&snapshot->pickle.strings, key), gap__value_kind(value));
}

/* -1 is no limit. */
static int get_max_split(struct gap__snapshot *snapshot, gap__value dict, int64_t *out) {
  gap__value value;
  uint64_t size = (uint64_t)INT64_MAX;
  *out = -1;
  if (!gap__snapshot_get(snapshot, dict, GAP__WORD_MAX_SPLIT_SIZE, &value)) return 0;
  if (gap__value_tag(value) == GAP__TAG_INT && gap__value_int(value) < 0) return 0;
  int rc = get_u64(snapshot, dict, GAP__WORD_MAX_SPLIT_SIZE, &size);
  if (size < (uint64_t)INT64_MAX) *out = (int64_t)size;
  return rc;
}

/* More than the string that they were given as. */
static bool has_values(const struct gap__snapshot *snapshot, gap__value dict) {
  static const uint32_t keys[] = {GAP__WORD_EXPANDABLE_SEGMENTS, GAP__WORD_MAX_SPLIT_SIZE, GAP__WORD_GC_THRESHOLD,
                                  GAP__WORD_ROUNDUP};
  gap__value value;
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    if (gap__snapshot_get(snapshot, dict, keys[i], &value)) return true;
  return false;
}

static int build_settings(struct gap__snapshot *snapshot, gap__value dict, struct gap__history *history) {
  struct gap__hist_settings *settings = &history->settings;
  gap__value value;
  settings->present = has_values(snapshot, dict);
  if (gap__snapshot_get(snapshot, dict, GAP__WORD_CONF, &value) && gap__value_tag(value) == GAP__TAG_STRING) {
    history->settings_text = strdup(gap__strings_text(&snapshot->pickle.strings, gap__value_index(value)));
    if (!history->settings_text) return gap__unpickle_fail(&snapshot->pickle, GAP_ENOMETA, "out of host memory");
  }
  if (gap__snapshot_get(snapshot, dict, GAP__WORD_EXPANDABLE_SEGMENTS, &value))
    settings->expandable_segments = value == gap__value_of(GAP__TAG_BOOL, 1);
  if (gap__snapshot_get(snapshot, dict, GAP__WORD_GC_THRESHOLD, &value) &&
      !gap__unpickle_real(&snapshot->pickle, value, &settings->garbage_collection_threshold))
    return fail_wrong(snapshot, "'garbage_collection_threshold'", value);
  int rc = get_max_split(snapshot, dict, &settings->max_split_size);
  if (rc || !gap__snapshot_get(snapshot, dict, GAP__WORD_ROUNDUP, &value)) return rc;
  for (uint32_t i = 0; !rc && i < 16; i++)
    rc = get_u64(snapshot, value, GAP__WORD_POW2_FIRST + i, &settings->roundup_power2_divisions[i]);
  return rc;
}

/* ---- annotations --------------------------------------------------------------------------------------------------- */

static bool read_annotation(const struct gap__snapshot *snapshot, const struct gap__annotation_record *record,
                            struct gap__hist_annotation *out) {
  bool is_start = record->stage == gap__value_of(GAP__TAG_STRING, GAP__WORD_STAGE_START);
  if (!is_start && record->stage != gap__value_of(GAP__TAG_STRING, GAP__WORD_STAGE_END)) return false;
  if (gap__value_tag(record->name) != GAP__TAG_STRING || gap__value_tag(record->time_us) != GAP__TAG_INT) return false;
  int64_t device = gap__value_tag(record->device) == GAP__TAG_INT ? gap__value_int(record->device) : 0;
  int64_t time_us = gap__value_int(record->time_us);
  if (device < 0 || device >= DEVICES_MAX || time_us < 0) return false;
  *out = (struct gap__hist_annotation){.name = snapshot->pickle.strings.ids.at[gap__value_index(record->name)].offset,
                                       .device = (int32_t)device,
                                       .time_us = time_us - snapshot->time_base,
                                       .is_start = is_start};
  return true;
}

/* They are a help, not a part of the history: one that cannot be understood is passed over. */
static int build_annotations(struct gap__snapshot *snapshot, gap__value value, struct gap__history *history) {
  const struct gap__list *list = gap__unpickle_list(&snapshot->pickle, value);
  if (!list || !snapshot->has_time_base || list->count > snapshot->dicts.count) return 0;
  int rc = allocate(snapshot, list->count, sizeof *history->annotations, &history->annotations);
  for (uint32_t i = 0; !rc && i < list->count; i++) {
    struct gap__dict dict;
    rc = gap__snapshot_resolve(snapshot, item(snapshot, list, i), GAP__DICT_ANNOTATION, &dict);
    if (!rc && dict.kind == GAP__DICT_ANNOTATION &&
        read_annotation(snapshot, &snapshot->annotations.at[dict.index],
                        &history->annotations[history->annotation_count]))
      history->annotation_count++;
  }
  return rc;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

/* Moves an array from the reader to the history. */
#define HAND_OVER(vec, array, array_count) \
  (history->array = gap__vec_trim(snapshot->vec.at, snapshot->vec.count, sizeof *snapshot->vec.at), \
   history->array_count = snapshot->vec.count, snapshot->vec.at = NULL)

static void hand_over(struct gap__snapshot *snapshot, struct gap__history *history) {
  HAND_OVER(stacks, stacks, stack_count);
  HAND_OVER(stack_frames, stack_frames, stack_frame_count);
  HAND_OVER(frames, frames, frame_count);
  HAND_OVER(pickle.strings.text, text, text_bytes);
}

static int build_parts(struct gap__snapshot *snapshot, gap__value root, struct gap__history *history) {
  gap__value value = 0;
  bool any = false;
  int rc = 0;
  if (gap__unpickle_list(&snapshot->pickle, root)) return build_segments(snapshot, root, history);
  if (gap__snapshot_get(snapshot, root, GAP__WORD_DEVICE_TRACES, &value)) {
    any = true;
    rc = build_events(snapshot, value, history);
  }
  if (!rc && gap__snapshot_get(snapshot, root, GAP__WORD_SEGMENTS, &value)) {
    any = true;
    rc = build_segments(snapshot, value, history);
  }
  if (!rc && !any)
    rc = gap__unpickle_fail(&snapshot->pickle, GAP_EFORMAT, "no snapshot: neither 'device_traces' nor 'segments'");
  if (!rc && gap__snapshot_get(snapshot, root, GAP__WORD_ALLOCATOR_SETTINGS, &value))
    rc = build_settings(snapshot, value, history);
  if (!rc && gap__snapshot_get(snapshot, root, GAP__WORD_ANNOTATIONS, &value))
    rc = build_annotations(snapshot, value, history);
  return rc;
}

int gap__snapshot_build(struct gap__snapshot *snapshot, gap__value root, struct gap__history *history) {
  int rc = allocate(snapshot, 1, sizeof *history->pools, &history->pools);
  history->pool_count = 1;
  if (!rc) rc = build_parts(snapshot, root, history);
  if (rc) return rc;
  history->time_base_us = snapshot->time_base;
  gap__history_shift_times(history);
  hand_over(snapshot, history);
  return 0;
}
