/* The JSON form of traces that ui.perfetto.dev and chrome://tracing open.  A device is a process: counters of live, held and idle bytes, a
 * thread for each stream with its allocations, frees and driver calls, one for the program's marks.  Where a history has no times an event
 * takes a microsecond.  With `blocks_from` smaller blocks are counted and not drawn, and the lives of the others are slices. */
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/text.h"
#include "gapless/gapless.h"
#include "trace/formats.h"
#include "trace/json_text.h"

struct course {
  struct gap__writing *writing;
  struct gap__output *out;
  const struct gap__hist_device *device;
  uint32_t number; /* of the device */
  bool has_times, tells_driver, any;
  struct gap__map live;    /* address -> size */
  struct gap__map streams; /* handle -> thread; 0 is the marks */
  int64_t live_bytes, held_bytes;
};

/* Between two records. */
static void begin(struct course *course) {
  gap__output_print(course->out, course->any ? ",\n" : "\n");
  course->any = true;
}

/* ---- names --------------------------------------------------------------------------------------------------------- */

static void name_thread(struct course *course, uint64_t thread, const char *words, uint64_t handle) {
  begin(course);
  gap__output_print(course->out,
                    "{\"ph\":\"M\",\"pid\":%u,\"tid\":%llu,\"name\":\"thread_name\",\"args\":{\"name\":\"%s",
                    course->number, (unsigned long long)thread, words);
  if (thread) gap__output_print(course->out, "%#llx", (unsigned long long)handle);
  gap__output_print(course->out, "\"}}");
}

static int thread_of(struct course *course, uint64_t handle, uint64_t *thread) {
  if (gap__map_get(&course->streams, handle, thread)) return 0;
  *thread = course->streams.count + 1;
  name_thread(course, *thread, "stream ", handle);
  return gap__map_put(&course->streams, handle, *thread);
}

static void name_device(struct course *course) {
  begin(course);
  gap__output_print(course->out,
                    "{\"ph\":\"M\",\"pid\":%u,\"name\":\"process_name\",\"args\":{\"name\":\"device %u\"}}",
                    course->number, course->number);
  if (course->writing->history->annotation_count) name_thread(course, 0, "marks of the program", 0);
}

/* ---- events -------------------------------------------------------------------------------------------------------- */

static long long time_at(const struct course *course, uint64_t index) {
  return course->has_times ? course->device->events[index].time_us : (long long)index;
}

/* No device has more; where a file says so anyway, sums shall not overflow. */
static int64_t sane(uint64_t bytes) { return bytes >> 44 ? (int64_t)1 << 44 : (int64_t)bytes; }

static int64_t size_of(uint64_t size) { return sane(size ? (sane(size) + 511) & ~(int64_t)511 : 512); }

static int note_event(struct course *course, const struct gap__hist_event *event) {
  uint64_t size = 0;
  int64_t bytes = sane(event->size);
  switch (event->action) {
    case GAP__ACT_ALLOC:
      if (gap__map_get(&course->live, event->addr, &size)) course->live_bytes -= size_of(size);
      course->live_bytes += size_of(event->size);
      return gap__map_put(&course->live, event->addr, event->size);
    case GAP__ACT_FREE_COMPLETED:
      course->live_bytes -= size_of(gap__map_remove(&course->live, event->addr, &size) ? size : event->size);
      return 0;
    case GAP__ACT_SEGMENT_ALLOC:
    case GAP__ACT_SEGMENT_MAP: course->held_bytes += bytes; return 0;
    case GAP__ACT_SEGMENT_FREE:
    case GAP__ACT_SEGMENT_UNMAP: course->held_bytes -= bytes; return 0;
    default: return 0;
  }
}

