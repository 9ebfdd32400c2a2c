/* The heap: devices, each with a cap, statistics and the strategies that have served it.
 * This is what api/, replay/ and tests call; strategies implement `struct gap__policy`. */
#ifndef GAP_HEAP_H
#define GAP_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf/conf.h"
#include "dev/dev.h"
#include "gapless/gapless.h"

enum gap__stat_kind { GAP__KIND_ALL, GAP__KIND_SMALL, GAP__KIND_LARGE, GAP__KIND_COUNT };

struct gap__stat {
  int64_t current, peak, allocated, freed;
};

/* The reclaim ladder; every rung is counted and timed. */
#define GAP__RUNGS(X) \
  X(fit) X(pending) X(steal_ready) X(grow) X(steal) X(wait) X(convert) X(neighbours) X(callbacks) X(overflow) X(fail)
enum gap__rung {
#define X(name) GAP__RUNG_##name,
  GAP__RUNGS(X)
#undef X
      GAP__RUNG_COUNT
};

/* Driver calls of one kind: by allocating threads, and by the page maker. */
struct gap__driver_figure {
  int64_t calls, ns, background_calls, background_ns;
};

struct gap__stats {
#define GAP_STAT_ARRAY(name, help) struct gap__stat name[GAP__KIND_COUNT];
#define GAP_STAT_SCALAR(name, unit, help) int64_t name;
#include "core/stats.def"
  int64_t rung_count[GAP__RUNG_COUNT]; /* requests the rung served */
  int64_t rung_us[GAP__RUNG_COUNT];    /* time spent in it, whether it served or not */
  struct gap__driver_figure driver[GAP__CALL_COUNT];
};

/* A block as a walk reports it. */
enum gap__block_state { GAP__BLOCK_IDLE, GAP__BLOCK_LIVE, GAP__BLOCK_PENDING, GAP__BLOCK_HOLE };
struct gap__block_info {
  gap_addr addr;
  uint64_t bytes, requested; /* requested: 0 unless live or pending */
  gap_stream stream;
  gap_pool_id pool;
  enum gap__block_state state; /* HOLE: addresses without memory */
  bool is_large;               /* torch's kind: more than 1 MiB */
  bool is_mapped;              /* pages at reserved addresses; else a part of one driver allocation */
  enum gap__strategy strategy; /* whose block it is */
  gap_addr segment;            /* start of the segment, or of the contiguous mapped range */
  uint64_t segment_bytes;
};
typedef int gap__walk_fn(void *arg, const struct gap__block_info *);

enum gap__maker { GAP__MAKER_OFF, GAP__MAKER_STEPPED, GAP__MAKER_THREAD };

/* Called when a request failed on every rung before "callbacks"; returns true when it freed something. */
typedef bool gap__oom_callback(void *arg, int device, gap_stream stream, uint64_t bytes);

/* Opens device `ordinal` of a backend.  Called once a device, at the first request for it, under the heap's lock. */
typedef int gap__open_fn(void *client, int ordinal, struct gap__dev **out);

/* What a neighbour is asked for, and what it gave and says. */
struct gap__given {
  uint64_t wanted, given; /* bytes; given back to the driver */
  uint64_t kept;          /* idle too, but used of late */
  uint64_t in_ms;         /* when it could be given, if it is not used again */
  uint64_t held;          /* all that it holds */
};
/* What came of asking the neighbours on a card; a request may ask several times. */
struct gap__asked {
  uint64_t welcome; /* bytes beyond those asked for that would be used soon: a program that grows asks seldom */
  uint64_t got;     /* bytes that came free on the card this time */
  bool hope;        /* more may come: ask again */
  int64_t neighbours, silent; /* how many there are, and of these without an answer */
  int64_t missed;             /* waited for in vain */
  uint64_t held, kept;        /* sums of what they said */
  int rounds;                 /* earlier times */
  int64_t due_ms;             /* the client's own, from time to time */
};
/* Asks the neighbours on the card of a device for `bytes` once, and waits a little where there is hope.  Called in the requesting
 * thread, without locks. */
typedef void gap__ask_fn(void *client, int ordinal, uint64_t bytes, struct gap__asked *);
/* Host memory that is about to stand behind device addresses: `bytes` more, or below 0 so much less.  False: they may not be locked, and
 * `why` says so in words.  Called under a strategy's locks. */
typedef bool gap__host_fn(void *client, int64_t bytes, char *why, size_t why_bytes);

struct gap__heap_params {
  /* One a device, the heap's from here on, also when it cannot be made; NULL: `open` opens them when they are wanted. */
  struct gap__dev **devs;
  int dev_count;
  const struct gap__conf *conf; /* copied; NULL: defaults */
  enum gap__maker maker;        /* who drives the page maker */
  gap__open_fn *open;
  void (*opened)(void *client, int ordinal); /* after a device was opened, without locks; NULL: nothing */
  gap__ask_fn *ask;                          /* NULL: there are no neighbours */
  gap__host_fn *host;                        /* NULL: nobody keeps a budget of host memory */
  void *client;                              /* the maker's own data; see gap__heap_client */
  void (*client_free)(
      void *); /* called last when the heap is destroyed, also when it could not be made; NULL: nothing */
};

