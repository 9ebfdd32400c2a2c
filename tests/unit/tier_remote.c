/* Sleeping memory on servers: by flag, and where host memory and the disk have no room; what servers lose, and what is left of it there. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/redis_try.h"
#include "support/tier_try.h"

#define CARD (192 * MIB)
#define QUIET "page_maker:False,reserve:0"
static struct redis servers[2];
static const char *missing;

static int start(void **state) {
  (void)state;
  redis_start_all(servers, 2, &missing);
  return 0;
}

static int stop(void **state) {
  (void)state;
  redis_stop_all(servers, 2);
  return 0;
}

static const char *tiers_with(const char *places, int count) {
  static char text[500];
  snprintf(text, sizeof text, "[%sremote=%s]", places, redis_urls(servers, count));
  return text;
}

static long long bytes_on(int server) {
  const char *info = strstr(redis_cli(&servers[server], "info memory"), "used_memory:");
  assert_non_null(info);
  return strtoll(info + strlen("used_memory:"), NULL, 10);
}

struct weights {
  struct tier_try s;
  gap_addr at;
  uint64_t bytes;
};

static struct weights load(const char *tiers, uint64_t bytes) {
  struct weights w = {.s = tier_try_open(CARD, QUIET, tiers), .bytes = bytes};
  gap_pool_id pool = tier_try_pool(&w.s, GAP_POOL_SHARED, "weights");
  w.at = try_get_pool(&w.s.t, 0, pool, bytes);
  tier_try_fill(w.at, bytes, 7);
  return w;
}

static void unload(struct weights *w) {
  try_give(&w->s.t, w->at);
  tier_try_close(&w->s);
}

static void by_flag(void **state) {
  (void)state;
  if (missing) skip();
  long long before = bytes_on(0) + bytes_on(1);
  struct weights w = load(tiers_with("host=100M,", 2), 50 * MIB);
  for (int round = 0; round < 3; round++) {
    assert_int_equal(tier_try_sleep(&w.s, "weights", GAP_SLEEP_REMOTE), 0);
    assert_int_equal(tier_try_figures(&w.s).asleep_bytes, 50 * MIB);
    assert_int_equal(tier_try_figures(&w.s).host_used_bytes, 0);
    assert_true(bytes_on(0) > (long long)(5 * MIB) && bytes_on(1) > (long long)(5 * MIB));
    assert_int_equal(tier_try_wake(&w.s, "weights", 0), 0);
    assert_true(tier_try_filled(w.at, w.bytes, 7));
  }
  unload(&w);
  assert_true(bytes_on(0) + bytes_on(1) < before + (long long)(2 * MIB)); /* nothing but names is left there */
}

/* Host memory first, then the disk, then servers. */
static void where_all_else_is_full(void **state) {
  (void)state;
  if (missing) skip();
  char folder[] = "/tmp/gapless-far-XXXXXX", places[100];
  assert_non_null(mkdtemp(folder));
  snprintf(places, sizeof places, "host=44M,disk=%s:10M,", folder);
  struct weights w = load(tiers_with(places, 1), 60 * MIB);
  assert_int_equal(tier_try_sleep(&w.s, "weights", 0), 0);
  gap_tiers now = tier_try_figures(&w.s);
  assert_int_equal(now.disk_used_bytes, 10 * MIB);
  assert_int_equal(now.host_used_bytes, 12 * MIB); /* without the buffers */
  assert_true(bytes_on(0) > (long long)(38 * MIB));
  assert_int_equal(tier_try_wake(&w.s, "weights", 0), 0);
  assert_true(tier_try_filled(w.at, w.bytes, 7));
  unload(&w);
  assert_int_equal(rmdir(folder), 0);
}

