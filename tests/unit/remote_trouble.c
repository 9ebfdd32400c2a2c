/* The store on servers that are not well: dead, restarted, slow, full, lying, closed to us.  Whatever one of them does, the others serve. */
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "support/remote_try.h"

enum { REQUEST_MS = 3000, COUNT_ITEMS = 200 }; /* the machine may be busy */
#define AT_ONCE_S 2.0                          /* nobody was waited for */
static const char *missing;
static struct redis pair[2];
static char log_lines[16384];

static void keep_line(void *arg, int level, const char *line) {
  (void)arg, (void)level;
  strncat(log_lines, line, sizeof log_lines - strlen(log_lines) - 2);
  strcat(log_lines, "\n");
}

static int find_out(void **state) {
  (void)state;
  missing = redis_missing();
  gap_set_log(keep_line, NULL);
  return 0;
}

static int stop_pair(void **state) {
  (void)state;
  redis_stop(&pair[0]);
  redis_stop(&pair[1]);
  return 0;
}

static void start_pair(void) {
  redis_start(&pair[0], "");
  redis_start(&pair[1], "");
}

static gap_remote_options options_for(const struct redis *servers, int count) {
  gap_remote_options o = GAP_REMOTE_OPTIONS_INIT;
  o.servers = redis_urls(servers, count);
  o.request_ms = REQUEST_MS, o.connect_ms = 2 * REQUEST_MS;
  return o;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Until all can be stored and read again. */
static void comes_back(gap_remote *remote, struct batch *b) {
  double until = seconds() + 30;
  while (put_all(remote, b) < b->count || get_all(remote, b) < b->count) {
    if (seconds() > until) fail_msg("it does not come back");
    usleep(50000);
  }
}

/* ---- dead ---- */

static void one_is_killed_and_restarted(void **state) {
  (void)state;
  if (missing) skip();
  start_pair();
  gap_remote_options o = options_for(pair, 2);
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(COUNT_ITEMS, 3000, 1);
  assert_int_equal(put_all(remote, &b), COUNT_ITEMS);
  redis_kill(&pair[0]);
  uint32_t hits = get_all(remote, &b);
  assert_in_range(hits, 60, 140); /* those of the other: 100 expected */
  double begin = seconds();
  assert_int_equal(get_all(remote, &b), hits); /* nobody waits for the dead one */
  assert_true(seconds() - begin < AT_ONCE_S);
  gap_remote_stats s = stats_of(remote);
  assert_true(s.failures >= 1 && s.unreachable >= COUNT_ITEMS - hits);
  redis_restart(&pair[0]);
  comes_back(remote, &b);
  gap_remote_close(remote);
  free_batch(&b);
}

static void a_replica_stands_in(void **state) {
  (void)state;
  if (missing) skip();
  start_pair();
  gap_remote_options o = options_for(pair, 2);
  o.replicas = 2;
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(COUNT_ITEMS, 3000, 2);
  assert_int_equal(put_all(remote, &b), COUNT_ITEMS);
  redis_kill(&pair[1]);
  assert_int_equal(get_all(remote, &b), COUNT_ITEMS);
  assert_int_equal(put_all(remote, &b), COUNT_ITEMS); /* one will do */
  gap_remote_close(remote);
  free_batch(&b);
}

static void nobody_is_there(void **state) {
  (void)state;
  if (missing) skip();
  struct redis none = {.port = redis_free_port()};
  gap_remote_options o = options_for(&none, 1);
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(10, 100, 3);
  assert_int_equal(put_all(remote, &b), 0);
  assert_int_equal(outcomes(&b, GAP_REMOTE_FAILED), 10);
  assert_int_equal(get_all(remote, &b), 0);
  gap_remote_server server = {.size = sizeof server};
  assert_int_equal(gap_remote_look(remote, 0, PATIENCE_MS, &server), 0);
  assert_true(!server.up && strstr(server.reason, "refused"));
  gap_remote_close(remote);
  free_batch(&b);
}

/* A name that does not resolve is waited for by its own server alone. */
static void a_name_that_nobody_has(void **state) {
  (void)state;
  if (missing) skip();
  char list[200];
  start_pair();
  gap_remote_options o = options_for(pair, 1);
  snprintf(list, sizeof list, "%s,no-such-host.invalid", o.servers);
  o.servers = list;
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(COUNT_ITEMS, 100, 4);
  assert_in_range(put_all(remote, &b), 60, 140);
  assert_in_range(get_all(remote, &b), 60, 140);
  gap_remote_close(remote);
  free_batch(&b);
}

/* ---- slow ---- */

static void one_is_stopped(void **state) {
  (void)state;
  if (missing) skip();
  start_pair();
  gap_remote_options o = options_for(pair, 2);
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(COUNT_ITEMS, 3000, 5);
  assert_int_equal(put_all(remote, &b), COUNT_ITEMS);
  kill(pair[0].process, SIGSTOP);
  double begin = seconds();
  uint32_t hits = get_all(remote, &b);
  assert_in_range(hits, 60, 140);
  assert_true(seconds() - begin < 5 * REQUEST_MS / 1000.0); /* its time-out, not the ticket's */
  assert_true(stats_of(remote).slow >= 1);
  begin = seconds();
  assert_int_equal(get_all(remote, &b), hits);
  assert_true(seconds() - begin < AT_ONCE_S);
  kill(pair[0].process, SIGCONT);
  comes_back(remote, &b);
  gap_remote_close(remote);
  free_batch(&b);
}

/* A store whose only server is stopped, and patient. */
static gap_remote *open_stuck(struct batch *b, uint64_t queue_bytes) {
  redis_start(&pair[0], "");
  gap_remote_options o = options_for(pair, 1);
  o.request_ms = 60000, o.queue_bytes = queue_bytes;
  gap_remote *remote = open_store(&o);
  assert_int_equal(put_all(remote, b), b->count);
  kill(pair[0].process, SIGSTOP);
  return remote;
}

static void what_comes_late_is_a_miss(void **state) {
  (void)state;
  if (missing) skip();
  struct batch b = make_batch(20, 200000, 6);
  gap_remote *remote = open_stuck(&b, 1 << 30);
  assert_int_equal(get_within(remote, &b, 300), 0);
  assert_int_equal(outcomes(&b, GAP_REMOTE_LATE), 20);
  memset(b.got, 0x55, 20 * 200000);
  kill(pair[0].process, SIGCONT); /* the answers come now, and belong to nobody */
  struct batch other = make_batch(5, 1000, 7);
  assert_int_equal(put_all(remote, &other), 5);
  assert_int_equal(get_all(remote, &other), 5);
  for (size_t i = 0; i < 20 * 200000; i++) assert_int_equal(b.got[i], 0x55);
  assert_int_equal(get_all(remote, &b), 20);
  assert_int_equal(stats_of(remote).failures, 0);
  gap_remote_close(remote);
  free_batch(&b);
  free_batch(&other);
}

static void what_is_cancelled_ends(void **state) {
  (void)state;
  if (missing) skip();
  struct batch b = make_batch(20, 200000, 8);
  gap_remote *remote = open_stuck(&b, 1 << 30);
  gap_remote_ticket ticket;
  aim(&b, b.put);
  assert_int_equal(gap_remote_put(remote, b.items, 20, PATIENCE_MS, &ticket), 0);
  assert_int_equal(gap_remote_wait(remote, ticket, 50), GAP_EAGAIN);
  assert_int_equal(gap_remote_cancel(remote, ticket), 0);
  assert_int_equal(gap_remote_wait(remote, ticket, PATIENCE_MS), 0);
  assert_int_equal(outcomes(&b, GAP_REMOTE_CANCELLED), 20);
  memset(b.put, 0, 20 * 200000); /* a put that was cut off leaves nothing that is taken for whole */
  kill(pair[0].process, SIGCONT);
  aim(&b, b.got);
  gap_remote_stats before = stats_of(remote);
  run_batch(remote, &b, gap_remote_get, PATIENCE_MS);
  assert_int_equal(stats_of(remote).corrupt, before.corrupt);
  gap_remote_close(remote);
  free_batch(&b);
}

static void a_full_queue_drops(void **state) {
  (void)state;
  if (missing) skip();
  struct batch b = make_batch(4, 1 << 20, 9), more = make_batch(4, 1 << 20, 10);
  gap_remote *remote = open_stuck(&b, 6 << 20);
  gap_remote_ticket ticket, none;
  aim(&b, b.put), aim(&more, more.put);
  assert_int_equal(gap_remote_put(remote, b.items, 4, PATIENCE_MS, &ticket), 0);
  double begin = seconds();
  assert_int_equal(gap_remote_put(remote, more.items, 4, PATIENCE_MS, &none), GAP_EAGAIN);
  assert_int_equal(gap_remote_put(remote, more.items, 4, PATIENCE_MS, NULL), GAP_EAGAIN);
  assert_true(seconds() - begin < AT_ONCE_S);
  gap_remote_stats s = stats_of(remote);
  assert_int_equal(s.puts_dropped, 8);
  assert_int_equal(s.under_way, 4);
  assert_int_equal(s.under_way_bytes, 4 << 20);
  assert_int_equal(gap_remote_drain(remote, 10), GAP_EAGAIN);
  kill(pair[0].process, SIGCONT);
  assert_int_equal(gap_remote_wait(remote, ticket, PATIENCE_MS), 0);
  assert_int_equal(put_all(remote, &more), 4);
  gap_remote_close(remote);
  free_batch(&b);
  free_batch(&more);
}

static void closing_does_not_wait(void **state) {
  (void)state;
  if (missing) skip();
  struct batch b = make_batch(50, 200000, 11), copied = make_batch(5, 1000, 12);
  gap_remote *remote = open_stuck(&b, 1 << 30);
  gap_remote_ticket put, get;
  struct batch other = make_batch(50, 200000, 11);
  aim(&b, b.put), aim(&other, other.got), aim(&copied, copied.put);
  assert_int_equal(gap_remote_put(remote, b.items, 50, PATIENCE_MS, &put), 0);
  assert_int_equal(gap_remote_get(remote, other.items, 50, PATIENCE_MS, &get), 0);
  assert_int_equal(gap_remote_put(remote, copied.items, 5, PATIENCE_MS, NULL), 0);
  double begin = seconds();
  gap_remote_close(remote);
  assert_true(seconds() - begin < 5);
  assert_int_equal(outcomes(&b, GAP_REMOTE_CANCELLED), 50);
  assert_int_equal(outcomes(&other, GAP_REMOTE_CANCELLED), 50);
  free_batch(&b);
  free_batch(&other);
  free_batch(&copied);
}

/* ---- full ---- */

static void one_is_full(void **state) {
  (void)state;
  if (missing) skip();
  redis_start(&pair[0], "--maxmemory 5mb --maxmemory-policy noeviction");
  redis_start(&pair[1], "");
  gap_remote_options o = options_for(pair, 2);
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(COUNT_ITEMS, 100000, 13);
  uint32_t stored = put_all(remote, &b);
  assert_in_range(stored, 70, 180);
  assert_int_equal(outcomes(&b, GAP_REMOTE_FAILED), COUNT_ITEMS - stored);
  assert_int_equal(get_all(remote, &b), stored);
  gap_remote_stats s = stats_of(remote);
  assert_true(s.refused_full >= COUNT_ITEMS - stored);
  assert_int_equal(s.failures, 0);
  redis_cli(&pair[0], "config set maxmemory 0");
  comes_back(remote, &b);
  gap_remote_close(remote);
  free_batch(&b);
}

/* ---- lying ---- */

static long most_memory_mib(void) {
  struct rusage use;
  getrusage(RUSAGE_SELF, &use);
  return use.ru_maxrss / 1024;
}

static void lie_of(const char *mode, bool is_corrupt) {
  redis_start(&pair[0], "");
  redis_start_fake(&pair[1], GAP_TEST_SUPPORT "/lying_server.py", mode);
  gap_remote_options o = options_for(pair, 2);
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(40, 3000, 14);
  long before = most_memory_mib();
  assert_int_equal(put_all(remote, &b), 40);
  double begin = seconds();
  uint32_t hits = get_all(remote, &b);
  if (hits < 8 || hits > 32) fail_msg("%s: %u of 40 are hits", mode, hits);
  if (seconds() - begin > 15) fail_msg("%s: %.1f s", mode, seconds() - begin);
  gap_remote_stats s = stats_of(remote);
  if (is_corrupt && s.corrupt != 40 - hits) fail_msg("%s: %u corrupt", mode, (unsigned)s.corrupt);
  if (!is_corrupt && s.failures + s.refused + s.corrupt == 0) fail_msg("%s: is believed", mode);
  if (most_memory_mib() > before + 100) fail_msg("%s: takes %ld MiB", mode, most_memory_mib() - before);
  uint32_t again = get_all(remote, &b);
  if (again > hits || again < 8) fail_msg("%s: %u hits, then %u", mode, hits, again);
  gap_remote_close(remote);
  free_batch(&b);
  stop_pair(NULL);
}

static void values_that_are_not_what_was_put(void **state) {
  (void)state;
  if (missing) skip();
  static const char *const modes[] = {"bytes", "swap", "cut"};
  for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) lie_of(modes[i], true);
}

