#include "base/tree.h"

#include <assert.h>

static inline bool before(const struct gap__tree_node *node, uint64_t major, uint64_t minor) {
  return node->major < major || (node->major == major && node->minor < minor);
}

static uint32_t next_priority(struct gap__tree *tree) {
  uint32_t x = tree->seed ? tree->seed : 0x9E3779B9u; /* xorshift32 never reaches 0 from elsewhere */
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  return tree->seed = x;
}

/* Hangs the subtree `root` below `node`: what is smaller to its left, the rest to its right. */
static void split_below(const struct gap__slab *slab, uint32_t root, struct gap__tree_node *node) {
  uint32_t *left = &node->left, *right = &node->right;
  while (root) {
    struct gap__tree_node *at = gap__tree_node_at(slab, root);
    if (before(at, node->major, node->minor)) {
      *left = root;
      left = &at->right;
      root = at->right;
    } else {
      *right = root;
      right = &at->left;
      root = at->left;
    }
  }
  *left = *right = 0;
}

void gap__tree_insert(struct gap__tree *tree, const struct gap__slab *slab, uint32_t index) {
  struct gap__tree_node *node = gap__tree_node_at(slab, index);
  node->priority = next_priority(tree);
  uint32_t *link = &tree->root;
  while (*link) {
    struct gap__tree_node *at = gap__tree_node_at(slab, *link);
    if (at->priority < node->priority) break;
    link = before(at, node->major, node->minor) ? &at->right : &at->left;
  }
  split_below(slab, *link, node);
  *link = index;
  tree->count++;
}

void gap__tree_erase(struct gap__tree *tree, const struct gap__slab *slab, uint32_t index) {
  struct gap__tree_node *node = gap__tree_node_at(slab, index);
  uint32_t *link = &tree->root;
  while (*link != index) {
    assert(*link);
    struct gap__tree_node *at = gap__tree_node_at(slab, *link);
    link = before(at, node->major, node->minor) ? &at->right : &at->left;
  }
  uint32_t left = node->left, right = node->right;
  while (left && right) { /* merge the two sides where the node was */
    struct gap__tree_node *l = gap__tree_node_at(slab, left), *r = gap__tree_node_at(slab, right);
    if (l->priority >= r->priority) {
      *link = left;
      link = &l->right;
      left = l->right;
    } else {
      *link = right;
      link = &r->left;
      right = r->left;
    }
  }
  *link = left ? left : right;
  tree->count--;
}

uint32_t gap__tree_at_least(const struct gap__tree *tree, const struct gap__slab *slab, uint64_t major,
                            uint64_t minor) {
  uint32_t best = 0, at = tree->root;
  while (at) {
    const struct gap__tree_node *node = gap__tree_node_at(slab, at);
    if (before(node, major, minor)) {
      at = node->right;
    } else {
      best = at;
      at = node->left;
    }
  }
  return best;
}

uint32_t gap__tree_below(const struct gap__tree *tree, const struct gap__slab *slab, uint64_t major, uint64_t minor) {
  uint32_t best = 0, at = tree->root;
  while (at) {
    const struct gap__tree_node *node = gap__tree_node_at(slab, at);
    if (before(node, major, minor)) {
      best = at;
      at = node->right;
    } else {
      at = node->left;
    }
  }
  return best;
}

static bool heap_ordered(const struct gap__slab *slab, const struct gap__tree_node *node) {
  if (node->left && gap__tree_node_at(slab, node->left)->priority > node->priority) return false;
  return !node->right || gap__tree_node_at(slab, node->right)->priority <= node->priority;
}

bool gap__tree_check(const struct gap__tree *tree, const struct gap__slab *slab) {
  uint32_t seen = 0;
  for (uint32_t at = gap__tree_first(tree, slab); at; at = gap__tree_next(tree, slab, at)) {
    if (++seen > tree->count || !heap_ordered(slab, gap__tree_node_at(slab, at))) return false;
  }
  return seen == tree->count;
}
