/* gapless: KV pages below the device.  This header is its manual; the rules of gapless.h and kv.h apply.  Since 0.1.
 *
 *     gap_kv_tiers_options o = GAP_KV_TIERS_OPTIONS_INIT;      heap: tiers:host=64G,disk=/scratch:500G,remote=redis://cache-1.example
 *     o.model = "llama-3.1-8b, weights of 2024-07";
 *     gap_kv_tiers_open(kv, &o, message, sizeof message);      measures; the cache shares by SHA-256
 *     gap_kv_fetch(kv, &prompt, &ticket);                      while the request waits for its turn
 *     ... gap_kv_fetch_poll(kv, ticket, &tokens) == GAP_EAGAIN ...
 *     gap_kv_open(kv, &prompt, &seq, &hit);                    finds what has come up
 *
 * Down.  A KV page that is offered to other sequences (kv.h) is put on the servers, in the background.  One that nobody
 * uses any more is copied to pinned host memory when it is among the next to be evicted, a quarter of the cache ahead,
 * and from there to the disk when host memory is full.  So evicting costs nothing.  What the background cannot keep up
 * with is not copied.  A sequence that is swapped out goes from pinned host memory to the disk when the room for
 * swapped sequences is nearly used up.
 *
 * Up.  gap_kv_fetch looks where the KV pages of a prompt are, beyond those on the device, and brings up as many as take
 * less time than computing their tokens does: by what was measured when the tiers were opened, and since.  What has
 * come up is cached, as if it had been computed here.  Nothing but a fetch waits for a disk or a server, and no call of
 * kv.h does.
 *
 * Names.  A KV page is known by the SHA-256 digests of its chain and tenant, so every process with the same `model` and
 * shape finds it on the servers.  What servers lose, lie about or do not say in time is a miss, and a counter.
 *
 * Threads.  As kv.h.  There is one thread in the background.  Errors.  As kv.h. */
#ifndef GAPLESS_KV_TIERS_H
#define GAPLESS_KV_TIERS_H

#include "gapless/kv.h"
#include "gapless/remote.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t gap_kv_ticket; /* a fetch under way; 0 is none */

/* What a place gives: the time before the first byte, and bytes a second from then on; 0 bytes: nothing is there. */
typedef struct gap_kv_rate {
  uint64_t latency_ns, bytes_s;
} gap_kv_rate;
typedef struct gap_kv_rates {
  size_t size;                    /* sizeof(gap_kv_rates) */
  gap_kv_rate host, disk, remote; /* up to the device */
  uint64_t token_ns;              /* to compute a token of a prompt; 0: not known, and every fetch is worth it */
} gap_kv_rates;

typedef struct gap_kv_tiers_options {
  size_t size; /* sizeof(gap_kv_tiers_options) */
  /* which weights computed them: at most 128 bytes; NULL: nothing goes to servers, or comes from them */
  const char *model;
  uint64_t host_bytes, disk_bytes; /* most that cached KV pages may have of `tiers`; 0: none */
  uint64_t remote_bytes;           /* on the simulated device only: what the servers hold */
  /* NULL: the servers of `tiers` with the other options of GAP_REMOTE_OPTIONS_INIT; the tag is not used */
  const gap_remote_options *remote;
  const gap_kv_rates *rates; /* NULL: measured now; token_ns may be learnt (gap_kv_tell_computed) */
  uint64_t token_ns;         /* the first guess of it, where `rates` is NULL */
  uint32_t fetch_ms;         /* most that a fetch waits for servers, 1 to 60,000 */
} gap_kv_tiers_options;
#define GAP_KV_TIERS_OPTIONS_INIT \
  { sizeof(gap_kv_tiers_options), NULL, UINT64_MAX, UINT64_MAX, 0, NULL, NULL, 0, 1000 }

