#include "explain/steps.h"

#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"

enum { NEAR_EVENTS = 16 }; /* optimisers that run one after the other make one end of a step */

/* ---- where steps end ----------------------------------------------------------------------------------------------- */

static int add_step(struct gap__steps *steps, uint32_t *room, uint32_t optimiser, uint32_t end) {
  uint32_t first = steps->count ? steps->at[steps->count - 1].end : 0;
  if (end <= first) return 0;
  if (optimiser < first) optimiser = first;
  if (optimiser > end) optimiser = end; /* marks in a file may end before they begin */
  if (steps->count && steps->source != GAP__STEPS_CURVE && optimiser - first < NEAR_EVENTS) {
    steps->at[steps->count - 1].end = end;
    return 0;
  }
  if (steps->count == *room) {
    void *grown = realloc(steps->at, (*room = 2 * *room + 16) * sizeof *steps->at);
    if (!grown) return GAP_ENOMETA;
    steps->at = grown;
  }
  steps->at[steps->count++] = (struct gap__step){.first = first, .optimiser = optimiser, .end = end};
  return 0;
}

static uint32_t event_at(const struct gap__hist_device *device, int64_t time_us) {
  uint32_t low = 0, high = (uint32_t)device->event_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (device->events[middle].time_us < time_us) low = middle + 1;
    else high = middle;
  }
  return low;
}

static bool is_optimiser_mark(const struct gap__history *history, const struct gap__hist_annotation *mark,
                              uint32_t device) {
  return (uint32_t)mark->device == device && strncmp(history->text + mark->name, "Optimizer.step", 14) == 0;
}

/* A mark without an end reaches to the end of the history. */
static int from_marks(const struct gap__history *history, uint32_t device, struct gap__steps *steps, uint32_t *room) {
  const struct gap__hist_device *from = &history->devices[device];
  uint32_t start = 0, open = 0;
  int rc = 0;
  steps->source = GAP__STEPS_MARKS;
  for (uint32_t i = 0; !rc && i < history->annotation_count; i++) {
    const struct gap__hist_annotation *mark = &history->annotations[i];
    if (!is_optimiser_mark(history, mark, device)) continue;
    if (mark->is_start && open++ == 0) start = event_at(from, mark->time_us);
    if (mark->is_start || open == 0 || --open > 0) continue;
    rc = add_step(steps, room, start, event_at(from, mark->time_us + 1));
  }
  if (!rc && open && start < from->event_count) rc = add_step(steps, room, start, (uint32_t)from->event_count);
  return rc;
}

/* The phase that an allocation's own stack speaks of.  Backward passes run in threads of their own, without Python frames. */
static enum gap__phase phase_of_stack(const struct gap__sites *sites, uint32_t stack) {
  uint8_t flags = sites->flags[stack];
  if (flags & GAP__STACK_BACKWARD) return GAP__PHASE_BACKWARD;
  if (flags & GAP__STACK_OPTIMISER) return GAP__PHASE_OPTIMISER;
  return stack ? GAP__PHASE_FORWARD : GAP__PHASE_BACKWARD;
}

/* A step ends where a forward pass follows something else. */
static int from_stacks(const struct gap__history *history, uint32_t device, const struct gap__sites *sites,
                       struct gap__steps *steps, uint32_t *room) {
  const struct gap__hist_device *from = &history->devices[device];
  enum gap__phase before = GAP__PHASE_FORWARD;
  uint32_t optimiser = UINT32_MAX, last = 0;
  bool seen = false;
  int rc = 0;
  steps->source = GAP__STEPS_STACKS;
  for (uint32_t i = 0; !rc && i < from->event_count; i++) {
    if (from->events[i].action != GAP__ACT_ALLOC) continue;
    enum gap__phase phase = phase_of_stack(sites, from->events[i].stack);
    if (phase == GAP__PHASE_OPTIMISER && optimiser == UINT32_MAX) optimiser = i;
    if (phase == GAP__PHASE_FORWARD && before != GAP__PHASE_FORWARD && seen) {
      rc = add_step(steps, room, optimiser != UINT32_MAX ? optimiser : last + 1, last + 1);
      optimiser = UINT32_MAX;
    }
    seen |= phase == GAP__PHASE_FORWARD;
    before = phase;
    last = i;
  }
  return rc;
}