int gap__heap_create(const struct gap__heap_params *, gap_heap **out);
void gap__heap_destroy(gap_heap *); /* gives everything back; live blocks become invalid */
void *gap__heap_client(gap_heap *);
int gap__heap_device_count(const gap_heap *);
bool gap__heap_forked(const gap_heap *); /* we are the child of a fork: only destroy works */

#define GAP__LARGEST_REQUEST ((uint64_t)1 << 60) /* from here on nothing is tried */
/* Allocates `bytes` on `device` in stream order of `stream`, from `pool` ({0,0}: the default pool).
 * bytes == 0 gives address 0.  GAP_ENOMEM after the whole ladder; GAP_ETOOBIG from 2^60 on. */
int gap__heap_alloc(gap_heap *, int device, gap_stream stream, gap_pool_id pool, uint64_t bytes, gap_addr *out);
/* The same from the default pool, with no argument on the stack. */
int gap__heap_alloc_default(gap_heap *, int device, gap_stream stream, uint64_t bytes, gap_addr *out);
/* Frees in stream order. GAP_ENOTMINE, GAP_EFREED; address 0 is fine. */
int gap__heap_free(gap_heap *, gap_addr);
/* The same from a pool that must be in use, else GAP_ESTATE. */
int gap__heap_alloc_in(gap_heap *, int device, gap_stream stream, gap_pool_id pool, uint64_t bytes, gap_addr *out);
/* The block is also used by work queued on `stream` up to its free: it is reused only after that work has ended. */
int gap__heap_record_stream(gap_heap *, gap_addr, gap_stream stream);
/* The stream is about to be destroyed: call this before, when all its work has been queued.  Its last events are recorded now;
 * its idle memory becomes anybody's when they have passed, its live blocks stay valid and may be freed at any time after, and
 * the driver is never again called with this handle for the old stream.  Named again, the handle is a new stream.
 *
 * A stream that ever had a block, or was told to record_stream, must be retired before it is destroyed: the CUDA driver crashes
 * when it is called with a handle that names nothing, and it gives a handle to a new stream at once, while work of the old
 * one still runs.  The heap notices, later, that a handle has changed hands; what was freed before serves other streams
 * when the device has been drained, which is the last rung before failing.  But the new stream may have been given memory that
 * the old one still uses. */
int gap__heap_retire_stream(gap_heap *, int device, gap_stream stream);
/* A thread with that number ends: its per-thread default stream is retired in every heap.  Called by thread.c. */
void gap__heap_thread_end(uint64_t thread);

/* Private pools, with a use count as in torch. */
struct gap__pool_about {
  gap_pool_id id;
  unsigned flags;  /* GAP_POOL_... */
  const char *tag; /* NULL: none */
};
/* A pool in use of which the caller knows nothing yet: GAP_ESTATE when it is; `about->id` {0,0}: one is chosen. */
int gap__heap_pool_create(gap_heap *, int device, struct gap__pool_about *about);
/* Counts one use more of a pool that may be new.  GAP_ESTATE: it is in use with other flags. */
int gap__heap_pool_adopt(gap_heap *, int device, const struct gap__pool_about *about);
/* The same of a pool in use, else GAP_ESTATE. */
int gap__heap_pool_share(gap_heap *, int device, gap_pool_id);
/* gap__heap_pool_adopt of a private pool. */
int gap__heap_pool_retain(gap_heap *, int device, gap_pool_id);
/* `behaviour`: GAP_POOL_NO_SPLIT, GAP_POOL_USE_ON_OOM.  GAP_ESTATE: the pool is not in use. */
int gap__heap_pool_behave(gap_heap *, int device, gap_pool_id, unsigned behaviour);
/* The pool's tag: "" when it has none or is not known. */
void gap__heap_pool_tag(gap_heap *, int device, gap_pool_id, char out[32]);
int gap__heap_pool_release(gap_heap *, int device, gap_pool_id);

/* empty_cache: gives every idle chunk back to the driver; `pool` {0,0}: default pool and released pools. */
int gap__heap_trim(gap_heap *, int device, gap_pool_id pool, uint64_t *bytes_returned);
/* The program says that nothing is launched on the device meanwhile: the live parts of partly idle chunks move to chunks of their own, at
 * the same addresses, and their idle pages go back to the driver; with overflow live blocks move between the device and host memory.
 * GAP_ESTATE: both are off. */
int gap__heap_defragment(gap_heap *, int device, uint64_t *bytes_freed);
/* The live block at `addr` is rarely used, or no more: with overflow its memory is the first to go to host memory.  GAP_ENOTMINE,
 * GAP_EFREED, GAP_ENOMETA. */
