/* See behind.h. */
#include "core/behind.h"

#include "base/meta.h"

enum { SLOTS = 2 * GAP__BEHIND_MAX };

struct gap__behind {
  uint64_t capture;
  uint32_t count, looked;          /* before the first `looked` nodes it has been looked */
  gap__node node[GAP__BEHIND_MAX]; /* in the order in which they were found */
  uint32_t slot[SLOTS];            /* 1 + index of a node, 0 none; open addressing */
};

/* The node's slot, or the free one where it belongs. */
static uint32_t slot_of(const struct gap__behind *b, gap__node node) {
  uint32_t i = (uint32_t)(node * 0x9E3779B97F4A7C15ull >> 40) % SLOTS;
  while (b->slot[i] && b->node[b->slot[i] - 1] != node) i = (i + 1) % SLOTS;
  return i;
}

static void note(struct gap__behind *b, const gap__node *nodes, uint32_t count) {
  for (uint32_t i = 0; i < count && b->count < GAP__BEHIND_MAX; i++) {
    uint32_t slot = slot_of(b, nodes[i]);
    if (b->slot[slot]) continue;
    b->node[b->count++] = nodes[i];
    b->slot[slot] = b->count;
  }
}

/* A node that the driver tells nothing about has nothing before it. */
static void look_before(struct gap__policy_state *s, struct gap__behind *b) {
  gap__node before[GAP__BEHIND_WIDTH];
  uint32_t count = GAP__BEHIND_WIDTH;
  gap__node node = b->node[b->looked++];
  if (gap__dev_node_before(s->dev, node, before, &count) == 0) note(b, before, count);
}

static struct gap__behind *begin(struct gap__lane *lane, uint64_t capture) {
  if (lane->behind && lane->behind->capture == capture) return lane->behind;
  gap__behind_forget(lane);
  lane->behind = gap__meta_map(sizeof *lane->behind);
  if (lane->behind) lane->behind->capture = capture;
  return lane->behind;
}

bool gap__behind_look(struct gap__lane *lane, uint64_t capture) {
  struct gap__policy_state *s = lane->owner;
  gap__node front[GAP__BEHIND_WIDTH];
  uint32_t count = GAP__BEHIND_WIDTH;
  uint64_t now = 0;
  if (gap__dev_stream_front(s->dev, lane->stream, &now, front, &count) || now != capture) return false;
  struct gap__behind *b = begin(lane, capture);
  if (!b) return false;
  note(b, front, count < GAP__BEHIND_WIDTH ? count : GAP__BEHIND_WIDTH);
  while (b->looked < b->count && b->count < GAP__BEHIND_MAX) look_before(s, b);
  return true;
}

bool gap__behind_has(const struct gap__lane *lane, gap__node node) {
  const struct gap__behind *b = lane->behind;
  return b && b->slot[slot_of(b, node)] != 0;
}

void gap__behind_forget(struct gap__lane *lane) {
  if (lane->behind) gap__meta_unmap(lane->behind, sizeof *lane->behind);
  lane->behind = NULL;
}
