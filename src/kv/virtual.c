#include "kv/virtual.h"

#include <stdlib.h>
#include <string.h>

#include "base/meta.h"

enum { RANGES_MOST = 65536 };
#define ALL_MOST (((uint64_t)1 << 40) - GAP__PAGE)

static bool shares(const struct gap_kv_virtual *v) { return v->options.flags & GAP_KV_VIRTUAL_SHARING; }
static uint32_t pages_for(uint64_t bytes) { return (uint32_t)((bytes + GAP__PAGE - 1) >> GAP__PAGE_SHIFT); }
static gap_addr place_addr(const struct gap_kv_virtual *v, uint32_t place) {
  return v->base + ((uint64_t)place << GAP__PAGE_SHIFT);
}
static gap_addr page_addr(const struct gap_kv_virtual *v, uint32_t page) {
  return v->memory.base + ((uint64_t)page << GAP__PAGE_SHIFT);
}

/* ---- pages ---- */

/* Memory with its home; without sharing the place's own. */
static int take_page(struct gap_kv_virtual *v, uint32_t place, uint32_t *out) {
  uint32_t page = shares(v) ? kv_bits_first(&v->free) : place;
  if (page == KV_NONE) return GAP_ENOMEM;
  int rc = gap__heap_region_commit(&v->memory, (uint64_t)page << GAP__PAGE_SHIFT, GAP__PAGE);
  if (rc) return rc;
  if (shares(v)) kv_bits_remove(&v->free, page);
  v->held += GAP__PAGE;
  *out = page;
  return 0;
}

static void give_page(struct gap_kv_virtual *v, uint32_t page) {
  (void)gap__heap_free(v->heap, page_addr(v, page));
  if (shares(v)) kv_bits_add(&v->free, page);
  v->held -= GAP__PAGE;
}

/* Where the driver knows no mapping for reading only, one for both must do. */
static int open_access(struct gap_kv_virtual *v, gap_addr at, bool read_only) {
  int rc = read_only ? gap__dev_set_read_access(v->dev, at, GAP__PAGE) : GAP_ENOTSUP;
  return rc == GAP_ENOTSUP ? gap__dev_set_access(v->dev, at, GAP__PAGE) : rc;
}

static int map_page(struct gap_kv_virtual *v, uint32_t place, uint32_t page, bool read_only) {
  gap__chunk chunk;
  gap_addr at = place_addr(v, place);
  int rc = gap__heap_region_chunk(&v->memory, (uint64_t)page << GAP__PAGE_SHIFT, &chunk);
  if (!rc) rc = gap__dev_map(v->dev, at, GAP__PAGE, chunk);
  if (rc) return rc;
  rc = open_access(v, at, read_only);
  if (rc) (void)gap__dev_unmap(v->dev, at, GAP__PAGE);
  return rc;
}

/* `page` has memory; the place is empty. */
static int put(struct gap_kv_virtual *v, uint32_t place, uint32_t page, bool read_only) {
  int rc = shares(v) ? map_page(v, place, page, read_only) : 0;
  if (rc) return rc;
  v->place[place] = page + 1;
  v->read_only[place] = read_only;
  if (v->uses[page]++) v->shared += GAP__PAGE;
  return 0;
}

static int place_fresh(struct gap_kv_virtual *v, uint32_t place) {
  uint32_t page;
  int rc = take_page(v, place, &page);
  if (rc) return rc;
  rc = put(v, place, page, false);
  if (rc) give_page(v, page);
  return rc;
}

/* Nothing uses the place any more.  Where the driver does not unmap it, it stays for another time, memory and all. */
static int clear(struct gap_kv_virtual *v, uint32_t place) {
  uint32_t page = v->place[place] - 1;
  int rc = shares(v) ? gap__dev_unmap(v->dev, place_addr(v, place), GAP__PAGE) : 0;
  v->leaving_in[place] = rc ? VIRTUAL_STUCK : 0;
  v->counted[place] = 0;
  if (rc) return rc;
  v->place[place] = 0;
  if (--v->uses[page]) v->shared -= GAP__PAGE;
  else give_page(v, page);
  return 0;
}

/* ---- leaving ---- */

static void end_leaving(struct gap_kv_virtual *v, uint32_t index) {
  struct virtual_leaving l = v->leaving[index];
  for (uint32_t i = 0; i < l.count; i++)
    if (v->leaving_in[l.places[i]] == l.batch) (void)clear(v, l.places[i]);
  gap__dev_event_destroy(v->dev, l.event);
  free(l.places);
  v->leaving[index] = v->leaving[--v->leaving_count];
}

void gap__virtual_settle(struct gap_kv_virtual *v) {
  for (uint32_t i = v->leaving_count; i-- > 0;)
    if (gap__dev_event_query(v->dev, v->leaving[i].event) == 0) end_leaving(v, i);
}

