/* gap_kv_step: preemption in which everybody gets on. */
#include <stdbool.h>

#include "core/heap.h"
#include "dev/sim/sim.h"
#include "support/kv_try.h"

enum { MOST = 12 };

struct runner {
  gap_kv_request request;
  uint32_t length, wanted; /* tokens */
  bool out;                /* preempted, and not granted since */
  int preempted, waited;
};

struct world {
  gap_heap *heap;
  struct gap__dev *late; /* a card on which events complete a step after they were recorded; NULL: at once */
  gap_kv *kv;
  struct runner at[MOST];
  uint32_t count;
};

static gap_heap *open_late(struct world *w) {
  struct gap__sim_params params = {.total_bytes = 128 * MIB, .lag_us = 1000};
  struct gap__heap_params hp = {.devs = &w->late, .dev_count = 1, .maker = GAP__MAKER_OFF};
  gap_heap *heap;
  assert_int_equal(gap__sim_create(0, &params, &w->late), 0);
  assert_int_equal(gap__heap_create(&hp, &heap), 0);
  return heap;
}

static void open_world(struct world *w, uint64_t host_bytes, gap_stream copy_stream, bool late) {
  gap_kv_options o = kv_try_options(16, 52 * MIB);
  o.heads = 32, o.head_size = 64, o.layout = GAP_KV_BLOCK_MAJOR, o.sharing = GAP_KV_SHARING_OFF; /* 103 KV pages */
  o.host_bytes = host_bytes, o.copy_stream = copy_stream;
  *w = (struct world){0};
  w->heap = late ? open_late(w) : api_open(GAP_BACKEND_HOST, 128 * MIB, NULL);
  w->kv = kv_try_open(w->heap, &o);
}

static void close_world(struct world *w) {
  kv_try_check(w->kv);
  gap_kv_destroy(w->kv);
  char text[300] = "";
  if (gap__heap_check(w->heap, 0, text, sizeof text)) fail_msg("%s", text);
  if (w->late) gap__heap_destroy(w->heap);
  else gap_heap_destroy(w->heap);
}

static void enter(struct world *w, uint32_t wanted) {
  struct runner *r = &w->at[w->count++];
  *r = (struct runner){.wanted = wanted};
  assert_int_equal(gap_kv_open(w->kv, NULL, &r->request.seq, NULL), 0);
}

static uint32_t length_of(struct world *w, gap_kv_seq seq) {
  gap_kv_about about = {.size = sizeof about};
  assert_int_equal(gap_kv_get_about(w->kv, seq, &about), 0);
  return about.tokens;
}

static void take_in(struct world *w, struct runner *r, const gap_kv_request *done) {
  if (done->outcome == GAP_KV_GRANTED) {
    r->length += done->tokens;
    r->out = false;
    r->waited = 0;
  } else if (done->outcome == GAP_KV_PREEMPTED) {
    assert_false(r->out); /* never twice without a grant between */
    r->out = true;
    r->preempted++;
    r->length = length_of(w, done->seq);
  } else {
    r->waited++;
  }
  assert_int_equal(length_of(w, done->seq), r->length);
}

/* Each wants 16 tokens more, or all it had when it lost them; how many got on. */
static uint32_t step(struct world *w) {
  gap_kv_request asked[MOST];
  uint32_t granted = 0;
  for (uint32_t i = 0; i < w->count; i++) {
    asked[i] = w->at[i].request;
    asked[i].tokens = 16;
  }
  assert_int_equal(gap_kv_step(w->kv, asked, w->count), 0);
  assert_int_equal(gap_kv_flush(w->kv), 0);
  kv_try_check(w->kv);
  if (w->late) gap__sim_clock_advance(w->late, 1000000);
  for (uint32_t i = 0; i < w->count; i++) {
    take_in(w, &w->at[i], &asked[i]);
    granted += asked[i].outcome == GAP_KV_GRANTED;
  }
  return granted;
}

static void leave(struct world *w) {
  uint32_t left = 0;
  for (uint32_t i = 0; i < w->count; i++)
    if (w->at[i].length >= w->at[i].wanted) assert_int_equal(gap_kv_close(w->kv, w->at[i].request.seq, 5), 0);
    else w->at[left++] = w->at[i];
  w->count = left;
}

/* Pattern 20: eight grow to the edge, 99 of 103 KV pages, a ninth wants 60 % of the cache; what is freed comes a step late. */
static void edge(uint64_t host_bytes, gap_stream copy_stream, bool late) {
  struct world w;
  int idle = 0, steps = 0;
  open_world(&w, host_bytes, copy_stream, late);
  for (uint32_t i = 0; i < 8; i++) enter(&w, 16 * (20 + 3 * i));
  for (uint32_t n = 0; n < 12; n++) assert_int_equal(step(&w), 8);
  w.count = 3;
  assert_int_equal(step(&w), 3);
  w.count = 8;
  assert_int_equal(kv_try_free(w.kv), 103 - 99);
  enter(&w, 16 * 62);
  for (; w.count && steps < 2000; steps++) {
    idle = step(&w) ? 0 : idle + 1;
    assert_true(idle < 4); /* progress every four steps */
    leave(&w);
  }
  assert_int_equal(w.count, 0);
  if (w.late) gap__sim_clock_advance(w.late, 10000000);
  assert_true(kv_try_stats(w.kv).preempted > 0);
  assert_int_equal(kv_try_free(w.kv), 103);
  close_world(&w);
}

