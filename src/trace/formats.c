#include "trace/formats.h"

#include <string.h>

#include "trace/policy_json.h"
#include "trace/recording.h"
#include "trace/snapshot.h"

static int read_pickle(struct gap__input *input, struct gap__history **out, char **message) {
  return gap__snapshot_read(input, false, out, message);
}

bool gap__is_json(const struct gap__input *input) {
  const unsigned char *at = input->next;
  while (at < input->end && strchr(" \t\r\n", *at) && *at) at++;
  return at < input->end && *at == '{';
}

enum {
  IN_LOGS = GAP__HAS_TIMES | GAP__HAS_STREAMS | GAP__HAS_REFUSALS | GAP__HAS_ADDRESSES | GAP__HAS_SIZES,
  IN_JSON = GAP__HAS_STREAMS | GAP__HAS_SEGMENTS | GAP__HAS_POOLS | GAP__HAS_REFUSALS | GAP__HAS_WAITS |
            GAP__HAS_SETTINGS | GAP__HAS_LIMIT | GAP__HAS_EARLIER | GAP__HAS_ADDRESSES | GAP__HAS_SIZES,
  IN_PICKLES = (IN_JSON | GAP__HAS_STACKS | GAP__HAS_TIMES | GAP__HAS_MARKS | GAP__HAS_DEVICES) & ~GAP__HAS_LIMIT,
  IN_TRACES = IN_PICKLES | GAP__HAS_LIMIT | GAP__HAS_FACTS,
  IN_PICTURES = GAP__HAS_TIMES | GAP__HAS_STREAMS | GAP__HAS_SEGMENTS | GAP__HAS_REFUSALS | GAP__HAS_WAITS |
                GAP__HAS_MARKS | GAP__HAS_DEVICES | GAP__HAS_ADDRESSES | GAP__HAS_SIZES,
};