static void answers_that_are_none(void **state) {
  (void)state;
  if (missing) skip();
  static const char *const modes[] = {"type",    "array",   "nest",  "length", "negative",
                                      "endless", "garbage", "close", "error",  "twice"};
  for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) lie_of(modes[i], false);
}

static void answers_that_do_not_come(void **state) {
  (void)state;
  if (missing) skip();
  lie_of("drip", false);
  lie_of("mute", false);
}

/* ---- closed to us ---- */

static void reason_of(const char *url, const char *file, gap_remote_server *out) {
  gap_remote_options o = GAP_REMOTE_OPTIONS_INIT;
  o.servers = url, o.password_file = file, o.connect_ms = 5000;
  gap_remote *remote = open_store(&o);
  *out = (gap_remote_server){.size = sizeof *out};
  assert_int_equal(gap_remote_look(remote, 0, PATIENCE_MS, out), 0);
  gap_remote_close(remote);
}

static void passwords_open_and_close(void **state) {
  (void)state;
  if (missing) skip();
  char url[200];
  gap_remote_server server;
  log_lines[0] = '\0';
  redis_start(&pair[0], "--requirepass right-secret");
  snprintf(url, sizeof url, "redis://127.0.0.1:%d", pair[0].port);
  unsetenv("GAPLESS_REMOTE_PASSWORD");
  reason_of(url, NULL, &server);
  assert_true(!server.up && strstr(server.reason, "wants a password"));
  setenv("GAPLESS_REMOTE_PASSWORD", "wrong-secret", 1);
  reason_of(url, NULL, &server);
  assert_true(!server.up && strstr(server.reason, "does not take the user or the password"));
  setenv("GAPLESS_REMOTE_PASSWORD", "right-secret", 1);
  reason_of(url, NULL, &server);
  assert_int_equal(server.up, 1);
  unsetenv("GAPLESS_REMOTE_PASSWORD");
  snprintf(url, sizeof url, "redis://default:right-secret@127.0.0.1:%d", pair[0].port);
  reason_of(url, NULL, &server);
  assert_int_equal(server.up, 1);
  assert_null(strstr(server.name, "secret"));
  assert_true(log_lines[0] && !strstr(log_lines, "secret"));
}

