/* The figures of a sheet that matter first. */
#include <time.h>

#include "toolsapi/sheets_say.h"

uint64_t gap__sheet_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

double gap__sheet_age_s(uint64_t then_ns, uint64_t now_ns) {
  return then_ns < now_ns ? (double)(now_ns - then_ns) / 1e9 : 0;
}

static uint64_t figure(const struct gap__sheet_view *view, uint32_t device, const char *name) {
  int64_t value = gap__sheet_value(view, device, name);
  return value > 0 ? (uint64_t)value : 0;
}

static uint64_t less(uint64_t whole, uint64_t part) { return whole > part ? whole - part : 0; }

struct gap__sheet_brief gap__sheet_brief(const struct gap__sheet_view *view, uint32_t device, uint64_t now_ns) {
  uint64_t active = figure(view, device, "active_bytes.all.current");
  struct gap__sheet_brief out = {.live = figure(view, device, "allocated_bytes.all.current"),
                                 .returnable = figure(view, device, "idle_returnable_bytes"),
                                 .stuck = figure(view, device, "idle_stuck_bytes"),
                                 .held = figure(view, device, "reserved_bytes.all.current"),
                                 .cap = figure(view, device, "cap_bytes"),
                                 .servable = figure(view, device, "largest_servable_bytes"),
                                 .live_peak = figure(view, device, "live_bytes_peak"),
                                 .held_peak = figure(view, device, "reserved_bytes.all.peak"),
                                 .refused = figure(view, device, "num_ooms"),
                                 .stalls = figure(view, device, "stalls"),
                                 .allocations = figure(view, device, "allocation.all.allocated"),
                                 .age_s = gap__sheet_age_s(gap__sheet_device(view, device)->taken_ns, now_ns)};
  out.pending = less(active, out.live);
  out.overflow = figure(view, device, "overflow_bytes");
  out.overflow_live = figure(view, device, "overflow_live_bytes");
  out.idle = less(out.held + out.overflow_live, active);
  return out;
}
