#include "core/watch.h"

#include <string.h>

#include "core/lane.h"
#include "core/limit.h"
#include "core/pending.h"
#include "core/supply.h"

#define MS 1000000ull
#define LOOK_NS (250 * MS)      /* between two looks */
#define LOOK_NS_LEAST (10 * MS) /* where trim_after_ms is short */

static uint64_t age_ns(const struct gap__policy_state *s) { return gap__device_conf(s->device)->trim_after_ms * MS; }

/* A quarter of the age at most, so that a page goes between once and 1.25 times the age after its last use. */
static uint64_t look_after_ns(const struct gap__policy_state *s) {
  uint64_t quarter = age_ns(s) / 4;
  if (!quarter || quarter >= LOOK_NS) return LOOK_NS;
  return quarter < LOOK_NS_LEAST ? LOOK_NS_LEAST : quarter;
}

static void mind_neighbours(struct gap__policy_state *s) {
  uint64_t keep = gap__limit_keep(s);
  if (gap__held_pages(s) <= keep) return;
  atomic_store(&s->ahead, NULL); /* or what goes back would be made anew */
  gap__trim_idle(s, NULL, keep, false);
}

/* The newest epoch at the last note made `ns` or earlier; 0: there is none so old. */
static uint32_t epoch_at(const struct gap__watch *watch, uint64_t ns) {
  for (uint32_t i = watch->count; i > 0; i--)
    if (watch->notes[i - 1].ns <= ns) return watch->notes[i - 1].epoch;
  return 0;
}

/* Notes the newest epoch; what is freed from now on carries later ones. */
static void note(struct gap__policy_state *s, uint64_t now_ns) {
  struct gap__watch *watch = &s->watch;
  gap__epochs_renumber(s);
  if (watch->count == GAP__WATCH_NOTES) memmove(watch->notes, watch->notes + 1, --watch->count * sizeof *watch->notes);
  watch->notes[watch->count++] = (struct gap__watch_note){now_ns, s->clock};
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    gap__lock(&lane->lock);
    gap__lane_begin_epoch_locked(lane);
    gap__unlock(&lane->lock);
  }
}

static void mind_age(struct gap__policy_state *s, uint64_t now_ns) {
  uint64_t age = age_ns(s);
  if (!age) {
    s->watch.count = 0;
    return;
  }
  gap__pending_poll(s);
  uint32_t old = now_ns > age ? epoch_at(&s->watch, now_ns - age) : 0;
  if (old && !atomic_load(&s->ahead)) gap__trim_old(s, old);
  note(s, now_ns);
}

void gap__watch_step(struct gap__policy_state *s) {
  uint64_t now_ns = gap__dev_now_ns(s->dev);
  if (now_ns < s->watch.due_ns || !gap__held_pages(s)) return;
  gap__lock_give_way(&s->lock);
  gap__lock(&s->lock);
  s->watch.due_ns = now_ns + look_after_ns(s);
  gap__dev_background_ask(s->dev); /* on a simulated card: events are looked at now, not when the worker last worked */
  gap__dev_background(s->dev, true);
  mind_neighbours(s);
  mind_age(s, now_ns);
  gap__dev_background(s->dev, false);
  gap__unlock(&s->lock);
}
