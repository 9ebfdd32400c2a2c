/* One KV cache and several threads, each with sequences of its own, on a simulated card. */
#include <pthread.h>

#include "support/kv_try.h"

enum { THREADS = 4, ROUNDS = 400 };

struct worker {
  gap_kv *kv;
  uint64_t random;
  uint32_t number;
  int wrong;
};

static uint32_t dice(struct worker *w, uint32_t below) {
  w->random = w->random * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(w->random >> 33) % below;
}

static void expect(struct worker *w, int rc) {
  w->wrong |= rc != 0 && rc != GAP_ENOMEM && rc != GAP_EAGAIN && rc != GAP_ELIMIT;
}

static void serve(struct worker *w) {
  int32_t tokens[300];
  uint32_t count = 1 + dice(w, 300), kind = dice(w, 3), hit = 0;
  for (uint32_t i = 0; i < count; i++) tokens[i] = (int32_t)(kind * 1000 + i);
  gap_kv_prompt p = {.size = sizeof p, .tokens = tokens, .count = count};
  gap_kv_seq seq, copy;
  int rc = gap_kv_open(w->kv, &p, &seq, &hit);
  expect(w, rc);
  if (rc) return;
  gap_kv_request r = {.seq = seq, .tokens = count - hit, .ids = tokens + hit};
  expect(w, gap_kv_append(w->kv, &r, 1));
  rc = gap_kv_fork(w->kv, seq, &copy);
  expect(w, rc);
  r = (gap_kv_request){.seq = seq, .tokens = 1 + dice(w, 20)};
  expect(w, gap_kv_step(w->kv, &r, 1));
  if (!rc) w->wrong |= gap_kv_close(w->kv, copy, w->number) != 0;
  if (dice(w, 3) == 0 && gap_kv_swap_out(w->kv, seq) == 0) expect(w, gap_kv_swap_in(w->kv, seq));
  w->wrong |= gap_kv_close(w->kv, seq, 0) != 0;
}

static void bare(struct worker *w) {
  int32_t ids[8];
  int rc = gap_kv_get_pages(w->kv, 8, ids);
  expect(w, rc);
  if (!rc) w->wrong |= gap_kv_free_pages(w->kv, 8, ids) != 0;
}

static void look(struct worker *w) {
  gap_kv_stats s = {.size = sizeof s};
  gap_kv_compaction c = {.size = sizeof c};
  w->wrong |= gap_kv_get_stats(w->kv, &s) != 0;
  if (dice(w, 4) == 0) w->wrong |= gap_kv_compact(w->kv, &c) != 0;
  w->wrong |= gap_kv_flush(w->kv) != 0;
}

static void *work(void *arg) {
  struct worker *w = arg;
  for (int i = 0; i < ROUNDS; i++) {
    serve(w);
    bare(w);
    if (dice(w, 8) == 0) look(w);
  }
  return NULL;
}

static void threads_share_a_cache(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, GIB, NULL);
  gap_kv_options o = kv_try_options(16, 48 * MIB);
  o.heads = 32, o.head_size = 64, o.layout = GAP_KV_BLOCK_MAJOR, o.host_bytes = 16 * MIB, o.copy_stream = 9;
  gap_kv *kv = kv_try_open(heap, &o);
  struct worker w[THREADS];
  pthread_t threads[THREADS];
  for (uint32_t i = 0; i < THREADS; i++) {
    w[i] = (struct worker){.kv = kv, .random = i + 1, .number = i};
    assert_int_equal(pthread_create(&threads[i], NULL, work, &w[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(w[i].wrong, 0);
  }
  kv_try_check(kv);
  for (int i = 0; i < 1000000 && kv_try_free(kv) < kv_try_shape(kv).kv_pages; i++)
    continue; /* every look takes the card some time */
  assert_int_equal(kv_try_free(kv), kv_try_shape(kv).kv_pages);
  gap_kv_destroy(kv);
  api_close(heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(threads_share_a_cache)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