/* Blocks from before the first event: those that are freed later, and those that are still there at the end. */
static int count_earlier(struct course *course) {
  const struct gap__history *history = course->writing->history;
  const struct gap__hist_device *device = course->device;
  struct gap__map met = {0};
  int rc = 0;
  for (uint64_t i = 0; !rc && i < device->event_count; i++) {
    const struct gap__hist_event *event = &device->events[i];
    bool is_free = event->action == GAP__ACT_FREE_COMPLETED;
    if (is_free && !gap__map_get(&met, event->addr, NULL)) course->live_bytes += size_of(event->size);
    if (is_free || event->action == GAP__ACT_ALLOC) rc = gap__map_put(&met, event->addr, 1);
  }
  for (uint64_t i = 0; !rc && i < history->segment_count; i++) {
    const struct gap__hist_segment *segment = &history->segments[i];
    for (uint32_t j = 0; (uint32_t)segment->device == course->number && j < segment->block_count; j++) {
      const struct gap__hist_block *block = &history->blocks[segment->block_first + j];
      if (block->state && !gap__map_get(&met, block->addr, NULL)) course->live_bytes += size_of(block->size);
    }
  }
  gap__map_free(&met);
  return rc;
}

/* Segments from before the first event: what is held at the end, less what the events make of it. */
static void begin_counts(struct course *course) {
  const struct gap__history *history = course->writing->history;
  for (uint64_t i = 0; i < history->segment_count; i++)
    if ((uint32_t)history->segments[i].device == course->number)
      course->held_bytes += sane(history->segments[i].total_size);
  for (uint64_t i = 0; i < course->device->event_count && course->tells_driver; i++) {
    const struct gap__hist_event *event = &course->device->events[i];
    int64_t bytes = sane(event->size);
    if (event->action == GAP__ACT_SEGMENT_ALLOC || event->action == GAP__ACT_SEGMENT_MAP) course->held_bytes -= bytes;
    if (event->action == GAP__ACT_SEGMENT_FREE || event->action == GAP__ACT_SEGMENT_UNMAP) course->held_bytes += bytes;
  }
  if (!history->segment_count) course->held_bytes = 0;
}

static void put_counters(struct course *course, long long time) {
  begin(course);
  gap__output_print(course->out, "{\"ph\":\"C\",\"pid\":%u,\"ts\":%lld,\"name\":\"bytes\",\"args\":{\"live\":%lld",
                    course->number, time, (long long)course->live_bytes);
  if (course->tells_driver)
    gap__output_print(course->out, ",\"held\":%lld,\"idle\":%lld", (long long)course->held_bytes,
                      (long long)(course->held_bytes - course->live_bytes));
  gap__output_print(course->out, "}}");
}

/* The innermost line of Python code; a whole stack would be most of the file. */
static void put_line(struct course *course, uint32_t stack) {
  const struct gap__history *history = course->writing->history;
  for (uint32_t i = 0; i < history->stacks[stack].count; i++) {
    const struct gap__hist_frame *frame = &history->frames[history->stack_frames[history->stacks[stack].first + i]];
    const char *file = history->text + frame->filename, *slash = strrchr(file, '/');
    size_t length = strlen(file);
    if (length < 3 || strcmp(file + length - 3, ".py") != 0) continue;
    gap__output_print(course->out, ",\"line\":\"");
    gap__json_put(course->out, slash ? slash + 1 : file);
    gap__output_print(course->out, ":%d ", (int)frame->line);
    gap__json_put(course->out, history->text + frame->name);
    gap__output_print(course->out, "\"");
    return;
  }
}

static int put_event(struct course *course, const struct gap__hist_event *event, long long time) {
  uint64_t thread;
  int rc = thread_of(course, event->stream, &thread);
  if (rc) return rc;
  bool is_oom = event->action == GAP__ACT_OOM;
  begin(course);
  gap__output_print(course->out, "{\"ph\":\"i\",\"s\":\"%s\",\"pid\":%u,\"tid\":%llu,\"ts\":%lld,\"name\":\"%s\"",
                    is_oom ? "p" : "t", course->number, (unsigned long long)thread, time,
                    gap__action_name((enum gap__action)event->action));
  gap__output_print(course->out, ",\"args\":{\"size\":%llu", (unsigned long long)event->size);
  if (is_oom) gap__output_print(course->out, ",\"device_free\":%llu", (unsigned long long)event->addr);
  else gap__output_print(course->out, ",\"addr\":\"%#llx\"", (unsigned long long)event->addr);
  if (event->stack) put_line(course, event->stack);
  gap__output_print(course->out, "}}");
  return 0;
}

/* ---- lives ------------------------------------------------------------------------------------------------------------ */

static bool is_of_block(const struct gap__hist_event *event) {
  return event->action == GAP__ACT_ALLOC || event->action == GAP__ACT_FREE_REQUESTED ||
         event->action == GAP__ACT_FREE_COMPLETED;
}

