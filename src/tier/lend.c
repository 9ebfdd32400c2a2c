#include "tier/lend.h"

#include "tier/state.h"

const struct gap__conf_tiers *gap__tier_conf(const struct gap__tier *tier) { return &tier->conf; }

int gap__tier_lend(struct gap__tier *tier, int device, uint32_t units, unsigned char **out) {
  struct tier_device *d;
  int rc = gap__tier_enter(tier, device, &d);
  if (rc) return rc;
  rc = gap__pinned_take_run(&d->pinned, units, out);
  gap__tier_leave(d);
  return rc;
}

void gap__tier_take_back(struct gap__tier *tier, int device, unsigned char *memory, uint32_t units) {
  struct tier_device *d;
  if (gap__tier_enter(tier, device, &d)) return;
  gap__pinned_give(&d->pinned, memory, units);
  gap__tier_leave(d);
}
