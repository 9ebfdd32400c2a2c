/* Conversion: the live part of a partly idle chunk is copied to new chunks, which are mapped at the same addresses; its idle pages
 * go back to the driver and may serve anybody.
 *
 * The allocator does not know who uses a live block, so nothing may run on the device meanwhile: all streams that the heap has
 * seen are held at a gate (gate.h), or the program says that nothing is launched, and what was is waited for.  Never exchanged:
 * memory of private pools in use (graphs know its addresses), memory that others know (exported, registered), anything on a
 * device that another one may reach; what is not made of chunks (contiguous pools, other allocators) is not touched.
 *
 * All under the device lock, no lane lock held. */
#ifndef GAP_CONVERT_H
#define GAP_CONVERT_H

#include "core/state.h"

enum gap__stillness { GAP__STILL_BY_GATE, GAP__STILL_BY_PROMISE };

/* May requests be served by conversion, so that large chunks do no harm? */
static inline bool gap__converts(const struct gap__policy_state *s) {
  const struct gap__device *device = s->device;
  return gap__device_conf(device)->convert == GAP__CONVERT_GATED && s->dev->caps.gates &&
         !atomic_load_explicit(&device->peered, memory_order_relaxed);
}

/* Will what large chunks trap be freed, if not for the request at hand, then at the next safe point?  Then chunk_max is a wish. */
static inline bool gap__convert_undoes(const struct gap__policy_state *s) {
  const struct gap__conf *conf = gap__device_conf(s->device);
  return gap__converts(s) || (conf->convert == GAP__CONVERT_SAFE_POINTS && conf->chunk_max > GAP__PAGE);
}

/* Pages below the hard limit that are left until conversion has been tried: a copy needs room beside its original. */
#define GAP__CONVERT_SPARE 16u
static inline uint64_t gap__convert_spare(const struct gap__policy_state *s, uint64_t hard) {
  if (!gap__converts(s)) return 0;
  return hard / GAP__CONVERT_SPARE < GAP__CONVERT_SPARE ? hard / GAP__CONVERT_SPARE : GAP__CONVERT_SPARE;
}

struct gap__convert_wish {
  uint64_t pages; /* to be free, what is whole and idle included; UINT64_MAX: as many as possible */
  uint64_t least; /* where there are not so many, nothing is done */
};
#define GAP__CONVERT_ALL ((struct gap__convert_wish){UINT64_MAX, 1})
/* Exchanges chunks until that many pages are free.  Returns the pages freed by it; why it did less is counted.  What memory it takes
 * meanwhile stays within the hard limit. */
uint64_t gap__convert(struct gap__policy_state *, struct gap__convert_wish, enum gap__stillness);
/* All streams stand still, or the program has promised that they do; after it gap__gate_open.  False: they go on, and why is counted. */
bool gap__convert_still(struct gap__policy_state *, enum gap__stillness);
/* While they do: whole chunks, with what lives on them, move to memory of that place, at the same addresses, up to `most` pages; what
 * goes to host memory was promised (overflow.h).  Ends with the first that cannot.  Returns pages. */
struct gap__pick;
uint64_t gap__convert_move(struct gap__policy_state *, const struct gap__pick *, uint32_t count, uint64_t most,
                           enum gap__place);
/* Tries again to map what a driver that failed has left without memory; after it, is everything in its place? */
bool gap__convert_heal(struct gap__policy_state *);
void gap__convert_destroy(struct gap__policy_state *);

#endif
