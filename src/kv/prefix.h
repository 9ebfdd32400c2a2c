/* Nodes: what is known by its tokens.  See state.h.  Under the cache's lock. */
#ifndef GAP_KV_PREFIX_H
#define GAP_KV_PREFIX_H

#include "kv/state.h"

int gap__kv_prefix_init(struct gap_kv *);
void gap__kv_prefix_free(struct gap_kv *);
static inline bool kv_shares(const struct gap_kv *kv) { return kv->options.sharing != GAP_KV_SHARING_OFF; }

/* The root of a tenant.  0: there is none, or (`make`) no room for one more node: what follows is not known by its tokens. */
uint32_t gap__kv_root(struct gap_kv *, uint64_t tenant, bool make);
/* The child that has these page_tokens tokens; 0 as above. */
uint32_t gap__kv_child(struct gap_kv *, uint32_t parent, const int32_t *tokens, bool make);
/* The same where the digest of its chain is known already: caches that share by SHA-256. */
uint32_t gap__kv_child_by_digest(struct gap_kv *, uint32_t parent, const int32_t *tokens, const unsigned char *digest,
                                 bool make);
/* The digests of the chain of `count` KV pages, KV_DIGEST_BYTES each. */
void gap__kv_digests(const struct gap_kv *, uint64_t tenant, const int32_t *tokens, uint32_t count, unsigned char *out);
static inline const unsigned char *kv_digest_at(const struct gap_kv *kv, uint32_t node) {
  return kv->digests + (size_t)node * KV_DIGEST_BYTES;
}
/* A leaf of fewer tokens. */
uint32_t gap__kv_leaf(struct gap_kv *, uint32_t parent, const int32_t *tokens, uint32_t count);
/* The child that begins with most of these tokens and has all its KV pages; *common of them, 0: none. */
uint32_t gap__kv_closest(const struct gap_kv *, uint32_t parent, const int32_t *tokens, uint32_t count,
                         uint32_t *common);

/* The KV page is what the node's tokens are.  It is taken from the node it had. */
void gap__kv_node_attach(struct gap_kv *, uint32_t node, uint32_t page);
void gap__kv_node_detach(struct gap_kv *, uint32_t page);
/* Somebody lets go of it: without users, children and KV pages it ends, and maybe its parent. */
void gap__kv_node_settle(struct gap_kv *, uint32_t node);
static inline void kv_node_hold(struct gap_kv *kv, uint32_t node) { kv_node_at(kv, node)->users++; }
static inline void kv_node_drop(struct gap_kv *kv, uint32_t node) {
  if (--kv_node_at(kv, node)->users == 0) gap__kv_node_settle(kv, node);
}

#endif
