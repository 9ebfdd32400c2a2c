/* Statistics as text for a person, and what each stream and pool has. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "core/heap.h"

/* ---- per stream and pool ---- */

struct tally {
  struct gap__usage *entries;
  uint32_t count, max;
};

static struct gap__usage *entry_of(struct tally *t, gap_stream stream, gap_pool_id pool) {
  for (uint32_t i = 0; i < t->count; i++) {
    struct gap__usage *u = &t->entries[i];
    if (u->stream == stream && u->pool.first == pool.first && u->pool.second == pool.second) return u;
  }
  if (t->count == t->max) return NULL;
  t->entries[t->count] = (struct gap__usage){.stream = stream, .pool = pool};
  return &t->entries[t->count++];
}

static int add_block(void *arg, const struct gap__block_info *block) {
  if (block->state == GAP__BLOCK_HOLE) return 0;
  struct gap__usage *u = entry_of(arg, block->stream, block->pool);
  if (!u) return GAP_ELIMIT;
  if (block->state == GAP__BLOCK_LIVE) u->live_blocks++, u->live_bytes += block->bytes;
  if (block->state == GAP__BLOCK_PENDING) u->pending_bytes += block->bytes;
  if (block->state == GAP__BLOCK_IDLE) u->idle_bytes += block->bytes;
  return 0;
}

int gap__heap_usage(gap_heap *heap, int device, struct gap__usage *out, uint32_t max, uint32_t *count) {
  struct tally t = {.entries = out, .max = max};
  int rc = gap__heap_walk(heap, device, add_block, &t);
  *count = t.count;
  return rc;
}

/* ---- the page ---- */

enum { USAGE_MAX = 256 };

static void line(struct gap__text *out, const char *name, const struct gap__stat *s) {
  char now[GAP__TEXT_BYTES], peak[GAP__TEXT_BYTES], allocated[GAP__TEXT_BYTES], freed[GAP__TEXT_BYTES];
  gap__text_add(out, "  %-22s %12s %12s %12s %12s\n", name, gap__text_size((uint64_t)s->current, now),
                gap__text_size((uint64_t)s->peak, peak), gap__text_size((uint64_t)s->allocated, allocated),
                gap__text_size((uint64_t)s->freed, freed));
}

static void add_memory(struct gap__text *out, const struct gap__stats *s) {
  gap__text_add(out, "  %-22s %12s %12s %12s %12s\n", "memory", "now", "peak", "allocated", "freed");
  line(out, "allocated", &s->allocated_bytes[GAP__KIND_ALL]);
  line(out, "active", &s->active_bytes[GAP__KIND_ALL]);
  line(out, "requested", &s->requested_bytes[GAP__KIND_ALL]);
  line(out, "held (reserved)", &s->reserved_bytes[GAP__KIND_ALL]);
  char waste[GAP__TEXT_BYTES];
  gap__text_add(out, "  waste: %s of what is active was not asked for (rounding%s)\n",
                gap__text_size((uint64_t)s->waste_bytes, waste), s->class_trays ? " to size classes" : "");
}

static void add_idle(struct gap__text *out, const struct gap__stats *s) {
  char whole[GAP__TEXT_BYTES], stuck[GAP__TEXT_BYTES], most[GAP__TEXT_BYTES], cap[GAP__TEXT_BYTES],
      reserve[GAP__TEXT_BYTES];
  gap__text_add(out, "  idle: %s could be moved or given back, %s lies on pages in use; %lld idle blocks\n",
                gap__text_size((uint64_t)s->idle_returnable_bytes, whole),
                gap__text_size((uint64_t)s->idle_stuck_bytes, stuck), (long long)s->idle_extents);
  gap__text_add(out, "  largest request that could be served now: %s; cap: %s; left to others: %s\n",
                gap__text_size((uint64_t)s->largest_servable_bytes, most),
                s->cap_bytes ? gap__text_size((uint64_t)s->cap_bytes, cap) : "none",
                gap__text_size((uint64_t)s->reserve_bytes, reserve));
  gap__text_add(out, "  out of memory: %lld; retries: %lld; stalls: %lld (%.3f ms)\n", (long long)s->num_ooms,
                (long long)s->num_alloc_retries, (long long)s->stalls, (double)s->stall_us / 1e3);
}