int gap__heap_hint(gap_heap *, gap_addr, bool cold);
/* Others know the memory behind the live block at `addr`: it is not exchanged.  GAP_ENOTMINE, GAP_EFREED. */
int gap__heap_keep(gap_heap *, gap_addr);
/* The cap on held bytes, 0 = none.  A cap below what is live is accepted: nothing new is served until it fits. */
int gap__heap_set_cap(gap_heap *, int device, uint64_t bytes);
/* A limit beside the cap, 1 = none; the smaller one holds. */
int gap__heap_set_fraction(gap_heap *, int device, double fraction);
int gap__heap_set_reserve(gap_heap *, int device, uint64_t bytes); /* left to other programs on the card */
/* Opens the device; its memory, present and future, may be reached from `peer`.  GAP_ENOTSUP, GAP_EINVAL. */
int gap__heap_enable_peer(gap_heap *, int device, int peer);
/* Whether the device has neighbours that it asks and gives to; needed for gap__heap_give to give anything. */
void gap__heap_lend(gap_heap *, int device, bool on);
/* A neighbour asks for `bytes` of idle memory.  0, GAP_EINVAL, GAP_EFORKED. */
int gap__heap_give(gap_heap *, int device, uint64_t bytes, struct gap__given *out);
/* Takes over new values; the strategy of new blocks may change, old blocks stay where they are. */
int gap__heap_configure(gap_heap *, const struct gap__conf *);
/* Who holds blocks of the heap that he could do without: asked before the program is, in the requesting thread.  He
 * gives `bytes` of a device back, or less, and says how much; he waits for no lock of his own without a limit, and
 * requests nothing. */
struct gap__relief {
  uint64_t (*give)(void *arg, int device, uint64_t bytes);
  void *arg;
  struct gap__relief *next;
};
void gap__heap_add_relief(gap_heap *, struct gap__relief *);
/* He is not asked any more when this has returned.  It may be nobody who was added. */
void gap__heap_remove_relief(gap_heap *, struct gap__relief *);
void gap__heap_set_oom_callback(gap_heap *, gap__oom_callback *, void *arg);
/* Who hears events: the program, and the recorder of a trace. */
enum gap__tap { GAP__TAP_PROGRAM, GAP__TAP_TRACE, GAP__TAP_COUNT };
/* After it has returned, the former listener of this tap is not called any more.  NULL: nobody. */
void gap__heap_set_events(gap_heap *, enum gap__tap, gap_event_fn, void *arg);

/* Who hears them first, from several threads at once and without any lock.  Those of one address come one after the other.  Set
 * while nobody else uses the heap. */
void gap__heap_set_recorder(gap_heap *, gap_event_fn, void *arg);

int gap__heap_stats(gap_heap *, int device, struct gap__stats *out);
/* Somebody looks: nothing is made ahead before the next request that grows, so that two looks see the same. */
void gap__heap_rest(gap_heap *, int device);
uint64_t gap__heap_held(gap_heap *, int device); /* bytes held from the driver; asks nobody */

/* What one stream has in one pool. */
struct gap__usage {
  gap_stream stream;
  gap_pool_id pool;
  uint64_t live_blocks, live_bytes, pending_bytes, idle_bytes;
};
/* One entry for each (stream, pool) that has memory, in the order met; at most `max`, GAP_ELIMIT when there are more. */
int gap__heap_usage(gap_heap *, int device, struct gap__usage *out, uint32_t max, uint32_t *count);
/* A page of text for a person: what is live, held, idle; per stream and pool; rungs; driver calls.  Appended to `out`. */
struct gap__text;
int gap__heap_summary(gap_heap *, int device, struct gap__text *out);
void gap__heap_say_choice(gap_heap *, int device, struct gap__text *out); /* the line of heuristic, if it is in force */
int gap__heap_reset_peaks(gap_heap *, int device);
int gap__heap_reset_accumulated(gap_heap *, int device);
int gap__heap_walk(gap_heap *, int device, gap__walk_fn *, void *arg);
/* The live or pending block that an address lies in.  GAP_ENOTMINE, GAP_EFREED. */
int gap__heap_find(gap_heap *, gap_addr, struct gap__block_info *out, int *device);
/* The whole-heap checker: every invariant; 0 or GAP_ESTATE with the first violation in `text`. */
int gap__heap_check(gap_heap *, int device, char *text, size_t bytes);
/* Why the last request of this device failed, in plain words with numbers; "" if none did. */
int gap__heap_diagnosis(gap_heap *, int device, char *text, size_t bytes);
/* Stepped devices: lets the background worker use the time that has passed.  Cheap when there is nothing to do. */
void gap__heap_tick(gap_heap *, int device);
struct gap__dev *gap__heap_dev(gap_heap *, int device); /* NULL while the device is not open */
/* The device, opened if need be.  GAP_EINVAL, GAP_EFORKED, or why it cannot be opened. */
int gap__heap_open(gap_heap *, int device, struct gap__dev **out);
/* Why a request failed, for gap__heap_diagnosis. */
void gap__heap_explain(gap_heap *, int device, const char *text);
bool gap__heap_has_strategy(enum gap__strategy); /* false: this version lacks it */
const char *gap__rung_name(enum gap__rung);

#endif
