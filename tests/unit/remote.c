/* The store on servers that are well: values of all lengths, batches, several servers, replicas, times to live, tickets, limits, threads. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/remote_try.h"

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

static gap_remote_options options_for(int count) {
  gap_remote_options o = GAP_REMOTE_OPTIONS_INIT;
  o.servers = redis_urls(servers, count);
  o.request_ms = 5000, o.connect_ms = 10000; /* the machine may be busy */
  return o;
}

static long keys_of(int server) { return strtol(redis_cli(&servers[server], "dbsize"), NULL, 10); }

/* ---- values ---- */

static void values_of_all_lengths(void **state) {
  (void)state;
  if (missing) skip();
  static const uint64_t lengths[] = {0, 1, 31, 4096, 16384, 16385, 100000, 1 << 20, 5000001};
  gap_remote_options o = options_for(1);
  o.piece_bytes = 16384;
  gap_remote *remote = open_store(&o);
  for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
    struct batch b = make_batch(2, lengths[i], i + 1);
    assert_int_equal(get_all(remote, &b), 0);
    assert_int_equal(outcomes(&b, GAP_REMOTE_MISS), 2);
    assert_int_equal(put_all(remote, &b), 2);
    assert_int_equal(get_all(remote, &b), 2);
    free_batch(&b);
  }
  gap_remote_stats s = stats_of(remote);
  assert_int_equal(s.puts_done, s.puts);
  assert_int_equal(s.hits + s.misses, s.gets);
  assert_int_equal(s.corrupt + s.failures + s.late + s.under_way, 0);
  assert_int_equal(s.bytes_put, s.bytes_got);
  gap_remote_close(remote);
}

/* Who reads need not know how the other cut. */
static void pieces_of_another_length(void **state) {
  (void)state;
  if (missing) skip();
  gap_remote_options o = options_for(1);
  struct batch b = make_batch(1, 300001, 50);
  o.piece_bytes = GAP_REMOTE_PIECE_BYTES_MIN;
  gap_remote *one = open_store(&o);
  o.piece_bytes = GAP_REMOTE_PIECE_BYTES_MAX;
  gap_remote *two = open_store(&o);
  assert_int_equal(put_all(one, &b), 1);
  assert_int_equal(get_all(two, &b), 1);
  gap_remote_close(one);
  gap_remote_close(two);
  free_batch(&b);
}

static void a_value_that_is_larger_than_its_room(void **state) {
  (void)state;
  if (missing) skip();
  gap_remote_options o = options_for(1);
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(1, 10000, 60);
  assert_int_equal(put_all(remote, &b), 1);
  aim(&b, b.got);
  b.items[0].bytes = 9999;
  assert_int_equal(run_batch(remote, &b, gap_remote_get, PATIENCE_MS), 0);
  assert_int_equal(stats_of(remote).too_large, 1);
  gap_remote_close(remote);
  free_batch(&b);
}

/* Pieces of two values under one key never make one. */
static void pieces_of_two_values(void **state) {
  (void)state;
  if (missing) skip();
  char line[256];
  gap_remote_options o = options_for(1);
  o.piece_bytes = 4096;
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(1, 3 * 4096, 70);
  assert_int_equal(put_all(remote, &b), 1);
  snprintf(line, sizeof line,
           "eval \"for _,k in ipairs(redis.call('keys','gapless:1:*%s:00000002')) do "
           "redis.call('rename',k,'kept') end return 1\" 0",
           b.keys[0]);
  redis_cli(&servers[0], line);
  b.put[3 * 4096 - 1] ^= 1; /* the last piece, which is written first */
  assert_int_equal(put_all(remote, &b), 1);
  snprintf(line, sizeof line,
           "eval \"for _,k in ipairs(redis.call('keys','gapless:1:*%s:00000002')) do "
           "redis.call('rename','kept',k) end return 1\" 0",
           b.keys[0]);
  redis_cli(&servers[0], line);
  assert_int_equal(get_all(remote, &b), 0);
  assert_int_equal(stats_of(remote).corrupt, 1);
  gap_remote_close(remote);
  free_batch(&b);
}