/* Only where size classes serve, or did. */
static void add_classes(struct gap__text *out, const struct gap__stats *s) {
  char idle[GAP__TEXT_BYTES];
  if (!s->class_trays) return;
  gap__text_add(out, "  size classes: %lld trays; %s of idle blocks in them serve their class only\n",
                (long long)s->class_trays, gap__text_size((uint64_t)s->class_idle_bytes, idle));
}

/* Only where memory was exchanged, or could not be. */
static void add_conversion(struct gap__text *out, const struct gap__stats *s) {
  char copied[GAP__TEXT_BYTES], freed[GAP__TEXT_BYTES];
  int64_t refused = s->convert_refused_gate + s->convert_refused_capture + s->convert_refused_thread +
                    s->convert_refused_peer + s->convert_refused_driver + s->convert_refused_room +
                    s->convert_refused_known + s->convert_refused_pinned;
  if (!s->conversions && !refused) return;
  gap__text_add(out, "  conversion: %lld chunks, %s copied, %s freed, %.3f ms; refused: %lld\n",
                (long long)s->conversions, gap__text_size((uint64_t)s->bytes_copied, copied),
                gap__text_size((uint64_t)s->pages_converted << GAP__PAGE_SHIFT, freed), (double)s->convert_us / 1e3,
                (long long)refused);
}

/* Only while something sleeps. */
static void add_asleep(struct gap__text *out, const struct gap__stats *s) {
  char asleep[GAP__TEXT_BYTES];
  if (s->asleep_bytes)
    gap__text_add(out, "  asleep: %s of addresses whose memory is the driver's\n",
                  gap__text_size((uint64_t)s->asleep_bytes, asleep));
}

/* Only where host memory stands behind device addresses, or could not. */
static void add_overflow(struct gap__text *out, const struct gap__stats *s) {
  char there[GAP__TEXT_BYTES], live[GAP__TEXT_BYTES], peak[GAP__TEXT_BYTES];
  if (!s->overflow_bytes_peak && !s->overflow_placed_bytes && !s->overflow_refused) return;
  gap__text_add(out, "  overflow: %s of host memory at device addresses, %s of it live; peak %s; refused: %lld\n",
                gap__text_size((uint64_t)s->overflow_bytes, there),
                gap__text_size((uint64_t)s->overflow_live_bytes, live),
                gap__text_size((uint64_t)s->overflow_bytes_peak, peak), (long long)s->overflow_refused);
}

/* Only where live blocks were moved. */
static void add_moves(struct gap__text *out, const struct gap__stats *s) {
  char away[GAP__TEXT_BYTES], back[GAP__TEXT_BYTES];
  if (s->overflow_out_bytes || s->overflow_back_bytes)
    gap__text_add(out, "  overflow: %s of cold blocks moved there, %s of others moved back\n",
                  gap__text_size((uint64_t)s->overflow_out_bytes, away),
                  gap__text_size((uint64_t)s->overflow_back_bytes, back));
}

/* Only where a plan is followed. */
static void add_plan(struct gap__text *out, const struct gap__stats *s) {
  int64_t requests = s->plan_placed + s->plan_unexpected + s->plan_taken + s->plan_unbacked;
  int64_t bytes = s->plan_placed_bytes + s->plan_unexpected_bytes + s->plan_taken_bytes + s->plan_unbacked_bytes;
  char placed[GAP__TEXT_BYTES], all[GAP__TEXT_BYTES];
  if (!s->plan_requests) return;
  gap__text_add(out,
                "  plan: %lld of %lld requests placed as planned (%s of %s); not expected: %lld, place in use: %lld, "
                "no pages: %lld\n",
                (long long)s->plan_placed, (long long)requests, gap__text_size((uint64_t)s->plan_placed_bytes, placed),
                gap__text_size((uint64_t)bytes, all), (long long)s->plan_unexpected, (long long)s->plan_taken,
                (long long)s->plan_unbacked);
  gap__text_add(out, "  plan: found %lld times, %lld periods ended\n", (long long)s->plan_found,
                (long long)s->plan_periods);
}

