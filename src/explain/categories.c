#include "explain/categories.h"

#include <stdlib.h>

#include "base/map.h"
#include "gapless/gapless.h"

const char *gap__category_name(enum gap__category category) {
  static const char *const names[GAP__CAT_COUNT] = {"weights",          "gradients",         "activations",
                                                    "optimiser_states", "temporary_buffers", "unknown"};
  return names[category];
}

enum gap__category gap__category_most(const uint64_t bytes[GAP__CAT_COUNT]) {
  enum gap__category most = GAP__CAT_WEIGHTS;
  for (int i = 1; i < GAP__CAT_COUNT; i++)
    if (bytes[i] > bytes[most]) most = (enum gap__category)i;
  return most;
}

struct judge {
  const struct gap__history *history;
  struct gap__lives *lives;
  const struct gap__sites *sites;
  const struct gap__steps *steps;
  struct gap__map
      companions; /* sizes of what goes with weights: optimiser states, gradients that are released every step */
  uint64_t (*by_site)[GAP__CAT_COUNT]; /* bytes of each call site, of lives seen from birth to end */
  bool has_stacks;
  bool makes_states; /* some optimiser state was made in this history and is there at the end */
};

static enum gap__phase phase_at(const struct judge *judge, uint32_t event) {
  return (enum gap__phase)judge->steps->phase[event];
}

static bool is_open(const struct gap__life *life) { return life->gone == GAP__LIFE_NEVER; }

/* Does it outlive steps as weights and optimiser states do?  One that is there at the end has crossed fewer ends. */
static bool is_lasting(const struct judge *judge, const struct gap__life *life) {
  uint32_t crossed = gap__steps_crossed(judge->steps, life);
  return crossed >= 2 || (crossed == 1 && is_open(life));
}

static bool is_setup(const struct judge *judge, const struct gap__life *life) {
  return judge->sites->flags[life->stack] & GAP__STACK_SETUP;
}

/* Of the same size, or of twice or half of it where precisions differ. */
static bool has_companion(const struct judge *judge, uint64_t bytes) {
  return gap__map_get(&judge->companions, bytes, NULL) || gap__map_get(&judge->companions, bytes * 2, NULL) ||
         (bytes >= 1024 && gap__map_get(&judge->companions, bytes / 2, NULL));
}

/* Blocks of backward passes and optimisers. */
static enum gap__category judge_late_phases(const struct judge *judge, const struct gap__life *life) {
  enum gap__phase phase = phase_at(judge, life->born);
  uint32_t crossed = gap__steps_crossed(judge->steps, life);
  if (phase == GAP__PHASE_OPTIMISER) {
    bool returns = !is_open(life) && gap__steps_of(judge->steps, life->gone) == gap__steps_of(judge->steps, life->born);
    return returns ? GAP__CAT_TEMPORARY : GAP__CAT_OPTIMISER;
  }
  /* What a backward pass makes once and keeps is a gradient only where it has the size of one: libraries keep workspaces. */
  if (phase == GAP__PHASE_BACKWARD && crossed >= 1)
    return !is_lasting(judge, life) || has_companion(judge, life->bytes) ? GAP__CAT_GRADIENTS : GAP__CAT_UNKNOWN;
  if (phase == GAP__PHASE_BACKWARD && !is_open(life)) return GAP__CAT_TEMPORARY;
  return GAP__CAT_UNKNOWN;
}

/* Without a stack: what an optimiser replaced is a state; what stays is a weight if this history saw all states being made. */
static enum gap__category judge_unseen(const struct judge *judge, const struct gap__life *life) {
  if (!has_companion(judge, life->bytes)) return GAP__CAT_UNKNOWN;
  if (!is_open(life))
    return phase_at(judge, life->gone) == GAP__PHASE_OPTIMISER ? GAP__CAT_OPTIMISER : GAP__CAT_UNKNOWN;
  return judge->makes_states ? GAP__CAT_WEIGHTS : GAP__CAT_UNKNOWN;
}

static enum gap__category judge_before(const struct judge *judge, const struct gap__life *life) {
  uint8_t flags = judge->sites->flags[life->stack];
  if (life->stack == 0) return judge->lives->event_count ? judge_unseen(judge, life) : GAP__CAT_UNKNOWN;
  if (flags & GAP__STACK_OPTIMISER) return is_open(life) ? GAP__CAT_OPTIMISER : GAP__CAT_UNKNOWN;
  if (flags & GAP__STACK_BACKWARD) return GAP__CAT_GRADIENTS;
  return flags & GAP__STACK_SETUP ? GAP__CAT_WEIGHTS : GAP__CAT_UNKNOWN;
}

