/* Items of several threads, made up: put, brought back in part and in whole, dropped while they are under way, in host memory and on the disk, while
 * a pool falls asleep to the same disk and wakes.  Each thread knows what its bytes are.  GAP_SOAK_SECONDS makes it long. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "support/tier_try.h"

enum { THREADS = 3, ITEMS = 5, ROUNDS = 60, SLEEPS = 12 };
static const uint64_t block_bytes = 6 * MIB;

struct held {
  gap_item item; /* 0: none */
  uint64_t bytes, seed;
};

struct worker {
  struct tier_try *s;
  gap_addr from, to;
  gap_stream stream;
  uint64_t random;
  time_t until;
  struct held held[ITEMS];
  uint64_t seeds;
  unsigned wrong, served;
};

static uint64_t draw(struct worker *w, uint64_t below) { return try_random(&w->random, below); }

static void put(struct worker *w, struct held *h) {
  static const unsigned flags[] = {0, 0, GAP_PUT_HOST, GAP_PUT_DISK};
  *h = (struct held){.bytes = 8 * (1 + draw(w, block_bytes / 8)), .seed = w->seeds += 1000003};
  tier_try_fill(w->from, h->bytes, h->seed);
  int rc = gap__tier_put(w->s->tier, 0, &(gap_span){w->from, h->bytes}, 1, w->stream, flags[draw(w, 4)], &h->item);
  if (rc) h->item = 0;
  w->wrong += rc && rc != GAP_ELIMIT;
  if (rc) return;
  w->wrong += gap__tier_wait(w->s->tier, 0, h->item) != 0; /* our bytes are written anew by the next one */
  w->served++;
}

static void get(struct worker *w, const struct held *h) {
  uint64_t from = 8 * draw(w, h->bytes / 8), bytes = 8 * (1 + draw(w, (h->bytes - from) / 8));
  if (gap__tier_get(w->s->tier, 0, h->item, from, &(gap_span){w->to, bytes}, 1, w->stream)) w->wrong++;
  w->wrong += gap__tier_join(w->s->tier, 0, h->item, w->stream) != 0;
  w->wrong += gap__tier_wait(w->s->tier, 0, h->item) != 0;
  w->wrong += !tier_try_filled(w->to, bytes, h->seed + from / 8);
  w->served++;
}

/* Some are on their way back still. */
static void drop(struct worker *w, struct held *h) {
  if (draw(w, 2)) (void)gap__tier_get(w->s->tier, 0, h->item, 0, &(gap_span){w->to, h->bytes}, 1, w->stream);
  w->wrong += gap__tier_join(w->s->tier, 0, h->item, w->stream) != 0;
  w->wrong += gap__tier_drop(w->s->tier, 0, h->item) != 0;
  h->item = 0;
}

static void *work(void *arg) {
  struct worker *w = arg;
  for (unsigned i = 0; i < ROUNDS || time(NULL) < w->until; i++) {
    struct held *h = &w->held[draw(w, ITEMS)];
    if (!h->item) put(w, h);
    else if (draw(w, 3)) get(w, h);
    else drop(w, h);
  }
  for (unsigned i = 0; i < ITEMS; i++)
    if (w->held[i].item) drop(w, &w->held[i]);
  return NULL;
}

static void sleep_and_wake(struct tier_try *s, gap_addr block, unsigned i) {
  uint64_t freed;
  int rc = gap__tier_sleep(s->tier, 0, "weights", i % 2 ? GAP_SLEEP_DISK : 0, &freed);
  if (rc && rc != GAP_ELIMIT) fail_msg("sleep: %d", rc);
  while ((rc = gap__tier_wake(s->tier, 0, "weights", 0)) == GAP_ELIMIT) usleep(1000); /* items have the buffers' room */
  assert_int_equal(rc, 0);
  assert_true(tier_try_filled(block, 20 * MIB, 99));
}

static void play(struct tier_try *s, time_t until) {
  struct worker *workers = calloc(THREADS, sizeof *workers);
  gap_addr block = try_get_pool(&s->t, STREAM_A, tier_try_pool(s, GAP_POOL_SHARED, "weights"), 20 * MIB);
  pthread_t ids[THREADS];
  unsigned served = 0;
  tier_try_fill(block, 20 * MIB, 99);
  for (unsigned i = 0; i < THREADS; i++)
    workers[i] = (struct worker){.s = s,
                                 .from = try_get(&s->t, STREAM_A, block_bytes),
                                 .to = try_get(&s->t, STREAM_A, block_bytes),
                                 .stream = 4096 + 64 * i,
                                 .random = i + 1,
                                 .seeds = (uint64_t)i << 40,
                                 .until = until};
  for (unsigned i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
  for (unsigned i = 0; i < SLEEPS || time(NULL) < until; i++) sleep_and_wake(s, block, i);
  for (unsigned i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
  for (unsigned i = 0; i < THREADS; i++) {
    assert_int_equal(workers[i].wrong, 0);
    served += workers[i].served;
    try_give(&s->t, workers[i].from);
    try_give(&s->t, workers[i].to);
  }
  assert_true(served > THREADS * ROUNDS / 3);
  try_give(&s->t, block);
  free(workers);
}

static void nothing_used(struct tier_try *s) {
  gap_tiers now = tier_try_figures(s);
  for (int i = 0; i < 5000 && (now.host_used_bytes || now.disk_used_bytes); i++) {
    usleep(1000);
    now = tier_try_figures(s);
  }
  assert_true(now.host_used_bytes == 0 && now.disk_used_bytes == 0);
  assert_int_equal(gap__host_faults(s->t.dev), 0);
}

static void beside_sleep(void **state) {
  (void)state;
  const char *seconds = getenv("GAP_SOAK_SECONDS");
  char folder[] = "/tmp/gapless-items-XXXXXX", tiers[80];
  assert_non_null(mkdtemp(folder));
  snprintf(tiers, sizeof tiers, "host=96M,disk=%s:200M", folder);
  struct tier_try s = tier_try_open(256 * MIB, "page_maker:False,reserve:0", tiers);
  play(&s, seconds ? time(NULL) + atoi(seconds) : 0);
  nothing_used(&s);
  tier_try_close(&s);
  assert_int_equal(rmdir(folder), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(beside_sleep)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