static void a_piece_that_was_evicted(void **state) {
  (void)state;
  if (missing) skip();
  char line[256];
  gap_remote_options o = options_for(1);
  o.piece_bytes = 4096;
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(1, 9 * 4096, 80);
  assert_int_equal(put_all(remote, &b), 1);
  snprintf(line, sizeof line,
           "eval \"for _,k in ipairs(redis.call('keys','gapless:1:*%s:00000004')) do "
           "redis.call('del',k) end return 1\" 0",
           b.keys[0]);
  redis_cli(&servers[0], line);
  assert_int_equal(get_all(remote, &b), 0);
  assert_int_equal(stats_of(remote).absent, 1);
  gap_remote_close(remote);
  free_batch(&b);
}

static void tags_see_their_own(void **state) {
  (void)state;
  if (missing) skip();
  gap_remote_options o = options_for(2);
  o.tag = "llama/8B/bf16";
  gap_remote *one = open_store(&o);
  o.tag = "llama/8B/fp8";
  gap_remote *two = open_store(&o);
  struct batch b = make_batch(20, 100, 90);
  assert_int_equal(put_all(one, &b), 20);
  assert_int_equal(get_all(two, &b), 0);
  assert_int_equal(get_all(one, &b), 20);
  gap_remote_close(one);
  gap_remote_close(two);
  free_batch(&b);
}

/* ---- batches and servers ---- */

static void a_second_process_starts_warm(void **state) {
  (void)state;
  if (missing) skip();
  redis_empty_all(servers, SERVERS);
  gap_remote_options o = options_for(SERVERS);
  struct batch b = make_batch(600, 2000, 100);
  gap_remote *first = open_store(&o);
  assert_int_equal(put_all(first, &b), 600);
  gap_remote_close(first);
  for (int i = 0; i < SERVERS; i++) assert_in_range(keys_of(i), 100, 300); /* 200 expected */
  o.servers = redis_urls(servers, SERVERS);
  gap_remote *second = open_store(&o);
  assert_int_equal(run_batch(second, &b, gap_remote_contains, PATIENCE_MS), 600);
  assert_int_equal(get_all(second, &b), 600);
  gap_remote_close(second);
  free_batch(&b);
}

static void how_long_a_prefix_is_there(void **state) {
  (void)state;
  if (missing) skip();
  gap_remote_options o = options_for(SERVERS);
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(100, 64, 110);
  b.count = 37;
  assert_int_equal(put_all(remote, &b), 37);
  b.count = 100;
  assert_int_equal(run_batch(remote, &b, gap_remote_contains, PATIENCE_MS), 37);
  assert_int_equal(gap_remote_prefix(b.items, 100), 37);
  assert_int_equal(gap_remote_prefix(b.items, 30), 30);
  gap_remote_close(remote);
  free_batch(&b);
}

static void replicas_are_written(void **state) {
  (void)state;
  if (missing) skip();
  redis_empty_all(servers, SERVERS);
  gap_remote_options o = options_for(SERVERS);
  o.replicas = 2;
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(300, 500, 120);
  assert_int_equal(put_all(remote, &b), 300);
  assert_int_equal(keys_of(0) + keys_of(1) + keys_of(2), 600);
  redis_cli(&servers[1], "flushall"); /* a server that has lost its data */
  assert_int_equal(get_all(remote, &b), 300);
  assert_true(stats_of(remote).absent > 0);
  gap_remote_close(remote);
  free_batch(&b);
}

static void values_expire(void **state) {
  (void)state;
  if (missing) skip();
  gap_remote_options o = options_for(1);
  o.ttl_ms = 400;
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(5, 100, 130);
  assert_int_equal(put_all(remote, &b), 5);
  assert_int_equal(strncmp(redis_cli(&servers[0], "--raw info keyspace"), "# Keyspace", 10), 0);
  usleep(600000);
  assert_int_equal(get_all(remote, &b), 0);
  gap_remote_close(remote);
  free_batch(&b);
}

static void databases_are_apart(void **state) {
  (void)state;
  if (missing) skip();
  char url[64];
  gap_remote_options o = options_for(1);
  snprintf(url, sizeof url, "redis://localhost:%d/5", servers[0].port);
  redis_cli(&servers[0], "flushall");
  o.servers = url;
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(3, 10, 140);
  assert_int_equal(put_all(remote, &b), 3);
  assert_int_equal(keys_of(0), 0);
  assert_int_equal(strtol(redis_cli(&servers[0], "-n 5 dbsize"), NULL, 10), 3);
  gap_remote_close(remote);
  free_batch(&b);
}

