/* The flame graph as JSON: its nodes in preorder, by column; web/src/data.ts says what they mean. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "explain/phrase.h"
#include "gapless/gapless.h"
#include "report/flame.h"

#define NO_PARENT UINT32_MAX

struct shown {
  const struct gap__flame_node *node; /* NULL: several, merged */
  uint64_t bytes;
  uint32_t parent; /* index of the shown */
  uint32_t blocks, merged;
  uint8_t category;
};

struct order {
  struct shown *at;
  uint32_t count, room;
};

static int show(struct order *order, struct shown one) {
  if (order->count == order->room) {
    void *grown = realloc(order->at, (order->room = 2 * order->room + 256) * sizeof *order->at);
    if (!grown) return GAP_ENOMETA;
    order->at = grown;
  }
  order->at[order->count++] = one;
  return 0;
}

static int by_bytes(const void *left, const void *right) {
  const struct gap__flame_node *a = *(const struct gap__flame_node *const *)left;
  const struct gap__flame_node *b = *(const struct gap__flame_node *const *)right;
  if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  return a->value < b->value ? -1 : a->value > b->value;
}

/* The children that are shown by themselves, the widest first; the rest in one. */
struct children {
  const struct gap__flame_node **at;
  uint32_t count;
  struct shown other;
};

static int list_children(const struct gap__flame *flame, const struct gap__flame_node *node, uint32_t parent,
                         struct children *children) {
  uint32_t all = 0;
  uint64_t by_category[GAP__CAT_COUNT] = {0};
  for (uint32_t child = node->first; child; child = flame->nodes[child].next) all++;
  *children = (struct children){.at = malloc(((size_t)all + 1) * sizeof *children->at), .other.parent = parent};
  if (!children->at) return GAP_ENOMETA;
  for (uint32_t child = node->first; child; child = flame->nodes[child].next) {
    const struct gap__flame_node *at = &flame->nodes[child];
    if (at->bytes >= flame->least) {
      children->at[children->count++] = at;
      continue;
    }
    children->other.bytes += at->bytes;
    children->other.blocks += at->blocks;
    children->other.merged++;
    for (int i = 0; i < GAP__CAT_COUNT; i++) by_category[i] += at->by_category[i];
  }
  children->other.category = (uint8_t)gap__category_most(by_category);
  qsort(children->at, children->count, sizeof *children->at, by_bytes);
  return 0;
}

static int push_children(const struct gap__flame *flame, const struct shown *of, uint32_t parent,
                         struct order *waiting) {
  struct children children;
  int rc = list_children(flame, of->node, parent, &children);
  if (!rc && children.other.merged) rc = show(waiting, children.other);
  for (uint32_t i = children.count; !rc && i-- > 0;) {
    const struct gap__flame_node *node = children.at[i];
    rc = show(waiting, (struct shown){.node = node,
                                      .bytes = node->bytes,
                                      .parent = parent,
                                      .blocks = node->blocks,
                                      .category = (uint8_t)gap__category_most(node->by_category)});
  }
  free(children.at);
  return rc;
}

/* `waiting` is a stack: the next one lies on top. */
static int put_in_order(const struct gap__flame *flame, struct order *order) {
  const struct gap__flame_node *root = &flame->nodes[0];
  struct order waiting = {0};
  int rc = show(&waiting, (struct shown){.node = root,
                                         .bytes = root->bytes,
                                         .parent = NO_PARENT,
                                         .blocks = root->blocks,
                                         .category = (uint8_t)gap__category_most(root->by_category)});
  while (!rc && waiting.count) {
    struct shown next = waiting.at[--waiting.count];
    rc = show(order, next);
    if (!rc && next.node) rc = push_children(flame, &next, order->count - 1, &waiting);
  }
  free(waiting.at);
  return rc;
}

static void put_label(const struct shown *shown, struct gap__emit *emit) {
  char text[64] = "";
  const struct gap__flame_node *node = shown->node;
  if (!node) snprintf(text, sizeof text, "other (%" PRIu32 ")", shown->merged);
  else if (node->kind == GAP__FLAME_ROOT) snprintf(text, sizeof text, "all");
  else if (node->kind == GAP__FLAME_UNKNOWN) snprintf(text, sizeof text, GAP__SITES_NONE);
  else if (node->kind == GAP__FLAME_CATEGORY)
    snprintf(text, sizeof text, "%s", gap__category_name((enum gap__category)node->value));
  else if (node->kind == GAP__FLAME_SIZE) snprintf(text, sizeof text, "%s", GAP__SIZE(node->value));
  gap__emit_text(emit, text);
}

/* The tree counts frames for itself: those that are not shown are not told to the page. */
static int put_frames(const struct gap__flame *flame, const struct order *order, struct gap__names *names,
                      struct gap__emit *emit) {
  int rc = 0;
  gap__emit_name(emit, "frame");
  gap__emit_begin(emit, '[');
  for (uint32_t i = 0; !rc && i < order->count; i++) {
    const struct gap__flame_node *node = order->at[i].node;
    bool is_frame = node && node->kind == GAP__FLAME_FRAME;
    uint32_t frame = 0;
    if (is_frame) rc = gap__names_frame(names, flame->frames.frames[node->value], &frame);
    gap__emit_signed(emit, is_frame ? (int64_t)frame : -1);
  }
  gap__emit_end(emit, ']');
  return rc;
}

static void put_nodes(const struct order *order, struct gap__emit *emit) {
  const struct shown *at = order->at;
  gap__emit_name(emit, "parent");
  gap__emit_begin(emit, '[');
  for (uint32_t i = 0; i < order->count; i++)
    gap__emit_signed(emit, at[i].parent == NO_PARENT ? -1 : (int64_t)at[i].parent);
  gap__emit_end(emit, ']');
  gap__emit_name(emit, "label");
  gap__emit_begin(emit, '[');
  for (uint32_t i = 0; i < order->count; i++) put_label(&at[i], emit);
  gap__emit_end(emit, ']');
  GAP__EMIT_COLUMN(emit, number, "bytes", at, order->count, bytes);
  GAP__EMIT_COLUMN(emit, number, "blocks", at, order->count, blocks);
  GAP__EMIT_COLUMN(emit, number, "category", at, order->count, category);
}

int gap__flame_emit(const struct gap__flame *flame, bool has_events, struct gap__names *names, struct gap__emit *emit) {
  struct order order = {0};
  uint64_t merged = 0;
  int rc = put_in_order(flame, &order);
  for (uint32_t i = 0; i < order.count; i++) merged += order.at[i].merged;
  gap__emit_begin(emit, '{');
  GAP__EMIT(emit, text, "moment", has_events ? "peak" : "end");
  GAP__EMIT(emit, text, "by", flame->by_site ? "call_site" : "category");
  put_nodes(&order, emit);
  if (!rc) rc = put_frames(flame, &order, names, emit);
  GAP__EMIT(emit, number, "merged", merged);
  gap__emit_end(emit, '}');
  free(order.at);
  return rc;
}
