/* Events of the strategy `gapless`: see events.h. */
#include "core/events.h"

void gap__events_report_block(const struct gap__lane *lane, const struct gap__block *b, gap_event_kind kind) {
  uint64_t bytes = (uint64_t)b->len << GAP__UNIT_SHIFT;
  gap__report(lane->owner->device,
              &(struct gap_event){.kind = kind,
                                  .addr = gap__range_addr(gap__range_at(lane->owner, b->range), b->off),
                                  .bytes = bytes,
                                  .requested = bytes - b->slack,
                                  .stream = lane->stream,
                                  .pool = lane->pool});
}

void gap__events_report_pages(const struct gap__policy_state *s, const struct gap__range *range, uint32_t page,
                              int64_t pages) {
  const struct gap__lane *lane = range->arena->lane;
  uint64_t bytes = (uint64_t)(pages < 0 ? -pages : pages) << GAP__PAGE_SHIFT;
  gap__report(s->device, &(struct gap_event){.kind = pages < 0 ? GAP_EVENT_SEGMENT_UNMAP : GAP_EVENT_SEGMENT_MAP,
                                             .addr = gap__range_addr(range, page << GAP__PAGE_UNIT_SHIFT),
                                             .bytes = bytes,
                                             .requested = bytes,
                                             .stream = lane->stream,
                                             .pool = lane->pool});
}