/* Once for a cache; they end with it.  `message` (may be NULL) gets a line for people.  On the simulated device places
 * are counted, nothing is stored, and `rates` must be there.
 * GAP_ESTATE: they are open.  GAP_ENOTSUP: the cache does not share by SHA-256; there are servers, and the plug-in is
 * not there.  GAP_EVALUE: a URL. */
GAP_API int gap_kv_tiers_open(gap_kv *kv, const gap_kv_tiers_options *options, char *message, size_t bytes);

/* Begins to bring up what of the prompt is below; never blocks.  The prompt's tokens are copied.  A ticket whose end
 * nobody asks for stays until the cache ends. */
GAP_API int gap_kv_fetch(gap_kv *kv, const gap_kv_prompt *prompt, gap_kv_ticket *ticket);
/* 0: the ticket is done and no more; so many tokens of the prompt, in whole KV pages, were on the device when it ended.
 * GAP_EAGAIN: not yet.  GAP_EINVAL: there is no such ticket.  `tokens` may be NULL. */
GAP_API int gap_kv_fetch_poll(gap_kv *kv, gap_kv_ticket ticket, uint32_t *tokens);
GAP_API int gap_kv_fetch_wait(gap_kv *kv, gap_kv_ticket ticket, uint32_t timeout_ms, uint32_t *tokens);

/* A step has computed `tokens` of prompts in so much time: the planner's other side. */
GAP_API int gap_kv_tell_computed(gap_kv *kv, uint64_t tokens, uint64_t ns);
/* Waits until nothing goes down or up.  GAP_EAGAIN: something still does. */
GAP_API int gap_kv_tiers_drain(gap_kv *kv, uint32_t timeout_ms);
/* The same when all KV pages that nobody uses have gone down: before gap_kv_forget, or gap_kv_resize to less. */
GAP_API int gap_kv_tiers_store(gap_kv *kv, uint32_t timeout_ms);

/* Counters since the tiers were opened, of KV pages unless they say otherwise. */
#define GAP_KV_TIER_STATS(X) \
  X(host_held) /* now */ \
  X(disk_held) \
  X(remote_held) /* on the simulated device */ \
  X(host_stored) /* copied there */ \
  X(disk_stored) \
  X(remote_stored) \
  X(host_fetched) /* brought up from there */ \
  X(disk_fetched) \
  X(remote_fetched) \
  X(host_refused) /* there, but computing is faster */ \
  X(disk_refused) \
  X(remote_refused) \
  X(missed)     /* of fetches: in no place */ \
  X(no_room)    /* of fetches: the device had none */ \
  X(lost)       /* should have been there: gone, damaged or late */ \
  X(dropped)    /* the last copy of the local places, for want of room */ \
  X(not_stored) /* not copied down: too much at once, no room, an error */ \
  X(put_failed) /* no server took it */ \
  X(fetches) \
  X(tokens_fetched) \
  X(sequences_down) /* swapped sequences that went to the disk */ \
  X(sequences_up) \
  X(kernel_bytes_s) /* measured: scattered KV pages to pinned host memory by a kernel; 0: there is none */ \
  X(engine_bytes_s) /* and by the copy engine: swapped sequences go by the faster one */ \
  X(page_bytes)     /* of a KV page: what the counters are to be multiplied by */

typedef struct gap_kv_tier_stats {
  size_t size;        /* sizeof(gap_kv_tier_stats) */
  gap_kv_rates rates; /* as they are now */
#define X(name) uint64_t name;
  GAP_KV_TIER_STATS(X)
#undef X
} gap_kv_tier_stats;
/* GAP_ESTATE: there are no tiers. */
GAP_API int gap_kv_get_tier_stats(gap_kv *kv, gap_kv_tier_stats *out);
/* The store that the cache uses, for its own counters (gap_remote_get_stats); NULL: none.  It ends with the cache. */
GAP_API gap_remote *gap_kv_get_remote(gap_kv *kv);

#ifdef __cplusplus
}
#endif
#endif
