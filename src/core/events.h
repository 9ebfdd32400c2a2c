/* Events of the strategy `gapless`. */
#ifndef GAP_EVENTS_H
#define GAP_EVENTS_H

#include "core/state.h"

void gap__events_report_block(const struct gap__lane *, const struct gap__block *, gap_event_kind);
void gap__events_report_pages(const struct gap__policy_state *, const struct gap__range *, uint32_t page,
                              int64_t pages);

/* What happened to a block; under its lane's lock, before its address can serve another. */
static inline void gap__events_block(const struct gap__lane *lane, const struct gap__block *b, gap_event_kind kind) {
  if (gap__watched(lane->owner->device)) gap__events_report_block(lane, b, kind);
}
/* Memory came to stand behind `pages` pages, or below 0: went away from them.  A chunk that is mapped at several addresses
 * stands behind one of them.  Under the device lock. */
static inline void gap__events_pages(const struct gap__policy_state *s, const struct gap__range *range, uint32_t page,
                                     int64_t pages) {
  if (gap__watched(s->device) && !s->convert.quiet) gap__events_report_pages(s, range, page, pages);
}

#endif
