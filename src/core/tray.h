/* Size classes (the strategy `pooled`): trays of blocks that are never split and never merged.
 *
 * A *tray* is a stretch of whole pages cut into blocks of one class; what is left over at its end is an idle block like any
 * other.  A block that is freed is kept whole (CACHED) in the list of its class, and serves that class only.  A tray of
 * which nothing is in use is *empty*: it serves its class on, until its arena is flushed, as every slow path does first.
 * Then its blocks become one idle block of whole pages, which can serve anybody: pages are not bound to a class for good.
 *
 * Source: the slabs of Bonwick (1994), with pages that come and go as all pages here do.
 * Bound: a bisection of at most 64 classes and a list's head for an allocation, a list's head for a free.
 * All calls under the lane lock. */
#ifndef GAP_TRAY_H
#define GAP_TRAY_H

#include "core/state.h"

/* Takes the classes of the configuration, or those of docs/configuration.md. */
void gap__classes_set(struct gap__classes *, const struct gap__conf *);
/* The class that serves `units`; classes->count: none does.  A block may not waste 4 GiB or more. */
static inline uint32_t gap__class_of(const struct gap__classes *classes, uint64_t units) {
  uint32_t low = 0, high = classes->count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (classes->units[middle] < units) low = middle + 1;
    else high = middle;
  }
  bool wasteful = low < classes->count && classes->units[low] - units >= (1u << (32 - GAP__UNIT_SHIFT)) - 1;
  return wasteful ? classes->count : low;
}

static inline struct gap__tray *gap__tray_at(const struct gap__lane *lane, uint32_t index) {
  return gap__slab_at(&lane->trays, index);
}
/* The same as things are: where the strategy is choosy, at most a 64th of a block may be waste. */
static inline uint32_t gap__class_for(const struct gap__policy_state *s, uint64_t units) {
  const struct gap__classes *classes = &s->classes;
  uint32_t class = gap__class_of(classes, units);
  bool choosy = class < classes->count && atomic_load_explicit(&s->choosy, memory_order_relaxed);
  return choosy && (classes->units[class] - units) * 64 > classes->units[class] ? classes->count : class;
}
/* What a request of `units` becomes: its class, or whole pages of its own; unchanged unless requests are served in classes. */
static inline uint64_t gap__tray_units(const struct gap__policy_state *s, uint64_t units) {
  if (!atomic_load_explicit(&s->pooled, memory_order_relaxed)) return units;
  uint32_t class = gap__class_for(s, units);
  if (class < s->classes.count) return s->classes.units[class];
  if (atomic_load_explicit(&s->choosy, memory_order_relaxed)) return units;
  return (units + GAP__PAGE_UNITS - 1) & ~(uint64_t)(GAP__PAGE_UNITS - 1);
}
/* Whose tray a block lies in, of which `tray` says that there is one. */
static inline uint32_t gap__tray_of(const struct gap__block *b) {
  return b->state == GAP__CACHED ? b->slack : b->link_prev;
}

/* A block of the class, about to be handed out, or 0. */
uint32_t gap__tray_take(struct gap__lane *, uint32_t class);
/* The same of a given one, which is CACHED in a tray. */
void gap__tray_pick(struct gap__lane *, uint32_t block);
/* A block of a tray is free: stamps its pages and files it. */
__attribute__((cold)) void gap__tray_give(struct gap__lane *, uint32_t block);
/* Cuts a RESERVED block of whole pages into a tray.  GAP_ENOMETA: the block is idle. */
int gap__tray_cut(struct gap__arena *, uint32_t block, uint32_t class);
/* The arena's empty trays become idle blocks. */
void gap__tray_dissolve_empty(struct gap__arena *);

#endif
