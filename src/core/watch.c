#include "core/watch.h"

#include <string.h>

#include "core/lane.h"
#include "core/limit.h"
#include "core/pending.h"
#include "core/supply.h"

#define MS 1000000ull
#define LOOK_NS (250 * MS)      /* between two looks */
#define LOOK_NS_LEAST (10 * MS) /* where trim_after_ms is short */
enum { BATCH_PAGES = 16 };      /* given back under the device lock at once: a millisecond */

static uint64_t age_ns(const struct gap__policy_state *s) { return gap__device_conf(s->device)->trim_after_ms * MS; }

/* A quarter of the age at most, so that a page goes between once and 1.25 times the age after its last use. */
static uint64_t look_after_ns(const struct gap__policy_state *s) {
  uint64_t quarter = age_ns(s) / 4;
  if (!quarter || quarter >= LOOK_NS) return LOOK_NS;
  return quarter < LOOK_NS_LEAST ? LOOK_NS_LEAST : quarter;
}

/* ---- ages ---- */

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

/* Notes lie a quarter of the age apart, so that all of them together reach back further than the age. */
static void note_now_and_then(struct gap__policy_state *s, uint64_t now_ns) {
  struct gap__watch *watch = &s->watch;
  uint64_t age = age_ns(s);
  if (!age) watch->count = 0;
  else if (!watch->count || now_ns - watch->notes[watch->count - 1].ns >= age / 4) note(s, now_ns);
}

/* ---- giving back ---- */

/* A few pages at a time, so that no request waits for long. */
static bool shed(struct gap__policy_state *s, uint64_t keep, uint32_t epoch) {
  uint64_t held = gap__held_pages(s), batch = held > keep + BATCH_PAGES ? held - BATCH_PAGES : keep;
  if (held <= keep) return false;
  return (epoch == UINT32_MAX ? gap__trim_idle(s, NULL, batch, false) : gap__trim_old(s, batch, epoch)) > 0;
}

static bool mind_neighbours(struct gap__policy_state *s) {
  uint64_t keep = gap__limit_keep(s);
  if (gap__held_pages(s) <= keep) return false;
  atomic_store(&s->ahead, NULL); /* or what goes back would be made anew */
  return shed(s, keep, UINT32_MAX);
}

static bool mind_age(struct gap__policy_state *s, uint64_t now_ns) {
  uint64_t age = age_ns(s);
  uint32_t old = age && now_ns > age ? epoch_at(&s->watch, now_ns - age) : 0;
  return old && !atomic_load(&s->ahead) && shed(s, 0, old);
}

static bool give_back(struct gap__policy_state *s, uint64_t now_ns) {
  gap__dev_background(s->dev, true);
  bool more = mind_neighbours(s) || mind_age(s, now_ns);
  gap__dev_background(s->dev, false);
  return more;
}

/* ---- the step ---- */

static void begin_look(struct gap__policy_state *s, uint64_t now_ns) {
  s->watch.due_ns = now_ns + look_after_ns(s);
  gap__dev_background_ask(s->dev); /* on a simulated card: events are looked at now, not when the worker last worked */
  gap__dev_background(s->dev, true);
  if (age_ns(s)) gap__pending_poll(s);
  gap__dev_background(s->dev, false);
}

static void end_look(struct gap__policy_state *s, uint64_t now_ns) {
  gap__dev_background(s->dev, true);
  note_now_and_then(s, now_ns);
  gap__dev_background(s->dev, false);
}

static void lock_politely(struct gap__policy_state *s) {
  gap__lock_give_way(&s->lock);
  gap__lock(&s->lock);
}

void gap__watch_step(struct gap__policy_state *s) {
  uint64_t now_ns = gap__dev_now_ns(s->dev);
  if (now_ns < s->watch.due_ns || !gap__held_pages(s)) return;
  lock_politely(s);
  begin_look(s, now_ns);
  while (give_back(s, now_ns)) {
    gap__unlock(&s->lock);
    lock_politely(s);
  }
  end_look(s, now_ns);
  gap__unlock(&s->lock);
}