/* The place is wanted again, and what is there is nobody else's: it has come back. */
static bool take_back(struct gap_kv_virtual *v, uint32_t place) {
  if (v->uses[v->place[place] - 1] != 1 || v->read_only[place]) return false;
  v->leaving_in[place] = 0;
  return true;
}

static int wait_for(struct gap_kv_virtual *v, uint32_t place) {
  if (v->leaving_in[place] == VIRTUAL_STUCK) return clear(v, place);
  for (uint32_t i = 0; i < v->leaving_count; i++)
    if (v->leaving[i].batch == v->leaving_in[place]) {
      int rc = gap__dev_event_wait(v->dev, v->leaving[i].event);
      if (!rc) end_leaving(v, i);
      return rc ? rc : v->place[place] ? clear(v, place) : 0;
    }
  return GAP_ESTATE;
}

static int make_room(struct gap_kv_virtual *v) {
  if (v->leaving_count < v->leaving_room) return 0;
  uint32_t room = v->leaving_room ? 2 * v->leaving_room : 16;
  struct virtual_leaving *grown = realloc(v->leaving, room * sizeof *grown);
  if (!grown) return GAP_ENOMETA;
  v->leaving = grown;
  v->leaving_room = room;
  return 0;
}

static int begin_leaving(struct gap_kv_virtual *v, uint32_t count, struct virtual_leaving *out) {
  *out = (struct virtual_leaving){.batch = ++v->batch, .places = malloc((count + 1) * sizeof(uint32_t))};
  int rc = out->places ? make_room(v) : GAP_ENOMETA;
  if (!rc) rc = gap__dev_event_create(v->dev, v->options.stream, &out->event);
  if (!rc) rc = gap__dev_event_record(v->dev, out->event, v->options.stream);
  if (rc && out->event) gap__dev_event_destroy(v->dev, out->event);
  if (rc) free(out->places);
  return rc;
}

/* ---- growing ---- */

int gap__virtual_place_next(struct gap_kv_virtual *v, uint32_t range) {
  uint32_t place = range * v->pages + v->have[range];
  int rc = 0;
  if (v->place[place] && !take_back(v, place)) rc = wait_for(v, place);
  if (!rc && !v->place[place]) rc = place_fresh(v, place);
  if (!rc && ++v->have[range] == v->want[range]) kv_bits_remove(&v->hungry, range);
  return rc;
}

static void want(struct gap_kv_virtual *v, uint32_t range, uint32_t pages) {
  if (pages > v->pages) pages = v->pages;
  if (v->want[range] >= pages) return;
  if (v->have[range] == v->want[range]) kv_bits_add(&v->hungry, range);
  v->want[range] = pages;
}

/* Those that the thread has mapped lie together, just above what was asked for before. */
static void count_ahead(struct gap_kv_virtual *v, uint32_t range, uint32_t pages) {
  uint8_t *counted = v->counted + (size_t)range * v->pages;
  for (uint32_t i = pages < v->have[range] ? pages : v->have[range]; i-- > 0 && counted[i]; v->pages_ahead++)
    counted[i] = 0;
}

/* So many are needed, and a few more soon. */
static int grow_range(struct gap_kv_virtual *v, uint32_t range, uint32_t pages) {
  int rc = 0;
  count_ahead(v, range, pages);
  want(v, range, pages);
  while (!rc && v->have[range] < pages) {
    rc = gap__virtual_place_next(v, range);
    v->pages_late += !rc;
  }
  if (!rc && v->running) want(v, range, pages + v->ahead);
  return rc;
}

static bool names_ranges(const struct gap_kv_virtual *v, uint32_t first, uint32_t count) {
  return count <= v->options.ranges && first <= v->options.ranges - count;
}

static bool fits(const struct gap_kv_virtual *v, uint64_t bytes) {
  return bytes <= (uint64_t)v->pages << GAP__PAGE_SHIFT;
}

int gap_kv_virtual_grow(gap_kv_virtual *v, uint32_t first, uint32_t count, uint64_t bytes) {
  if (!v || !names_ranges(v, first, count) || !fits(v, bytes)) return GAP_EINVAL;
  int rc = 0;
  gap__lock(&v->lock);
  if (v->leaving_count) gap__virtual_settle(v);
  for (uint32_t i = 0; !rc && i < count; i++) rc = grow_range(v, first + i, pages_for(bytes));
  bool hungry = v->hungry.count;
  gap__unlock(&v->lock);
  if (hungry) gap__virtual_wake(v);
  return rc;
}

/* ---- shrinking ---- */

