#include "tier/pinned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/text.h"
#include "tier/crew.h"

#define SLAB_BYTES (GAP__SLAB_UNITS * GAP__UNIT_PAGE)
enum { TOUCH_BYTES = 4096, SLABS_MOST = 1 << 24 /* a pebibyte */ };

void gap__pinned_init(struct gap__pinned *p, struct gap__dev *dev, struct gap__allowance *allowance) {
  *p = (struct gap__pinned){.dev = dev, .allowance = allowance};
}

/* ---- one slab ---- */

static bool map_slab(struct gap__pinned_slab *slab) {
  uint64_t bytes = slab->units * GAP__UNIT_PAGE;
  slab->mapping_bytes = bytes + GAP__UNIT_PAGE; /* addresses to align in; what is not touched costs nothing */
  slab->mapping =
      mmap(NULL, slab->mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (slab->mapping == MAP_FAILED) return false;
  uintptr_t start = (uintptr_t)slab->mapping;
  slab->memory = (unsigned char *)slab->mapping + (GAP__UNIT_PAGE - start % GAP__UNIT_PAGE) % GAP__UNIT_PAGE;
  madvise(slab->memory, bytes, MADV_HUGEPAGE); /* where there are some */
  madvise(slab->memory, bytes, MADV_DONTFORK); /* a child's copy on write would move our pages from under the device */
  return true;
}

/* Registered memory is locked as it is: each page must be there. */
static int pin_slab(struct gap__dev *dev, struct gap__pinned_slab *slab) {
  uint64_t bytes = slab->units * GAP__UNIT_PAGE;
  for (uint64_t at = 0; at < bytes; at += TOUCH_BYTES) ((volatile unsigned char *)slab->memory)[at] = 0;
  int rc = gap__dev_pin(dev, slab->memory, bytes);
  if (rc) munmap(slab->mapping, slab->mapping_bytes);
  if (rc) slab->memory = NULL;
  return rc;
}

static int drop_slab(struct gap__pinned *p, struct gap__pinned_slab *slab) {
  uint64_t bytes = slab->units * GAP__UNIT_PAGE;
  int rc = gap__dev_unpin(p->dev, slab->memory, bytes);
  if (rc) return rc; /* the driver may still write there: it stays */
  munmap(slab->mapping, slab->mapping_bytes);
  p->locked_bytes -= bytes;
  gap__allowance_give(p->allowance, bytes);
  *slab = p->slabs[--p->slab_count];
  return 0;
}

/* ---- growing ---- */

struct growth {
  struct gap__pinned *p;
  uint32_t first; /* of the new slabs */
};

static int pin_job(void *arg, uint32_t index) {
  struct growth *growth = arg;
  return pin_slab(growth->p->dev, &growth->p->slabs[growth->first + index]);
}

static bool make_room(struct gap__pinned *p, uint32_t more) {
  if (p->slab_count + more <= p->slab_room) return true;
  uint32_t room = p->slab_count + more + p->slab_room / 2;
  struct gap__pinned_slab *slabs = realloc(p->slabs, room * sizeof *slabs);
  if (!slabs) return false;
  p->slabs = slabs;
  p->slab_room = room;
  return true;
}

/* Slabs for `units`, without memory that is theirs alone yet.  How many; fewer when addresses run out. */
static uint32_t map_slabs(struct gap__pinned *p, uint64_t units) {
  uint32_t made = 0;
  for (uint64_t n; units; units -= n, made++) {
    n = units < GAP__SLAB_UNITS ? units : GAP__SLAB_UNITS;
    struct gap__pinned_slab *slab = &p->slabs[p->slab_count + made];
    *slab = (struct gap__pinned_slab){.units = (uint32_t)n};
    if (!map_slab(slab)) break;
  }
  return made;
}

/* Those that were registered stay, the others are gone already or go now.  Returns their units. */
static uint64_t keep_pinned(struct gap__pinned *p, const struct growth *growth, uint32_t made, uint32_t begun) {
  uint64_t units = 0;
  for (uint32_t i = 0; i < made; i++) {
    struct gap__pinned_slab slab = p->slabs[growth->first + i];
    if (i >= begun) munmap(slab.mapping, slab.mapping_bytes);
    else if (slab.memory) p->slabs[p->slab_count++] = slab;
    if (i < begun && slab.memory) units += slab.units;
  }
  return units;
}

static int grow(struct gap__pinned *p, uint64_t units, uint64_t *got) {
  struct growth growth = {p, p->slab_count};
  struct gap__crew crew;
  if (units / GAP__SLAB_UNITS >= SLABS_MOST) return GAP_ENOMETA; /* where the machine cannot be looked at */
  if (!make_room(p, (uint32_t)((units + GAP__SLAB_UNITS - 1) / GAP__SLAB_UNITS))) return GAP_ENOMETA;
  uint32_t made = map_slabs(p, units);
  gap__crew_start(&crew, gap__crew_size(made), pin_job, &growth);
  gap__crew_let(&crew, made);
  int rc = gap__crew_end(&crew);
  *got = keep_pinned(p, &growth, made, crew.next);
  return rc ? rc : *got < units ? GAP_ENOMETA : 0;
}

/* ---- the budget ---- */

static uint64_t left(uint64_t limit, uint64_t used) { return limit > used ? limit - used : 0; }

/* What may be locked beside what is: a fifth of what the machine had before we took any is left to it. */
static uint64_t budget_left(const struct gap__allowance *a, struct gap__budget *b) {
  uint64_t locked = atomic_load(&a->locked_bytes);
  gap__budget_look(a->root, b);
  uint64_t most = a->most_bytes ? a->most_bytes : UINT64_MAX, budget = gap__budget_room(b, locked);
  uint64_t configured = left(most, locked);
  return configured < budget ? configured : budget;
}

uint64_t gap__pinned_reach(const struct gap__pinned *p) {
  struct gap__budget budget;
  uint64_t more = budget_left(p->allowance, &budget) / GAP__UNIT_PAGE * GAP__UNIT_PAGE, unused = gap__pinned_unused(p);
  return more > UINT64_MAX - unused ? UINT64_MAX : more + unused;
}

static void say_refused(const struct gap__allowance *a, uint64_t bytes, uint64_t room, const struct gap__budget *b,
                        char *why, size_t why_bytes) {
  char asked[GAP__TEXT_BYTES], may[GAP__TEXT_BYTES], locked[GAP__TEXT_BYTES], free[GAP__TEXT_BYTES];
  uint64_t have = atomic_load(&a->locked_bytes);
  bool configured = a->most_bytes && left(a->most_bytes, have) == room;
  bool group = b->group_bytes < b->available_bytes;
  if (b->unread && !configured) {
    snprintf(why, why_bytes, "%s more of host memory would have to be locked, and how much may be cannot be read: %s",
             gap__text_size(bytes, asked), strerror(b->unread));
    return;
  }
  snprintf(why, why_bytes, "%s more of host memory would have to be locked, %s may be: %s locked already, %s%s",
           gap__text_size(bytes, asked), gap__text_size(room, may), gap__text_size(have, locked),
           configured ? "the limit is that of tiers"
           : group    ? "left in the control group: "
                      : "available on the machine: ",
           configured ? "" : gap__text_size(group ? b->group_bytes : b->available_bytes, free));
}

bool gap__allowance_take(struct gap__allowance *a, uint64_t bytes, char *why, size_t why_bytes) {
  struct gap__budget budget;
  uint64_t units = bytes / GAP__UNIT_PAGE + (bytes % GAP__UNIT_PAGE != 0);
  gap__lock(&a->lock);
  uint64_t room = budget_left(a, &budget);
  bool fits = units <= room / GAP__UNIT_PAGE;
  if (fits) atomic_fetch_add(&a->locked_bytes, units * GAP__UNIT_PAGE);
  gap__unlock(&a->lock);
  if (!fits) say_refused(a, bytes, room, &budget, why, why_bytes);
  return fits;
}

void gap__allowance_give(struct gap__allowance *a, uint64_t bytes) { atomic_fetch_sub(&a->locked_bytes, bytes); }

void gap__pinned_ease(struct gap__pinned *p, uint64_t bytes) {
  if (p->allowance->ease) p->allowance->ease(p->allowance->ease_arg, bytes);
}

/* Of what others have idle as much as is needed goes first. */
static bool may_grow(struct gap__pinned *p, uint64_t bytes) {
  if (gap__allowance_take(p->allowance, bytes, p->refusal, sizeof p->refusal)) return true;
  gap__pinned_ease(p, bytes);
  return gap__allowance_take(p->allowance, bytes, p->refusal, sizeof p->refusal);
}

static int grow_within(struct gap__pinned *p, uint64_t bytes) {
  uint64_t units = bytes / GAP__UNIT_PAGE + (bytes % GAP__UNIT_PAGE != 0), got = 0;
  if (!may_grow(p, bytes)) return GAP_ELIMIT;
  int rc = grow(p, units, &got);
  p->locked_bytes += got * GAP__UNIT_PAGE;
  gap__allowance_give(p->allowance, (units - got) * GAP__UNIT_PAGE);
  if (rc)
    snprintf(p->refusal, sizeof p->refusal, "the %s does not give the host memory: %s",
             rc == GAP_ENOMETA ? "system" : "driver", gap_strerror(rc));
  return rc;
}

int gap__pinned_ensure(struct gap__pinned *p, uint64_t bytes) {
  uint64_t unused = gap__pinned_unused(p);
  return bytes <= unused ? 0 : grow_within(p, bytes - unused);
}

/* The smallest ones first would leave large ones: any will do, from the end. */
static int shrink(struct gap__pinned *p, uint64_t bytes) {
  int rc = 0;
  for (uint32_t i = p->slab_count; i-- > 0 && !rc;)
    if (!p->slabs[i].used && p->locked_bytes - p->slabs[i].units * GAP__UNIT_PAGE >= bytes)
      rc = drop_slab(p, &p->slabs[i]);
  return rc;
}

int gap__pinned_resize(struct gap__pinned *p, uint64_t bytes) {
  if (bytes > UINT64_MAX - GAP__UNIT_PAGE) {
    snprintf(p->refusal, sizeof p->refusal, "there is no such size");
    return GAP_EINVAL;
  }
  return bytes > p->locked_bytes ? grow_within(p, bytes - p->locked_bytes) : shrink(p, bytes);
}

void gap__pinned_destroy(struct gap__pinned *p) {
  while (p->slab_count && drop_slab(p, &p->slabs[p->slab_count - 1]) == 0) continue;
  free(p->slabs);
  *p = (struct gap__pinned){0};
}

/* ---- units ---- */

static uint32_t bits(uint32_t count) { return count == 32 ? UINT32_MAX : (1u << count) - 1; }

/* The longest run of unused units, of at most `most`; its length, *at where it begins. */
static uint32_t find_run(const struct gap__pinned_slab *slab, uint32_t most, uint32_t *at) {
  uint32_t best = 0;
  for (uint32_t from = 0; from < slab->units && best < most;) {
    uint32_t length = 0;
    while (from + length < slab->units && length < most && !(slab->used >> (from + length) & 1)) length++;
    if (length > best) {
      best = length;
      *at = from;
    }
    from += length + 1;
  }
  return best;
}

uint32_t gap__pinned_take(struct gap__pinned *p, uint32_t units, unsigned char **out) {
  uint32_t best = 0, best_at = 0, at = 0;
  struct gap__pinned_slab *slab = NULL;
  for (uint32_t i = 0; i < p->slab_count && best < units; i++) {
    uint32_t length = find_run(&p->slabs[i], units, &at);
    if (length <= best) continue;
    slab = &p->slabs[i];
    best = length;
    best_at = at;
  }
  if (!slab) return 0;
  slab->used |= bits(best) << best_at;
  p->used_bytes += best * GAP__UNIT_PAGE;
  *out = slab->memory + best_at * GAP__UNIT_PAGE;
  return best;
}

static bool take_whole(struct gap__pinned *p, uint32_t units, unsigned char **out) {
  unsigned char *memory;
  uint32_t got = gap__pinned_take(p, units, &memory);
  if (got == units) *out = memory;
  else if (got) gap__pinned_give(p, memory, got);
  return got == units;
}

int gap__pinned_take_run(struct gap__pinned *p, uint32_t units, unsigned char **out) {
  if (take_whole(p, units, out)) return 0;
  int rc = grow_within(p, units * GAP__UNIT_PAGE);
  if (rc == GAP_ELIMIT && shrink(p, 0) == 0) rc = grow_within(p, units * GAP__UNIT_PAGE);
  return rc ? rc : take_whole(p, units, out) ? 0 : GAP_ENOMETA;
}

void gap__pinned_give(struct gap__pinned *p, unsigned char *memory, uint32_t units) {
  for (uint32_t i = 0; i < p->slab_count; i++) {
    struct gap__pinned_slab *slab = &p->slabs[i];
    uint64_t offset = (uint64_t)(memory - slab->memory);
    if (memory < slab->memory || offset >= slab->units * GAP__UNIT_PAGE) continue;
    slab->used &= ~(bits(units) << offset / GAP__UNIT_PAGE);
    p->used_bytes -= units * GAP__UNIT_PAGE;
    return;
  }
}
