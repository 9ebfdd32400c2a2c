/* The KV cache: its records and their invariants.
 *
 *     KV page:  free | used (refs > 0) | cached (refs = 0, attached to a node) | bare | in a slab without memory
 *     refs = table entries that name it + entries of those that are leaving
 *     slab_used[s] = KV pages of slab s that are not free; 0: the slab is spare or has no memory
 *     free.count + the KV pages not free of slabs with memory = slabs with memory x slab_kv_pages
 *
 * *Nodes* are what tokens are called: a tree of KV pages by content, one root a tenant.  A node is its parent's prefix
 * and `filled` tokens more; it has a KV page of each group, or none where that was evicted, has left a window, or is
 * still to be computed.  Two prefixes are the same exactly if their nodes are: a node is found by the hash of the whole
 * chain, then parent and tokens are compared (or the SHA-256 digests of the chain).
 *
 *     a node lives as long as it has a KV page, a child, or a sequence whose full KV pages end at it
 *     page.node = n  <=>  pages(n)[page.group] = page
 *
 * A sequence's columns [first[g], columns) of group g name KV pages; those before have left the window.  Its tokens
 * are: the node's, then those of `tail`.  The last `pending` nodes of its chain are of tokens that no step has computed
 * yet, as far as we know.
 *
 * One lock guards it all.  It comes before every lock of a heap. */
#ifndef GAP_KV_STATE_H
#define GAP_KV_STATE_H

#include "base/lock.h"
#include "base/meta.h"
#include "base/text.h"
#include "core/heap_region.h"
#include "gapless/kv.h"
#include "kv/bits.h"

enum { KV_LEVELS = GAP_KV_PRIORITY_MAX + 1, KV_DIGEST_BYTES = 32, KV_CEILING_REGISTERS = 1 << 14, KV_STAGES = 3 };

enum kv_page_state { KV_FREE, KV_USED, KV_CACHED, KV_BARE };

struct kv_page {
  uint32_t refs;
  uint32_t node;       /* 0: none */
  uint32_t prev, next; /* cached and not pinned: neighbours in the list of its level, least recently used first */
  uint8_t group;
  uint8_t level; /* of the list it is in */
  bool listed;
  bool on_servers; /* or on its way there */
  bool limbo;      /* it would be free, were it not being copied */
  uint8_t readers; /* copies that read it */
  uint32_t turn;   /* to go down, by order of coming out of use; 0: it is not to go */
};

struct kv_node {
  uint64_t key; /* of the chain up to here */
  uint64_t session;
  uint64_t deadline_ms;       /* of its priority; 0: none */
  uint32_t parent;            /* 0: a root */
  uint32_t child, next, prev; /* list of children, newest first */
  uint32_t users;             /* sequences that end here; and one while somebody holds it in mind */
  uint16_t filled;            /* tokens: page_tokens, or fewer in a leaf that is not found by hash */
  uint16_t pins;
  uint8_t level;
  bool hashed;
};

struct kv_slot { /* of the table of nodes: open addressing, linear probing */
  uint32_t tag;  /* high half of the key */
  uint32_t node; /* 0: empty */
};

/* Where a swapped sequence is: in host memory, and on its way to the disk or back. */
enum kv_depth { KV_IN_HOST, KV_FALLING, KV_ON_DISK, KV_RISING };

struct kv_seq {
  uint32_t length; /* first: of a free record it is the slab's link */
  uint32_t generation;
  uint32_t columns; /* of each group */
  uint32_t node;    /* of its full KV pages; 0: its tokens are not known */
  uint32_t node_pages;
  uint32_t pending;
  uint32_t batch;   /* the last one that named it */
  uint32_t dropped; /* columns that it had when it was preempted without a copy: it comes back for no fewer */
  bool live, leaving, swapped;
  uint8_t depth; /* enum kv_depth; beyond KV_IN_HOST its row names nothing that may be touched */
  bool wanted;   /* back in host memory */
  bool lost;     /* what is on the disk cannot be read */
  uint64_t item; /* there; tier.h */
  bool opaque;   /* tokens beyond the node's were not told */
  uint64_t tenant, session, age;
  uint32_t first[GAP_KV_GROUPS_MAX];
};

