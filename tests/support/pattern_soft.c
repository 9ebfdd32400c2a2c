/* Patterns on the backends without a driver: sim, which has no bytes, and host. */
#include "support/pattern.h"

/* ---- sim ---- */

static void open_sim(struct world *w, const struct pattern_request *r, struct gap__dev **out) {
  struct gap__sim_params params = {.total_bytes = r->total_bytes,
                                   .lag_us = r->lag_us,
                                   .window_max_bytes = r->window_max_bytes,
                                   .address_budget_bytes = r->address_bytes};
  (void)w;
  assert_int_equal(gap__sim_create(0, &params, out), 0);
}

static void pass_sim(struct world *w, uint64_t ns) { gap__sim_clock_advance(w->t.dev, ns); }
static void delay_sim(struct world *w, gap_stream stream) { gap__sim_stream_hold(w->t.dev, stream); }
static void capture_sim(struct world *w, gap_stream stream, bool on) { gap__sim_stream_capture(w->t.dev, stream, on); }
static int walk_sim(struct world *w, gap__dev_visit *visit, void *arg) { return gap__sim_walk(w->t.dev, visit, arg); }

const struct pattern_device pattern_sim = {
    .open = open_sim, .pass = pass_sim, .delay = delay_sim, .capture = capture_sim, .walk = walk_sim};

/* ---- host ---- */

static void open_host(struct world *w, const struct pattern_request *r, struct gap__dev **out) {
  struct gap__host_params params = {.total_bytes = r->total_bytes,
                                    .window_max_bytes = r->window_max_bytes,
                                    .address_budget_bytes = r->address_bytes,
                                    .manual = r->manual};
  (void)w;
  assert_int_equal(gap__host_create(0, &params, out), 0);
}

static void settle_host(struct world *w) { gap__host_run_all(w->t.dev); }
static int fill_host(struct world *w, gap_addr addr, uint64_t bytes, uint64_t pattern, gap_stream stream) {
  return gap__host_fill(w->t.dev, addr, bytes, pattern, stream);
}
static int expect_host(struct world *w, gap_addr addr, uint64_t bytes, uint64_t pattern, gap_stream stream) {
  return gap__host_expect(w->t.dev, addr, bytes, pattern, stream);
}
static uint64_t faults_host(struct world *w) { return gap__host_faults(w->t.dev); }
static void capture_host(struct world *w, gap_stream stream, bool on) {
  gap__host_stream_capture(w->t.dev, stream, on);
}
static int walk_host(struct world *w, gap__dev_visit *visit, void *arg) { return gap__host_walk(w->t.dev, visit, arg); }

const struct pattern_device pattern_host = {.open = open_host,
                                            .settle = settle_host,
                                            .fill = fill_host,
                                            .expect = expect_host,
                                            .faults = faults_host,
                                            .capture = capture_host,
                                            .walk = walk_host};
