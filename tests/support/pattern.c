/* See pattern.h. */
#include "support/pattern.h"

#define LAG_US 20000

const struct pattern_card pattern_cards[PATTERN_CARDS] = {
    {"sim", &pattern_sim, 1, 0, 0},
    {"sim, windows up to 16 GiB", &pattern_sim, 1, 16 * GIB, 0},
    {"sim, 240 GiB", &pattern_sim, 1, 0, 240 * GIB},
    {"host", &pattern_host, 16, 0, 0},
    {"host, windows up to 1 GiB", &pattern_host, 16, 16 * GIB, 0},
    {"host, 15 GiB", &pattern_host, 16, 0, 240 * GIB},
    {"the driver's backend on a driver without a card", &pattern_fake, 16, 0, 0},
    {"GPU", &pattern_real, 1, 0, 0},
    {"sim, no addresses", &pattern_sim, 1, 1, 0},
    {"host, no addresses", &pattern_host, 16, 1, 0}};

static uint64_t divided(uint64_t bytes, uint64_t scale) {
  uint64_t part = bytes / scale;
  if (bytes % PAGE == 0) return part < PAGE ? PAGE : part / PAGE * PAGE;
  return part < 512 ? 512 : part;
}

static uint64_t window_of(const struct pattern_card *card) {
  return card->window_max == 1 ? 1 : card->window_max / card->scale;
}

/* What the library says while a pattern is played. */
static int lines_said;

static void count_line(void *arg, int level, const char *line) {
  (void)arg, (void)level, (void)line;
  lines_said++;
}

struct world world_with(const struct pattern_card *card, uint64_t bytes, uint64_t lag_us, bool manual,
                        const char *conf) {
  struct world w = {
      .card = card, .device = card->device, .real = card->device->fill != NULL, .scale = card->scale, .seed = 1};
  const char *absent = w.device->absent ? w.device->absent() : NULL;
  struct gap__dev *dev = NULL;
  if (absent) skip();
  w.device->open(&w,
                 &(struct pattern_request){.total_bytes = divided(bytes / PAGE * PAGE, w.scale),
                                           .window_max_bytes = window_of(card),
                                           .address_bytes = card->addresses / card->scale,
                                           .lag_us = lag_us,
                                           .manual = manual},
                 &dev);
  lines_said = 0;
  gap_set_log(count_line, NULL);
  struct try t = try_on(dev, conf, GAP__MAKER_OFF);
  w.t = t;
  return w;
}

struct world world_begin(const struct pattern_card *card, uint64_t bytes, const char *conf) {
  return world_with(card, bytes, LAG_US, false, conf);
}

/* Where addresses are refused one line says that driver allocations serve; else there is nothing to say, but by a real driver. */
static bool few_lines(const struct pattern_card *card) {
  gap_set_log(NULL, NULL);
  return card->device->absent || lines_said <= (card->window_max || card->addresses);
}

void world_end(struct world *w) {
  if (w->real) settle(w);
  if (w->real) assert_int_equal(w->device->faults(w), 0);
  assert_int_equal(try_stats(&w->t)->bytes_copied, 0);
  assert_int_equal(w->t.stats.num_ooms, 0);
  if (w->device->close) w->device->close(w);
  try_end(&w->t);
  assert_true(few_lines(w->card));
}

uint64_t scaled(const struct world *w, uint64_t bytes) { return divided(bytes, w->scale); }

/* The default stream, or one of the device's own. */
gap_stream here(struct world *w, gap_stream name) {
  int i = 0;
  if (!name || !w->device->stream) return name;
  while (i < w->stream_count && w->streams[i].name != name && w->streams[i].handle != name) i++;
  if (i < w->stream_count) return w->streams[i].handle;
  assert_true(i < PATTERN_STREAMS);
  w->streams[w->stream_count++].name = name;
  return w->streams[i].handle = w->device->stream(w, name);
}

/* ---- blocks with contents ---- */

/* The first and the last words of a block and some of its middle: enough to see that its pages are its own. */
static void each_part(struct world *w, const struct piece *p,
                      int (*queue)(struct world *, gap_addr, uint64_t, uint64_t, gap_stream)) {
  uint64_t part = p->bytes < 512 ? 8 : 64, ends[] = {0, p->bytes / 2 / 8 * 8, (p->bytes - part) / 8 * 8};
  if (!w->real || p->bytes < part) return;
  if (w->device->fills_whole) {
    assert_int_equal(queue(w, p->at, p->bytes / 8 * 8, p->tag, p->stream), 0);
    return;
  }
  for (int i = 0; i < 3; i++) assert_int_equal(queue(w, p->at + ends[i], part, p->tag, p->stream), 0);
}

void stamp(struct world *w, struct piece *p) {
  p->tag = ++w->tags * 0x9E3779B97F4A7C15ull;
  each_part(w, p, w->device->fill);
}

void look(struct world *w, const struct piece *p) { each_part(w, p, w->device->expect); }

struct piece put_in(struct world *w, gap_stream name, gap_pool_id pool, uint64_t bytes) {
  gap_stream stream = here(w, name);
  struct piece p = {.at = try_get_pool(&w->t, stream, pool, bytes), .bytes = bytes, .stream = stream};
  stamp(w, &p);
  return p;
}

struct piece put(struct world *w, gap_stream stream, uint64_t bytes) {
  return put_in(w, stream, DEFAULT, bytes);
}

void drop(struct world *w, struct piece *p) {
  look(w, p);
  try_give(&w->t, p->at);
  p->at = 0;
}

/* ---- figures ---- */

uint64_t held_now(struct world *w) { return try_held(&w->t); }

uint64_t held_peak(struct world *w) { return (uint64_t)try_stats(&w->t)->reserved_bytes[0].peak; }

struct touched {
  uint64_t pages;
  gap_addr next; /* the first page that is not counted yet: blocks come in order of their addresses */
};

static int touch(void *arg, const struct gap__block_info *info) {
  struct touched *touched = arg;
  if (info->state != GAP__BLOCK_LIVE && info->state != GAP__BLOCK_PENDING) return 0;
  gap_addr from = info->addr / PAGE, to = (info->addr + info->bytes + PAGE - 1) / PAGE;
  if (touched->next && from + 1 == touched->next) from++;
  touched->pages += to > from ? to - from : 0;
  touched->next = to;
  return 0;
}

uint64_t touched_bytes(struct world *w) {
  struct touched touched = {0, 0};
  assert_int_equal(gap__heap_walk(w->t.heap, 0, touch, &touched), 0);
  return touched.pages * PAGE;
}

void settle(struct world *w) {
  if (w->device->pass) w->device->pass(w, 10ull * LAG_US * 1000);
  else w->device->settle(w);
}

uint64_t memory_calls(struct world *w) {
  static const enum gap__dev_call calls[] = {GAP__CALL_chunk_create, GAP__CALL_chunk_release, GAP__CALL_map,
                                             GAP__CALL_set_access,   GAP__CALL_unmap,         GAP__CALL_segment_alloc,
                                             GAP__CALL_segment_free};
  uint64_t sum = 0;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) sum += try_calls(&w->t, calls[i]);
  return sum;
}
