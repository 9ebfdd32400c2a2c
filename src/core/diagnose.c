/* A failure explained: see diagnose.h. */
#include "core/diagnose.h"

#include "base/text.h"
#include "core/limit.h"
#include "core/tally.h"

static void add_arena(struct gap__idle *idle, struct gap__arena *arena, bool pinned) {
  struct gap__lane *lane = arena->lane;
  for (uint32_t word = 0; word < GAP__BIN_WORDS; word++)
    for (uint64_t bits = arena->bins.word[word]; bits; bits &= bits - 1) {
      uint32_t bin = word * 64 + (uint32_t)__builtin_ctzll(bits);
      for (uint32_t i = arena->bins.head[bin]; i; i = gap__block(lane, i)->link_next) {
        const struct gap__block *b = gap__block(lane, i);
        uint64_t bytes = (uint64_t)b->len << GAP__UNIT_SHIFT;
        uint32_t from = gap__page_up(b->off), to = gap__page_of(b->off + b->len);
        uint64_t whole = from < to ? (uint64_t)(to - from) << GAP__PAGE_SHIFT : 0;
        idle->extents++;
        idle->returnable_bytes += pinned ? 0 : whole;
        idle->stuck_bytes += pinned ? bytes : bytes - whole;
        idle->pinned_bytes += pinned ? bytes : 0;
      }
    }
}

struct gap__idle gap__idle_figures(struct gap__policy_state *s) {
  struct gap__idle idle = {0};
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    gap__lock(&lane->lock);
    for (int kind = 0; kind < GAP__ARENA_COUNT; kind++) {
      gap__arena_flush(&lane->arena[kind]);
      add_arena(&idle, &lane->arena[kind], atomic_load_explicit(&lane->pinned, memory_order_relaxed));
    }
    gap__unlock(&lane->lock);
  }
  return idle;
}

static const char *reason(const struct gap__policy_state *s, const struct gap__request *req, const struct gap__idle *idle,
                          uint64_t limit) {
  if (limit != UINT64_MAX && req->bytes > limit << GAP__PAGE_SHIFT) return "the request is larger than all that may be held";
  if (idle->pinned_bytes >= req->bytes) return "idle memory is held by private pools, whose pages stay until they are released";
  if (s->pending_count) return "freed blocks wait for other streams that have not finished";
  return "the memory is in use";
}

void gap__diagnose_failure(struct gap__lane *lane, const struct gap__request *req) {
  struct gap__policy_state *s = lane->owner;
  struct gap__idle idle = gap__idle_figures(s);
  uint64_t cap = atomic_load(&s->device->cap_bytes), limit = gap__hard_limit(s);
  char asked[GAP__TEXT_BYTES], held[GAP__TEXT_BYTES], live[GAP__TEXT_BYTES], most[GAP__TEXT_BYTES], whole[GAP__TEXT_BYTES],
      stuck[GAP__TEXT_BYTES];
  gap__text_size(req->bytes, asked);
  gap__text_size(gap__held_pages(s) << GAP__PAGE_SHIFT, held);
  gap__text_size((uint64_t)gap__tally_live_bytes(s), live);
  gap__text_size(limit == UINT64_MAX ? s->dev->caps.total_bytes : limit << GAP__PAGE_SHIFT, most);
  gap__text_size(idle.returnable_bytes, whole);
  gap__text_size(idle.stuck_bytes, stuck);
  gap__device_explain(s->device,
                      "asked for %s: %s. %s is live, %s is held of at most %s (%s); %s of idle memory could be moved, %s lies on "
                      "pages that live blocks share.",
                      asked, reason(s, req, &idle, limit), live, held, most, cap ? "the cap" : "what the card has left",
                      whole, stuck);
}