/* Only where it has asked, or was. */
static void add_neighbours(struct gap__text *out, const struct gap__stats *s) {
  char got[GAP__TEXT_BYTES], given[GAP__TEXT_BYTES];
  if (!s->neighbour_asks && !s->neighbour_requests) return;
  gap__text_add(
      out,
      "  neighbours: asked %lld times (%.3f ms), %s came free, %lld without an answer; was asked %lld times and "
      "gave %s\n",
      (long long)s->neighbour_asks, (double)s->rung_us[GAP__RUNG_neighbours] / 1e3,
      gap__text_size((uint64_t)s->neighbour_got_bytes, got), (long long)s->neighbour_silent,
      (long long)s->neighbour_requests, gap__text_size((uint64_t)s->neighbour_given_bytes, given));
}

/* "weights (3,0)"; without a tag "(3,0)". */
static void pool_name(gap_heap *heap, int device, gap_pool_id id, char out[96]) {
  char tag[32];
  gap__heap_pool_tag(heap, device, id, tag);
  snprintf(out, 96, "%s%s(%llu,%llu)", tag, *tag ? " " : "", (unsigned long long)id.first,
           (unsigned long long)id.second);
}

static void add_usage(struct gap__text *out, gap_heap *heap, int device) {
  struct gap__usage usage[USAGE_MAX];
  uint32_t count;
  bool more = gap__heap_usage(heap, device, usage, USAGE_MAX, &count) == GAP_ELIMIT;
  gap__text_add(out, "  %-18s %-22s %8s %12s %12s %12s\n", "stream", "pool", "blocks", "live", "pending", "idle");
  for (uint32_t i = 0; i < count; i++) {
    const struct gap__usage *u = &usage[i];
    char live[GAP__TEXT_BYTES], pending[GAP__TEXT_BYTES], idle[GAP__TEXT_BYTES], pool[96];
    pool_name(heap, device, u->pool, pool);
    gap__text_add(out, "  %-#18llx %-22s %8llu %12s %12s %12s\n", (unsigned long long)u->stream, pool,
                  (unsigned long long)u->live_blocks, gap__text_size(u->live_bytes, live),
                  gap__text_size(u->pending_bytes, pending), gap__text_size(u->idle_bytes, idle));
  }
  if (more) gap__text_add(out, "  ... and more streams and pools\n");
}

static void add_work(struct gap__text *out, const struct gap__stats *s) {
  for (int rung = 0; rung < GAP__RUNG_COUNT; rung++)
    if (s->rung_count[rung] || s->rung_us[rung])
      gap__text_add(out, "  rung %-12s served %8lld   %10.3f ms\n", gap__rung_name((enum gap__rung)rung),
                    (long long)s->rung_count[rung], (double)s->rung_us[rung] / 1e3);
  for (int call = 0; call < GAP__CALL_COUNT; call++) {
    const struct gap__driver_figure *d = &s->driver[call];
    if (d->calls + d->background_calls)
      gap__text_add(out, "  driver %-16s %9lld calls %10.3f ms; page maker %9lld %10.3f ms\n",
                    gap__dev_call_name((enum gap__dev_call)call), (long long)d->calls, (double)d->ns / 1e6,
                    (long long)d->background_calls, (double)d->background_ns / 1e6);
  }
}

int gap__heap_summary(gap_heap *heap, int device, struct gap__text *out) {
  struct gap__stats s;
  int rc = gap__heap_stats(heap, device, &s);
  if (rc) return rc;
  gap__text_add(out, "gapless memory summary, device %d\n", device);
  gap__heap_say_choice(heap, device, out);
  add_memory(out, &s);
  add_idle(out, &s);
  add_classes(out, &s);
  add_conversion(out, &s);
  add_asleep(out, &s);
  add_overflow(out, &s);
  add_moves(out, &s);
  add_plan(out, &s);
  add_neighbours(out, &s);
  add_usage(out, heap, device);
  add_work(out, &s);
  return 0;
}