/* Does any stack lead into a backward pass or an optimiser? */
static bool stacks_tell(const struct gap__sites *sites) {
  for (uint32_t i = 1; i < sites->history->stack_count; i++)
    if (sites->flags[i] & (GAP__STACK_BACKWARD | GAP__STACK_OPTIMISER)) return true;
  return false;
}

/* Excursions of the curve: above the floor so far by more than half of the largest rise, then below a tenth of it. */
static int from_curve(const struct gap__history *history, uint32_t device, const struct gap__lives *lives,
                      struct gap__steps *steps, uint32_t *room) {
  const struct gap__hist_device *from = &history->devices[device];
  int64_t live = gap__lives_at_start(lives), floor = live, swing = 0, low = live;
  for (uint32_t i = 0; i < from->event_count; i++) {
    live += gap__lives_change(lives, &from->events[i], i);
    if (live < low) low = live;
    if (live - low > swing) swing = live - low;
  }
  bool is_high = false;
  int rc = 0;
  steps->source = GAP__STEPS_CURVE;
  live = floor = gap__lives_at_start(lives);
  for (uint32_t i = 0; !rc && swing > 0 && i < from->event_count; i++) {
    live += gap__lives_change(lives, &from->events[i], i);
    if (!is_high && live < floor) floor = live;
    if (live - floor > swing / 2) is_high = true;
    if (!is_high || live - floor > swing / 10) continue;
    is_high = false;
    floor = live;
    rc = add_step(steps, room, i + 1, i + 1);
  }
  return rc;
}

static int find_ends(const struct gap__history *history, uint32_t device, const struct gap__lives *lives,
                     const struct gap__sites *sites, struct gap__steps *steps) {
  uint32_t room = 0, events = (uint32_t)history->devices[device].event_count;
  int rc = from_marks(history, device, steps, &room);
  if (!rc && !steps->count && stacks_tell(sites)) rc = from_stacks(history, device, sites, steps, &room);
  steps->optimiser_count = steps->count;
  if (!rc && !steps->count) rc = from_curve(history, device, lives, steps, &room);
  if (!rc && !steps->count) steps->source = GAP__STEPS_NONE;
  if (!rc && events) rc = add_step(steps, &room, events, events); /* what follows the last end */
  return rc;
}

/* ---- phases -------------------------------------------------------------------------------------------------------- */

/* An allocation speaks for itself and for the frees up to the next one. */
static bool phases_from_stacks(const struct gap__hist_device *from, const struct gap__sites *sites,
                               struct gap__steps *steps) {
  enum gap__phase phase = GAP__PHASE_FORWARD;
  bool told = false, any = false;
  for (uint32_t i = 0; i < from->event_count; i++) {
    if (from->events[i].action == GAP__ACT_ALLOC) {
      any |= from->events[i].stack != 0;
      if (any) phase = phase_of_stack(sites, from->events[i].stack);
      told |= phase == GAP__PHASE_BACKWARD;
    }
    steps->phase[i] = (uint8_t)phase;
  }
  return told;
}

/* Of a step without stacks: the forward pass ends where most is held by blocks that live for a while and do not outlive it. */
static uint32_t turn_of(const struct gap__hist_device *from, const struct gap__lives *lives,
                        const struct gap__step *step) {
  uint32_t length = step->optimiser - step->first, turn = step->first;
  int64_t held = 0, most = 0;
  for (uint32_t i = step->first; i < step->optimiser; i++) {
    if (lives->of_event[i] == GAP__LIFE_NEVER || from->events[i].action == GAP__ACT_FREE_REQUESTED) continue;
    const struct gap__life *life = &lives->at[lives->of_event[i]];
    bool counts = !life->before && life->born >= step->first && life->gone < step->optimiser &&
                  life->gone - life->born > length / 50;
    if (counts) held += life->born == i ? (int64_t)life->bytes : -(int64_t)life->bytes;
    if (held > most) {
      most = held;
      turn = i;
    }
  }
  return turn;
}

