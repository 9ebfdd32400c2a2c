/* A history as PyTorch's own snapshots are written: pickle protocol 4, with the opcodes that Python's pickler and the viewer of PyTorch
 * know.  Equal strings, frames and stacks are written once and referred to. */
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "gapless/gapless.h"
#include "trace/formats.h"
#include "trace/strings.h"

enum { BATCH = 1000 }; /* items between MARK and APPENDS, as Python's pickler does */

struct pickler {
  struct gap__writing *writing;
  struct gap__output *out;
  uint32_t memo_count;
  uint32_t words[GAP__WORD_COUNT]; /* memo of a word of keys.def + 1 */
  uint32_t *stacks, *frames;       /* memo of each + 1 */
  struct gap__map texts;           /* offset of a string -> memo */
  bool has_times, has_stacks;
};

/* ---- opcodes ------------------------------------------------------------------------------------------------------- */

static void put_little(struct pickler *p, uint64_t number, unsigned bytes) {
  for (unsigned i = 0; i < bytes; i++) gap__output_byte(p->out, (unsigned char)(number >> 8 * i));
}

static void put_op(struct pickler *p, unsigned char op) { gap__output_byte(p->out, op); }

static void put_get(struct pickler *p, uint32_t memo) {
  put_op(p, memo < 256 ? 'h' : 'j');
  put_little(p, memo, memo < 256 ? 1 : 4);
}

static uint32_t memoize(struct pickler *p) {
  put_op(p, 0x94);
  return p->memo_count++;
}

static void put_u64(struct pickler *p, uint64_t number) {
  unsigned bytes = 1;
  if (number < 1u << 8) put_op(p, 'K');
  else if (number < 1u << 16) put_op(p, 'M'), bytes = 2;
  else if (number < (uint64_t)1 << 31) put_op(p, 'J'), bytes = 4;
  else {
    while (bytes < 8 && number >> (8 * bytes - 1)) bytes++;
    bytes += bytes == 8 && number >> 63; /* a ninth byte keeps it positive */
    put_op(p, 0x8a);
    put_op(p, (unsigned char)bytes);
  }
  for (unsigned i = 0; i < bytes; i++) gap__output_byte(p->out, (unsigned char)(i < 8 ? number >> 8 * i : 0));
}

static void put_i64(struct pickler *p, int64_t number) {
  if (number >= 0) {
    put_u64(p, (uint64_t)number);
    return;
  }
  bool is_small = number >= INT32_MIN;
  put_op(p, is_small ? 'J' : 0x8a);
  if (!is_small) put_op(p, 8);
  put_little(p, (uint64_t)number, is_small ? 4 : 8);
}

static void put_real(struct pickler *p, double number) {
  uint64_t bits;
  memcpy(&bits, &number, sizeof bits);
  put_op(p, 'G');
  for (int i = 7; i >= 0; i--) gap__output_byte(p->out, (unsigned char)(bits >> 8 * i));
}

static void put_bool(struct pickler *p, bool value) { put_op(p, value ? 0x88 : 0x89); }

static void put_text(struct pickler *p, const char *text) {
  size_t length = strlen(text);
  put_op(p, length < 256 ? 0x8c : 'X');
  put_little(p, length, length < 256 ? 1 : 4);
  gap__output_put(p->out, text, length);
}

/* A word of keys.def. */
static void put_word(struct pickler *p, uint32_t word) {
  static const char *const words[] = {
#define WORD(name, text) text,
#include "trace/keys.def"
#undef WORD
  };
  if (p->words[word]) {
    put_get(p, p->words[word] - 1);
    return;
  }
  put_text(p, words[word]);
  p->words[word] = memoize(p) + 1;
}

#define PUT_U64(key, value) (put_word(p, GAP__WORD_##key), put_u64(p, (value)))
#define PUT_WORD(key, word) (put_word(p, GAP__WORD_##key), put_word(p, (word)))

/* A string of the history, by its offset. */
static int put_string(struct pickler *p, uint32_t offset) {
  uint64_t memo;
  if (gap__map_get(&p->texts, offset, &memo)) {
    put_get(p, (uint32_t)memo);
    return 0;
  }
  put_text(p, p->writing->history->text + offset);
  return gap__map_put(&p->texts, offset, memoize(p));
}

/* ---- stacks -------------------------------------------------------------------------------------------------------- */

static int put_frame(struct pickler *p, uint32_t index) {
  const struct gap__hist_frame *frame = &p->writing->history->frames[index];
  if (p->frames[index]) {
    put_get(p, p->frames[index] - 1);
    return 0;
  }
  put_op(p, '}');
  p->frames[index] = memoize(p) + 1;
  put_op(p, '(');
  put_word(p, GAP__WORD_NAME);
  int rc = put_string(p, frame->name);
  put_word(p, GAP__WORD_FILENAME);
  if (!rc) rc = put_string(p, frame->filename);
  put_word(p, GAP__WORD_LINE);
  put_i64(p, frame->line);
  put_op(p, 'u');
  return rc;
}

