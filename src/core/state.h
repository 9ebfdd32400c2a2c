/* The strategy `gapless`: its records and their invariants.
 *
 * Addresses are free, pages are scarce.  A *lane* serves one (stream, pool); it has a small and a large *arena*; an arena
 * owns *ranges* of reserved addresses.  A range is cut into *blocks* in address order, without gaps:
 *
 *     live | idle | hole | live | ... | hole            every unit of a range belongs to exactly one block
 *
 * Idle blocks have memory behind all of their pages, holes behind none of theirs; holes begin and end at page borders.  An idle block
 * some of whose pages have moved elsewhere is *hollow*, and those pages are *bare* (hollow.h).
 * No two neighbours are both idle (hollow or not) or both holes: they merge.  So an idle page is a page inside one idle block.
 *
 * Memory comes in *chunks* (driver handles of one or more pages).  A chunk may be mapped at several addresses; exactly one
 * mapping is its *home*, the others are *lent*: remnants of earlier homes that cost a driver call to remove and nothing to
 * take back.
 *
 *     slot[page] of a range = mapping index or 0
 *     page lies in a live, idle, cached, pending or reserved block  <=>  its slot's mapping is a home   (*)
 *     page lies in a hole, or is bare  =>  its slot is 0 or a lent mapping
 *     held bytes = sum of the pages of all chunks, but for those that are asleep (sleep.h) and the driver's again, and
 *                  those in host memory (overflow.h)
 *     a chunk has a home, or it is *loose*: the driver would not take it back, and is asked again later
 *   (*) a reserved block is one whose pages are being supplied; it may have both.
 *
 * *Epochs* say when an address is no longer used by the device.  Every free stamps its pages with the lane's open epoch;
 * closing an epoch records an event on the lane's stream; when the event has completed, every address stamped with that
 * epoch or an earlier one may be unmapped, and its page may serve any stream.  The same stream needs no epoch to reuse a
 * page (stream order), only to unmap the old address.
 *
 * A lane outlives its stream: one whose stream was retired is *ended*.  Its stream is never named to the driver again, and
 * what is freed in it later is out of use when the events recorded before are past.  A lane in which nothing is left serves
 * the next (stream, pool) that needs one, addresses and all; so a lane found without the device lock is a guess, which is
 * verified under the lane's own.
 *
 * Locks, in rank order: the device lock (chunks, mappings, slots, holes, ranges, epochs' events, pending frees), then lane
 * locks (blocks, bins, fronts, tallies).  Only the owner of the device lock may hold more than one lane lock.  A hole is
 * made or filled only under both. */
#ifndef GAP_STATE_H
#define GAP_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/meta.h"
#include "core/policy.h"

#define GAP__UNIT_SHIFT 9
#define GAP__UNIT ((uint64_t)1 << GAP__UNIT_SHIFT) /* addresses and lengths are counted in 512 B */
#define GAP__UNITS_MAX 0x7fffffffull               /* of a block: 1 TiB less 512 B; no card has more */
#define GAP__BARE UINT32_MAX                       /* no epoch */
#define GAP__PAGE_UNIT_SHIFT (GAP__PAGE_SHIFT - GAP__UNIT_SHIFT)
#define GAP__PAGE_UNITS ((uint32_t)1 << GAP__PAGE_UNIT_SHIFT)

enum { GAP__ARENA_SMALL, GAP__ARENA_LARGE, GAP__ARENA_PLANNED, GAP__ARENA_OVERFLOW, GAP__ARENA_COUNT };
#define GAP__SMALL_UNITS 128u        /* largest request of the small arena: 64 KiB */
#define GAP__TORCH_SMALL_UNITS 2048u /* torch's "small pool": up to 1 MiB; for the statistics only */

enum gap__state {
  GAP__UNUSED,  /* the record is free */
  GAP__IDLE,    /* in a bin */
  GAP__HOLLOW,  /* idle, in a bin; pages of it may be bare */
  GAP__HOLE,    /* in the arena's list of holes */
  GAP__LIVE,    /* handed out */
  GAP__CACHED,  /* idle, kept whole for the next request of its size: in the front or the hot slot */
  GAP__PENDING, /* freed, still used by another stream */
  GAP__RESERVED /* its pages are being supplied or taken, under the device lock; or a visitor of the lane is about to hand it out */
};

