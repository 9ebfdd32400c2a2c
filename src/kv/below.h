/* What the cache has below the device: places, what is on its way, and the thread that works on it.
 *
 * A *cargo* is what goes one way at once: as many KV pages as a crate has.  Its way has three calls: `launch` and `poll` without any lock, by the one
 * thread there is, and `finish` under the cache's lock.  So the cache is locked while records are changed, and never while anything is waited for.
 * A *berth* is a buffer of pinned memory through which KV pages pass between device and servers.
 *
 *     under_way = cargoes;  of a cargo KV pages are held (hold.h), so they neither move nor serve others
 *     who reads a berth or a held KV page has ended when `poll` says so
 */
#ifndef GAP_KV_BELOW_H
#define GAP_KV_BELOW_H

#include <pthread.h>

#include "gapless/kv_tiers.h"
#include "kv/shelf.h"
#include "kv/state.h"
#include "tier/tier.h"

enum { KV_BERTHS = 8, KV_BERTHS_FOR_PUTS = 6, KV_CARGO_PAGES = 64, KV_TAG_BYTES = GAP_REMOTE_TAG_BYTES_MAX };

struct kv_berth {
  unsigned char *memory; /* NULL: not lent yet */
  gap__event event;
  bool busy;
};

struct kv_cargo;
struct kv_way {
  int (*launch)(struct kv_below *, struct kv_cargo *);  /* GAP_EAGAIN: not now; an error: nothing of it is under way */
  int (*poll)(struct kv_below *, struct kv_cargo *);    /* GAP_EAGAIN: not yet; else it has ended */
  void (*finish)(struct kv_below *, struct kv_cargo *); /* rc says how; frees nothing of the cargo itself */
};

struct kv_cargo {
  struct kv_cargo *next;
  const struct kv_way *way;
  struct kv_hold hold;    /* of `pages` */
  struct kv_fetch *fetch; /* up: whose */
  struct kv_berth *berth;
  uint64_t item, ticket;
  uint32_t count, crate, seq, generation;
  int step, rc;
  enum kv_place place;
  uint32_t pages[KV_CARGO_PAGES], nodes[KV_CARGO_PAGES], found[KV_CARGO_PAGES];
  bool failed[KV_CARGO_PAGES];
  uint64_t stored[KV_CARGO_PAGES]; /* up from a local place: the item, and which KV page of it */
  uint32_t at[KV_CARGO_PAGES];
  struct kv_name names[KV_CARGO_PAGES];
  gap_remote_item items[KV_CARGO_PAGES];
  uint32_t *host, host_count; /* a sequence's KV pages in host memory, or NULL */
  bool falls;                 /* it, to the disk */
};

enum kv_fetch_state { KV_FETCH_NEW, KV_FETCH_ASKING, KV_FETCH_RUNNING, KV_FETCH_DONE };

struct kv_fetch {
  struct kv_fetch *next;
  gap_kv_ticket id;
  enum kv_fetch_state state;
  uint64_t tenant;
  uint32_t count, from, to, at; /* KV pages of the prompt; on the device; to bring up; begun */
  uint32_t cargoes;
  uint32_t result; /* KV pages on the device in the end */
  int32_t *tokens;
  unsigned char *digests;
  uint8_t *places;       /* by KV page, from `from` on */
  struct kv_hold path;   /* node: the last one of the chain that is there; pages: the prefix, what has come up */
  struct kv_name *names; /* that the servers were asked for */
  gap_remote_item *asked;
  uint32_t asked_count;
  gap_remote_ticket ticket;
};

struct kv_ring { /* KV pages that were offered: some may be others by now */
  uint32_t *pages;
  uint32_t from, count;
  uint64_t since_ns; /* when the first came, or the last was taken */
};

struct
    kv_queue { /* KV pages in the order in which they came out of use, that of their eviction but for priorities; entries whose KV page has another turn are void */
  uint32_t *pages;            /* `room`, a power of two, at turn % room */
  uint32_t room, first, last; /* turns */
  uint32_t count, nameless;   /* that are not void: those without a copy below; cached ones that cannot have one */
};

struct kv_meter { /* what a place gives while it is asked */
  uint32_t active;
  uint64_t since_ns, bytes;
};