static bool is_weight(const struct judge *judge, const struct gap__life *life) {
  bool early = gap__steps_of(judge->steps, life->born) == 0;
  if (judge->has_stacks && is_setup(judge, life)) return true;
  return early && has_companion(judge, life->bytes);
}

/* Without a sign of training only what is freed almost at once is certain. */
static enum gap__category judge_untrained(const struct judge *judge, const struct gap__life *life) {
  if (judge->has_stacks && is_setup(judge, life) && (is_open(life) || is_lasting(judge, life))) return GAP__CAT_WEIGHTS;
  if (is_open(life) || is_lasting(judge, life)) return GAP__CAT_UNKNOWN;
  const struct gap__step *step = &judge->steps->at[gap__steps_of(judge->steps, life->born)];
  uint32_t share = judge->steps->source == GAP__STEPS_NONE ? 20 : 4;
  return life->gone - life->born <= (step->end - step->first) / share ? GAP__CAT_TEMPORARY : GAP__CAT_UNKNOWN;
}

/* Where the turn of a step is a guess, a gradient is what one optimiser run finds there and what has the size of a state. */
static bool is_stackless_gradient(const struct judge *judge, const struct gap__life *life) {
  if (judge->has_stacks || gap__steps_crossed(judge->steps, life) != 1) return false;
  if (is_open(life) && gap__steps_of(judge->steps, life->born) == 0) return false;
  return has_companion(judge, life->bytes);
}

static enum gap__category judge_forward(const struct judge *judge, const struct gap__life *life) {
  const struct gap__steps *steps = judge->steps;
  if (is_stackless_gradient(judge, life)) return GAP__CAT_GRADIENTS;
  if (is_lasting(judge, life)) return is_weight(judge, life) ? GAP__CAT_WEIGHTS : GAP__CAT_UNKNOWN;
  if (is_open(life)) return GAP__CAT_UNKNOWN;
  uint32_t born = gap__steps_of(steps, life->born), gone = gap__steps_of(steps, life->gone);
  if (gone == born && phase_at(judge, life->gone) == GAP__PHASE_FORWARD) return GAP__CAT_TEMPORARY;
  return GAP__CAT_ACTIVATIONS;
}

static enum gap__category judge_life(const struct judge *judge, const struct gap__life *life) {
  if (life->before || judge->lives->event_count == 0) return judge_before(judge, life);
  if (!judge->steps->trains) return judge_untrained(judge, life);
  if (phase_at(judge, life->born) != GAP__PHASE_FORWARD) return judge_late_phases(judge, life);
  return judge_forward(judge, life);
}

/* Sizes first: weights are told by the gradients and states that go with them.  Where neither is released or made, as with plain
 * descent that keeps its gradients, by what backward passes keep. */
static int note_companions(struct judge *judge, bool kept) {
  int rc = 0;
  for (uint32_t i = 0; !rc && i < judge->lives->count && judge->steps->trains; i++) {
    const struct gap__life *life = &judge->lives->at[i];
    if (life->before || phase_at(judge, life->born) == GAP__PHASE_FORWARD) continue;
    enum gap__category category = judge_late_phases(judge, life);
    bool is_state = category == GAP__CAT_OPTIMISER;
    judge->makes_states |= is_state && is_open(life);
    if (kept) is_state |= phase_at(judge, life->born) == GAP__PHASE_BACKWARD && is_lasting(judge, life);
    if (is_state || category == GAP__CAT_GRADIENTS) rc = gap__map_put(&judge->companions, life->bytes, 1);
  }
  return !rc && !kept && !judge->companions.count ? note_companions(judge, true) : rc;
}

static uint32_t site_of(const struct judge *judge, const struct gap__life *life) {
  return judge->sites->of_stack[life->stack];
}