/* One piece of a range.  32 bytes: two to a cache line. Guarded by the lane lock. */
struct gap__block {
  uint32_t off, len;   /* in units, from the start of the range */
  uint32_t prev, next; /* neighbours by address; 0 at the ends */
  uint32_t link_prev;  /* idle: bin; hole: list of holes; of a tray: cached: list of its class, else its tray */
  uint32_t link_next;  /* the same; cached: next of its size; live: first recorded use by another stream */
  uint32_t slack;      /* live: bytes of the block - bytes requested; cached in a tray: its tray */
  uint8_t state;       /* enum gap__state */
  bool tray;           /* part of a tray: tray.h */
  uint16_t range;
};

/* Idle blocks by length.  Lengths below 512 units (256 KiB) have exact bins, above it 64 bins a power of two. */
#define GAP__BIN_EXACT_LOG 9u
#define GAP__BIN_EXACT (1u << GAP__BIN_EXACT_LOG)
#define GAP__BIN_COUNT (GAP__BIN_EXACT + (32u - GAP__BIN_EXACT_LOG) * 64u)
#define GAP__BIN_WORDS (GAP__BIN_COUNT / 64u)
struct gap__bins {
  uint64_t summary;              /* bit w: word[w] != 0 */
  uint64_t word[GAP__BIN_WORDS]; /* bit b of word w: bin 64 w + b is not empty */
  uint32_t head[GAP__BIN_COUNT];
};

/* Pages cut into blocks of one size class: tray.h.  Guarded by the lane lock. */
struct gap__tray {
  uint32_t first; /* its first block; the others follow by address */
  uint32_t count; /* blocks; 0: the record is free */
  uint32_t live;  /* of them not cached; 0: the tray is in its arena's list of empty ones */
  uint32_t class;
  uint32_t prev, next; /* in that list */
};

#define GAP__CLASSES_MAX GAP__CONF_POOL_SIZES_MAX
struct gap__classes {
  uint32_t count;
  uint32_t units[GAP__CLASSES_MAX]; /* ascending */
  uint32_t pages[GAP__CLASSES_MAX]; /* of a tray */
};

struct gap__lane;

struct gap__arena {
  struct gap__lane *lane;
  uint8_t kind;       /* GAP__ARENA_... */
  uint32_t hot;       /* large: the block freed last, cached; 0 none */
  uint32_t hot_epoch; /* in which it was freed: its pages are stamped when it cools */
  uint32_t hole_head; /* list of holes; guarded by the device lock and the lane lock */
  uint32_t hole_count;
  uint32_t idle_count;   /* idle blocks in the bins */
  uint64_t idle_units;   /* sum of their lengths, bare pages included */
  uint32_t hollow_count; /* of the idle blocks */
  uint32_t bare_pages;   /* in hollow blocks, and in reserved ones that were */
  uint32_t empty_trays;  /* list of trays of which nothing is live */
  uint32_t tray_count;
  uint32_t class_idle_count;            /* cached blocks of trays */
  uint64_t class_idle_units;            /* sum of their lengths */
  int64_t home_pages;                   /* pages that have memory; guarded by the device lock */
  int64_t host_pages;                   /* of them in host memory; the same */
  uint16_t range_newest;                /* most recent range; growth happens at its tail */
  uint32_t front[GAP__SMALL_UNITS + 1]; /* small: cached blocks of each length */
  struct gap__bins bins;
};

/* A window of reserved addresses. Never unreserved while the heap lives; `arena` never changes. */
struct gap__range {
  gap_addr base;
  struct gap__arena *arena;
  uint32_t pages;
  uint32_t granule_shift; /* log2 of the units of a look-up granule: 4 KiB small, 1 MiB large, 32 KiB others */
  /* granule -> block with the lowest offset that starts in it, 0 none; of 32 KiB: marks behind it */
  uint32_t *first;
  uint32_t *stamp;     /* page -> epoch of the last free that touched it, or GAP__BARE */
  uint32_t *slot;      /* page -> mapping; guarded by the device lock */
  uint32_t tail;       /* last block by address */
  uint32_t lent_pages; /* pages whose slot is a lent mapping */
  uint16_t older;      /* the range of the same arena that was added before, 0 none */
};