/* Nobody takes it: it stays awake, as it was. */
static void no_server(void **state) {
  (void)state;
  if (missing) skip();
  char tiers[100];
  snprintf(tiers, sizeof tiers, "[remote=redis://127.0.0.1:%d]", redis_free_port());
  struct weights w = load(tiers, 20 * MIB);
  assert_int_equal(tier_try_sleep(&w.s, "weights", GAP_SLEEP_REMOTE), GAP_EIO);
  assert_true(tier_try_said(&w.s, "no server took them"));
  assert_int_equal(tier_try_figures(&w.s).asleep_bytes, 0);
  assert_true(tier_try_filled(w.at, w.bytes, 7));
  assert_int_equal(tier_try_sleep(&w.s, "weights", 0), 0); /* to host memory */
  assert_int_equal(tier_try_wake(&w.s, "weights", 0), 0);
  assert_true(tier_try_filled(w.at, w.bytes, 7));
  unload(&w);
}

static void a_full_server(void **state) {
  (void)state;
  if (missing) skip();
  char tiers[100];
  struct redis full = {0};
  redis_start(&full, "--maxmemory 12mb --maxmemory-policy noeviction");
  snprintf(tiers, sizeof tiers, "[remote=redis://127.0.0.1:%d]", full.port);
  struct weights w = load(tiers, 40 * MIB);
  assert_int_equal(tier_try_sleep(&w.s, "weights", GAP_SLEEP_REMOTE), GAP_EIO);
  assert_int_equal(tier_try_figures(&w.s).asleep_bytes, 0);
  assert_true(tier_try_filled(w.at, w.bytes, 7));
  unload(&w);
  redis_stop(&full);
}

/* It is noticed, and nothing half wakes; the program that can load its weights anew goes on. */
static void what_servers_lose_or_damage(void **state) {
  (void)state;
  if (missing) skip();
  static const char *const harm[] = {
      "flushall", "eval \"for _,k in ipairs(redis.call('keys','*')) do redis.call('setrange',k,5000,'damage') end\" 0"};
  for (int i = 0; i < 2; i++) {
    struct weights w = load(tiers_with("", 1), 30 * MIB);
    assert_int_equal(tier_try_sleep(&w.s, "weights", GAP_SLEEP_REMOTE), 0);
    redis_cli(&servers[0], harm[i]);
    assert_int_equal(tier_try_wake(&w.s, "weights", 0), GAP_EIO);
    assert_true(tier_try_said(&w.s, "no server has them any more"));
    assert_int_equal(tier_try_figures(&w.s).asleep_bytes, 30 * MIB);
    assert_int_equal(tier_try_wake(&w.s, "weights", GAP_WAKE_DROP), 0);
    assert_int_equal(tier_try_figures(&w.s).asleep_bytes, 0);
    tier_try_fill(w.at, w.bytes, 8);
    assert_int_equal(tier_try_sleep(&w.s, "weights", GAP_SLEEP_REMOTE), 0);
    assert_int_equal(tier_try_wake(&w.s, "weights", 0), 0);
    assert_true(tier_try_filled(w.at, w.bytes, 8));
    unload(&w);
  }
}

static void kept_and_unchanged(void **state) {
  (void)state;
  if (missing) skip();
  struct weights w = load(tiers_with("", 2), 30 * MIB);
  assert_int_equal(tier_try_sleep(&w.s, "weights", GAP_SLEEP_REMOTE), 0);
  assert_int_equal(tier_try_wake(&w.s, "weights", GAP_WAKE_KEEP), 0);
  uint64_t saved = tier_try_figures(&w.s).saved_bytes;
  assert_int_equal(tier_try_sleep(&w.s, "weights", GAP_SLEEP_UNCHANGED), 0);
  assert_int_equal(tier_try_figures(&w.s).saved_bytes, saved);
  assert_int_equal(tier_try_wake(&w.s, "weights", 0), 0);
  assert_true(tier_try_filled(w.at, w.bytes, 7));
  unload(&w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(by_flag),
      cmocka_unit_test(where_all_else_is_full),
      cmocka_unit_test(no_server),
      cmocka_unit_test(a_full_server),
      cmocka_unit_test(kept_and_unchanged),
      cmocka_unit_test(what_servers_lose_or_damage),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