static const struct gap__format formats[] = {
    {"trace", "gapless's own trace", ".trace ", IN_TRACES, true, gap__recording_is, gap__recording_read,
     gap__write_trace},
    {"ring", "gapless's ring of last events", ".ring ", IN_TRACES, true, gap__is_ring, gap__ring_read, NULL},
    {"json", "the short JSON form of a history", ".json ", IN_JSON, false, gap__is_json, gap__policy_json_read,
     gap__write_json},
    {"rmm", "the log of RMM's logging resource adaptor (CSV)", ".csv .rmm.csv .log ", IN_LOGS, false, gap__is_rmm,
     gap__rmm_read, gap__write_rmm},
    {"minimalloc", "MiniMalloc's blocks (CSV)", ".minimalloc.csv ", 0, false, gap__is_minimalloc, gap__minimalloc_read,
     gap__write_minimalloc},
    {"perfetto", "a trace for ui.perfetto.dev or chrome://tracing (JSON)", ".perfetto.json .trace.json ", IN_PICTURES,
     false, NULL, NULL, gap__write_perfetto},
    /* the last one that is read: what is none of the others is refused in its words */
    {"pickle", "a snapshot as PyTorch writes it", ".pickle .pkl ", IN_PICKLES, false, NULL, read_pickle,
     gap__write_pickle},
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

const struct gap__format *gap__format_at(uint32_t index) { return index < FORMATS ? &formats[index] : NULL; }

const struct gap__format *gap__format_named(const char *name) {
  for (uint32_t i = 0; i < FORMATS; i++)
    if (strcmp(formats[i].name, name) == 0) return &formats[i];
  return NULL;
}

/* How much of a name's end is an ending of the format. */
static size_t ending_of(const struct gap__format *format, const char *name, size_t length) {
  size_t longest = 0;
  for (const char *at = format->endings; *at; at = strchr(at, ' ') + 1) {
    size_t end = strcspn(at, " ");
    if (end < length && end > longest && memcmp(name + length - end, at, end) == 0) longest = end;
  }
  return longest;
}

const struct gap__format *gap__format_of_name(const char *name) {
  const struct gap__format *best = NULL;
  size_t length, longest = 0;
  gap__encoding_of_name(name, &length);
  for (uint32_t i = 0; i < FORMATS; i++) {
    size_t end = ending_of(&formats[i], name, length);
    if (end <= longest) continue;
    longest = end;
    best = &formats[i];
  }
  return best;
}

uint32_t gap__format_of_input(const struct gap__input *input) {
  uint32_t i = 0;
  while (!formats[i].read || (formats[i].is && !formats[i].is(input))) i++; /* the last one takes anything */
  return i;
}

/* ---- what a history holds ------------------------------------------------------------------------------------------ */

static uint32_t event_contents(const struct gap__hist_event *event) {
  uint32_t contents = 0;
  if (event->stack) contents |= GAP__HAS_STACKS;
  if (event->time_us) contents |= GAP__HAS_TIMES;
  if (event->stream) contents |= GAP__HAS_STREAMS;
  if (event->pool) contents |= GAP__HAS_POOLS;
  if (event->action == GAP__ACT_OOM) contents |= GAP__HAS_REFUSALS;
  if (event->action >= GAP__ACT_SEGMENT_ALLOC && event->action <= GAP__ACT_SEGMENT_UNMAP) contents |= GAP__HAS_SEGMENTS;
  if (event->action == GAP__ACT_ALLOC) contents |= GAP__HAS_ADDRESSES;
  if (event->action == GAP__ACT_ALLOC && event->size % 512) contents |= GAP__HAS_SIZES;
  return contents;
}

/* A free that its completion does not follow at once: somebody else used the block on. */
static bool waits(const struct gap__hist_device *device, uint64_t i) {
  const struct gap__hist_event *event = &device->events[i];
  if (event->action != GAP__ACT_FREE_REQUESTED) return false;
  return i + 1 == device->event_count || event[1].action != GAP__ACT_FREE_COMPLETED || event[1].addr != event->addr;
}

static bool has_facts(const struct gap__history *history) {
  bool facts = history->by_gapless || history->process;
  for (uint32_t i = 0; i < history->device_count; i++) facts |= history->devices[i].facts.present;
  return facts;
}

static uint32_t device_contents(const struct gap__history *history, uint32_t device) {
  const struct gap__hist_device *from = &history->devices[device];
  uint32_t contents = from->wrapped ? GAP__HAS_EARLIER : 0;
  for (uint64_t i = 0; i < from->event_count; i++) {
    contents |= event_contents(&from->events[i]);
    if (waits(from, i)) contents |= GAP__HAS_WAITS;
  }
  for (uint64_t i = 0; i < history->segment_count; i++)
    if ((uint32_t)history->segments[i].device == device)
      contents |= GAP__HAS_SEGMENTS | (history->segments[i].pool ? GAP__HAS_POOLS : 0);
  return contents;
}

uint32_t gap__history_contents(const struct gap__history *history, int64_t device) {
  uint32_t contents = 0, used = 0;
  for (uint32_t i = 0; i < history->device_count; i++) {
    uint32_t of_device = device_contents(history, i);
    used += of_device != 0;
    if (device < 0 || (uint32_t)device == i) contents |= of_device;
  }
  if (used > 1) contents |= GAP__HAS_DEVICES;
  if (history->annotation_count) contents |= GAP__HAS_MARKS;
  if (history->settings.present || history->settings_text[0]) contents |= GAP__HAS_SETTINGS;
  if (history->has_stats || history->total_bytes) contents |= GAP__HAS_LIMIT;
  if (has_facts(history)) contents |= GAP__HAS_FACTS;
  return contents;
}

void gap__format_losses(const struct gap__format *format, const struct gap__history *history, int64_t device,
                        struct gap__text *text) {
  static const char *const words[] = {"call stacks",
                                      "times",
                                      "streams",
                                      "segments and driver calls",
                                      "private pools",
                                      "refused requests",
                                      "waits for other streams (a block is free when the program lets go)",
                                      "the program's marks",
                                      "the allocator's settings",
                                      "the limit and statistics",
                                      "other devices",
                                      "blocks from before the first event",
                                      "addresses",
                                      "exact sizes (they are rounded up to 512 bytes)",
                                      "what gapless told of itself"};
  uint32_t lost = gap__history_contents(history, device) & ~format->carries;
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (lost & 1u << i) gap__text_add(text, "%s%s", text->length ? ", " : "", words[i]);
  if (history->unknown_actions)
    gap__text_add(text, "%s%llu entries of an unknown kind", text->length ? ", " : "",
                  (unsigned long long)history->unknown_actions);
}