static void edge_swapped(void **state) {
  (void)state;
  edge(128 * MIB, 0, false);
}
static void edge_swapped_on_another_stream(void **state) {
  (void)state;
  edge(128 * MIB, 9, false);
}
static void edge_dropped(void **state) {
  (void)state;
  edge(0, 0, false);
}
static void edge_little_host_memory(void **state) {
  (void)state;
  edge(12 * MIB, 9, false);
}

static void edge_late(void **state) {
  (void)state;
  edge(128 * MIB, 9, true);
  edge(12 * MIB, 9, true);
  edge(0, 0, true);
}

static void hopeless(void **state) {
  (void)state;
  struct world w;
  open_world(&w, 0, 0, false);
  enter(&w, 16);
  enter(&w, 16);
  gap_kv_request asked[] = {w.at[0].request, w.at[1].request};
  asked[0].tokens = 16, asked[1].tokens = 16 * 104;
  assert_int_equal(gap_kv_step(w.kv, asked, 2), GAP_ENOMEM);
  assert_int_equal(kv_try_free(w.kv), 103);
  asked[1] = asked[0];
  assert_int_equal(gap_kv_step(w.kv, asked, 2), GAP_EINVAL);
  asked[1].seq = 0;
  assert_int_equal(gap_kv_step(w.kv, asked, 2), GAP_EINVAL);
  assert_int_equal(length_of(&w, w.at[0].request.seq), 0);
  close_world(&w);
}

/* What comes back is what went, or what was cached meanwhile. */
static void swapped_and_shared(void **state) {
  (void)state;
  gap_kv_options o = kv_try_options(16, 52 * MIB);
  o.heads = 32, o.head_size = 64, o.layout = GAP_KV_BLOCK_MAJOR, o.host_bytes = 64 * MIB, o.copy_stream = 4;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 128 * MIB, NULL);
  gap_kv *kv = kv_try_open(heap, &o);
  int32_t tokens[200];
  for (int i = 0; i < 200; i++) tokens[i] = i * i;
  struct kv_try t;
  kv_try_begin(kv, &t, 0, NULL, 0, 0);
  kv_try_learn(&t, tokens, 200);
  assert_int_equal(kv_try_append(kv, &t), 0);
  assert_int_equal(gap_kv_swap_out(kv, t.seq), 0);
  assert_int_equal(gap_kv_swap_out(kv, t.seq), GAP_ESTATE);
  gap_kv_request r = {.seq = t.seq, .tokens = 1};
  gap_kv_seq forked;
  assert_int_equal(gap_kv_append(kv, &r, 1), GAP_ESTATE);
  assert_int_equal(gap_kv_fork(kv, t.seq, &forked), GAP_ESTATE);
  assert_int_equal(gap_kv_truncate(kv, t.seq, 10), GAP_ESTATE);
  assert_int_equal(kv_try_free(kv), 103);
  assert_int_equal(gap_kv_swap_in(kv, t.seq), 0);
  gap_kv_stats s = kv_try_stats(kv);
  assert_int_equal(s.swapped_out, 13);
  assert_int_equal(s.swap_shared, 12); /* all but the last are still cached */
  assert_int_equal(s.swapped_in, 1);
  assert_int_equal(gap_kv_flush(kv), 0);
  kv_try_verify(kv, &t);
  assert_int_equal(gap_kv_swap_out(kv, t.seq), 0);
  assert_int_equal(kv_try_stats(kv).sequences_swapped, 1);
  assert_int_equal(gap_kv_forget(kv), 0);
  assert_int_equal(gap_kv_swap_in(kv, t.seq), 0);
  assert_int_equal(kv_try_stats(kv).swapped_in, 14);
  assert_int_equal(gap_kv_flush(kv), 0);
  kv_try_verify(kv, &t);
  assert_int_equal(gap_kv_swap_out(kv, t.seq), 0);
  assert_int_equal(gap_kv_close(kv, t.seq, 0), 0);
  assert_int_equal(kv_try_free(kv), 103);
  kv_try_check(kv);
  gap_kv_destroy(kv);
  api_close(heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(edge_swapped),       cmocka_unit_test(edge_swapped_on_another_stream),
      cmocka_unit_test(edge_dropped),       cmocka_unit_test(edge_little_host_memory),
      cmocka_unit_test(edge_late),          cmocka_unit_test(hopeless),
      cmocka_unit_test(swapped_and_shared),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