struct kv_dirty { /* columns of a row whose entries the device does not know; from >= to: none */
  uint32_t from, to;
};

struct kv_stage { /* a part of the pinned buffer, and when it may be written again */
  unsigned char *memory;
  gap__event event;
  bool busy;
};

struct kv_leaving { /* table entries that go when the event has passed */
  gap__event event;
  uint32_t seq; /* its row too; 0: the sequence stays */
  uint32_t count;
  uint32_t *pages; /* in the order in which they go */
};

struct kv_hold { /* KV pages that are being copied; see hold.h */
  struct kv_hold *prev, *next;
  bool reads;    /* they have no reference */
  uint32_t node; /* 0: none */
  uint32_t count;
  uint32_t *pages;
};

struct kv_timer {
  uint64_t deadline_ms;
  uint64_t order; /* of its making: of equal deadlines the last one comes first */
  uint32_t node;
};

enum { KV_MODULES = 8, KV_ATTEND_CODES = 4 };
struct kv_attend_code {
  gap__function attend, join; /* 0: not loaded yet */
};
struct kv_code { /* code.h */
  gap__module modules[KV_MODULES];
  uint32_t module_count;
  gap__function move, copy; /* 0: there are no kernels */
  /* it was measured: the copy engine moves KV pages to and from the host faster */
  bool link_by_driver;
  struct kv_attend_code attend[KV_ATTEND_CODES]; /* for 1, 2, 4, 8 query heads a block */
  struct gap__text why;
};

struct gap_kv {
  struct gap__lock lock;
  gap_kv_options options;
  uint32_t windows[GAP_KV_GROUPS_MAX];
  gap_heap *heap;
  struct gap__dev *dev;
  struct gap__heap_region region;
  /* shape */
  uint32_t layers; /* of a group */
  uint32_t token_shift, slab_shift, slab_count, page_count;
  uint64_t part_bytes; /* of a KV page in one layer, K and V */
  uint64_t slab_bytes;
  uint32_t id_slab;         /* numbers that a slab spans; numbers inside one are neighbours */
  uint64_t id_slab_inverse; /* 2^64 / id_slab, rounded up: exact for quotients of 32-bit numbers */
  uint32_t rows, columns;
  /* KV pages */
  uint8_t *state;                          /* enum kv_page_state, apart: bare KV pages need nothing else */
  struct kv_page *pages;                   /* page_count, then one a level: the list's ends */
  struct kv_bits free, spare, bare_memory; /* KV pages; slabs: empty ones with memory, ones without */
  uint32_t *slab_used;
  uint32_t slab_limit; /* slabs that may have memory; there may be more after it was lowered */
  struct gap__relief relief;
  uint32_t calls, spare_least; /* the fewest empty slabs since slabs were last given back */
  uint32_t cached_listed;      /* that may be evicted */
  uint32_t leaving_pages;      /* entries of those that are leaving, and KV pages that are held */
  uint32_t bare_pages;         /* without the null page */
  uint32_t cached;             /* listed or pinned */
  /* sequences */
  struct gap__slab seqs;
  uint32_t batch;
  uint64_t ages;
  uint32_t *table[GAP_KV_GROUPS_MAX]; /* [rows][columns] KV pages; of a swapped sequence: host KV pages; 0: none */
  int32_t *lengths;
  int32_t *tails;   /* [rows][page_tokens] */
  uint32_t row_end; /* no row from here on was ever used */
  /* nodes */
  struct gap__slab nodes;
  int32_t *node_tokens;
  uint32_t *node_pages; /* [nodes][groups] */
  unsigned char *digests;
  struct kv_slot *slots;
  uint32_t slot_mask;
  uint64_t keys[4];
  unsigned char *ceiling;
  struct kv_timer *timers; /* a heap, the earliest first */
  uint32_t timer_count, timer_room;
  uint64_t timer_order;
  uint32_t pinned; /* nodes */
  uint32_t *path;  /* [columns]: the nodes of the prompt that is being looked up */
  /* what the device is to be told */
  gap_addr tables; /* a block: null page aside, all the device memory beside slabs */
  uint64_t tables_bytes;
  struct kv_dirty *dirty[GAP_KV_GROUPS_MAX];
  uint32_t *dirty_rows; /* group * rows + row */
  uint32_t dirty_count;
  bool lengths_dirty;
  gap_kv_entry *copies; /* index: from, id: to; KV pages, not numbers */
  uint32_t copy_count, copy_room;
  struct kv_stage stages[KV_STAGES];
  uint32_t stage;
  size_t stage_bytes;
  /* those that leave */
  struct kv_leaving *leaving;
  uint32_t leaving_count, leaving_room;
  /* the host side of swaps */
  unsigned char *host;
  uint32_t host_slabs, host_slabs_pinned;
  uint32_t pin_slabs; /* pinned at once: no copy reaches over their ends */
  struct kv_bits host_free;
  struct kv_hold *holds;
  uint32_t read_pages;    /* of those that read, each as often as it is read */
  struct kv_below *below; /* below.h; NULL: nothing goes below the device but swapped sequences */
  struct kv_code code;
  gap_kv_stats stats; /* those that only grow; the rest is reckoned when asked */
};