static int put_stack(struct pickler *p, uint32_t index) {
  const struct gap__history *history = p->writing->history;
  const struct gap__hist_stack *stack = &history->stacks[index];
  int rc = 0;
  if (p->stacks[index]) {
    put_get(p, p->stacks[index] - 1);
    return 0;
  }
  put_op(p, ']');
  p->stacks[index] = memoize(p) + 1;
  if (!index || !stack->count) return 0; /* [0]: the empty list */
  put_op(p, '(');
  for (uint32_t i = 0; !rc && i < stack->count; i++) rc = put_frame(p, history->stack_frames[stack->first + i]);
  put_op(p, 'e');
  return rc;
}

static int put_frames(struct pickler *p, uint32_t stack) {
  put_word(p, GAP__WORD_FRAMES);
  return put_stack(p, stack);
}

/* ---- events -------------------------------------------------------------------------------------------------------- */

static int put_event(struct pickler *p, const struct gap__hist_event *event) {
  bool is_oom = event->action == GAP__ACT_OOM;
  put_op(p, '}');
  put_op(p, '(');
  PUT_WORD(ACTION, GAP__WORD_ACT_FIRST + event->action);
  put_word(p, is_oom ? GAP__WORD_DEVICE_FREE : GAP__WORD_ADDR);
  put_u64(p, event->addr);
  PUT_U64(SIZE, event->size);
  PUT_U64(STREAM, event->stream);
  if (p->has_times) {
    put_word(p, GAP__WORD_TIME_US);
    put_i64(p, p->writing->history->time_base_us + event->time_us);
  }
  int rc = p->has_stacks ? put_frames(p, event->stack) : 0;
  put_op(p, 'u');
  gap__writing_step(p->writing);
  return rc;
}

/* Lists are filled in batches. */
static void begin_item(struct pickler *p, uint64_t index) {
  if (index % BATCH == 0) put_op(p, '(');
}
static void end_item(struct pickler *p, uint64_t index, uint64_t count) {
  if (index % BATCH == BATCH - 1 || index + 1 == count) put_op(p, 'e');
}

static int put_device(struct pickler *p, uint32_t index) {
  const struct gap__hist_device *device = &p->writing->history->devices[index];
  int rc = 0;
  put_op(p, ']');
  for (uint64_t i = 0; !rc && i < device->event_count; i++) {
    begin_item(p, i);
    rc = put_event(p, &device->events[i]);
    end_item(p, i, device->event_count);
  }
  return rc;
}

static int put_traces(struct pickler *p) {
  uint32_t count = p->writing->history->device_count;
  int rc = 0;
  put_op(p, ']');
  for (uint32_t i = 0; !rc && i < count; i++) {
    begin_item(p, i);
    rc = put_device(p, i);
    end_item(p, i, count);
  }
  return rc;
}

/* ---- segments ------------------------------------------------------------------------------------------------------ */

static int put_block(struct pickler *p, const struct gap__hist_block *block) {
  put_op(p, '}');
  put_op(p, '(');
  PUT_U64(ADDRESS, block->addr);
  PUT_U64(SIZE, block->size);
  PUT_U64(REQUESTED_SIZE, block->requested);
  PUT_WORD(STATE, GAP__WORD_INACTIVE + block->state);
  int rc = put_frames(p, block->stack);
  put_op(p, 'u');
  return rc;
}

static int put_blocks(struct pickler *p, const struct gap__hist_segment *segment) {
  int rc = 0;
  put_word(p, GAP__WORD_BLOCKS);
  put_op(p, ']');
  for (uint32_t i = 0; !rc && i < segment->block_count; i++) {
    begin_item(p, i);
    rc = put_block(p, &p->writing->history->blocks[segment->block_first + i]);
    end_item(p, i, segment->block_count);
  }
  return rc;
}