struct gap__chunk_rec {
  gap__chunk handle;
  uint32_t pages;
  uint32_t home;     /* mapping */
  uint32_t mappings; /* list of all mappings, home included */
  uint32_t next_loose;
  bool known;         /* others know this very memory (exported, registered): it is never exchanged */
  bool asleep, empty; /* sleep.h */
  bool host;          /* in host memory: overflow.h */
};

struct gap__mapping {
  uint32_t chunk;
  uint32_t page;  /* first page, in its range */
  uint32_t next;  /* of the same chunk */
  uint32_t stamp; /* lent, or a home on its way to be: epoch of the last use at this address */
  uint16_t range;
  bool dark; /* no access was given: nothing may be served from here */
  bool away; /* of a chunk that is asleep: the driver has it no more */
};

/* What one lane has live of one of torch's kinds.  The fast path checks the limits in one branch: within them no device-wide peak
 * can rise (tally.h). */
struct gap__tally {
  int64_t count, bytes, requested; /* live now; requested includes pending blocks */
  int64_t count_limit, bytes_limit, requested_limit;
  int64_t count_total, bytes_total, requested_total; /* allocated since the last reset */
  int64_t count_base, bytes_base, requested_base, active_count_base, active_bytes_base; /* current at that reset */
  int64_t pending_count, pending_bytes; /* freed, still used elsewhere */
};

/* What both kinds of a lane together may have live before a peak can rise. */
struct gap__tally_limit {
  int64_t count, bytes, requested;
};

struct gap__mark {
  gap__event event;
  uint32_t epoch;
};
enum { GAP__MARKS_OPEN = 16, GAP__EPOCH_FREES = 256 };
enum { GAP__MARKS = GAP__MARKS_OPEN + 1 }; /* one is left for the end of the stream */

/* How far a lane has followed the plan: follow.h.  Guarded by the lane lock. */
#define GAP__TRACK_RECENT 8u
struct gap__track {
  uint32_t stream;                    /* 1 + the stream of the plan that it follows; 0: none */
  uint32_t next;                      /* the step that is expected next */
  uint32_t trust;                     /* grows as requests are expected; at 0 it follows nothing */
  uint32_t missed;                    /* requests since the last one that was expected */
  uint32_t asked;                     /* requests */
  uint32_t recent[GAP__TRACK_RECENT]; /* lengths of the last ones: that of request i at i mod GAP__TRACK_RECENT */
  uint16_t range;                     /* the addresses of the plan in this lane; 0: none yet */
  bool barred;                        /* it could not have them */
};

struct gap__lane {
  _Alignas(64) struct gap__lock lock;
  bool ended;      /* its stream was retired, or its thread is gone; written under both locks */
  bool asleep;     /* nothing is allocated from it: sleep.h; written under both locks */
  bool touched;    /* something was allocated since it woke; in private pools only */
  uint32_t epoch;  /* open: frees are stamped with it */
  uint32_t credit; /* frees until the epoch is closed; GAP__EPOCH_FREES: there was none in it */
  /* whom it serves; written under both locks, while nobody visits */
  gap_stream plain;  /* = stream in the default pool, when its handle says all of it and no plan is followed;
                                    else GAP__PLAIN_NONE */
  gap_stream stream; /* normalised: 0 for 0 and 1 */
  uint64_t thread;   /* for the per-thread default stream, else 0 */
  gap_pool_id pool;
  struct gap__slab blocks;
  /* threads that are about to take the device lock for this lane: it must stay what it is */
  uint32_t visitors;
  struct gap__tally_limit both;                          /* of all kinds: tally.h */
  _Alignas(64) struct gap__tally tally[GAP__KIND_COUNT]; /* small, large in torch's sense; [GAP__KIND_ALL] is unused */
  /* guarded by the device lock */
  _Alignas(64) uint32_t completed; /* every address stamped with this epoch or an earlier one is out of use */
  uint32_t mark_first, mark_count;
  struct gap__mark marks[GAP__MARKS]; /* closed epochs in order, their events recorded */
  uint32_t line;                      /* the last epoch before the device was drained; 0: it is not being drained */
  bool overdue;  /* an event must be recorded, though nothing may have been freed in the open epoch */
  bool unheard;  /* the driver cannot say whether the first mark's event has completed */
  bool doubtful; /* no event can end the open epoch: only a drained device does */
  uint64_t stream_id;
  struct gap__behind *behind; /* behind.h; NULL: nothing was looked for */
  struct gap__lane *next;     /* all lanes of the device, newest first; or the spare ones */
  _Atomic bool pinned;        /* a private pool in use: its pages stay */
  bool released;              /* its private pool is no longer in use; device lock */
  uint64_t asleep_pages;      /* of chunks at home here that are asleep; device lock */
  /* fixed after creation */
  struct gap__policy_state *owner;
  struct gap__arena arena[GAP__ARENA_COUNT];
  struct gap__track track; /* lane lock */
  /* lane lock: size classes */
  struct gap__slab trays;                /* made with the first one */
  uint32_t class_head[GAP__CLASSES_MAX]; /* cached blocks of each class */
};