static void stop_wanting(struct gap_kv_virtual *v, uint32_t range, uint32_t pages) {
  if (v->have[range] < v->want[range]) kv_bits_remove(&v->hungry, range);
  v->have[range] = v->want[range] = pages;
}

static void shrink_range(struct gap_kv_virtual *v, uint32_t range, uint32_t pages, struct virtual_leaving *leaving) {
  uint32_t have = v->have[range];
  if (have < pages) return;
  stop_wanting(v, range, pages);
  for (uint32_t i = have; i-- > pages;) {
    uint32_t place = range * v->pages + i;
    if (!shares(v)) {
      (void)clear(v, place);
      continue;
    }
    v->leaving_in[place] = leaving->batch;
    leaving->places[leaving->count++] = place;
  }
}

static uint32_t surplus(const struct gap_kv_virtual *v, uint32_t first, uint32_t count, uint32_t pages) {
  uint32_t all = 0;
  for (uint32_t i = first; i < first + count; i++) all += v->have[i] > pages ? v->have[i] - pages : 0;
  return all;
}

static int shrink(struct gap_kv_virtual *v, uint32_t first, uint32_t count, uint32_t pages) {
  struct virtual_leaving leaving = {0};
  uint32_t all = surplus(v, first, count, pages);
  int rc = shares(v) && all ? begin_leaving(v, all, &leaving) : 0;
  if (rc) return rc;
  for (uint32_t i = first; i < first + count; i++) shrink_range(v, i, pages, &leaving);
  if (shares(v) && all) v->leaving[v->leaving_count++] = leaving;
  gap__virtual_settle(v);
  return 0;
}

int gap_kv_virtual_shrink(gap_kv_virtual *v, uint32_t first, uint32_t count, uint64_t bytes) {
  if (!v || !names_ranges(v, first, count) || !fits(v, bytes)) return GAP_EINVAL;
  gap__lock(&v->lock);
  int rc = shrink(v, first, count, pages_for(bytes));
  gap__unlock(&v->lock);
  return rc;
}

/* ---- sharing ---- */

static int share_page(struct gap_kv_virtual *v, uint32_t to, uint32_t from) {
  int rc = v->place[to] ? wait_for(v, to) : 0; /* it is leaving */
  return rc ? rc : put(v, to, v->place[from] - 1, true);
}

static int share_range(struct gap_kv_virtual *v, uint32_t to, uint32_t from, uint64_t bytes) {
  uint32_t whole = (uint32_t)(bytes >> GAP__PAGE_SHIFT);
  uint64_t rest = bytes % GAP__PAGE;
  int rc = 0;
  for (uint32_t i = 0; !rc && i < whole; i++) {
    rc = share_page(v, to * v->pages + i, from * v->pages + i);
    if (!rc) v->have[to]++, v->want[to]++;
  }
  if (rc || !rest) return rc;
  want(v, to, whole + 1);
  rc = gap__virtual_place_next(v, to);
  gap_addr target = place_addr(v, to * v->pages + whole), source = place_addr(v, from * v->pages + whole);
  return rc ? rc : gap__dev_copy(v->dev, target, source, rest, v->options.stream);
}

static int may_share(const struct gap_kv_virtual *v, uint32_t to, uint32_t from, uint32_t count, uint64_t bytes) {
  if (!shares(v)) return GAP_ENOTSUP;
  for (uint32_t i = 0; i < count; i++)
    if (v->have[to + i] || v->have[from + i] < pages_for(bytes)) return GAP_ESTATE;
  return 0;
}

int gap_kv_virtual_share(gap_kv_virtual *v, uint32_t to, uint32_t from, uint32_t count, uint64_t bytes) {
  if (!v || !names_ranges(v, to, count) || !names_ranges(v, from, count) || !fits(v, bytes)) return GAP_EINVAL;
  gap__lock(&v->lock);
  gap__virtual_settle(v);
  int rc = may_share(v, to, from, count, bytes);
  bool begun = !rc;
  for (uint32_t i = 0; !rc && i < count; i++) rc = share_range(v, to + i, from + i, bytes);
  if (rc && begun) (void)shrink(v, to, count, 0);
  gap__unlock(&v->lock);
  return rc;
}

/* ---- life ---- */

static int open_memory(struct gap_kv_virtual *v) {
  const gap_kv_virtual_options *o = &v->options;
  uint64_t bytes = (uint64_t)v->place_count << GAP__PAGE_SHIFT;
  int rc = gap__heap_region_open(v->heap, o->device, o->stream, "kv-virtual", bytes, &v->memory);
  if (rc) return rc;
  v->dev = gap__heap_dev(v->heap, o->device);
  v->base = v->memory.base;
  if (!shares(v)) return 0;
  rc = gap__dev_reserve(v->dev, bytes, GAP__PAGE, &v->base);
  v->own_window = !rc;
  if (!rc) rc = gap__kv_bits_init(&v->free, v->place_count);
  if (!rc) gap__kv_bits_add_range(&v->free, 0, v->place_count);
  return rc;
}