static void phases_from_steps(const struct gap__hist_device *from, const struct gap__lives *lives,
                              struct gap__steps *steps) {
  for (uint32_t i = 0; i < steps->count; i++) {
    const struct gap__step *step = &steps->at[i];
    bool ends = i < steps->optimiser_count;
    uint32_t turn = ends ? turn_of(from, lives, step) : step->end;
    for (uint32_t j = step->first; j < step->optimiser; j++)
      steps->phase[j] = j > turn ? GAP__PHASE_BACKWARD : GAP__PHASE_FORWARD;
  }
}

static void find_phases(const struct gap__hist_device *from, const struct gap__lives *lives,
                        const struct gap__sites *sites, struct gap__steps *steps) {
  bool told = phases_from_stacks(from, sites, steps);
  if (!told) phases_from_steps(from, lives, steps);
  for (uint32_t i = 0; i < steps->optimiser_count; i++)
    memset(&steps->phase[steps->at[i].optimiser], GAP__PHASE_OPTIMISER, steps->at[i].end - steps->at[i].optimiser);
  steps->trains = told || steps->optimiser_count > 0;
}

static void find_extremes(const struct gap__hist_device *from, const struct gap__lives *lives,
                          struct gap__steps *steps) {
  int64_t live = gap__lives_at_start(lives);
  for (uint32_t i = 0; i < steps->count; i++) {
    struct gap__step *step = &steps->at[i];
    int64_t most = -1, least = INT64_MAX;
    for (uint32_t j = step->first; j < step->end; j++) {
      live += gap__lives_change(lives, &from->events[j], j);
      if (live > most) step->peak_event = j;
      if (live > most) most = live;
      if (live < least) least = live;
    }
    step->peak_bytes = (uint64_t)(most > 0 ? most : 0);
    step->floor_bytes = (uint64_t)(least > 0 ? least : 0);
  }
}

int gap__steps_find(const struct gap__history *history, uint32_t device, const struct gap__lives *lives,
                    const struct gap__sites *sites, struct gap__steps *steps) {
  const struct gap__hist_device *from = &history->devices[device];
  *steps = (struct gap__steps){0};
  steps->phase = calloc(from->event_count + 1, 1);
  int rc = steps->phase ? find_ends(history, device, lives, sites, steps) : GAP_ENOMETA;
  if (rc) return rc;
  find_phases(from, lives, sites, steps);
  find_extremes(from, lives, steps);
  return 0;
}

void gap__steps_free(struct gap__steps *steps) {
  free(steps->at);
  free(steps->phase);
  *steps = (struct gap__steps){0};
}

uint32_t gap__steps_of(const struct gap__steps *steps, uint32_t event) {
  uint32_t low = 0, high = steps->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (steps->at[middle].end <= event) low = middle + 1;
    else high = middle;
  }
  return low < steps->count ? low : steps->count ? steps->count - 1 : 0;
}

uint32_t gap__steps_crossed(const struct gap__steps *steps, const struct gap__life *life) {
  if (!steps->count) return 0;
  uint32_t first = gap__steps_of(steps, life->born), last = gap__steps_of(steps, life->gone);
  bool by_optimiser = steps->optimiser_count > 0;
  uint32_t ends = by_optimiser ? steps->optimiser_count : steps->count - 1;
  /* The k-th end is crossed when the block was there before it and is gone only after it. */
  uint32_t from = first, to = last;
  if (first < ends && !life->before && life->born >= steps->at[first].optimiser && by_optimiser) from = first + 1;
  if (last < ends && life->gone >= steps->at[last].optimiser && by_optimiser) to = last + 1;
  if (life->gone == GAP__LIFE_NEVER || to > ends) to = ends;
  return to > from ? to - from : 0;
}
