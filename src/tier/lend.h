/* Pinned memory of a device's pool for the library's other parts, and what the configuration says of its tiers. */
#ifndef GAP_TIER_LEND_H
#define GAP_TIER_LEND_H

#include "conf/tiers.h"
#include "tier/tier.h"

const struct gap__conf_tiers *gap__tier_conf(const struct gap__tier *);
/* `units` of 2 MiB side by side, 1 to 32.  GAP_ELIMIT: the budget does not allow it; GAP_ENOMETA; or the driver's error. */
int gap__tier_lend(struct gap__tier *, int device, uint32_t units, unsigned char **out);
void gap__tier_take_back(struct gap__tier *, int device, unsigned char *, uint32_t units);

#endif
