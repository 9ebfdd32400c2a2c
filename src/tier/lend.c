#include "tier/lend.h"

#include "tier/state.h"

const struct gap__conf_tiers *gap__tier_conf(const struct gap__tier *tier) { return &tier->conf; }

/* What is unused may lie in pieces: then a slab of its own. */
static int lend(struct gap__pinned *pinned, uint32_t units, unsigned char **out) {
  uint32_t got = gap__pinned_take(pinned, units, out);
  if (got == units) return 0;
  if (got) gap__pinned_give(pinned, *out, got);
  int rc = gap__pinned_ensure(pinned, gap__pinned_unused(pinned) + units * GAP__UNIT_PAGE);
  if (rc) return rc;
  got = gap__pinned_take(pinned, units, out);
  if (got == units) return 0;
  if (got) gap__pinned_give(pinned, *out, got);
  return GAP_ENOMETA;
}

int gap__tier_lend(struct gap__tier *tier, int device, uint32_t units, unsigned char **out) {
  struct tier_device *d;
  int rc = gap__tier_enter(tier, device, &d);
  if (rc) return rc;
  rc = lend(&d->pinned, units, out);
  gap__tier_leave(d);
  return rc;
}

void gap__tier_take_back(struct gap__tier *tier, int device, unsigned char *memory, uint32_t units) {
  struct tier_device *d;
  if (gap__tier_enter(tier, device, &d)) return;
  gap__pinned_give(&d->pinned, memory, units);
  gap__tier_leave(d);
}
