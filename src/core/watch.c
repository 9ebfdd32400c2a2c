#include "core/watch.h"

#include <string.h>

#include "core/lane.h"
#include "core/limit.h"
#include "core/overflow_move.h"
#include "core/pending.h"
#include "core/trim.h"

#define MS 1000000ull
#define LOOK_NS_LEAST (10 * MS) /* where an age is short */
enum {
  BATCH_PAGES = 16, /* given back under the device lock at once: a millisecond */
  RETURN_PAGES = 64 /* brought back from host memory while streams stand still: ten milliseconds or so */
};

static uint64_t trim_age_ns(const struct gap__policy_state *s) {
  return gap__device_conf(s->device)->trim_after_ms * MS;
}

/* 0 where there are no neighbours, and where they get at once what is idle. */
static uint64_t lend_age_ns(const struct gap__policy_state *s) {
  return atomic_load(&s->device->hood.lends) ? gap__device_conf(s->device)->lend_after_ms * MS : 0;
}

/* ---- when to look ---- */

/* A quarter of an age at most, so that a page goes between once and 1.25 times the age after its last use. */
static uint64_t look_for(uint64_t age_ns) {
  uint64_t quarter = age_ns / 4;
  if (!quarter || quarter >= GAP__WATCH_LOOK_NS) return GAP__WATCH_LOOK_NS;
  return quarter < LOOK_NS_LEAST ? LOOK_NS_LEAST : quarter;
}

static uint64_t look_after_ns(const struct gap__policy_state *s) {
  uint64_t trim = look_for(trim_age_ns(s)), lend = look_for(lend_age_ns(s));
  return trim < lend ? trim : lend;
}

/* ---- ages ---- */

/* The newest epoch at the last note made `ns` or earlier; 0: there is none so old. */
static uint32_t epoch_at(const struct gap__notes *notes, uint64_t ns) {
  for (uint32_t i = notes->count; i > 0; i--)
    if (notes->at[i - 1].ns <= ns) return notes->at[i - 1].epoch;
  return 0;
}

static uint32_t epoch_before(const struct gap__notes *notes, uint64_t now_ns, uint64_t age_ns) {
  return now_ns > age_ns ? epoch_at(notes, now_ns - age_ns) : 0;
}

static bool wants_note(struct gap__notes *notes, uint64_t now_ns, uint64_t age_ns) {
  if (!age_ns) notes->count = 0;
  return age_ns && (!notes->count || now_ns - notes->at[notes->count - 1].ns >= age_ns / 4);
}

static void add_note(struct gap__notes *notes, struct gap__note note) {
  if (notes->count == GAP__WATCH_NOTES) memmove(notes->at, notes->at + 1, --notes->count * sizeof *notes->at);
  notes->at[notes->count++] = note;
}

/* Each allocation and each free counts once. */
static int64_t uses_of(const struct gap__tally *tally) { return 2 * tally->count_total - tally->count; }

static void see_use(struct gap__policy_state *s, uint64_t now_ns) {
  int64_t uses = uses_of(&s->gone[GAP__KIND_SMALL]) + uses_of(&s->gone[GAP__KIND_LARGE]);
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    gap__lock(&lane->lock);
    uses += uses_of(&lane->tally[GAP__KIND_SMALL]) + uses_of(&lane->tally[GAP__KIND_LARGE]);
    gap__unlock(&lane->lock);
  }
  if (uses != s->watch.uses || !s->watch.used_ns) s->watch.used_ns = now_ns;
  s->watch.uses = uses;
}

/* Notes the newest epoch; what is freed from now on carries later ones. */
void gap__watch_note(struct gap__policy_state *s, uint64_t now_ns) {
  if (atomic_load(&s->device->hood.lends)) see_use(s, now_ns);
  bool trim = wants_note(&s->watch.trim, now_ns, trim_age_ns(s)),
       lend = wants_note(&s->watch.lend, now_ns, lend_age_ns(s));
  if (!trim && !lend) return;
  gap__epochs_renumber(s);
  struct gap__note note = {now_ns, s->clock};
  if (trim) add_note(&s->watch.trim, note);
  if (lend) add_note(&s->watch.lend, note);
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    gap__lock(&lane->lock);
    gap__lane_begin_epoch_locked(lane);
    gap__unlock(&lane->lock);
  }
}

/* ---- giving back ---- */

/* A few pages at a time, so that no request waits for long. */
static bool shed(struct gap__policy_state *s, uint64_t keep, uint32_t epoch) {
  uint64_t held = gap__held_pages(s), batch = held > keep + BATCH_PAGES ? held - BATCH_PAGES : keep;
  if (held <= keep) return false;
  return (epoch == UINT32_MAX ? gap__trim_idle(s, NULL, batch, false) : gap__trim_old(s, batch, epoch)) > 0;
}

