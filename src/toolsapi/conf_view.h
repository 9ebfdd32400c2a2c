/* What `gapless conf` shows, and the ways to show it. */
#ifndef GAP_TOOLSAPI_CONF_VIEW_H
#define GAP_TOOLSAPI_CONF_VIEW_H

#include <stdio.h>

#include "conf/conf.h"

struct gap__conf_view {
  const char *string;  /* NULL: the environment's */
  uint64_t card_bytes; /* 0: not known */
  struct gap__conf_set *set;
  struct gap__conf_report report;
  bool refused; /* something was not applied: exit 1 */
};

#define GAP__CONF_SAMPLES 3
struct gap__conf_sample {
  uint64_t request_bytes, rounded_bytes;
};

/* Requests that show what roundup_power2_divisions does; false when it does nothing. */
bool gap__conf_samples(const struct gap__conf *, struct gap__conf_sample out[GAP__CONF_SAMPLES]);
/* The limit on what may be held (max_memory before per_process_memory_fraction); 0: there is none, or it is a share of a card that is not known. */
uint64_t gap__conf_limit(const struct gap__conf *, uint64_t card_bytes);
/* Where garbage collection begins; 0: nowhere, or not known. */
uint64_t gap__conf_collection_start(const struct gap__conf *, uint64_t card_bytes);

void gap__conf_print_text(const struct gap__conf_view *, FILE *out);
int gap__conf_print_json(const struct gap__conf_view *, FILE *out); /* 0 or GAP_ENOMETA */
void gap__conf_print_markdown(FILE *out);                           /* docs/configuration.md */

#endif