/* ---- tickets ---- */

static void tickets_end_once(void **state) {
  (void)state;
  if (missing) skip();
  gap_remote_options o = options_for(1);
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(3, 1000, 150);
  gap_remote_ticket ticket;
  aim(&b, b.put);
  assert_int_equal(gap_remote_put(remote, b.items, 3, PATIENCE_MS, &ticket), 0);
  while (gap_remote_poll(remote, ticket) == GAP_EAGAIN) usleep(100);
  assert_int_equal(gap_remote_poll(remote, ticket), GAP_EINVAL);
  assert_int_equal(gap_remote_wait(remote, ticket, 10), GAP_EINVAL);
  assert_int_equal(gap_remote_cancel(remote, ticket), GAP_EINVAL);
  assert_int_equal(outcomes(&b, GAP_REMOTE_DONE), 3);
  gap_remote_close(remote);
  free_batch(&b);
}

static void a_put_that_nobody_waits_for(void **state) {
  (void)state;
  if (missing) skip();
  gap_remote_options o = options_for(2);
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(50, 3000, 160);
  aim(&b, b.put);
  uint8_t *original = malloc(50 * 3000);
  assert_non_null(original);
  memcpy(original, b.put, 50 * 3000);
  assert_int_equal(gap_remote_put(remote, b.items, 50, PATIENCE_MS, NULL), 0);
  memset(b.put, 0, 50 * 3000); /* its memory is ours again */
  assert_int_equal(gap_remote_drain(remote, PATIENCE_MS), 0);
  memcpy(b.put, original, 50 * 3000);
  assert_int_equal(get_all(remote, &b), 50);
  free(original);
  gap_remote_close(remote);
  free_batch(&b);
}

static void arguments_are_checked(void **state) {
  (void)state;
  if (missing) skip();
  char message[400];
  gap_remote_options o = options_for(1), bad;
  gap_remote *remote = open_store(&o), *none;
  struct batch b = make_batch(1, 10, 170);
  gap_remote_ticket ticket;
  aim(&b, b.put);
  assert_int_equal(gap_remote_put(NULL, b.items, 1, 10, &ticket), GAP_EINVAL);
  assert_int_equal(gap_remote_put(remote, b.items, 0, 10, &ticket), GAP_EINVAL);
  assert_int_equal(gap_remote_put(remote, b.items, 1, 0, &ticket), GAP_EINVAL);
  assert_int_equal(gap_remote_get(remote, b.items, 1, 10, NULL), GAP_EINVAL);
  b.items[0].key_bytes = GAP_REMOTE_KEY_BYTES_MAX + 1;
  assert_int_equal(gap_remote_contains(remote, b.items, 1, 10, &ticket), GAP_EINVAL);
  b.items[0].key_bytes = 0;
  assert_int_equal(gap_remote_contains(remote, b.items, 1, 10, &ticket), GAP_EINVAL);
  bad = o, bad.replicas = 0;
  assert_int_equal(gap_remote_open(&bad, &none, message, sizeof message), GAP_EINVAL);
  bad = o, bad.size = 8;
  assert_int_equal(gap_remote_open(&bad, &none, message, sizeof message), GAP_EINVAL);
  bad = o, bad.servers = "nonsense";
  assert_int_equal(gap_remote_open(&bad, &none, NULL, 0), GAP_EVALUE);
  bad = o, bad.servers = "rediss://a", bad.ca_file = "/nowhere/ca.pem";
  assert_int_equal(gap_remote_open(&bad, &none, message, sizeof message), GAP_EIO);
  assert_non_null(strstr(message, "/nowhere/ca.pem"));
  gap_remote_close(remote);
  gap_remote_close(NULL);
  free_batch(&b);
}

