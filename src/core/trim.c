/* Idle chunks go back to the driver: see trim.h. */
#include "core/trim.h"

#include "core/chunk.h"
#include "core/lane.h"
#include "core/limit.h"
#include "core/loot.h"

uint64_t gap__trim_loose(struct gap__policy_state *s, bool wait) {
  uint64_t pages = 0;
  for (uint32_t next, chunk = s->loose; chunk; chunk = next) {
    uint32_t size = gap__chunk_at(s, chunk)->pages;
    next = gap__chunk_at(s, chunk)->next_loose;
    bool host = gap__chunk_at(s, chunk)->host;
    if (gap__chunk_settled(s, chunk, wait) && gap__chunk_release(s, chunk) == 0) pages += host ? 0 : size;
  }
  s->trimmed += (int64_t)pages;
  return pages;
}

static bool in_scope(const struct gap__lane *lane, const gap_pool_id *pool) {
  if (atomic_load_explicit(&lane->pinned, memory_order_relaxed)) return false; /* a graph may use what looks idle */
  return !pool || (lane->pool.first == pool->first && lane->pool.second == pool->second);
}

/* Releases what was taken from idle blocks. Returns pages. */
static uint64_t release_loot(struct gap__policy_state *s, uint32_t count, bool wait) {
  uint64_t pages = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t chunk = gap__loot(s)[i], size = gap__chunk_at(s, chunk)->pages;
    if (gap__chunk_settled(s, chunk, wait) && gap__chunk_release(s, chunk) == 0) pages += size;
    else if (!gap__chunk_is_loose(s, chunk)) gap__loot_put_back(s, i, i + 1);
  }
  return pages;
}

struct cut {
  const gap_pool_id *pool;
  uint64_t keep_pages;
  uint32_t epoch;
  bool wait;
  enum gap__place place;
};

static uint64_t trim(struct gap__policy_state *s, const struct cut *cut) {
  uint64_t total = 0;
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    if (!in_scope(lane, cut->pool)) continue;
    gap__lane_close_epoch(lane);
    gap__lane_poll(lane);
    uint32_t epoch = cut->wait || lane->completed > cut->epoch ? cut->epoch : lane->completed;
    uint64_t released = 1;
    for (uint64_t there; released && (there = gap__held_pages_at(s, cut->place)) > cut->keep_pages; total += released)
      released = release_loot(s, gap__loot_excess(s, lane, there - cut->keep_pages, cut->place, epoch), cut->wait);
  }
  return total;
}

static uint64_t trim_device(struct gap__policy_state *s, const struct cut *cut) {
  uint64_t loose = gap__trim_loose(s, cut->wait), pages = trim(s, cut);
  s->trimmed += (int64_t)pages;
  return loose + pages;
}

uint64_t gap__trim_idle(struct gap__policy_state *s, const gap_pool_id *pool, uint64_t keep_pages, bool wait) {
  const struct cut cut = {pool, keep_pages, UINT32_MAX, wait, GAP__PLACE_DEVICE};
  return trim_device(s, &cut);
}

uint64_t gap__trim_old(struct gap__policy_state *s, uint64_t keep_pages, uint32_t epoch) {
  const struct cut cut = {NULL, keep_pages, epoch, false, GAP__PLACE_DEVICE};
  return trim_device(s, &cut);
}

uint64_t gap__trim_host(struct gap__policy_state *s, const gap_pool_id *pool, uint64_t keep_pages, uint32_t epoch,
                        bool wait) {
  const struct cut cut = {pool, keep_pages, epoch, wait, GAP__PLACE_HOST};
  return s->overflow.pages > keep_pages ? trim(s, &cut) : 0;
}
