/* The state of a device in a trace: segments, their blocks, and what the allocator says of itself. */
#include "gapless/gapless.h"
#include "trace/recording_get.h"

static struct gap__recording_device *device_of(struct gap__recording *r) { return &r->devices.at[r->state.device]; }

void gap__recording_forget_state(struct gap__recording_device *device) {
  device->segments.count = device->blocks.count = 0;
  device->facts = (struct gap__hist_facts){0};
}

/* States of several heaps, taken together, are one. */
int gap__recording_read_state(struct gap__recording *r) {
  uint64_t number = gap__recording_number(r);
  uint32_t ordinal = gap__recording_upto(r, GAP__RECORDING_DEVICES - 1);
  struct gap__recording_device *device = gap__recording_device(r, ordinal);
  if (!device) return gap__recording_no_room(r);
  if (device->state != number + 1) gap__recording_forget_state(device);
  device->state = number + 1;
  device->is_whole = device->has_state = false;
  device->since = device->events.count;
  r->state.open = true;
  r->state.has_segment = false;
  r->state.device = ordinal;
  return 0;
}

static void read_sums(struct gap__recording *r, struct gap__hist_segment *segment) {
  segment->allocated_size = gap__recording_size(r);
  segment->active_size = gap__recording_size(r);
  segment->requested_size = gap__recording_size(r);
}

static void set_kind(struct gap__hist_segment *segment, unsigned about) {
  unsigned kind = about & 0x0F;
  segment->is_large = (about & GAP__SEGMENT_LARGE) != 0;
  segment->is_expandable = kind != GAP__SEGMENT_NATIVE;
  segment->is_paged = kind == GAP__SEGMENT_PAGES;
}

/* A hole has no blocks, and is no segment of a history; kinds of a newer version are taken for holes. */
int gap__recording_read_segment(struct gap__recording *r, unsigned tag) {
  if (!r->state.open) return gap__recording_fail(r, "a segment outside of a state");
  unsigned about = gap__recording_byte(r);
  struct gap__hist_segment segment = {.addr = gap__recording_addr(r), .device = (int)r->state.device};
  segment.total_size = gap__recording_size(r);
  if (tag & GAP__SEGMENT_STREAM) r->stream = gap__recording_number(r);
  int rc = tag & GAP__SEGMENT_POOL ? gap__recording_pool(r) : 0;
  if (tag & GAP__SEGMENT_SUMS) read_sums(r, &segment);
  if (segment.addr + segment.total_size < segment.addr)
    return gap__recording_fail(r, "a segment ends beyond the last address");
  r->state.has_segment = (about & 0x0F) < GAP__SEGMENT_HOLE;
  r->state.has_sums = (tag & GAP__SEGMENT_SUMS) != 0;
  r->state.expected = segment.addr;
  if (rc || !r->state.has_segment) return rc;
  set_kind(&segment, about);
  segment.stream = r->stream;
  segment.pool = r->pool;
  segment.block_first = device_of(r)->blocks.count;
  struct gap__hist_segment *kept = GAP__RECORDING_ADD(device_of(r)->segments);
  if (!kept) return gap__recording_no_room(r);
  *kept = segment;
  return 0;
}

void gap__recording_count_block(struct gap__hist_segment *segment, const struct gap__hist_block *block) {
  segment->allocated_size += block->state == 1 ? block->size : 0;
  segment->active_size += block->state ? block->size : 0;
  segment->requested_size += block->state ? block->requested : 0;
}

static int keep_block(struct gap__recording *r, const struct gap__hist_block *block) {
  struct gap__recording_device *device = device_of(r);
  struct gap__hist_segment *segment = &device->segments.at[device->segments.count - 1];
  struct gap__hist_block *kept = GAP__RECORDING_ADD(device->blocks);
  if (!kept) return gap__recording_no_room(r);
  *kept = *block;
  segment->block_count++;
  if (!r->state.has_sums) gap__recording_count_block(segment, block);
  return 0;
}

int gap__recording_read_block(struct gap__recording *r, unsigned tag) {
  if (!r->state.open || !r->state.has_segment) return gap__recording_fail(r, "a block outside of a segment");
  unsigned more = tag & GAP__BLOCK_MORE ? gap__recording_byte(r) : 0, state = tag >> GAP__BLOCK_STATE_SHIFT & 3;
  struct gap__hist_block block = {.state = (uint8_t)state, .addr = r->state.expected};
  block.size = gap__recording_size(r);
  block.requested = state ? block.size : 0;
  if (tag & GAP__BLOCK_SLACK) block.requested = block.size - gap__recording_number(r);
  if (more & GAP__BLOCK_STACK) block.stack = gap__recording_stack(r);
  if (more & GAP__BLOCK_ADDR) block.addr = gap__recording_size(r);
  if (state > 2) return gap__recording_fail(r, "a block of an unknown state");
  if (block.addr + block.size < block.addr) return gap__recording_fail(r, "a block ends beyond the last address");
  r->state.expected = block.addr + block.size;
  return r->is_wrong ? 0 : keep_block(r, &block);
}

/* ---- facts ---- */

/* What is of the card is the same for every heap; what is of a heap adds up, and there is a cap where each has one. */
static void add_facts(struct gap__hist_facts *to, const struct gap__hist_facts *more) {
  if (!to->present) {
    *to = *more;
    return;
  }
  to->cap_bytes = to->cap_bytes && more->cap_bytes ? to->cap_bytes + more->cap_bytes : 0;
  to->returnable_bytes += more->returnable_bytes;
  to->peak_live_bytes += more->peak_live_bytes;
  to->peak_held_bytes += more->peak_held_bytes;
  to->refusals += more->refusals;
  to->retries += more->retries;
  to->stalls += more->stalls;
  if (more->largest_servable_bytes > to->largest_servable_bytes)
    to->largest_servable_bytes = more->largest_servable_bytes;
  if (more->refusal) to->refusal = more->refusal;
}

static uint64_t read_fact(struct gap__recording *r, uint64_t *left) {
  return *left && (*left)-- ? gap__recording_number(r) : 0;
}

int gap__recording_read_state_end(struct gap__recording *r) {
  struct gap__hist_facts facts = {0};
  if (!r->state.open) return gap__recording_fail(r, "the end of a state that has not begun");
  int rc = gap__recording_text(r, &facts.refusal);
  uint64_t left = gap__recording_number(r);
  facts.present = left != 0;
#define X(name) facts.name = read_fact(r, &left);
  GAP__RECORD_FACTS(X)
#undef X
  if (rc || r->is_wrong) return rc;
  if (facts.present) add_facts(&device_of(r)->facts, &facts);
  device_of(r)->is_whole = device_of(r)->has_state = true;
  r->state.open = false;
  return 0;
}
