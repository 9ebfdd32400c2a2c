#include "core/glance.h"

#include "core/diagnose.h"
#include "core/figures.h"
#include "core/tally.h"

struct gap__usage *gap__glance_usage(struct gap__glance *glance, gap_stream stream, gap_pool_id pool) {
  for (uint32_t i = 0; i < glance->usage_count; i++) {
    struct gap__usage *usage = &glance->usage[i];
    if (usage->stream == stream && usage->pool.first == pool.first && usage->pool.second == pool.second) return usage;
  }
  if (glance->usage_count == GAP__GLANCE_USAGES) {
    glance->usage_missed++;
    return NULL;
  }
  struct gap__usage *usage = &glance->usage[glance->usage_count++];
  *usage = (struct gap__usage){.stream = stream, .pool = pool};
  return usage;
}

/* ---- the strategy gapless ---- */

/* What has memory behind it and is neither live nor pending is idle.  Under the device lock. */
static void add_lane(struct gap__lane *lane, struct gap__glance *out) {
  int64_t live = 0, pending = 0, blocks = 0, pages = 0;
  gap__lock(&lane->lock);
  for (int kind = GAP__KIND_SMALL; kind < GAP__KIND_COUNT; kind++) {
    blocks += lane->tally[kind].count;
    live += lane->tally[kind].bytes;
    pending += lane->tally[kind].pending_bytes;
  }
  gap__unlock(&lane->lock);
  for (int kind = 0; kind < GAP__ARENA_COUNT; kind++) pages += lane->arena[kind].home_pages;
  int64_t idle = (pages << GAP__PAGE_SHIFT) - live - pending;
  if (!pages && !live && !pending) return;
  struct gap__usage *usage = gap__glance_usage(out, lane->stream, lane->pool);
  if (!usage) return;
  usage->live_blocks += (uint64_t)blocks;
  usage->live_bytes += (uint64_t)live;
  usage->pending_bytes += (uint64_t)pending;
  usage->idle_bytes += idle > 0 ? (uint64_t)idle : 0; /* a block that is just being handed out counts as live already */
}

int gap__glance_gapless(struct gap__policy_state *s, struct gap__glance *out) {
  if (!gap__lock_within(&s->lock, GAP__GLANCE_WAIT_MS)) return GAP_ESTATE;
  gap__figures_glance(s, out->room_bytes, &out->stats);
  for (struct gap__lane *lane = s->lanes; lane; lane = lane->next) add_lane(lane, out);
  gap__unlock(&s->lock);
  return 0;
}