static inline struct kv_seq *kv_seq_at(const struct gap_kv *kv, uint32_t index) {
  return gap__slab_at(&kv->seqs, index);
}
static inline struct kv_node *kv_node_at(const struct gap_kv *kv, uint32_t index) {
  return gap__slab_at(&kv->nodes, index);
}
static inline int32_t *kv_node_tokens(const struct gap_kv *kv, uint32_t index) {
  return kv->node_tokens + ((size_t)index << kv->token_shift);
}
static inline uint32_t *kv_node_pages(const struct gap_kv *kv, uint32_t index) {
  return kv->node_pages + (size_t)index * kv->options.group_count;
}
static inline uint32_t *kv_row(const struct gap_kv *kv, uint32_t group, uint32_t seq) {
  return kv->table[group] + (size_t)(seq - 1) * kv->columns;
}
static inline int32_t *kv_tail(const struct gap_kv *kv, uint32_t seq) {
  return kv->tails + ((size_t)(seq - 1) << kv->token_shift);
}
static inline uint32_t kv_columns(const struct gap_kv *kv, uint32_t tokens) {
  return (tokens + kv->options.page_tokens - 1) >> kv->token_shift;
}
static inline int32_t kv_id(const struct gap_kv *kv, uint32_t page) {
  uint32_t inside = page & ((1u << kv->slab_shift) - 1);
  return (int32_t)((page >> kv->slab_shift) * kv->id_slab + inside);
}
static inline uint64_t kv_layer_stride(const struct gap_kv *kv) { return kv->part_bytes << kv->slab_shift; }
static inline uint32_t kv_slabs_held(const struct gap_kv *kv) { return kv->slab_count - kv->bare_memory.count; }
/* Slabs that may still be taken from the heap. */
static inline uint32_t kv_slabs_room(const struct gap_kv *kv) {
  uint32_t held = kv_slabs_held(kv);
  return held < kv->slab_limit ? kv->slab_limit - held : 0;
}
/* KV pages that could still be had without eviction, if the heap gives the memory. */
static inline uint32_t kv_free_pages(const struct gap_kv *kv) {
  return kv->free.count + (kv_slabs_room(kv) << kv->slab_shift);
}
/* KV pages that there may be, the null page included. */
static inline uint32_t kv_capacity(const struct gap_kv *kv) { return kv->slab_limit << kv->slab_shift; }

#endif
