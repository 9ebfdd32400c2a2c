#include "kv/prefix.h"

#include <string.h>

#include "base/sha256.h"
#include "kv/below.h"
#include "kv/hash.h"

enum { NODES_MOST = 1 << 25, CHILDREN_LOOKED_AT = 32 };

/* One a KV page that is attached; more for those that are to be, and for what is evicted under what is not. */
static uint32_t node_room(const struct gap_kv *kv) {
  uint64_t wanted = (uint64_t)kv->page_count + kv->page_count / 8 + 4ull * kv->rows + 1024;
  return (uint32_t)(wanted < NODES_MOST ? wanted : NODES_MOST);
}

int gap__kv_prefix_init(struct gap_kv *kv) {
  if (!kv_shares(kv)) return 0;
  uint32_t room = node_room(kv), slots = 64;
  if (gap__slab_init(&kv->nodes, sizeof(struct kv_node), room)) return GAP_ENOMETA;
  size_t records = (size_t)room + room / 16 + 2; /* of the slab, its margin included */
  while (slots < 2 * records) slots *= 2;
  kv->slot_mask = slots - 1;
  kv->slots = gap__meta_map(slots * sizeof *kv->slots);
  kv->node_tokens = gap__meta_map(records * kv->options.page_tokens * sizeof *kv->node_tokens);
  kv->node_pages = gap__meta_map(records * kv->options.group_count * sizeof *kv->node_pages);
  kv->ceiling = gap__meta_map(KV_CEILING_REGISTERS);
  bool digests = kv->options.sharing == GAP_KV_SHARING_SHA256;
  if (digests) kv->digests = gap__meta_map(records * KV_DIGEST_BYTES);
  return !kv->slots || !kv->node_tokens || !kv->node_pages || !kv->ceiling || (digests && !kv->digests) ? GAP_ENOMETA
                                                                                                        : 0;
}

void gap__kv_prefix_free(struct gap_kv *kv) {
  size_t records = kv->nodes.base ? (size_t)node_room(kv) + node_room(kv) / 16 + 2 : 0;
  gap__meta_unmap(kv->slots, ((size_t)kv->slot_mask + 1) * sizeof *kv->slots);
  gap__meta_unmap(kv->node_tokens, records * kv->options.page_tokens * sizeof *kv->node_tokens);
  gap__meta_unmap(kv->node_pages, records * kv->options.group_count * sizeof *kv->node_pages);
  gap__meta_unmap(kv->ceiling, KV_CEILING_REGISTERS);
  gap__meta_unmap(kv->digests, records * KV_DIGEST_BYTES);
  if (kv->nodes.base) gap__slab_destroy(&kv->nodes);
}

/* ---- the table ---- */

/* What a node is looked for by. */
struct name {
  uint64_t key;
  uint32_t parent;
  const int32_t *tokens; /* page_tokens of them; of a root: none */
  uint64_t tenant;       /* of a root */
  unsigned char digest[KV_DIGEST_BYTES];
};

static uint32_t tag_of(uint64_t key) { return (uint32_t)(key >> 32); }

static bool answers_to(const struct gap_kv *kv, uint32_t index, const struct name *name) {
  const struct kv_node *node = kv_node_at(kv, index);
  if (node->key != name->key || node->parent != name->parent) return false;
  if (!name->parent) return node->session == name->tenant;
  if (kv->digests) return memcmp(kv->digests + (size_t)index * KV_DIGEST_BYTES, name->digest, KV_DIGEST_BYTES) == 0;
  return memcmp(kv_node_tokens(kv, index), name->tokens, kv->options.page_tokens * sizeof(int32_t)) == 0;
}

static uint32_t look(const struct gap_kv *kv, const struct name *name) {
  for (uint32_t at = (uint32_t)name->key & kv->slot_mask; kv->slots[at].node; at = (at + 1) & kv->slot_mask)
    if (kv->slots[at].tag == tag_of(name->key) && answers_to(kv, kv->slots[at].node, name)) return kv->slots[at].node;
  return 0;
}

static void put(struct gap_kv *kv, uint64_t key, uint32_t node) {
  uint32_t at = (uint32_t)key & kv->slot_mask;
  while (kv->slots[at].node) at = (at + 1) & kv->slot_mask;
  kv->slots[at] = (struct kv_slot){tag_of(key), node};
}