static int open_records(struct gap_kv_virtual *v) {
  size_t places = v->place_count, ranges = v->options.ranges;
  v->place = gap__meta_map(places * sizeof *v->place);
  v->uses = gap__meta_map(places * sizeof *v->uses);
  v->leaving_in = gap__meta_map(places * sizeof *v->leaving_in);
  v->counted = gap__meta_map(places);
  v->read_only = gap__meta_map(places);
  v->have = gap__meta_map(ranges * sizeof *v->have);
  v->want = gap__meta_map(ranges * sizeof *v->want);
  bool whole = v->place && v->uses && v->leaving_in && v->counted && v->read_only && v->have && v->want;
  return whole ? gap__kv_bits_init(&v->hungry, v->options.ranges) : GAP_ENOMETA;
}

static bool options_fit(const gap_kv_virtual_options *o) {
  if (o->size != sizeof *o || !o->ranges || o->ranges > RANGES_MOST || !o->range_bytes || o->range_bytes > ALL_MOST)
    return false;
  if (o->flags & ~(unsigned)(GAP_KV_VIRTUAL_SHARING | GAP_KV_VIRTUAL_NO_THREAD) || o->ahead_bytes > ALL_MOST)
    return false;
  return (uint64_t)o->ranges * pages_for(o->range_bytes) <= ALL_MOST >> GAP__PAGE_SHIFT;
}

int gap_kv_virtual_create(gap_heap *heap, const gap_kv_virtual_options *options, gap_kv_virtual **out) {
  if (!heap || !options || !out || !options_fit(options)) return GAP_EINVAL;
  struct gap_kv_virtual *v = calloc(1, sizeof *v);
  if (!v) return GAP_ENOMETA;
  v->heap = heap;
  v->options = *options;
  v->pages = pages_for(options->range_bytes);
  v->place_count = v->pages * options->ranges;
  v->ahead = pages_for(options->ahead_bytes);
  int rc = open_records(v);
  if (!rc) rc = open_memory(v);
  if (rc) {
    gap_kv_virtual_destroy(v);
    return rc;
  }
  gap__virtual_start(v);
  *out = v;
  return 0;
}

static void clear_all(struct gap_kv_virtual *v) {
  struct virtual_leaving last;
  gap__lock(&v->lock);
  bool ends = begin_leaving(v, 0, &last) == 0; /* what was queued so far */
  if (ends && gap__dev_event_wait(v->dev, last.event) == 0) gap__virtual_settle(v);
  if (ends) gap__dev_event_destroy(v->dev, last.event), free(last.places);
  while (v->leaving_count) end_leaving(v, 0);
  for (uint32_t place = 0; place < v->place_count; place++)
    if (v->place[place]) (void)clear(v, place);
  gap__unlock(&v->lock);
}

void gap_kv_virtual_destroy(gap_kv_virtual *v) {
  if (!v) return;
  gap__virtual_stop(v);
  if (v->dev) clear_all(v); /* the records are there: they come first */
  if (v->own_window) (void)gap__dev_unreserve(v->dev, v->base, (uint64_t)v->place_count << GAP__PAGE_SHIFT);
  gap__heap_region_close(&v->memory);
  gap__kv_bits_free(&v->free);
  gap__kv_bits_free(&v->hungry);
  gap__meta_unmap(v->place, v->place_count * sizeof *v->place);
  gap__meta_unmap(v->uses, v->place_count * sizeof *v->uses);
  gap__meta_unmap(v->leaving_in, v->place_count * sizeof *v->leaving_in);
  gap__meta_unmap(v->counted, v->place_count);
  gap__meta_unmap(v->read_only, v->place_count);
  gap__meta_unmap(v->have, v->options.ranges * sizeof *v->have);
  gap__meta_unmap(v->want, v->options.ranges * sizeof *v->want);
  free(v->leaving);
  free(v);
}

int gap_kv_virtual_get_about(gap_kv_virtual *v, gap_kv_virtual_about *out) {
  if (!v || !out || out->size != sizeof *out) return GAP_EINVAL;
  gap__lock(&v->lock);
  *out = (gap_kv_virtual_about){.size = sizeof *out,
                                .base = v->base,
                                .stride = (uint64_t)v->pages << GAP__PAGE_SHIFT,
                                .bytes_held = v->held,
                                .bytes_shared = v->shared,
                                .pages_ahead = v->pages_ahead,
                                .pages_late = v->pages_late};
  gap__unlock(&v->lock);
  return 0;
}