struct kv_below {
  struct gap_kv *kv;
  struct gap__tier *tier;
  gap_remote *remote;
  bool simulated;
  uint64_t page_bytes;
  uint32_t crate_pages, berth_pages, berth_units, fetch_ms;
  uint32_t most[KV_PLACES]; /* crates, as asked; the shelf's own numbers are lower while the budget is */
  gap_stream down, up;
  struct kv_berth berths[KV_BERTHS]; /* the thread's */
  struct kv_cargo *cargoes;          /* the thread's */
  /* under the cache's lock */
  gap_kv_rates rates;
  bool learns; /* they were measured, and go on being so */
  struct kv_meter meters[KV_PLACES];
  struct kv_shelf shelf, servers; /* servers: simulated */
  struct kv_queue to_local;
  struct kv_ring to_servers;
  struct kv_fetch *fetches;
  uint64_t tickets, *drops; /* drops: items of no more use */
  uint32_t drop_count, drop_room;
  uint64_t fall_ns;     /* when a sequence may be tried again that found no room on the disk */
  uint32_t wanted_room; /* host KV pages for the sequence that is to rise next */
  uint32_t under_way, puts, stores, sinks, falls; /* cargoes; of them */
  uint64_t retry_ns;                              /* when they are as asked again; 0: they are */
  bool hurry, all;                                /* half-full crates may go; a copy of each KV page is wanted */
  bool lost;                                      /* the device says nothing any more */
  gap_kv_tier_stats stats;
  /* the thread */
  pthread_t thread;
  bool running;
  pthread_mutex_t mutex;
  pthread_cond_t work, rest;
  bool closing, called, measures;
  bool ending; /* it is no more, and nothing new begins */
};

int gap__kv_below_open(struct gap_kv *, struct gap__tier *, const gap_kv_tiers_options *, char *message, size_t bytes);
void gap__kv_below_close(struct gap_kv *); /* before anything else of the cache goes */
/* A KV page was offered: it goes to the servers. */
void gap__kv_below_offered(struct kv_below *, uint32_t page);
/* One that has a node is used by nobody any more: it goes to a local place before it is evicted. */
void gap__kv_below_cached(struct kv_below *, uint32_t page);
/* It is used again, or evicted; true: it was still to go. */
bool gap__kv_below_uncached(struct kv_below *, uint32_t page);

/* below_thread.c */
void gap__kv_below_start(struct kv_below *);
void gap__kv_below_stop(struct kv_below *);       /* all that is under way has ended */
void gap__kv_below_call(struct kv_below *);       /* there is work */
bool gap__kv_below_turn(struct kv_below *);       /* false: nothing to do */
bool gap__kv_below_busy(const struct kv_below *); /* under the cache's lock */
/* Waits for a change, at most about so long; where time is simulated it does the work. */
void gap__kv_below_rest(struct kv_below *, uint64_t ns);
uint64_t gap__kv_below_now(void); /* nanoseconds */

/* What is to go next, under the lock: a cargo for the thread, or NULL. */
struct kv_cargo *gap__kv_pick_store(struct kv_below *);
struct kv_cargo *gap__kv_pick_sink(struct kv_below *);
struct kv_cargo *gap__kv_pick_put(struct kv_below *);
struct kv_cargo *gap__kv_pick_fall(struct kv_below *); /* of sequences */
struct kv_cargo *gap__kv_pick_rise(struct kv_below *);
bool gap__kv_sequences_move(const struct kv_below *); /* or are to */
struct kv_cargo *gap__kv_pick_up(struct kv_below *);  /* of the fetches, which it advances */

/* Cargoes for what was offered. */
bool gap__kv_ring_ready(const struct kv_below *, const struct kv_ring *);
uint32_t gap__kv_ring_take(struct kv_below *, struct kv_ring *); /* there is one */
bool gap__kv_ring_put(struct kv_below *, struct kv_ring *, uint32_t page);
bool gap__kv_store_due(const struct kv_below *);
struct kv_cargo *gap__kv_cargo_new(const struct kv_way *);
void gap__kv_cargo_add(struct kv_below *, struct kv_cargo *, uint32_t page);

/* below_copy.c: between KV pages and a berth, and the parts of a KV page. */
struct kv_berth *gap__kv_berth_take(struct kv_below *, uint32_t leave); /* so many stay; NULL: none */
void gap__kv_berth_give(struct kv_berth *);
int gap__kv_berth_copy(struct kv_below *, struct kv_cargo *, bool down);
int gap__kv_berth_poll(struct kv_below *, struct kv_cargo *, bool down);
enum { KV_SPANS_MOST = 1024 }; /* layers */
uint32_t gap__kv_spans(const struct gap_kv *, uint32_t page, gap_span *out);

void gap__kv_drop_item(struct kv_below *, uint64_t item); /* soon, by the thread */
/* Gives up so many KV pages of a place, for sequences; false: it has none. */
bool gap__kv_shed(struct kv_below *, enum kv_place, uint32_t pages);
/* A crate that is spoilt and that nobody uses goes. */
void gap__kv_clear_out(struct kv_below *, uint32_t crate);
struct kv_name gap__kv_name(const unsigned char *digest, uint32_t group);
void gap__kv_meter(struct kv_below *, enum kv_place, int by, uint64_t bytes);

/* below_measure.c */
void gap__kv_measure_local(struct kv_below *);
void gap__kv_measure_link(struct kv_below *);
void gap__kv_measure_remote(struct kv_below *);

#endif