static int put_segment(struct pickler *p, const struct gap__hist_segment *segment) {
  const struct gap__hist_pool *pool = &p->writing->history->pools[segment->pool];
  put_op(p, '}');
  put_op(p, '(');
  PUT_U64(DEVICE, (uint64_t)segment->device);
  PUT_U64(ADDRESS, segment->addr);
  PUT_U64(TOTAL_SIZE, segment->total_size);
  PUT_U64(ALLOCATED_SIZE, segment->allocated_size);
  PUT_U64(ACTIVE_SIZE, segment->active_size);
  PUT_U64(REQUESTED_SIZE, segment->requested_size);
  PUT_U64(STREAM, segment->stream);
  PUT_WORD(SEGMENT_TYPE, segment->is_large ? GAP__WORD_LARGE : GAP__WORD_SMALL);
  put_word(p, GAP__WORD_SEGMENT_POOL_ID);
  put_u64(p, pool->id[0]);
  put_u64(p, pool->id[1]);
  put_op(p, 0x86);
  put_word(p, GAP__WORD_IS_EXPANDABLE);
  put_bool(p, segment->is_expandable);
  int rc = put_frames(p, 0);
  if (!rc) rc = put_blocks(p, segment);
  put_op(p, 'u');
  return rc;
}

static int put_segments(struct pickler *p) {
  const struct gap__history *history = p->writing->history;
  int rc = 0;
  put_op(p, ']');
  for (uint64_t i = 0; !rc && i < history->segment_count; i++) {
    begin_item(p, i);
    rc = put_segment(p, &history->segments[i]);
    end_item(p, i, history->segment_count);
  }
  return rc;
}

/* ---- the rest ------------------------------------------------------------------------------------------------------ */

static void put_settings(struct pickler *p) {
  const struct gap__history *history = p->writing->history;
  const struct gap__hist_settings *settings = &history->settings;
  put_op(p, '}');
  put_op(p, '(');
  put_word(p, GAP__WORD_CONF);
  put_text(p, history->settings_text);
  if (settings->present) {
    put_word(p, GAP__WORD_MAX_SPLIT_SIZE);
    put_i64(p, settings->max_split_size);
    put_word(p, GAP__WORD_GC_THRESHOLD);
    put_real(p, settings->garbage_collection_threshold);
    put_word(p, GAP__WORD_EXPANDABLE_SEGMENTS);
    put_bool(p, settings->expandable_segments);
    put_word(p, GAP__WORD_ROUNDUP);
    put_op(p, '}');
    put_op(p, '(');
    for (uint32_t i = 0; i < 16; i++) {
      put_word(p, GAP__WORD_POW2_FIRST + i);
      put_u64(p, settings->roundup_power2_divisions[i]);
    }
    put_op(p, 'u');
  }
  put_op(p, 'u');
}

static int put_mark(struct pickler *p, const struct gap__hist_annotation *mark) {
  put_op(p, '}');
  put_op(p, '(');
  PUT_WORD(STAGE, mark->is_start ? GAP__WORD_STAGE_START : GAP__WORD_STAGE_END);
  put_word(p, GAP__WORD_NAME);
  int rc = put_string(p, mark->name);
  PUT_U64(DEVICE, (uint64_t)mark->device);
  put_word(p, GAP__WORD_TIME_US);
  put_i64(p, p->writing->history->time_base_us + mark->time_us);
  put_op(p, 'u');
  return rc;
}

static int put_marks(struct pickler *p) {
  const struct gap__history *history = p->writing->history;
  int rc = 0;
  put_op(p, ']');
  for (uint32_t i = 0; !rc && i < history->annotation_count; i++) {
    begin_item(p, i);
    rc = put_mark(p, &history->annotations[i]);
    end_item(p, i, history->annotation_count);
  }
  return rc;
}

static int put_all(struct pickler *p) {
  const struct gap__history *history = p->writing->history;
  put_op(p, 0x80);
  put_op(p, 4);
  put_op(p, '}');
  put_op(p, '(');
  put_word(p, GAP__WORD_SEGMENTS);
  int rc = put_segments(p);
  put_word(p, GAP__WORD_DEVICE_TRACES);
  if (!rc) rc = put_traces(p);
  if (history->settings.present || history->settings_text[0]) {
    put_word(p, GAP__WORD_ALLOCATOR_SETTINGS);
    put_settings(p);
  }
  put_word(p, GAP__WORD_ANNOTATIONS);
  if (!rc) rc = put_marks(p);
  put_op(p, 'u');
  put_op(p, '.');
  return rc;
}

int gap__write_pickle(struct gap__writing *writing) {
  const struct gap__history *history = writing->history;
  uint32_t contents = gap__history_contents(history, -1);
  struct pickler p = {.writing = writing,
                      .out = writing->out,
                      .has_times = contents & GAP__HAS_TIMES || history->time_base_us,
                      .has_stacks = (contents & GAP__HAS_STACKS) != 0};
  p.stacks = calloc((size_t)history->stack_count + 1, sizeof *p.stacks);
  p.frames = calloc((size_t)history->frame_count + 1, sizeof *p.frames);
  int rc = p.stacks && p.frames ? put_all(&p) : GAP_ENOMETA;
  gap__map_free(&p.texts);
  free(p.stacks);
  free(p.frames);
  return rc;
}
