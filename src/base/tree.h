/* An ordered set of records, intrusive: the node is the first member of a slab record, links are record indices.
 *
 * Ordered by (major, minor), both unsigned; no two nodes of one tree may be equal.  A treap (Seidel and Aragon 1996): a
 * binary search tree that is a heap in random priorities, so its depth is about 2 ln n whatever the order of insertion.
 * The priorities come from a seeded generator in the tree: the same operations give the same tree.  No recursion, no
 * allocation, no parent links.  Not thread-safe. */
#ifndef GAP_TREE_H
#define GAP_TREE_H

#include <stdint.h>

#include "base/meta.h"

struct gap__tree_node {
  uint64_t major, minor;
  uint32_t left, right;
  uint32_t priority;
  uint32_t tag; /* free for the record's owner */
};

struct gap__tree {
  uint32_t root;
  uint32_t count;
  uint32_t seed; /* 0 is fine */
};

void gap__tree_insert(struct gap__tree *, const struct gap__slab *, uint32_t index);
/* The node must be in this tree. */
void gap__tree_erase(struct gap__tree *, const struct gap__slab *, uint32_t index);
/* The first node >= (major, minor); 0 when there is none. */
uint32_t gap__tree_at_least(const struct gap__tree *, const struct gap__slab *, uint64_t major, uint64_t minor);
/* The last node < (major, minor); 0 when there is none. */
uint32_t gap__tree_below(const struct gap__tree *, const struct gap__slab *, uint64_t major, uint64_t minor);

static inline struct gap__tree_node *gap__tree_node_at(const struct gap__slab *slab, uint32_t index) {
  return (struct gap__tree_node *)gap__slab_at(slab, index);
}
static inline uint32_t gap__tree_first(const struct gap__tree *tree, const struct gap__slab *slab) {
  return gap__tree_at_least(tree, slab, 0, 0);
}
static inline uint32_t gap__tree_last(const struct gap__tree *tree, const struct gap__slab *slab) {
  return gap__tree_below(tree, slab, UINT64_MAX, UINT64_MAX);
}
/* The node after `index`, which need not be in the tree any more: its key counts. */
static inline uint32_t gap__tree_next(const struct gap__tree *tree, const struct gap__slab *slab, uint32_t index) {
  const struct gap__tree_node *node = gap__tree_node_at(slab, index);
  return gap__tree_at_least(tree, slab, node->major, node->minor + 1);
}
/* Every node's order and heap property, and the count; false when one is broken. */
bool gap__tree_check(const struct gap__tree *, const struct gap__slab *);

#endif