/* A server may repeat what it was sent, password included. */
static void an_error_that_repeats_the_password(void **state) {
  (void)state;
  if (missing) skip();
  char url[200];
  gap_remote_server server;
  log_lines[0] = '\0';
  redis_start_fake(&pair[0], GAP_TEST_SUPPORT "/lying_server.py", "error");
  snprintf(url, sizeof url, "redis://:own-secret@127.0.0.1:%d", pair[0].port);
  reason_of(url, NULL, &server);
  assert_true(!server.up && server.reason[0]);
  assert_null(strstr(server.reason, "secret"));
  assert_true(log_lines[0] && !strstr(log_lines, "secret"));
}

static void a_server_that_wants_no_more_clients(void **state) {
  (void)state;
  if (missing) skip();
  char url[200];
  gap_remote_server server;
  redis_start(&pair[0], "--maxclients 1");
  snprintf(url, sizeof url, "redis://127.0.0.1:%d", pair[0].port);
  gap_remote_options o = options_for(pair, 1);
  gap_remote *first = open_store(&o);
  server = (gap_remote_server){.size = sizeof server};
  struct batch b = make_batch(1, 10, 15);
  comes_back(first, &b); /* the one that looked whether it listens may not have gone yet */
  free_batch(&b);
  reason_of(url, NULL, &server);
  assert_true(!server.up && server.reason[0]);
  gap_remote_close(first);
}

int main(void) {
#define TEST(name) cmocka_unit_test_teardown(name, stop_pair)
  const struct CMUnitTest tests[] = {
      TEST(one_is_killed_and_restarted),
      TEST(a_replica_stands_in),
      TEST(nobody_is_there),
      TEST(a_name_that_nobody_has),
      TEST(one_is_stopped),
      TEST(what_comes_late_is_a_miss),
      TEST(what_is_cancelled_ends),
      TEST(a_full_queue_drops),
      TEST(closing_does_not_wait),
      TEST(one_is_full),
      TEST(values_that_are_not_what_was_put),
      TEST(answers_that_are_none),
      TEST(answers_that_do_not_come),
      TEST(passwords_open_and_close),
      TEST(an_error_that_repeats_the_password),
      TEST(a_server_that_wants_no_more_clients),
  };
  int failed = cmocka_run_group_tests(tests, find_out, NULL);
  if (missing) printf("skipped: %s\n", missing);
  return missing ? 77 : failed;
}