static bool mind_reserve(struct gap__policy_state *s) {
  uint64_t keep = gap__limit_keep(s);
  if (gap__held_pages(s) <= keep) return false;
  atomic_store(&s->ahead, NULL); /* or what goes back would be made anew */
  return shed(s, keep, UINT32_MAX);
}

static bool mind_age(struct gap__policy_state *s, uint64_t now_ns) {
  uint64_t age = trim_age_ns(s);
  uint32_t old = age ? epoch_before(&s->watch.trim, now_ns, age) : 0;
  if (old && !atomic_load(&s->ahead) && shed(s, 0, old)) return true;
  uint64_t there = s->overflow.pages;
  return old && there && gap__trim_host(s, NULL, there > BATCH_PAGES ? there - BATCH_PAGES : 0, old, false) > 0;
}

/* With gates live blocks come back from host memory, a few at a time, into room that nobody holds.  Nobody has asked for it: where streams do
 * not reach the gate, which takes seconds to find out, it is not tried again. */
static void bring_back(struct gap__policy_state *s) {
  int64_t missed = s->convert.refused[GAP__REFUSED_gate];
  if (!s->overflow.pages || s->overflow.missed || !gap__converts(s)) return;
  uint64_t held = gap__held_pages(s), hard = gap__limit_most(s), room = hard > held ? hard - held : 0;
  if (room >= BATCH_PAGES) gap__overflow_return(s, room < RETURN_PAGES ? room : RETURN_PAGES, GAP__STILL_BY_GATE);
  s->overflow.missed = s->convert.refused[GAP__REFUSED_gate] > missed;
}

static bool give_back(struct gap__policy_state *s, uint64_t now_ns) {
  gap__dev_background(s->dev, true);
  bool more = mind_reserve(s) || mind_age(s, now_ns);
  gap__dev_background(s->dev, false);
  return more;
}

/* ---- the step ---- */

static void begin_look(struct gap__policy_state *s, uint64_t now_ns) {
  s->watch.due_ns = now_ns + look_after_ns(s);
  gap__dev_background_ask(s->dev); /* on a simulated card: events are looked at now, not when the worker last worked */
  gap__dev_background(s->dev, true);
  if (trim_age_ns(s) || lend_age_ns(s)) gap__pending_poll(s, NULL);
  gap__dev_background(s->dev, false);
}

static void end_look(struct gap__policy_state *s, uint64_t now_ns) {
  gap__dev_background(s->dev, true);
  gap__watch_note(s, now_ns);
  bring_back(s);
  gap__dev_background(s->dev, false);
}

static void lock_politely(struct gap__policy_state *s) {
  gap__lock_give_way(&s->lock);
  gap__lock(&s->lock);
}

void gap__watch_step(struct gap__policy_state *s) {
  uint64_t now_ns = gap__dev_now_ns(s->dev);
  if (now_ns < s->watch.due_ns || !(gap__held_pages(s) + s->overflow.pages)) return;
  lock_politely(s);
  begin_look(s, now_ns);
  while (give_back(s, now_ns)) {
    gap__unlock(&s->lock);
    lock_politely(s);
  }
  end_look(s, now_ns);
  gap__unlock(&s->lock);
}

/* ---- for neighbours ---- */

uint32_t gap__watch_lendable(const struct gap__policy_state *s, uint64_t now_ns) {
  uint64_t age = lend_age_ns(s);
  return age ? epoch_before(&s->watch.lend, now_ns, age) : UINT32_MAX;
}

/* When the first note after the last use will be as old as that; it may have been forgotten, or is to come. */
static uint64_t lends_at_ns(const struct gap__policy_state *s, uint64_t now_ns, uint64_t age_ns) {
  const struct gap__notes *notes = &s->watch.lend;
  uint64_t within = age_ns / 4 + look_after_ns(s), latest = s->watch.used_ns + within;
  for (uint32_t i = 0; i < notes->count; i++)
    if (notes->at[i].ns >= s->watch.used_ns) return (notes->at[i].ns < latest ? notes->at[i].ns : latest) + age_ns;
  return now_ns + within + age_ns;
}

/* What could go and has not is what the device still uses: it has a little time. */
uint64_t gap__watch_lends_in_ns(const struct gap__policy_state *s, uint64_t now_ns) {
  uint64_t age = lend_age_ns(s), at_ns = age ? lends_at_ns(s, now_ns, age) : s->watch.used_ns;
  if (now_ns < at_ns) return at_ns - now_ns;
  return now_ns < at_ns + 2 * GAP__WATCH_LOOK_NS ? 1 : 0;
}
