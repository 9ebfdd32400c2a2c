#include "explain/altered.h"

#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"

static const struct gap__hist_device *device_of(const struct gap__subject *subject) {
  return &subject->history->devices[subject->device];
}

static int share(const struct gap__subject *subject, struct gap__altered *altered) {
  const struct gap__history *from = subject->history;
  altered->history = *from;
  altered->history.devices = calloc(from->device_count, sizeof *from->devices);
  if (!altered->history.devices) return GAP_ENOMETA;
  memcpy(altered->history.devices, from->devices, from->device_count * sizeof *from->devices);
  return 0;
}

/* A copy whose one device has room for `extra` more events. */
static int begin(const struct gap__subject *subject, uint64_t extra, struct gap__altered *altered) {
  int rc = share(subject, altered);
  if (rc) return rc;
  altered->events = malloc((device_of(subject)->event_count + extra + 1) * sizeof *altered->events);
  altered->history.devices[subject->device].events = altered->events;
  altered->history.devices[subject->device].event_count = 0;
  return altered->events ? 0 : GAP_ENOMETA;
}

/* The events that a replay is given: as many as there are before the end, and of refusals the last. */
static uint32_t end_of(const struct gap__subject *subject) {
  return subject->refusal.recorded ? subject->refusal.event + 1 : (uint32_t)device_of(subject)->event_count;
}
static bool is_survived(const struct gap__subject *subject, uint32_t event) {
  return device_of(subject)->events[event].action == GAP__ACT_OOM && event != subject->refusal.event;
}

static void put(const struct gap__subject *subject, struct gap__altered *altered, struct gap__hist_event event) {
  altered->events[altered->history.devices[subject->device].event_count++] = event;
}

void gap__altered_free(struct gap__altered *altered) {
  free(altered->history.devices);
  free(altered->events);
  *altered = (struct gap__altered){0};
}

static const struct gap__life *life_of(const struct gap__subject *subject, uint32_t event) {
  uint32_t index = subject->lives.of_event[event];
  return index == GAP__LIFE_NEVER ? NULL : &subject->lives.at[index];
}

/* Where nothing is left out the events are not copied. */
int gap__altered_none(const struct gap__subject *subject, struct gap__altered *altered) {
  bool shares = subject->refusal.count <= 1;
  int rc = shares ? share(subject, altered) : begin(subject, 0, altered);
  if (shares && !rc) altered->history.devices[subject->device].event_count = end_of(subject);
  if (shares) return rc;
  for (uint32_t i = 0; !rc && i < end_of(subject); i++)
    if (!is_survived(subject, i)) put(subject, altered, device_of(subject)->events[i]);
  return rc;
}

/* ---- a smaller batch ----------------------------------------------------------------------------------------------- */

static bool scales(const struct gap__subject *subject, uint32_t event) {
  const struct gap__life *life = life_of(subject, event);
  if (device_of(subject)->events[event].action == GAP__ACT_OOM) return true;
  if (!life || life->before) return false;
  if (life->category == GAP__CAT_ACTIVATIONS) return true;
  return life->category == GAP__CAT_TEMPORARY && subject->steps.phase[life->born] != GAP__PHASE_OPTIMISER;
}

int gap__altered_scale(const struct gap__subject *subject, double factor, struct gap__altered *altered) {
  const struct gap__hist_device *from = device_of(subject);
  int rc = begin(subject, 0, altered);
  for (uint32_t i = 0; !rc && i < end_of(subject); i++) {
    struct gap__hist_event event = from->events[i];
    if (is_survived(subject, i)) continue;
    if (scales(subject, i)) event.size = (uint64_t)((double)event.size * factor + 0.999);
    put(subject, altered, event);
  }
  return rc;
}

int gap__altered_offload(const struct gap__subject *subject, struct gap__altered *altered) {
  const struct gap__hist_device *from = device_of(subject);
  int rc = begin(subject, 0, altered);
  for (uint32_t i = 0; !rc && i < end_of(subject); i++) {
    const struct gap__life *life = life_of(subject, i);
    bool is_state = life && !life->before && life->category == GAP__CAT_OPTIMISER;
    if (!is_state && !is_survived(subject, i)) put(subject, altered, from->events[i]);
  }
  return rc;
}

/* ---- checkpoints --------------------------------------------------------------------------------------------------- */

enum { PARTS_MAX = 64 };

struct insert {
  uint32_t before; /* the event that it comes before */
  uint32_t order;
  struct gap__hist_event event;
};

struct part {
  uint32_t end;   /* the event at which the forward pass leaves it */
  uint32_t again; /* the event before which it is computed again; GAP__LIFE_NEVER: never */
  uint32_t last;  /* the life that is kept: the last one born in it */
  uint64_t bytes, gone_bytes;
};

struct cutter {
  const struct gap__subject *subject;
  struct insert *inserts;
  uint32_t count;
  struct part parts[PARTS_MAX];
  uint32_t part_count, first, turn;
};

static uint32_t part_of(const struct cutter *cutter, uint32_t event) {
  uint64_t length = cutter->turn - cutter->first + 1;
  return (uint32_t)((uint64_t)(event - cutter->first) * cutter->part_count / length);
}

/* Lives that a forward pass saves and that a checkpoint would drop. */
static bool is_saved(const struct cutter *cutter, const struct gap__life *life) {
  return !life->before && life->category == GAP__CAT_ACTIVATIONS && life->born >= cutter->first &&
         life->born <= cutter->turn && life->let_go > cutter->turn;
}

