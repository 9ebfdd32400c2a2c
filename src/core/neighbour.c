/* Giving to neighbours: see neighbour.h. */
#include "core/neighbour.h"

#include "core/diagnose.h"
#include "core/limit.h"
#include "core/pending.h"
#include "core/trim.h"
#include "core/watch.h"

#define MS 1000000ull
#define GIVE_NS (100 * MS) /* one answer takes no longer */
enum { BATCH_PAGES = 16 }; /* given back under the device lock at once: a millisecond */

static void lock_politely(struct gap__policy_state *s) {
  gap__lock_give_way(&s->lock);
  gap__lock(&s->lock);
}

/* Pages that were made ahead of need go too: there is need elsewhere. */
static uint64_t give_some(struct gap__policy_state *s, uint64_t pages, uint64_t now_ns) {
  uint32_t epoch = gap__watch_lendable(s, now_ns);
  uint64_t held = gap__held_pages(s), keep = held > pages ? held - pages : 0;
  if (!epoch) return 0;
  atomic_store(&s->ahead, NULL); /* or what goes back would be made anew */
  gap__dev_background(s->dev, true);
  uint64_t given = epoch == UINT32_MAX ? gap__trim_idle(s, NULL, keep, false) : gap__trim_old(s, keep, epoch);
  gap__dev_background(s->dev, false);
  return given;
}

/* What is idle and stays, and when it could go if nobody used it; what could have gone already is held by something else. */
static void tell(struct gap__policy_state *s, uint64_t now_ns, struct gap__given *out) {
  uint64_t wait_ns = gap__watch_lends_in_ns(s, now_ns);
  uint64_t kept = gap__idle_figures(s).returnable_bytes + (s->loose_pages << GAP__PAGE_SHIFT);
  out->held += gap__held_pages(s) << GAP__PAGE_SHIFT;
  if (!wait_ns || !kept) return;
  out->kept += kept;
  if (out->in_ms < wait_ns / MS + 1) out->in_ms = wait_ns / MS + 1;
}

void gap__neighbour_give(struct gap__policy_state *s, uint64_t bytes, struct gap__given *out) {
  uint64_t wanted = bytes / GAP__PAGE + (bytes % GAP__PAGE != 0), given = 0, pages = 1;
  uint64_t now_ns = gap__dev_now_ns(s->dev), until_ns = now_ns + GIVE_NS;
  lock_politely(s);
  gap__pending_poll(s, NULL);
  gap__watch_note(s, now_ns);
  while (pages && given < wanted && gap__dev_now_ns(s->dev) < until_ns) {
    uint64_t left = wanted - given;
    given += pages = give_some(s, left < BATCH_PAGES ? left : BATCH_PAGES, now_ns);
    gap__unlock(&s->lock);
    lock_politely(s);
  }
  out->given += given << GAP__PAGE_SHIFT;
  tell(s, now_ns, out);
  gap__unlock(&s->lock);
}
