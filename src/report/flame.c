#include "report/flame.h"

#include <stdlib.h>

#include "gapless/gapless.h"

enum { NODES_MAX = 1 << 21 }; /* of a tree before it is reduced; beyond it stacks end early */

struct grower {
  const struct gap__subject *subject;
  struct gap__flame *flame;
  struct gap__map children; /* parent, kind and value -> node */
  struct gap__map ends;     /* stack -> node */
};

/* ---- nodes --------------------------------------------------------------------------------------------------------- */

static int make_room(struct gap__flame *flame) {
  if (flame->count < flame->room) return 0;
  uint32_t room = 2 * flame->room + 1024;
  void *grown = realloc(flame->nodes, room * sizeof *flame->nodes);
  if (!grown) return GAP_ENOMETA;
  flame->nodes = grown;
  flame->room = room;
  return 0;
}

static bool is_child(const struct gap__flame *flame, uint32_t node, uint32_t parent, enum gap__flame_kind kind,
                     uint64_t value) {
  const struct gap__flame_node *at = &flame->nodes[node];
  return at->parent == parent && at->kind == kind && at->value == value;
}

static int add_node(struct grower *grower, uint64_t key, uint32_t parent, enum gap__flame_kind kind, uint64_t value,
                    uint32_t *out) {
  struct gap__flame *flame = grower->flame;
  int rc = make_room(flame);
  if (rc) return rc;
  *out = flame->count++;
  flame->nodes[*out] = (struct gap__flame_node){
      .value = value, .parent = parent, .next = flame->nodes[parent].first, .kind = (uint8_t)kind};
  flame->nodes[parent].first = *out;
  return gap__map_put(&grower->children, key, *out);
}

/* The child of a node; itself where the tree is as large as it may be.  Different children of one key are moved on to the next key. */
static int descend(struct grower *grower, uint32_t parent, enum gap__flame_kind kind, uint64_t value, uint32_t *out) {
  uint64_t key = (value * 8 + kind) * 0x9E3779B97F4A7C15u ^ (uint64_t)parent << 20, known;
  for (; gap__map_get(&grower->children, key, &known); key++) {
    *out = (uint32_t)known;
    if (is_child(grower->flame, *out, parent, kind, value)) return 0;
  }
  *out = parent;
  return grower->flame->count < NODES_MAX ? add_node(grower, key, parent, kind, value, out) : 0;
}

static void count_block(struct gap__flame_node *node, const struct gap__life *life) {
  node->bytes += life->bytes;
  node->by_category[life->category] += life->bytes;
  node->blocks++;
}

/* What ends at a node counts for all above it, too.  Parents stand before their children. */
static void sum_up(struct gap__flame *flame) {
  for (uint32_t i = flame->count; i-- > 1;) {
    const struct gap__flame_node *node = &flame->nodes[i];
    struct gap__flame_node *parent = &flame->nodes[node->parent];
    parent->bytes += node->bytes;
    parent->blocks += node->blocks;
    for (int j = 0; j < GAP__CAT_COUNT; j++) parent->by_category[j] += node->by_category[j];
  }
}

/* ---- growing ------------------------------------------------------------------------------------------------------- */

/* Of a stack that is too deep the outermost frames. */
static int descend_stack(struct grower *grower, uint32_t stack, uint32_t *out) {
  const struct gap__history *history = grower->subject->history;
  const struct gap__hist_stack *at = &history->stacks[stack];
  int rc = 0;
  for (uint32_t i = at->count, depth = 0; !rc && i-- > 0 && depth < GAP__FLAME_DEPTH; depth++) {
    uint32_t frame;
    rc = gap__names_frame(&grower->flame->frames, history->stack_frames[at->first + i], &frame);
    if (!rc) rc = descend(grower, *out, GAP__FLAME_FRAME, frame, out);
  }
  return rc;
}

/* Where a stack ends; most blocks have one that was met before. */
static int find_stack(struct grower *grower, uint32_t stack, uint32_t *out) {
  uint64_t known;
  if (gap__map_get(&grower->ends, stack, &known)) {
    *out = (uint32_t)known;
    return 0;
  }
  int rc = descend_stack(grower, stack, out);
  return rc ? rc : gap__map_put(&grower->ends, stack, *out);
}

static int add_life(struct grower *grower, const struct gap__life *life) {
  uint32_t node = 0;
  int rc = 0;
  if (!grower->flame->by_site) {
    rc = descend(grower, 0, GAP__FLAME_CATEGORY, life->category, &node);
    if (!rc) rc = descend(grower, node, GAP__FLAME_SIZE, life->bytes, &node);
  } else if (life->stack && grower->subject->history->stacks[life->stack].count) {
    rc = find_stack(grower, life->stack, &node);
  } else {
    rc = descend(grower, 0, GAP__FLAME_UNKNOWN, 0, &node);
  }
  if (!rc) count_block(&grower->flame->nodes[node], life);
  return rc;
}

/* ---- reducing ------------------------------------------------------------------------------------------------------ */

/* The nodes that are emitted when those of fewer than `least` bytes are merged, "other" nodes included. */
static uint32_t count_shown(const struct gap__flame *flame, uint64_t least) {
  uint32_t shown = 1;
  for (uint32_t i = 0; i < flame->count; i++) {
    bool merges = false;
    if (i && flame->nodes[i].bytes < least) continue;
    for (uint32_t child = flame->nodes[i].first; child; child = flame->nodes[child].next) {
      shown += flame->nodes[child].bytes >= least;
      merges |= flame->nodes[child].bytes < least;
    }
    shown += merges;
  }
  return shown;
}

/* From a two-thousandth of the whole on, which is less than a pixel. */
static void choose_least(struct gap__flame *flame, uint32_t shown) {
  flame->least = flame->nodes[0].bytes / 2000 + 1;
  while (count_shown(flame, flame->least) > shown && flame->least <= flame->nodes[0].bytes) flame->least *= 2;
}

int gap__flame_find(const struct gap__subject *subject, uint32_t shown, struct gap__flame *flame) {
  struct grower grower = {.subject = subject, .flame = flame};
  *flame = (struct gap__flame){.by_site = subject->honest.has_stacks};
  gap__names_begin(&flame->frames, &subject->sites);
  int rc = make_room(flame);
  if (!rc) flame->nodes[flame->count++] = (struct gap__flame_node){.kind = GAP__FLAME_ROOT};
  for (uint32_t i = 0; !rc && i < subject->lives.count; i++)
    if (gap__life_covers(&subject->lives.at[i], subject->lives.peak_event))
      rc = add_life(&grower, &subject->lives.at[i]);
  gap__map_free(&grower.children);
  gap__map_free(&grower.ends);
  if (!rc) sum_up(flame);
  if (!rc) choose_least(flame, shown);
  return rc;
}

void gap__flame_free(struct gap__flame *flame) {
  free(flame->nodes);
  gap__names_free(&flame->frames);
  *flame = (struct gap__flame){0};
}
