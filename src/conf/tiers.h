/* The value of the key `tiers`: host=SIZE,disk=/folder:SIZE,remote=redis://host,host:port, in brackets or not, each part with '=' or ':'. */
#ifndef GAP_CONF_TIERS_H
#define GAP_CONF_TIERS_H

#include <stdbool.h>
#include <stdint.h>

enum {
  GAP__CONF_TIERS_BYTES = 1024,
  GAP__CONF_TIERS_PASSAGE = 32 << 20 /* bytes of host memory that lead to the disk and to servers */
};

struct gap__conf_tiers {
  bool host;                          /* named; `tiers:disk=...` alone means that nothing stays in host memory */
  uint64_t host_bytes;                /* 0: no number was given */
  char disk[256];                     /* the folder; "" none */
  uint64_t disk_bytes;                /* 0: no number was given */
  char remote[GAP__CONF_TIERS_BYTES]; /* servers, as gapless/remote.h has them; "" none */
};

/* NULL, or what is wrong in words.  "" means no tiers. */
const char *gap__conf_tiers_read(const char *value, struct gap__conf_tiers *out);

#endif