/* The size of the block that an event is about; a free may not say it. */
static uint64_t block_size(const struct course *course, const struct gap__hist_event *event) {
  uint64_t size = event->size;
  if (event->action != GAP__ACT_ALLOC) gap__map_get(&course->live, event->addr, &size);
  return size;
}

/* Blocks overlap, so their lives are no slices of a thread: each has a track of its own among those of its stream. */
static int put_life(struct course *course, const struct gap__hist_event *event, uint64_t size, long long time) {
  uint64_t thread, unused;
  bool begins = event->action == GAP__ACT_ALLOC;
  char text[GAP__TEXT_BYTES];
  if (event->action == GAP__ACT_FREE_REQUESTED) return 0;
  if (!begins && !gap__map_get(&course->live, event->addr, &unused)) return 0; /* from before the first event */
  int rc = thread_of(course, event->stream, &thread);
  if (rc) return rc;
  begin(course);
  gap__output_print(
      course->out,
      "{\"ph\":\"%c\",\"cat\":\"block\",\"id\":\"%#llx\",\"pid\":%u,\"tid\":%llu,\"ts\":%lld,\"name\":\"%s\"}",
      begins ? 'b' : 'e', (unsigned long long)event->addr, course->number, (unsigned long long)thread, time,
      gap__text_size(size, text));
  return 0;
}

/* All that is drawn of an event, before it is counted. */
static int draw(struct course *course, const struct gap__hist_event *event, long long time) {
  uint64_t from = course->writing->blocks_from, size = block_size(course, event);
  if (event->action == GAP__ACT_SNAPSHOT || (from && is_of_block(event) && size < from)) return 0;
  int rc = from && is_of_block(event) ? put_life(course, event, size, time) : 0;
  return rc ? rc : put_event(course, event, time);
}

/* One counter record for each time: events of the same microsecond make one. */
static int put_events(struct course *course) {
  const struct gap__hist_device *device = course->device;
  int rc = 0;
  for (uint64_t i = 0; !rc && i < device->event_count; i++) {
    rc = draw(course, &device->events[i], time_at(course, i));
    if (!rc) rc = note_event(course, &device->events[i]);
    if (i + 1 == device->event_count || time_at(course, i + 1) != time_at(course, i))
      put_counters(course, time_at(course, i));
    gap__writing_step(course->writing);
  }
  return rc;
}

static void put_marks(struct course *course) {
  const struct gap__history *history = course->writing->history;
  for (uint32_t i = 0; i < history->annotation_count; i++) {
    const struct gap__hist_annotation *mark = &history->annotations[i];
    if ((uint32_t)mark->device != course->number) continue;
    begin(course);
    gap__output_print(course->out, "{\"ph\":\"%c\",\"pid\":%u,\"tid\":0,\"ts\":%lld,\"name\":\"",
                      mark->is_start ? 'B' : 'E', course->number, (long long)mark->time_us);
    gap__json_put(course->out, history->text + mark->name);
    gap__output_print(course->out, "\"}");
  }
}

static int put_device(struct gap__writing *writing, uint32_t number, bool has_times, bool *any) {
  struct course course = {.writing = writing,
                          .out = writing->out,
                          .device = &writing->history->devices[number],
                          .number = number,
                          .has_times = has_times,
                          .any = *any};
  course.tells_driver = gap__history_tells_driver(writing->history, number);
  name_device(&course);
  begin_counts(&course);
  int rc = course.device->wrapped ? count_earlier(&course) : 0;
  if (!rc) rc = put_events(&course);
  put_marks(&course);
  gap__map_free(&course.live);
  gap__map_free(&course.streams);
  *any = course.any;
  return rc;
}

int gap__write_perfetto(struct gap__writing *writing) {
  const struct gap__history *history = writing->history;
  bool has_times = (gap__history_contents(history, -1) & GAP__HAS_TIMES) != 0, any = false;
  int rc = 0;
  gap__output_print(writing->out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
  for (uint32_t i = 0; !rc && i < history->device_count; i++)
    if (history->devices[i].event_count) rc = put_device(writing, i, has_times, &any);
  gap__output_print(writing->out, "\n]}\n");
  return rc;
}