static void a_server_is_looked_at(void **state) {
  (void)state;
  if (missing) skip();
  gap_remote_options o = options_for(2);
  gap_remote *remote = open_store(&o);
  gap_remote_server server = {.size = sizeof server};
  uint32_t count = 0;
  assert_int_equal(gap_remote_server_count(remote, &count), 0);
  assert_int_equal(count, 2);
  assert_int_equal(gap_remote_look(remote, 1, PATIENCE_MS, &server), 0);
  assert_true(server.up && server.used_bytes > 100000 && server.round_trip_ns > 0);
  assert_true(strncmp(server.version, "Redis ", 6) == 0 || strncmp(server.version, "Valkey ", 7) == 0);
  assert_string_equal(server.policy, "noeviction");
  assert_int_equal(gap_remote_look(remote, 2, 10, &server), GAP_EINVAL);
  gap_remote_close(remote);
}

/* ---- threads and processes ---- */

struct worker {
  pthread_t thread;
  gap_remote *remote;
  uint64_t seed;
  uint32_t hits;
};

static void *work(void *arg) {
  struct worker *w = arg;
  for (uint64_t round = 0; round < 10; round++) {
    struct batch b = make_batch(20, 9000, w->seed * 1000 + round);
    put_all(w->remote, &b);
    w->hits += get_all(w->remote, &b);
    free_batch(&b);
  }
  return NULL;
}

static void threads_share_a_store(void **state) {
  (void)state;
  if (missing) skip();
  gap_remote_options o = options_for(SERVERS);
  o.piece_bytes = 4096;
  struct worker workers[4];
  gap_remote *remote = open_store(&o);
  for (uint64_t i = 0; i < 4; i++) {
    workers[i] = (struct worker){.remote = remote, .seed = 200 + i};
    assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(workers[i].thread, NULL);
    assert_int_equal(workers[i].hits, 200);
  }
  gap_remote_close(remote);
}

static int in_child(gap_remote *remote, struct batch *b) {
  gap_remote_ticket ticket;
  gap_remote_stats stats = {.size = sizeof stats};
  if (gap_remote_get(remote, b->items, b->count, 100, &ticket) != GAP_EFORKED) return 1;
  if (gap_remote_poll(remote, 1) != GAP_EFORKED || gap_remote_drain(remote, 1) != GAP_EFORKED) return 2;
  if (gap_remote_get_stats(remote, &stats) != GAP_EFORKED) return 3;
  gap_remote_close(remote);
  return 0;
}

/* A child forked in the middle of traffic can do nothing, and harms nothing. */
static void a_process_forked_in_between(void **state) {
  (void)state;
  if (missing) skip();
  gap_remote_options o = options_for(2);
  gap_remote *remote = open_store(&o);
  struct batch b = make_batch(200, 20000, 220);
  gap_remote_ticket ticket;
  aim(&b, b.put);
  assert_int_equal(gap_remote_put(remote, b.items, 200, PATIENCE_MS, &ticket), 0);
  pid_t child = fork();
  if (!child) _exit(in_child(remote, &b));
  int status = -1;
  assert_true(waitpid(child, &status, 0) == child);
  assert_int_equal(status, 0);
  assert_int_equal(gap_remote_wait(remote, ticket, PATIENCE_MS), 0);
  assert_int_equal(get_all(remote, &b), 200);
  gap_remote_close(remote);
  free_batch(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_of_all_lengths),
      cmocka_unit_test(pieces_of_another_length),
      cmocka_unit_test(a_value_that_is_larger_than_its_room),
      cmocka_unit_test(pieces_of_two_values),
      cmocka_unit_test(a_piece_that_was_evicted),
      cmocka_unit_test(tags_see_their_own),
      cmocka_unit_test(a_second_process_starts_warm),
      cmocka_unit_test(how_long_a_prefix_is_there),
      cmocka_unit_test(replicas_are_written),
      cmocka_unit_test(values_expire),
      cmocka_unit_test(databases_are_apart),
      cmocka_unit_test(tickets_end_once),
      cmocka_unit_test(a_put_that_nobody_waits_for),
      cmocka_unit_test(arguments_are_checked),
      cmocka_unit_test(a_server_is_looked_at),
      cmocka_unit_test(threads_share_a_store),
      cmocka_unit_test(a_process_forked_in_between),
  };
  int failed = cmocka_run_group_tests(tests, start, stop);
  if (missing) printf("skipped: %s\n", missing);
  return missing ? 77 : failed;
}