/* Shifts the rest of the run back: no tombstones. */
static void take_out(struct gap_kv *kv, uint64_t key, uint32_t node) {
  uint32_t at = (uint32_t)key & kv->slot_mask;
  while (kv->slots[at].node != node) at = (at + 1) & kv->slot_mask;
  for (uint32_t next = (at + 1) & kv->slot_mask; kv->slots[next].node; next = (next + 1) & kv->slot_mask) {
    uint32_t home = (uint32_t)kv_node_at(kv, kv->slots[next].node)->key & kv->slot_mask;
    if (((next - home) & kv->slot_mask) < ((next - at) & kv->slot_mask)) continue;
    kv->slots[at] = kv->slots[next];
    at = next;
  }
  kv->slots[at].node = 0;
}

/* ---- names ---- */

static void digest_of(const struct gap_kv *kv, const void *before, size_t before_bytes, struct name *name) {
  struct gap__sha256 sha;
  gap__sha256_begin(&sha);
  gap__sha256_add(&sha, before, before_bytes);
  if (name->tokens) gap__sha256_add(&sha, name->tokens, kv->options.page_tokens * sizeof(int32_t));
  gap__sha256_digest(&sha, name->digest);
  memcpy(&name->key, name->digest, sizeof name->key);
}

static void name_root(const struct gap_kv *kv, uint64_t tenant, struct name *name) {
  *name = (struct name){.tenant = tenant};
  if (kv->digests) digest_of(kv, &tenant, sizeof tenant, name);
  else name->key = kv_hash_chain(kv->keys, kv->keys[2], tenant);
}

static void name_child(const struct gap_kv *kv, uint32_t parent, const int32_t *tokens, struct name *name) {
  name->parent = parent;
  name->tokens = tokens;
  if (kv->digests) digest_of(kv, kv->digests + (size_t)parent * KV_DIGEST_BYTES, KV_DIGEST_BYTES, name);
  else
    name->key =
        kv_hash_chain(kv->keys, kv_node_at(kv, parent)->key, kv_hash_tokens(kv->keys, tokens, kv->options.page_tokens));
}

/* ---- nodes ---- */

static uint32_t make_node(struct gap_kv *kv, uint32_t parent, const int32_t *tokens, uint32_t count) {
  uint32_t index = gap__slab_take(&kv->nodes);
  if (!index) return 0;
  struct kv_node *node = kv_node_at(kv, index);
  *node = (struct kv_node){.parent = parent, .filled = (uint16_t)count, .level = GAP_KV_PRIORITY_DEFAULT};
  if (tokens) memcpy(kv_node_tokens(kv, index), tokens, count * sizeof *tokens);
  memset(kv_node_pages(kv, index), 0, kv->options.group_count * sizeof(uint32_t));
  if (!parent) return index;
  struct kv_node *above = kv_node_at(kv, parent);
  node->next = above->child;
  if (above->child) kv_node_at(kv, above->child)->prev = index;
  above->child = index;
  return index;
}

static uint32_t make_named(struct gap_kv *kv, const struct name *name) {
  uint32_t index = make_node(kv, name->parent, name->tokens, name->parent ? kv->options.page_tokens : 0);
  if (!index) return 0;
  struct kv_node *node = kv_node_at(kv, index);
  node->key = name->key;
  node->hashed = true;
  if (!name->parent) node->session = name->tenant;
  if (kv->digests) memcpy(kv->digests + (size_t)index * KV_DIGEST_BYTES, name->digest, KV_DIGEST_BYTES);
  put(kv, name->key, index);
  return index;
}

uint32_t gap__kv_root(struct gap_kv *kv, uint64_t tenant, bool make) {
  struct name name;
  if (!kv_shares(kv)) return 0;
  name_root(kv, tenant, &name);
  uint32_t found = look(kv, &name);
  return found || !make ? found : make_named(kv, &name);
}

uint32_t gap__kv_child(struct gap_kv *kv, uint32_t parent, const int32_t *tokens, bool make) {
  struct name name;
  name_child(kv, parent, tokens, &name);
  uint32_t found = look(kv, &name);
  return found || !make ? found : make_named(kv, &name);
}