/* The forward pass of a step ends with the first event of its backward pass. */
static void find_turn(struct cutter *cutter, const struct gap__step *step) {
  const uint8_t *phase = cutter->subject->steps.phase;
  uint32_t at = step->first;
  while (at < step->end && phase[at] != GAP__PHASE_FORWARD) at++;
  cutter->first = at;
  while (at < step->end && phase[at] == GAP__PHASE_FORWARD) at++;
  cutter->turn = at > cutter->first ? at - 1 : cutter->first;
  for (uint32_t i = 0; i < cutter->part_count; i++) {
    uint64_t length = cutter->turn - cutter->first + 1;
    cutter->parts[i] = (struct part){.end = cutter->first + (uint32_t)(length * (i + 1) / cutter->part_count),
                                     .again = GAP__LIFE_NEVER,
                                     .last = GAP__LIFE_NEVER};
  }
}

static void measure_parts(struct cutter *cutter, const struct gap__step *step) {
  const struct gap__subject *subject = cutter->subject;
  const struct gap__hist_event *events = device_of(subject)->events;
  for (uint32_t i = cutter->first; i <= cutter->turn && i < step->end; i++) {
    const struct gap__life *life = life_of(subject, i);
    if (events[i].action != GAP__ACT_ALLOC || !life || !is_saved(cutter, life)) continue;
    struct part *part = &cutter->parts[part_of(cutter, i)];
    part->bytes += life->bytes;
    part->last = subject->lives.of_event[i];
  }
  for (uint32_t i = cutter->turn + 1; i < step->end; i++) {
    const struct gap__life *life = life_of(subject, i);
    if (events[i].action != GAP__ACT_FREE_REQUESTED || !life || !is_saved(cutter, life)) continue;
    struct part *part = &cutter->parts[part_of(cutter, life->born)];
    part->gone_bytes += life->bytes;
    if (part->again == GAP__LIFE_NEVER && part->gone_bytes * 20 >= part->bytes) part->again = i;
  }
}

static void insert(struct cutter *cutter, uint32_t before, const struct gap__hist_event *like,
                   enum gap__action action) {
  struct gap__hist_event event = *like;
  event.action = (uint8_t)action;
  event.time_us = device_of(cutter->subject)->events[before].time_us;
  cutter->inserts[cutter->count] = (struct insert){before, cutter->count, event};
  cutter->count++;
}

/* Drops what a part saved at its end and brings it back before it is used; what is gone sooner than that is left alone. */
static void cut_step(struct cutter *cutter, const struct gap__step *step) {
  const struct gap__subject *subject = cutter->subject;
  const struct gap__hist_event *events = device_of(subject)->events;
  for (uint32_t i = cutter->first; i <= cutter->turn && i < step->end; i++) {
    const struct gap__life *life = life_of(subject, i);
    if (events[i].action != GAP__ACT_ALLOC || !life || !is_saved(cutter, life)) continue;
    const struct part *part = &cutter->parts[part_of(cutter, i)];
    bool comes_back = part->again != GAP__LIFE_NEVER && life->let_go != GAP__LIFE_NEVER;
    if (part->last == subject->lives.of_event[i] || part->end >= step->end || part->end <= i) continue;
    if (comes_back && (life->let_go < part->again || part->again <= part->end)) continue;
    if (!comes_back && life->let_go != GAP__LIFE_NEVER) continue;
    insert(cutter, part->end, &events[i], GAP__ACT_FREE_REQUESTED);
    insert(cutter, part->end, &events[i], GAP__ACT_FREE_COMPLETED);
    if (comes_back) insert(cutter, part->again, &events[i], GAP__ACT_ALLOC);
  }
}

static int by_place(const void *left, const void *right) {
  const struct insert *a = left, *b = right;
  if (a->before != b->before) return a->before < b->before ? -1 : 1;
  return a->order < b->order ? -1 : a->order > b->order;
}

static void merge(struct cutter *cutter, struct gap__altered *altered) {
  const struct gap__hist_device *from = device_of(cutter->subject);
  uint32_t next = 0;
  qsort(cutter->inserts, cutter->count, sizeof *cutter->inserts, by_place);
  for (uint32_t i = 0; i < end_of(cutter->subject); i++) {
    for (; next < cutter->count && cutter->inserts[next].before == i; next++)
      put(cutter->subject, altered, cutter->inserts[next].event);
    if (!is_survived(cutter->subject, i)) put(cutter->subject, altered, from->events[i]);
  }
}

int gap__altered_checkpoint(const struct gap__subject *subject, uint32_t parts, struct gap__altered *altered) {
  struct cutter cutter = {.subject = subject, .part_count = parts < PARTS_MAX ? parts : PARTS_MAX};
  uint64_t room = 3 * (uint64_t)subject->lives.count;
  int rc = begin(subject, room, altered);
  cutter.inserts = malloc((room + 1) * sizeof *cutter.inserts);
  if (!rc && !cutter.inserts) rc = GAP_ENOMETA;
  for (uint32_t i = 0; !rc && i < subject->steps.count; i++) {
    const struct gap__step *step = &subject->steps.at[i];
    find_turn(&cutter, step);
    measure_parts(&cutter, step);
    cut_step(&cutter, step);
  }
  if (!rc) merge(&cutter, altered);
  free(cutter.inserts);
  return rc;
}
