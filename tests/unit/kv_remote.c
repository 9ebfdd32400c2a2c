/* KV pages on servers: a second cache starts warm; servers that are dead, slow, full, that lie; names by model, shape and tenant. */
#include <signal.h>

#include "support/kv_below_try.h"
#include "support/redis_try.h"

enum { SERVERS = 3 };
static struct redis servers[SERVERS];
static const char *missing;

static int start(void **state) {
  (void)state;
  redis_start_all(servers, SERVERS, &missing);
  return 0;
}

static int stop(void **state) {
  (void)state;
  redis_stop_all(servers, SERVERS);
  return 0;
}

static const char *tiers_of(int count) {
  static char text[1000];
  snprintf(text, sizeof text, "tiers:[remote=%s]", redis_urls(servers, count));
  return text;
}

static struct below_try open_at(int count, uint32_t pages, const char *model) {
  gap_kv_options shape = below_shape(pages);
  gap_kv_tiers_options o = below_options(model);
  return below_open(tiers_of(count), &shape, &o);
}

static void a_second_cache_starts_warm(void **state) {
  (void)state;
  if (missing) skip();
  redis_empty_all(servers, SERVERS);
  struct below_try a = open_at(SERVERS, 100, "m"), b = open_at(SERVERS, 100, "m");
  assert_int_equal(below_fetch(&a, 1, 500), 0);
  assert_int_equal(below_serve(&a, 1, 500), 0);
  below_drain(&a);
  assert_int_equal(below_stats(&a).remote_stored, 31);
  assert_int_equal(below_stats(&a).put_failed + below_stats(&a).not_stored, 0);
  assert_int_equal(below_fetch(&b, 1, 500), 496);
  assert_int_equal(below_serve(&b, 1, 500), 496); /* kv_try_begin compares every byte */
  assert_int_equal(below_stats(&b).remote_fetched, 31);
  below_drain(&b);
  assert_int_equal(below_stats(&b).remote_stored, 0); /* they are there */
  assert_int_equal(below_fetch(&b, 1, 500), 496);
  assert_int_equal(below_stats(&b).remote_fetched, 31);
  assert_int_equal(below_stats(&b).tokens_fetched, 496);
  below_close(&a);
  below_close(&b);
}

static void others_share_nothing(void **state) {
  (void)state;
  if (missing) skip();
  redis_empty_all(servers, SERVERS);
  struct below_try a = open_at(1, 60, "m"), b = open_at(1, 60, "another");
  gap_kv_options shape = below_shape(60);
  gap_kv_tiers_options o = below_options("m");
  shape.heads = 16;
  struct below_try c = below_open(tiers_of(1), &shape, &o);
  below_serve(&a, 1, 100);
  below_drain(&a);
  assert_int_equal(below_fetch(&b, 1, 100), 0);
  assert_int_equal(below_fetch(&c, 1, 100), 0);
  assert_int_equal(below_fetch_as(&a, 2, 1, 100), 0);
  assert_int_equal(below_stats(&b).missed, 6);
  below_close(&a);
  below_close(&b);
  below_close(&c);
}

/* The device has less than the prompts together; what was evicted comes from the servers. */
static void more_than_the_device(void **state) {
  (void)state;
  if (missing) skip();
  redis_empty_all(servers, SERVERS);
  struct below_try a = open_at(2, 41, "m");
  for (int kind = 0; kind < 6; kind++) {
    assert_int_equal(below_serve(&a, kind, 200), 0);
    below_drain(&a);
  }
  assert_true(kv_try_stats(a.kv).evicted > 0);
  for (int kind = 0; kind < 6; kind++) {
    assert_int_equal(below_fetch(&a, kind, 200), 192);
    assert_true(below_serve(&a, kind, 200) >= 192);
  }
  below_close(&a);
}

/* A server that is gone takes its keys with it; the chain ends at the first of them. */
static void one_is_killed_and_restarted(void **state) {
  (void)state;
  if (missing) skip();
  redis_empty_all(servers, SERVERS);
  struct below_try a = open_at(2, 100, "m"), b = open_at(2, 100, "m");
  below_serve(&a, 1, 800);
  below_drain(&a);
  redis_kill(&servers[1]);
  uint32_t there = below_fetch(&b, 1, 800);
  assert_true(there < 800);
  assert_int_equal(below_serve(&b, 1, 800), there);
  gap_remote_stats s = {.size = sizeof s};
  assert_int_equal(gap_remote_get_stats(gap_kv_get_remote(b.kv), &s), 0);
  assert_true(s.unreachable + s.broken > 0);
  redis_restart(&servers[1]);
  below_close(&b);
  b = open_at(2, 100, "m");
  below_serve(&b, 2, 800);
  below_drain(&b);
  struct below_try c = open_at(2, 100, "m");
  assert_int_equal(below_fetch(&c, 2, 800), 800);
  assert_int_equal(below_serve(&c, 2, 800), 800);
  below_close(&a);
  below_close(&b);
  below_close(&c);
}