/* A use of a block by another stream, from the call that says so to its end.  Guarded by the device lock. */
struct gap__use {
  uint32_t next;
  bool taken; /* the record is in use */
  bool lost;  /* no event can tell when it ends: only a drained device does */
  bool over;  /* it has ended */
  gap_stream stream;
  uint64_t thread;  /* whose stream it is; 0 unless `stream` is the per-thread default stream */
  gap__event event; /* 0: not recorded yet; recorded when the block is freed, or before its stream ends */
  uint64_t capture; /* in which it began; 0: in none, or that is of no interest */
  gap__node node;   /* behind which it ends in that capture; 0: not known.  Without meaning once there is an event */
  /* no use but a mark on the live block that begins there, which makes its free take the slow way; else 0 */
  gap_addr marked;
  bool cold; /* of a mark: the block is rarely used (gap_hint) */
};

struct gap__pending {
  struct gap__lane *lane;
  uint32_t block, uses;
};

#define GAP__WINDOW_SHIFT 26 /* ranges are multiples of 64 MiB: the look-up table's step */
#define GAP__ADDRESS_BITS 49
#define GAP__LANES_MAX 32768u                /* at once; as many as there are numbers of ranges for */
#define GAP__LANE_SLOTS (4 * GAP__LANES_MAX) /* a slot is touched when a lane needs it: the table costs what it holds */
#define GAP__POOLS_MAX 65536u

struct gap__pool {
  gap_pool_id id;
  int64_t uses;
  bool shared; /* its idle pages serve everybody */
};

/* The streams that work may be queued on: those that were given memory, or told to use some, and were not retired.  Guarded by
 * the device lock: gate.h. */
struct gap__gate {
  struct gap__gate_stream {
    gap_stream stream;
    uint64_t thread; /* whose it is; 0 unless `stream` is the per-thread default stream */
    bool held;       /* by the gate before the legacy default stream, with which it is ordered */
  } * streams;       /* room for GAP__GATE_STREAMS; NULL: none was noted */
  uint32_t count, recent;
  bool incomplete;           /* one could not be noted */
  _Atomic uint32_t *words;   /* pinned; [0] opens, [1 + i] is written when stream i arrives; NULL: none yet */
  uint32_t value, own_value; /* of the last gate; the same of a stream of our own */
  bool closed;
};

/* Why memory is not exchanged: GAP__REFUSAL(name). */
#define GAP__REFUSALS(X) X(gate) X(capture) X(thread) X(peer) X(known) X(pinned) X(room) X(driver)
enum gap__refusal {
#define X(name) GAP__REFUSED_##name,
  GAP__REFUSALS(X)
#undef X
      GAP__REFUSAL_COUNT
};

#define GAP__CONVERT_PAGES 512u /* of the largest chunk: 1 GiB */
#define GAP__CONVERT_WORDS (GAP__CONVERT_PAGES / 64u)

/* Conversion: convert.h.  Guarded by the device lock. */
struct gap__conversion {
  gap_stream stream; /* our own, for copies; 0: not made yet */
  /* in no list; its only arena has the addresses at which new chunks are filled; NULL: not made yet */
  struct gap__lane *window;
  bool quiet;        /* nobody hears of mappings that are on their way */
  struct gap__torn { /* a chunk that could not be mapped again at its home; 0 none */
    uint32_t chunk, page;
    uint16_t range;
    uint64_t idle[GAP__CONVERT_WORDS];
  } torn;
  int64_t count, bytes, pages, ns, refused[GAP__REFUSAL_COUNT];
};

