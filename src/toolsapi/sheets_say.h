/* What is said of sheets: the figures that matter first, and the forms in which all are told. */
#ifndef GAP_TOOLSAPI_SHEETS_SAY_H
#define GAP_TOOLSAPI_SHEETS_SAY_H

#include "base/text.h"
#include "toolsapi/nvml.h"
#include "toolsapi/sheets.h"

/* A device of a process at a look, in bytes but for `refused`.  held = live + pending + idle; returnable + stuck = idle, as far as both were
 * counted at the same moment. */
struct gap__sheet_brief {
  uint64_t live, pending, idle, returnable, stuck, held, cap, servable, live_peak, held_peak;
  uint64_t overflow, overflow_live; /* in host memory, not held */
  uint64_t refused, stalls, allocations;
  double age_s; /* since these figures were so */
};
struct gap__sheet_brief gap__sheet_brief(const struct gap__sheet_view *, uint32_t device, uint64_t now_ns);

uint64_t gap__sheet_now_ns(void); /* of the clock that sheets are stamped by */
double gap__sheet_age_s(uint64_t then_ns, uint64_t now_ns);

/* One JSON object, to be freed; NULL: no host memory. */
char *gap__sheets_json(const struct gap__sheets *, const struct gap__nvml *);
/* The Prometheus text format, version 0.0.4.  Appended. */
void gap__sheets_metrics(const struct gap__sheets *, const struct gap__nvml *, struct gap__text *out);

#endif
