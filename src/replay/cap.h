/* Caps and cards as a person writes them. */
#ifndef GAP_CAP_H
#define GAP_CAP_H

#include <stddef.h>
#include <stdint.h>

struct gap__card_preset {
  const char *name;     /* "24G": as it is sold */
  const char *example;  /* a card of this size */
  uint64_t total_bytes; /* what the driver reports */
};

#define GAP__CARD_CONTEXT_BYTES ((uint64_t)512 << 20) /* what a CUDA context and its libraries take */

uint32_t gap__card_count(void);
const struct gap__card_preset *gap__card_at(uint32_t index);
/* NULL when there is none of that name. */
const struct gap__card_preset *gap__card_find(const char *name);

/* "26GiB", "1.005xP", "1.005P", "none". 0 or GAP_EVALUE; *out 0: none. */
int gap__cap_parse(const char *text, uint64_t peak_live_bytes, uint64_t *out);
/* `factor` x P, floored to whole pages. */
uint64_t gap__cap_of(double factor, uint64_t peak_live_bytes);

#endif