uint32_t gap__kv_child_by_digest(struct gap_kv *kv, uint32_t parent, const int32_t *tokens, const unsigned char *digest,
                                 bool make) {
  struct name name = {.parent = parent, .tokens = tokens};
  memcpy(name.digest, digest, KV_DIGEST_BYTES);
  memcpy(&name.key, digest, sizeof name.key);
  uint32_t found = look(kv, &name);
  return found || !make ? found : make_named(kv, &name);
}

void gap__kv_digests(const struct gap_kv *kv, uint64_t tenant, const int32_t *tokens, uint32_t count,
                     unsigned char *out) {
  struct name name = {.tokens = NULL};
  digest_of(kv, &tenant, sizeof tenant, &name);
  for (uint32_t i = 0; i < count; i++, out += KV_DIGEST_BYTES) {
    name.tokens = tokens + ((size_t)i << kv->token_shift);
    memcpy(out, name.digest, KV_DIGEST_BYTES);
    digest_of(kv, out, KV_DIGEST_BYTES, &name);
    memcpy(out, name.digest, KV_DIGEST_BYTES);
  }
}

uint32_t gap__kv_leaf(struct gap_kv *kv, uint32_t parent, const int32_t *tokens, uint32_t count) {
  return make_node(kv, parent, tokens, count);
}

static bool is_whole(const struct gap_kv *kv, uint32_t node) {
  for (uint32_t g = 0; g < kv->options.group_count; g++)
    if (!kv_node_pages(kv, node)[g]) return false;
  return true;
}

uint32_t gap__kv_closest(const struct gap_kv *kv, uint32_t parent, const int32_t *tokens, uint32_t count,
                         uint32_t *common) {
  uint32_t best = 0, looked = 0;
  *common = 0;
  for (uint32_t i = kv_node_at(kv, parent)->child; i && looked < CHILDREN_LOOKED_AT;
       i = kv_node_at(kv, i)->next, looked++) {
    uint32_t most = kv_node_at(kv, i)->filled, same = 0;
    if (most > count) most = count;
    while (same < most && kv_node_tokens(kv, i)[same] == tokens[same]) same++;
    if (same <= *common || !is_whole(kv, i)) continue;
    best = i;
    *common = same;
  }
  return best;
}

/* ---- ends ---- */

static void unlink_child(struct gap_kv *kv, const struct kv_node *node) {
  if (node->next) kv_node_at(kv, node->next)->prev = node->prev;
  if (node->prev) kv_node_at(kv, node->prev)->next = node->next;
  else if (node->parent) kv_node_at(kv, node->parent)->child = node->next;
}

static bool has_pages(const struct gap_kv *kv, uint32_t node) {
  for (uint32_t g = 0; g < kv->options.group_count; g++)
    if (kv_node_pages(kv, node)[g]) return true;
  return false;
}

void gap__kv_node_settle(struct gap_kv *kv, uint32_t index) {
  while (index) {
    struct kv_node *node = kv_node_at(kv, index);
    if (node->users || node->child || has_pages(kv, index)) return;
    uint32_t parent = node->parent;
    if (node->pins) kv->pinned--; /* its KV page is gone: nothing is kept */
    if (node->hashed) take_out(kv, node->key, index);
    unlink_child(kv, node);
    node->deadline_ms = 0;
    node->filled = 0; /* tells a free record */
    gap__slab_give(&kv->nodes, index);
    index = parent;
  }
}

void gap__kv_node_attach(struct gap_kv *kv, uint32_t node, uint32_t page) {
  struct kv_page *p = &kv->pages[page];
  if (p->node) gap__kv_node_detach(kv, page);
  p->node = node;
  kv_node_pages(kv, node)[p->group] = page;
  kv->stats.offered++;
  if (kv->below && kv_node_at(kv, node)->hashed) gap__kv_below_offered(kv->below, page);
}

void gap__kv_node_detach(struct gap_kv *kv, uint32_t page) {
  struct kv_page *p = &kv->pages[page];
  uint32_t node = p->node;
  p->node = 0;
  kv_node_pages(kv, node)[p->group] = 0;
  gap__kv_node_settle(kv, node);
}