/* Host memory behind device addresses: overflow.h.  Guarded by the device lock. */
struct gap__overflow {
  bool on;                          /* it is allowed, and the device can */
  bool said;                        /* one line in the log has said why there is none, or no more */
  _Atomic uint64_t pages;           /* of chunks in host memory; read without a lock by the watcher */
  uint64_t peak_pages, loose_pages; /* of them those without a home */
  uint64_t promised_pages;          /* that the budget has given and no chunk has yet */
  uint64_t need_pages;              /* the most that requests had there since the last safe point */
  uint32_t marks;                   /* on blocks that were called cold, or were moved */
  /* streams did not reach the watcher's last gate: it waits for somebody else's to close */
  bool missed;
  int64_t placed_bytes;          /* of requests that were served there */
  int64_t out_bytes, back_bytes; /* of live blocks that were moved there, and to the device */
  int64_t refused;               /* requests that it did not serve though it was on */
  char refusal[256];             /* why it had no memory for the request at hand; "" */
};

#define GAP__WATCH_NOTES 8u
struct gap__notes { /* a quarter of an age apart: together they reach back further than it */
  uint32_t count;
  struct gap__note {
    uint64_t ns;
    uint32_t epoch;       /* the newest one then */
  } at[GAP__WATCH_NOTES]; /* in order of time */
};
struct gap__watch {             /* guarded by the device lock */
  _Atomic uint64_t due_ns;      /* the next look; read without a lock: the maker and a tick may step at once */
  struct gap__notes trim, lend; /* for trim_after_ms and lend_after_ms */
  int64_t uses;                 /* allocations and frees when it was last looked */
  uint64_t used_ns;             /* when they were last seen to have changed */
};

/* How a request fared that a plan might have placed. */
enum gap__follow_end {
  GAP__FOLLOW_PLACED,     /* where the plan says */
  GAP__FOLLOW_UNEXPECTED, /* the plan has no such request here */
  GAP__FOLLOW_TAKEN,      /* its place is in use */
  GAP__FOLLOW_UNBACKED,   /* no memory, or no addresses, could be had for its place */
  GAP__FOLLOW_END_COUNT
};

struct gap__follow_figures { /* on the path of requests under a plan only: no lock */
  _Atomic int64_t requests[GAP__FOLLOW_END_COUNT], bytes[GAP__FOLLOW_END_COUNT];
  _Atomic int64_t found, periods;
};

struct gap__policy_state {
  struct gap__device *device;
  struct gap__dev *dev;
  /* hot, read-only after creation */
  uint16_t *range_of; /* address >> 26 -> range, 0 none */
  struct gap__range *ranges;
  _Atomic bool plain_rounding; /* 512 B and nothing else */
  /* pooled, but for requests that would waste much of a block: heuristic */
  _Atomic bool choosy;
  _Atomic bool pooled; /* requests are served in size classes; written under all locks */
  _Atomic bool scarce; /* little more may be held: blocks merge at once, for better places */
  /* that is followed, or NULL; read under a lane lock, written under all */
  struct gap__plan *_Atomic plan;
  _Atomic uint64_t owing; /* bit n: thread n mod 64 may have to record an event: pending.h */

  struct gap__classes classes; /* of the strategy pooled; read-only after creation too */

