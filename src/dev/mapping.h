/* What a checker may look at on a backend that runs without a GPU: one mapping, or one segment. */
#ifndef GAP_DEV_MAPPING_H
#define GAP_DEV_MAPPING_H

#include "dev/dev.h"

struct gap__dev_mapping {
  gap_addr addr;
  uint64_t bytes;
  gap__chunk chunk; /* 0: a segment */
  bool accessible;
  bool on_host; /* in host memory: no part of what the device has given */
};
typedef int gap__dev_visit(void *arg, const struct gap__dev_mapping *);

#endif