static void no_server_at_all(void **state) {
  (void)state;
  if (missing) skip();
  char tiers[100];
  gap_kv_options shape = below_shape(60);
  gap_kv_tiers_options o = below_options("m");
  o.fetch_ms = 300;
  snprintf(tiers, sizeof tiers, "tiers:[remote=redis://127.0.0.1:%d]", redis_free_port());
  struct below_try a = below_open(tiers, &shape, &o);
  assert_int_equal(below_fetch(&a, 1, 100), 0);
  assert_int_equal(below_serve(&a, 1, 100), 0);
  assert_int_equal(below_serve(&a, 1, 100), 100);
  below_drain(&a);
  assert_int_equal(below_stats(&a).put_failed, 6);
  assert_int_equal(below_stats(&a).missed, 6);
  below_close(&a);
}

/* It says that it has them, and is silent when they are asked for. */
static void a_slow_one(void **state) {
  (void)state;
  if (missing) skip();
  redis_empty_all(servers, SERVERS);
  struct below_try a = open_at(1, 100, "m");
  gap_kv_options shape = below_shape(100);
  gap_kv_tiers_options o = below_options("m");
  o.fetch_ms = 300;
  struct below_try b = below_open(tiers_of(1), &shape, &o);
  below_serve(&a, 1, 500);
  below_drain(&a);
  kill(servers[0].process, SIGSTOP);
  assert_int_equal(below_fetch(&b, 1, 500), 0);
  assert_int_equal(below_serve(&b, 1, 500), 0);
  kill(servers[0].process, SIGCONT);
  below_close(&a);
  below_close(&b);
}

static void a_full_one(void **state) {
  (void)state;
  if (missing) skip();
  struct redis full = {0};
  char tiers[100];
  gap_kv_options shape = below_shape(100);
  gap_kv_tiers_options o = below_options("m");
  redis_start(&full, "--maxmemory 12mb --maxmemory-policy noeviction");
  snprintf(tiers, sizeof tiers, "tiers:[remote=redis://127.0.0.1:%d]", full.port);
  struct below_try a = below_open(tiers, &shape, &o), b = below_open(tiers, &shape, &o);
  below_serve(&a, 1, 800);
  below_drain(&a);
  gap_kv_tier_stats s = below_stats(&a);
  assert_int_equal(s.remote_stored + s.put_failed, 50);
  assert_true(s.put_failed > 0);
  uint32_t there = below_fetch(&b, 1, 800);
  assert_int_equal(below_serve(&b, 1, 800), there);
  below_close(&a);
  below_close(&b);
  redis_stop(&full);
}

/* What a server has is not what was put: each of its values is damaged. */
static void damaged_values(void **state) {
  (void)state;
  if (missing) skip();
  redis_empty_all(servers, SERVERS);
  struct below_try a = open_at(1, 60, "m"), b = open_at(1, 60, "m");
  below_serve(&a, 1, 100);
  below_drain(&a);
  redis_cli(&servers[0],
            "eval \"for _,k in ipairs(redis.call('keys','*')) do redis.call('setrange',k,300,'damage') end\" 0");
  assert_int_equal(below_fetch(&b, 1, 100), 0);
  assert_int_equal(below_serve(&b, 1, 100), 0);
  gap_remote_stats s = {.size = sizeof s};
  assert_int_equal(gap_remote_get_stats(gap_kv_get_remote(b.kv), &s), 0);
  assert_true(s.corrupt > 0 && below_stats(&b).lost > 0);
  below_close(&a);
  below_close(&b);
}

/* Tickets under way when the cache ends, and cargoes. */
static void closed_in_the_middle(void **state) {
  (void)state;
  if (missing) skip();
  struct below_try a = open_at(1, 100, "m"), b = open_at(1, 100, "m");
  below_serve(&a, 3, 1000);
  gap_kv_prompt p = {.size = sizeof p, .tenant = 1, .tokens = below_text(3), .count = 1000};
  gap_kv_ticket ticket;
  for (int i = 0; i < 5; i++) assert_int_equal(gap_kv_fetch(b.kv, &p, &ticket), 0);
  below_close(&a);
  below_close(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_second_cache_starts_warm),
      cmocka_unit_test(others_share_nothing),
      cmocka_unit_test(more_than_the_device),
      cmocka_unit_test(one_is_killed_and_restarted),
      cmocka_unit_test(no_server_at_all),
      cmocka_unit_test(a_slow_one),
      cmocka_unit_test(a_full_one),
      cmocka_unit_test(damaged_values),
      cmocka_unit_test(closed_in_the_middle),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
