/* The parts of the plug-in that need no server: URLs, headers of pieces, places, where passwords come from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "piece.h"
#include "place.h"
#include "secret.h"
#include "url.h"

/* ---- URLs ---- */

static struct gap__remote_url urls[4];
static char message[400];

static int parse(const char *list) {
  uint32_t count = 0;
  message[0] = '\0';
  int rc = gap__remote_url_parse(list, urls, 4, &count, message, sizeof message);
  return rc ? rc : (int)count;
}

static void reads_urls(void **state) {
  (void)state;
  assert_int_equal(parse("redis://one"), 1);
  assert_string_equal(urls[0].host, "one");
  assert_true(urls[0].port == 6379 && urls[0].database == 0 && !urls[0].tls && !urls[0].has_password);
  assert_int_equal(parse("rediss://u%40x:p%2Cw%3a@[::1]:7000/3,two:1,redis://:only@three/"), 3);
  assert_true(urls[0].tls && urls[1].tls && !urls[2].tls);
  assert_string_equal(urls[0].user, "u@x");
  assert_string_equal(urls[0].password, "p,w:");
  assert_string_equal(urls[0].host, "::1");
  assert_true(urls[0].port == 7000 && urls[0].database == 3 && urls[1].port == 1);
  assert_true(urls[2].has_password && !urls[2].user[0]);
  assert_string_equal(urls[2].password, "only");
}

static void names_show_no_secret(void **state) {
  (void)state;
  char name[GAP__REMOTE_NAME_BYTES];
  assert_int_equal(parse("rediss://u:secret@[fe80::1]:7000/3"), 1);
  gap__remote_url_name(&urls[0], name);
  assert_string_equal(name, "rediss://[fe80::1]:7000/3");
}

static void refuses_urls(void **state) {
  (void)state;
  static const char *const bad[] = {"",
                                    "host",
                                    "http://host",
                                    "redis://",
                                    "redis://a,",
                                    "redis://a,,redis://b",
                                    "redis://a:0",
                                    "redis://a:65536",
                                    "redis://a:1x",
                                    "redis://a:",
                                    "redis://a/x",
                                    "redis://a/65536",
                                    "redis://[::1",
                                    "redis://[::1]x",
                                    "redis://@a",
                                    "redis://u:@a",
                                    "redis://u:secret%4@a",
                                    "redis://u:secret%00@a",
                                    "redis://a b",
                                    "redis://a,a",
                                    "redis://a,rediss://b,c,d,e"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    if (parse(bad[i]) != GAP_EVALUE) fail_msg("\"%s\" is taken", bad[i]);
    assert_true(message[0] && !strstr(message, "secret"));
  }
  assert_int_equal(parse("redis://a,redis://u:secret%@b"), GAP_EVALUE);
  assert_non_null(strstr(message, "server 2 "));
}

static void a_user_may_have_its_password_elsewhere(void **state) {
  (void)state;
  gap_remote_options options = GAP_REMOTE_OPTIONS_INIT;
  assert_int_equal(parse("redis://one@a"), 1);
  assert_string_equal(urls[0].user, "one");
  assert_false(urls[0].has_password);
  unsetenv(GAP__REMOTE_PASSWORD_VARIABLE);
  assert_int_equal(gap__remote_secret(&options, urls, 1, message, sizeof message), GAP_EVALUE);
  setenv(GAP__REMOTE_PASSWORD_VARIABLE, "from environment", 1);
  assert_int_equal(gap__remote_secret(&options, urls, 1, message, sizeof message), 0);
  assert_string_equal(urls[0].password, "from environment");
  unsetenv(GAP__REMOTE_PASSWORD_VARIABLE);
}

static void long_parts_are_refused(void **state) {
  (void)state;
  char list[1200];
  snprintf(list, sizeof list, "redis://%0256d", 1);
  assert_int_equal(parse(list), GAP_EVALUE);
  snprintf(list, sizeof list, "redis://u:%0512d@a", 1);
  assert_int_equal(parse(list), GAP_EVALUE);
  snprintf(list, sizeof list, "redis://u:%0511d@a", 1);
  assert_int_equal(parse(list), 1);
}

/* ---- pieces ---- */

static struct gap__piece a_piece(uint64_t total, uint32_t index) {
  struct gap__piece p = {.tag = 7, .key = 9, .total_bytes = total, .piece_bytes = 4096, .index = index};
  p.count = gap__piece_count(total, p.piece_bytes);
  p.bytes = gap__piece_length(&p, index);
  p.sum = 11, p.chain = 13;
  return p;
}