  struct gap__lock lock; /* the device lock */
  /* guarded by it */
  uint32_t range_count;
  struct gap__slab lane_slab;
  uint32_t lanes_max; /* at most GAP__LANES_MAX */
  struct gap__lane *lanes, *spare_lanes;
  uint32_t lane_count;                     /* without the spare ones */
  uint32_t lanes_swept_at;                 /* lanes at which the next sweep is worth its while */
  struct gap__tally gone[GAP__KIND_COUNT]; /* what spare lanes have counted */
  uint32_t clock;                          /* the last epoch given out */
  struct gap__slab chunks, mappings, uses;
  uint64_t held_pages; /* of this strategy */
  uint32_t loose;      /* list of chunks without a home */
  uint64_t loose_pages;
  gap_addr drain_segment;       /* of a drain that failed; 0 none.  Counted as one loose page */
  uint64_t address_bytes;       /* reserved */
  struct gap__pending *pending; /* a ring in order of free; grows */
  uint32_t pending_first, pending_count, pending_capacity;
  struct gap__pool *pools;
  uint32_t pool_count;
  struct gap__trouble { /* why the request at hand is not served, besides want of memory: trouble.h */
    uint8_t kind, call;
    int code;
  } trouble;
  gap__event *event_cache;
  uint32_t event_cached, event_capacity;
  struct gap__scratch *scratch;     /* of one slow path: loot.h */
  struct gap__arena *_Atomic ahead; /* where the page maker works; NULL: nowhere */
  uint32_t ahead_pages;             /* how many it makes and then keeps ready there */
  uint32_t ahead_made;              /* of them, since the arena grew */
  _Atomic uint64_t ahead_until_ns;  /* it stops then unless something grows */
  bool maker_running, maker_stop;   /* maker_stop: guarded by maker_mutex */
  pthread_t maker_thread;
  pthread_mutex_t maker_mutex;
  pthread_cond_t maker_wake;
  struct gap__watch watch;
  struct gap__gate gate;
  struct gap__conversion convert;
  struct gap__overflow overflow;
  int64_t thrash;                          /* pages that streams took from each other of late: limit.c */
  int64_t thrash_stolen, thrash_allocated; /* totals when it was last reckoned */
  uint64_t driver_limit;                   /* pages that could be held when the driver was last asked */
  uint64_t driver_asked;                   /* pages held at that time */
  bool driver_refused;                     /* it has less than the cap promised */

  /* device-wide figures; guarded by the device lock */
  struct gap__peaks {
    int64_t allocation[3], allocated[3], requested[3], active[3], active_bytes[3]; /* all, small, large */
  } peak;
  struct gap__running {
    int64_t current, peak, added, removed;
  } held[3], segments[3], split[3], split_bytes[3]; /* pages; mapped stretches; idle blocks, bytes beside live ones */
  int64_t runs[GAP__ARENA_COUNT];                   /* mapped stretches by arena kind, kept as holes come and go */
  int64_t rung_count[GAP__RUNG_COUNT], rung_ns[GAP__RUNG_COUNT];
  struct gap__follow_figures followed;
  char plan_path[256]; /* as configured, whether it can be followed or not; guarded by the heap's lock */
  int64_t ooms, retries, stalls, stall_ns, drains;
  int64_t grown, made_ahead, stolen, stolen_alias, stolen_across, claimed, trimmed, device_allocs, device_frees;

  /* hash of (stream, pool) << 32 | offset of the lane in this record; open addressing.  Written under the device lock */
  _Atomic uint64_t lane_of[GAP__LANE_SLOTS];
  /* Of lane_slab; costs what is touched.  Only lanes_max + 1 of them have memory where address space is limited. */
  struct gap__lane lane_space[GAP__LANES_MAX + 1];
};

static inline struct gap__block *gap__block(const struct gap__lane *lane, uint32_t index) {
  return (struct gap__block *)(void *)(lane->blocks.base + (size_t)index * sizeof(struct gap__block));
}
static inline struct gap__chunk_rec *gap__chunk_at(const struct gap__policy_state *s, uint32_t index) {
  return gap__slab_at(&s->chunks, index);
}
static inline struct gap__mapping *gap__mapping_at(const struct gap__policy_state *s, uint32_t index) {
  return gap__slab_at(&s->mappings, index);
}
static inline struct gap__range *gap__range_at(const struct gap__policy_state *s, uint32_t index) {
  return &s->ranges[index];
}
static inline gap_addr gap__range_addr(const struct gap__range *range, uint32_t unit) {
  return range->base + ((uint64_t)unit << GAP__UNIT_SHIFT);
}
static inline bool gap__block_is_idle(const struct gap__block *b) {
  return b->state == GAP__IDLE || b->state == GAP__HOLLOW;
}
static inline uint32_t gap__page_of(uint32_t unit) { return unit >> GAP__PAGE_UNIT_SHIFT; }
static inline uint32_t gap__page_up(uint32_t unit) { return (unit + GAP__PAGE_UNITS - 1) >> GAP__PAGE_UNIT_SHIFT; }
/* Is the page's slot the home of its chunk? */
static inline bool gap__slot_is_home(const struct gap__policy_state *s, const struct gap__range *range, uint32_t page) {
  uint32_t m = range->slot[page];
  return m && gap__chunk_at(s, gap__mapping_at(s, m)->chunk)->home == m;
}

#endif
