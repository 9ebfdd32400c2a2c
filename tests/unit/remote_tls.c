/* TLS: a server with a certificate of an authority made here, named as it is and as it is not; client certificates. */
#include <unistd.h>

#include "support/remote_try.h"

static const char *missing;
static char folder[] = "tls-XXXXXX";
static struct redis server;

static void run(const char *words) {
  char line[1024];
  snprintf(line, sizeof line, "cd %s && openssl %s >log 2>&1", folder, words);
  if (system(line)) fail_msg("openssl %s", words);
}

static void make_certificate(const char *name, const char *host) {
  char words[512];
  snprintf(words, sizeof words,
           "req -newkey rsa:2048 -nodes -keyout %s.key -out %s.csr -subj /CN=%s -addext subjectAltName=%s", name, name,
           name, host);
  run(words);
  snprintf(words, sizeof words,
           "x509 -req -in %s.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy -out %s.pem",
           name, name);
  run(words);
}

static int start(void **state) {
  (void)state;
  missing = redis_missing();
  if (!missing && system("openssl version >/dev/null 2>&1")) missing = "no openssl";
  if (!missing && system("redis-cli --help 2>&1 | grep -q -e --tls")) missing = "redis-server has no TLS";
  if (missing) return 0;
  assert_non_null(mkdtemp(folder));
  run("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority");
  run("req -x509 -newkey rsa:2048 -nodes -keyout other.key -out other.pem -days 2 -subj /CN=other");
  make_certificate("server", "IP:127.0.0.1");
  make_certificate("client", "DNS:client");
  return 0;
}

static int stop(void **state) {
  (void)state;
  char line[64];
  snprintf(line, sizeof line, "rm -rf %s", folder);
  return missing ? 0 : system(line);
}

static int stop_server(void **state) {
  (void)state;
  redis_stop(&server);
  return 0;
}

static void start_server(const char *clients) {
  char line[1024], here[256];
  assert_non_null(getcwd(here, sizeof here));
  snprintf(line, sizeof line,
           "--tls-cert-file %s/%s/server.pem --tls-key-file %s/%s/server.key --tls-ca-cert-file %s/%s/ca.pem "
           "--tls-auth-clients %s",
           here, folder, here, folder, here, folder, clients);
  redis_start(&server, line);
}

static gap_remote_server look(const char *host, const char *ca, const char *who, gap_remote **keep) {
  static char files[3][64];
  char url[100], message[400];
  gap_remote_server out = {.size = sizeof out};
  gap_remote_options o = GAP_REMOTE_OPTIONS_INIT;
  gap_remote *remote = NULL;
  snprintf(url, sizeof url, "rediss://%s:%d", host, server.port);
  snprintf(files[0], sizeof files[0], "%s/%s", folder, ca);
  snprintf(files[1], sizeof files[1], "%s/%s.pem", folder, who ? who : "");
  snprintf(files[2], sizeof files[2], "%s/%s.key", folder, who ? who : "");
  o.servers = url, o.ca_file = ca ? files[0] : NULL, o.connect_ms = 10000, o.request_ms = 5000;
  if (who) o.certificate_file = files[1], o.key_file = files[2];
  if (gap_remote_open(&o, &remote, message, sizeof message)) fail_msg("%s", message);
  assert_int_equal(gap_remote_look(remote, 0, PATIENCE_MS, &out), 0);
  if (keep) *keep = remote;
  else gap_remote_close(remote);
  return out;
}

static void the_right_authority_and_host(void **state) {
  (void)state;
  if (missing) skip();
  gap_remote *remote;
  start_server("no");
  gap_remote_server s = look("127.0.0.1", "ca.pem", NULL, &remote);
  if (!s.up) fail_msg("%s", s.reason);
  struct batch b = make_batch(30, 700001, 1);
  assert_int_equal(put_all(remote, &b), 30);
  assert_int_equal(get_all(remote, &b), 30);
  assert_int_equal(stats_of(remote).failures, 0);
  gap_remote_close(remote);
  free_batch(&b);
}

static void the_wrong_authority(void **state) {
  (void)state;
  if (missing) skip();
  start_server("no");
  gap_remote_server s = look("127.0.0.1", "other.pem", NULL, NULL);
  assert_false(s.up);
  if (!strstr(s.reason, "certificate")) fail_msg("%s", s.reason);
}

static void the_wrong_host(void **state) {
  (void)state;
  if (missing) skip();
  start_server("no");
  gap_remote_server s = look("localhost", "ca.pem", NULL, NULL);
  assert_false(s.up);
  if (!strstr(s.reason, "certificate") && !strstr(s.reason, "refused")) fail_msg("%s", s.reason);
}

static void clients_are_known_by_certificates(void **state) {
  (void)state;
  if (missing) skip();
  start_server("yes");
  assert_true(look("127.0.0.1", "ca.pem", "client", NULL).up);
  assert_false(look("127.0.0.1", "ca.pem", NULL, NULL).up);
}

/* TLS towards a server without it, and the other way round. */
static void one_side_alone_has_tls(void **state) {
  (void)state;
  if (missing) skip();
  redis_start(&server, "");
  assert_false(look("127.0.0.1", "ca.pem", NULL, NULL).up);
  redis_stop(&server);
  start_server("no");
  gap_remote_options o = GAP_REMOTE_OPTIONS_INIT;
  gap_remote_server s = {.size = sizeof s};
  o.servers = redis_urls(&server, 1), o.connect_ms = 3000;
  gap_remote *remote = open_store(&o);
  assert_int_equal(gap_remote_look(remote, 0, PATIENCE_MS, &s), 0);
  assert_false(s.up);
  gap_remote_close(remote);
}

int main(void) {
#define TEST(name) cmocka_unit_test_teardown(name, stop_server)
  const struct CMUnitTest tests[] = {
      TEST(the_right_authority_and_host),      TEST(the_wrong_authority),    TEST(the_wrong_host),
      TEST(clients_are_known_by_certificates), TEST(one_side_alone_has_tls),
  };
  int failed = cmocka_run_group_tests(tests, start, stop);
  if (missing) printf("skipped: %s\n", missing);
  return missing ? 77 : failed;
}