static void headers_come_back(void **state) {
  (void)state;
  static const uint64_t totals[] = {0, 1, 4095, 4096, 4097, 3 * 4096, (uint64_t)5 << 30};
  for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++) {
    uint8_t bytes[GAP__PIECE_HEADER_BYTES];
    struct gap__piece p = a_piece(totals[i], 0), out;
    for (p.index = 0; p.index < p.count && p.index < 3; p.index++) {
      p.bytes = gap__piece_length(&p, p.index);
      gap__piece_write(&p, bytes);
      memset(&out, 0, sizeof out);
      assert_true(gap__piece_read(bytes, sizeof bytes + p.bytes, &out));
      assert_memory_equal(&p, &out, sizeof p);
      assert_false(gap__piece_read(bytes, sizeof bytes + p.bytes + 1, &out));
    }
  }
}

static void every_bit_of_a_header_counts(void **state) {
  (void)state;
  uint8_t bytes[GAP__PIECE_HEADER_BYTES];
  struct gap__piece p = a_piece(10000, 1), out;
  gap__piece_write(&p, bytes);
  for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    assert_false(gap__piece_read(bytes, sizeof bytes + p.bytes, &out));
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  for (size_t length = 0; length < sizeof bytes; length++) assert_false(gap__piece_read(bytes, length, &out));
}

/* Correct checksums do not make nonsense fit. */
static void contradictions_are_refused(void **state) {
  (void)state;
  uint8_t bytes[GAP__PIECE_HEADER_BYTES];
  struct gap__piece good = a_piece(10000, 1), out, bad[7];
  for (int i = 0; i < 7; i++) bad[i] = good;
  bad[0].count++, bad[1].index = good.count, bad[2].piece_bytes = 1, bad[3].piece_bytes = 1u << 30;
  bad[4].bytes--, bad[5].total_bytes = GAP_REMOTE_VALUE_BYTES_MAX + 1, bad[6].total_bytes = UINT64_MAX;
  for (int i = 0; i < 7; i++) {
    gap__piece_write(&bad[i], bytes);
    assert_false(gap__piece_read(bytes, sizeof bytes + bad[i].bytes, &out));
  }
}

static void sums_of_any_length(void **state) {
  (void)state;
  uint8_t data[200] = {0};
  for (size_t length = 0; length < sizeof data; length++)
    for (size_t other = 0; other < length; other++) /* zeros: the length alone tells them apart */
      if (gap__piece_sum(data, length) == gap__piece_sum(data, other)) fail_msg("%zu and %zu", length, other);
  uint64_t before = gap__piece_sum(data, sizeof data);
  for (size_t at = 0; at < sizeof data; at++) {
    data[at] ^= 1;
    assert_true(gap__piece_sum(data, sizeof data) != before);
    data[at] ^= 1;
  }
}

static void names_do_not_meet(void **state) {
  (void)state;
  char a[GAP__PIECE_KEY_BYTES], b[GAP__PIECE_KEY_BYTES];
  char longest[GAP_REMOTE_KEY_BYTES_MAX];
  memset(longest, ':', sizeof longest);
  size_t length = gap__piece_key(UINT64_MAX, longest, sizeof longest, UINT32_MAX, a);
  assert_true(length < sizeof a);
  size_t first = gap__piece_key(1, "k", 1, 1, a), second = gap__piece_key(1, "k:00000001", 10, 1, b);
  assert_true(first != second);
  assert_memory_equal(a, "gapless:1:0000000000000001:k:00000001", first);
}

/* ---- places ---- */

enum { SERVERS = 5, KEYS = 20000 };

static void make_servers(uint64_t *out) {
  for (int i = 0; i < SERVERS; i++) {
    char name[40];
    int length = snprintf(name, sizeof name, "redis://10.0.0.%d:6379/0", i);
    out[i] = gap__piece_digest(name, (size_t)length);
  }
}

static uint64_t key_of(int i) { return gap__piece_digest(&i, sizeof i); }

static void places_are_fair(void **state) {
  (void)state;
  uint64_t servers[SERVERS];
  int first[SERVERS] = {0}, second[SERVERS] = {0};
  make_servers(servers);
  for (int i = 0; i < KEYS; i++) {
    uint16_t order[2];
    gap__place_rank(servers, SERVERS, key_of(i), 2, order);
    assert_true(order[0] != order[1]);
    first[order[0]]++, second[order[1]]++;
  }
  for (int s = 0; s < SERVERS; s++) { /* 4,000 expected, 57 is a standard deviation */
    assert_in_range(first[s], 3700, 4300);
    assert_in_range(second[s], 3700, 4300);
  }
}

