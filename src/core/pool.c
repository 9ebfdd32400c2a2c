/* Private pools: see pool.h.  A pool is pinned from its first allocation or retain to its last release, unless it is shared. */
#include "core/pool.h"

static bool same_pool(gap_pool_id a, gap_pool_id b) { return a.first == b.first && a.second == b.second; }

static struct gap__pool *find(struct gap__policy_state *s, gap_pool_id id) {
  for (uint32_t i = 0; i < s->pool_count; i++)
    if (same_pool(s->pools[i].id, id)) return &s->pools[i];
  return NULL;
}

static void pin(struct gap__policy_state *s, gap_pool_id id, bool pinned, bool released) {
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) {
    if (!same_pool(lane->pool, id)) continue;
    atomic_store(&lane->pinned, pinned || lane->asleep);
    lane->released = released;
  }
}

static struct gap__pool *find_or_add(struct gap__policy_state *s, gap_pool_id id) {
  struct gap__pool *pool = find(s, id);
  if (pool) return pool;
  if (!s->pools && !(s->pools = gap__meta_map(GAP__POOLS_MAX * sizeof *s->pools))) return NULL;
  for (uint32_t i = 0; i < s->pool_count; i++)
    if (!s->pools[i].uses) pool = &s->pools[i]; /* a released pool's entry serves again */
  if (!pool && s->pool_count < GAP__POOLS_MAX) pool = &s->pools[s->pool_count++];
  if (pool) *pool = (struct gap__pool){.id = id};
  return pool;
}

bool gap__pool_pins(struct gap__policy_state *s, gap_pool_id id) {
  if (!id.first && !id.second) return false;
  const struct gap__pool *pool = find(s, id);
  return !pool || !pool->uses || !pool->shared; /* of a pool that nobody has announced nothing is known */
}

int gap__pool_retain(struct gap__policy_state *s, gap_pool_id id, unsigned flags) {
  if (!id.first && !id.second) return GAP_EINVAL;
  gap__lock(&s->lock);
  struct gap__pool *pool = find_or_add(s, id);
  if (pool && pool->uses++ == 0) {
    pool->shared = flags == GAP_POOL_SHARED;
    pin(s, id, !pool->shared, false);
  }
  gap__unlock(&s->lock);
  return pool ? 0 : GAP_ENOMETA;
}

int gap__pool_release(struct gap__policy_state *s, gap_pool_id id) {
  if (!id.first && !id.second) return GAP_EINVAL;
  gap__lock(&s->lock);
  struct gap__pool *pool = find(s, id);
  int rc = pool && pool->uses > 0 ? 0 : GAP_ESTATE;
  if (!rc && --pool->uses == 0) pin(s, id, false, true);
  gap__unlock(&s->lock);
  return rc;
}