/* The category that most bytes of this call site have; unknown where there is none. */
static enum gap__category habit_of(const struct judge *judge, const struct gap__life *life) {
  const uint64_t *bytes = judge->by_site[site_of(judge, life)];
  int best = GAP__CAT_UNKNOWN;
  if (site_of(judge, life) == 0) return GAP__CAT_UNKNOWN;
  for (int i = 0; i < GAP__CAT_UNKNOWN; i++)
    if (bytes[i] > (best == GAP__CAT_UNKNOWN ? 0 : bytes[best])) best = i;
  return (enum gap__category)best;
}

/* The history ends before the block does: what its call site is used for elsewhere; in a first forward pass that never met its
 * backward pass, what a constructor made are weights; a gradient has the size of a weight. */
static enum gap__category judge_cut(const struct judge *judge, const struct gap__life *life) {
  enum gap__category habit = habit_of(judge, life);
  if (habit != GAP__CAT_UNKNOWN) return habit;
  if (!judge->steps->trains || life->before) return GAP__CAT_UNKNOWN;
  if (phase_at(judge, life->born) == GAP__PHASE_BACKWARD)
    return has_companion(judge, life->bytes) ? GAP__CAT_GRADIENTS : GAP__CAT_UNKNOWN;
  if (judge->has_stacks && is_setup(judge, life)) return GAP__CAT_WEIGHTS;
  bool last = gap__steps_of(judge->steps, life->born) + 1 == judge->steps->count;
  return judge->has_stacks && life->stack && last && judge->steps->count > 1 ? GAP__CAT_ACTIVATIONS : GAP__CAT_UNKNOWN;
}

static void judge_all(struct judge *judge) {
  for (uint32_t i = 0; i < judge->lives->count; i++) {
    struct gap__life *life = &judge->lives->at[i];
    life->category = (uint8_t)judge_life(judge, life);
    if (life->category != GAP__CAT_UNKNOWN) judge->by_site[site_of(judge, life)][life->category] += life->bytes;
  }
  for (uint32_t i = 0; i < judge->lives->count; i++) {
    struct gap__life *life = &judge->lives->at[i];
    bool lasting = !life->before && is_lasting(judge, life);
    if (life->category == GAP__CAT_UNKNOWN && !lasting && (is_open(life) || life->before))
      life->category = (uint8_t)judge_cut(judge, life);
  }
}

static void sum_up(const struct judge *judge, const struct gap__hist_device *from, struct gap__categories *sums) {
  const struct gap__lives *lives = judge->lives;
  uint64_t now[GAP__CAT_COUNT] = {0};
  for (uint32_t i = 0; i < lives->count; i++) {
    const struct gap__life *life = &lives->at[i];
    if (life->before) now[life->category] += life->bytes;
    if (!gap__life_covers(life, lives->peak_event)) continue;
    sums->at_peak[life->category] += life->bytes;
    if (life->category == GAP__CAT_UNKNOWN && life->pool) sums->in_graph_pools += life->bytes;
  }
  for (int c = 0; c < GAP__CAT_COUNT; c++) sums->most[c] = now[c];
  for (uint32_t i = 0; i < lives->event_count; i++) {
    if (lives->of_event[i] == GAP__LIFE_NEVER || from->events[i].action == GAP__ACT_FREE_REQUESTED) continue;
    const struct gap__life *life = &lives->at[lives->of_event[i]];
    if (from->events[i].action == GAP__ACT_ALLOC) now[life->category] += life->bytes;
    else now[life->category] -= life->bytes;
    if (now[life->category] > sums->most[life->category]) sums->most[life->category] = now[life->category];
  }
}

static bool has_stacks(const struct gap__lives *lives) {
  for (uint32_t i = 0; i < lives->count; i++)
    if (lives->at[i].stack) return true;
  return false;
}

int gap__categories_find(const struct gap__history *history, uint32_t device, struct gap__lives *lives,
                         const struct gap__sites *sites, const struct gap__steps *steps, struct gap__categories *sums) {
  struct judge judge = {.history = history, .lives = lives, .sites = sites, .steps = steps};
  judge.has_stacks = has_stacks(lives);
  judge.by_site = calloc(sites->count, sizeof *judge.by_site);
  *sums = (struct gap__categories){0};
  int rc = judge.by_site ? note_companions(&judge, false) : GAP_ENOMETA;
  if (!rc) judge_all(&judge);
  if (!rc) sum_up(&judge, &history->devices[device], sums);
  free(judge.by_site);
  gap__map_free(&judge.companions);
  return rc;
}