/* Without a server the order of the others is what it was: only its own keys move. */
static void only_its_own_keys_move(void **state) {
  (void)state;
  uint64_t servers[SERVERS];
  make_servers(servers);
  for (int i = 0; i < 1000; i++) {
    uint16_t with[SERVERS], without[SERVERS - 1];
    gap__place_rank(servers, SERVERS, key_of(i), SERVERS, with);
    gap__place_rank(servers, SERVERS - 1, key_of(i), SERVERS - 1, without);
    for (int at = 0, other = 0; at < SERVERS; at++)
      if (with[at] != SERVERS - 1) assert_int_equal(with[at], without[other++]);
  }
}

static void the_order_of_naming_is_nothing(void **state) {
  (void)state;
  uint64_t servers[SERVERS], turned[SERVERS];
  make_servers(servers);
  for (int i = 0; i < SERVERS; i++) turned[i] = servers[SERVERS - 1 - i];
  for (int i = 0; i < 1000; i++) {
    uint16_t a[3], b[3];
    gap__place_rank(servers, SERVERS, key_of(i), 3, a);
    gap__place_rank(turned, SERVERS, key_of(i), 3, b);
    for (int at = 0; at < 3; at++) assert_true(servers[a[at]] == turned[b[at]]);
  }
}

/* ---- passwords ---- */

static int secret_of(const char *file, unsigned flags) {
  gap_remote_options options = GAP_REMOTE_OPTIONS_INIT;
  options.password_file = file, options.flags = flags;
  assert_int_equal(parse("redis://u:own@a,redis://b"), 2);
  return gap__remote_secret(&options, urls, 2, message, sizeof message);
}

static void write_file(const char *path, const char *text, mode_t mode) {
  FILE *file = fopen(path, "w");
  assert_true(file && fputs(text, file) >= 0 && fclose(file) == 0);
  assert_int_equal(chmod(path, mode), 0);
}

static void passwords_have_an_order(void **state) {
  (void)state;
  char path[] = "secret-XXXXXX";
  close(mkstemp(path));
  write_file(path, "from file\nmore\n", 0600);
  unsetenv(GAP__REMOTE_PASSWORD_VARIABLE);
  assert_int_equal(secret_of(NULL, 0), 0);
  assert_false(urls[1].has_password);
  assert_int_equal(secret_of(path, 0), 0);
  assert_string_equal(urls[0].password, "own");
  assert_string_equal(urls[1].password, "from file");
  setenv(GAP__REMOTE_PASSWORD_VARIABLE, "from environment", 1);
  assert_int_equal(secret_of(path, 0), 0);
  assert_string_equal(urls[1].password, "from environment");
  assert_int_equal(secret_of(path, GAP_REMOTE_NO_ENVIRONMENT), 0);
  assert_string_equal(urls[1].password, "from file");
  unsetenv(GAP__REMOTE_PASSWORD_VARIABLE);
  unlink(path);
}

static void careless_files_are_refused(void **state) {
  (void)state;
  char path[] = "secret-XXXXXX";
  close(mkstemp(path));
  static const mode_t modes[] = {0640, 0604, 0620, 0602};
  unsetenv(GAP__REMOTE_PASSWORD_VARIABLE);
  for (int i = 0; i < 4; i++) {
    write_file(path, "hush\n", modes[i]);
    assert_int_equal(secret_of(path, 0), GAP_EIO);
    assert_true(strstr(message, "chmod 600") && !strstr(message, "hush"));
  }
  write_file(path, "\nhush\n", 0600);
  assert_int_equal(secret_of(path, 0), GAP_EIO);
  unlink(path);
  assert_int_equal(secret_of(path, 0), GAP_EIO);
  assert_int_equal(secret_of(".", 0), GAP_EIO);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_urls),
      cmocka_unit_test(names_show_no_secret),
      cmocka_unit_test(refuses_urls),
      cmocka_unit_test(a_user_may_have_its_password_elsewhere),
      cmocka_unit_test(long_parts_are_refused),
      cmocka_unit_test(headers_come_back),
      cmocka_unit_test(every_bit_of_a_header_counts),
      cmocka_unit_test(contradictions_are_refused),
      cmocka_unit_test(sums_of_any_length),
      cmocka_unit_test(names_do_not_meet),
      cmocka_unit_test(places_are_fair),
      cmocka_unit_test(only_its_own_keys_move),
      cmocka_unit_test(the_order_of_naming_is_nothing),
      cmocka_unit_test(passwords_have_an_order),
      cmocka_unit_test(careless_files_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
