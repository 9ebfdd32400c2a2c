/* See pattern.h. */
#include "support/pattern.h"

#define LAG_US 20000

const struct pattern_card pattern_cards[PATTERN_CARDS] = {{"sim", false, 1, 0, 0},
                                                          {"sim, windows up to 16 GiB", false, 1, 16 * GIB, 0},
                                                          {"sim, 240 GiB", false, 1, 0, 240 * GIB},
                                                          {"host", true, 16, 0, 0},
                                                          {"host, windows up to 1 GiB", true, 16, 16 * GIB, 0},
                                                          {"host, 15 GiB", true, 16, 0, 240 * GIB}};

static uint64_t divided(const struct pattern_card *card, uint64_t bytes) {
  uint64_t part = bytes / card->scale;
  if (bytes % PAGE == 0) return part < PAGE ? PAGE : part / PAGE * PAGE;
  return part < 512 ? 512 : part;
}

struct world world_with(const struct pattern_card *card, uint64_t bytes, uint64_t lag_us, bool manual,
                        const char *conf) {
  struct world w = {.card = card, .seed = 1};
  uint64_t total = divided(card, bytes / PAGE * PAGE), window = card->window_max / card->scale,
           addresses = card->addresses / card->scale;
  struct gap__sim_params sim = {
      .total_bytes = total, .lag_us = lag_us, .window_max_bytes = window, .address_budget_bytes = addresses};
  struct gap__host_params host = {
      .total_bytes = total, .window_max_bytes = window, .address_budget_bytes = addresses, .manual = manual};
  w.t = card->real ? try_host(&host, conf, GAP__MAKER_OFF) : try_sim_with(&sim, conf, GAP__MAKER_OFF);
  return w;
}

struct world world_begin(const struct pattern_card *card, uint64_t bytes, const char *conf) {
  return world_with(card, bytes, LAG_US, false, conf);
}

void world_end(struct world *w) {
  if (w->card->real) gap__host_run_all(w->t.dev);
  if (w->card->real) assert_int_equal(gap__host_faults(w->t.dev), 0);
  assert_int_equal(try_stats(&w->t)->bytes_copied, 0);
  assert_int_equal(w->t.stats.num_ooms, 0);
  try_end(&w->t);
}

uint64_t scaled(const struct world *w, uint64_t bytes) { return divided(w->card, bytes); }

/* ---- blocks with contents ---- */

/* The first and the last words of a block and some of its middle: enough to see that its pages are its own. */
static void each_part(struct world *w, const struct piece *p,
                      int (*queue)(struct gap__dev *, gap_addr, uint64_t, uint64_t, gap_stream)) {
  uint64_t part = p->bytes < 512 ? 8 : 64, ends[] = {0, p->bytes / 2 / 8 * 8, (p->bytes - part) / 8 * 8};
  if (!w->card->real || p->bytes < part) return;
  for (int i = 0; i < 3; i++) assert_int_equal(queue(w->t.dev, p->at + ends[i], part, p->tag, p->stream), 0);
}

void stamp(struct world *w, struct piece *p) {
  p->tag = ++w->tags * 0x9E3779B97F4A7C15ull;
  each_part(w, p, gap__host_fill);
}

void look(struct world *w, const struct piece *p) { each_part(w, p, gap__host_expect); }

struct piece put_in(struct world *w, gap_stream stream, gap_pool_id pool, uint64_t bytes) {
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
  if (w->card->real) gap__host_run_all(w->t.dev);
  else gap__sim_clock_advance(w->t.dev, 10ull * LAG_US * 1000);
}

uint64_t memory_calls(struct world *w) {
  static const enum gap__dev_call calls[] = {GAP__CALL_chunk_create, GAP__CALL_chunk_release, GAP__CALL_map,
                                             GAP__CALL_set_access,   GAP__CALL_unmap,         GAP__CALL_segment_alloc,
                                             GAP__CALL_segment_free};
  uint64_t sum = 0;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) sum += try_calls(&w->t, calls[i]);
  return sum;
}
