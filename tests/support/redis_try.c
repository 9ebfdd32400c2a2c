#include "support/redis_try.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORDS = 64, START_MS = 20000 };

static bool runs(const char *command) { return system(command) == 0; }

const char *redis_missing(void) {
  if (!runs("redis-server --version >/dev/null 2>&1")) return "no redis-server";
  if (!runs("redis-cli --version >/dev/null 2>&1")) return "no redis-cli";
  gap_remote_options options = GAP_REMOTE_OPTIONS_INIT;
  gap_remote *remote;
  options.servers = "redis://127.0.0.1:1";
  static char message[400];
  if (gap_remote_open(&options, &remote, message, sizeof message)) return message;
  gap_remote_close(remote);
  return NULL;
}

static int bound_socket(int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(fd, (struct sockaddr *)&at, sizeof at) == 0) return fd;
  close(fd);
  return -1;
}

int redis_free_port(void) {
  struct sockaddr_in at;
  socklen_t bytes = sizeof at;
  int fd = bound_socket(0);
  assert_true(fd >= 0 && getsockname(fd, (struct sockaddr *)&at, &bytes) == 0);
  close(fd);
  return ntohs(at.sin_port);
}

static bool listens(int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool good = connect(fd, (struct sockaddr *)&at, sizeof at) == 0;
  close(fd);
  return good;
}

static void split(char *text, char **words, int *count) {
  for (char *word = strtok(text, " "); word && *count < WORDS - 1; word = strtok(NULL, " ")) words[(*count)++] = word;
  words[*count] = NULL;
}

/* It goes when the test goes. */
static void become(char **words) {
  int null = open("/dev/null", O_RDWR);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(null, 0), dup2(null, 1);
  if (!getenv("GAP_TEST_TALK")) dup2(null, 2);
  execvp(words[0], words);
  _exit(127);
}

static void await(struct redis *r) {
  for (int ms = 0; ms < START_MS; ms += 10) {
    int status;
    if (listens(r->port)) return;
    if (waitpid(r->process, &status, WNOHANG) == r->process) fail_msg("the server ended: status %d", status);
    usleep(10000);
  }
  fail_msg("no server on port %d", r->port);
}

static void launch(struct redis *r, char *line) {
  char *words[WORDS];
  int count = 0;
  split(line, words, &count);
  r->process = fork();
  assert_true(r->process >= 0);
  if (!r->process) become(words);
  await(r);
}

static void launch_redis(struct redis *r) {
  char line[2048], more[1200], file[96];
  snprintf(file, sizeof file, "%s/redis.conf", r->folder);
  FILE *conf = fopen(file, "w");
  assert_true(conf && fputs("save \"\"\nappendonly no\ndaemonize no\n", conf) > 0 && fclose(conf) == 0);
  snprintf(more, sizeof more, r->options, r->folder, r->folder, r->folder);
  snprintf(line, sizeof line, "redis-server %s --port %d --bind 127.0.0.1 --dir %s %s%d %s", file, r->tls ? 0 : r->port,
           r->folder, r->tls ? "--tls-port " : "--hz ", r->tls ? r->port : 10, more);
  launch(r, line);
}

void redis_start(struct redis *r, const char *options) {
  r->port = redis_free_port();
  if (!r->folder[0]) {
    snprintf(r->folder, sizeof r->folder, "redis-XXXXXX");
    assert_non_null(mkdtemp(r->folder));
  }
  snprintf(r->options, sizeof r->options, "%s", options);
  r->tls = strstr(options, "--tls-cert-file") != NULL;
  launch_redis(r);
}

void redis_restart(struct redis *r) { launch_redis(r); }

void redis_kill(struct redis *r) {
  if (!r->process) return;
  kill(r->process, SIGCONT);
  kill(r->process, SIGKILL);
  waitpid(r->process, NULL, 0);
  r->process = 0;
}

void redis_stop(struct redis *r) {
  char line[128];
  redis_kill(r);
  if (!r->folder[0]) return;
  snprintf(line, sizeof line, "rm -rf %s", r->folder);
  assert_int_equal(system(line), 0);
  memset(r, 0, sizeof *r);
}

const char *redis_cli(const struct redis *r, const char *words) {
  static char out[4096];
  char line[512];
  snprintf(line, sizeof line, "redis-cli -p %d %s 2>&1", r->port, words);
  FILE *cli = popen(line, "r");
  assert_non_null(cli);
  size_t got = fread(out, 1, sizeof out - 1, cli);
  out[got] = '\0';
  assert_int_equal(pclose(cli), 0);
  return out;
}

void redis_start_fake(struct redis *r, const char *file, const char *mode) {
  char line[512];
  r->port = redis_free_port();
  snprintf(line, sizeof line, "python3 %s %d %s", file, r->port, mode);
  launch(r, line);
}

const char *redis_urls(const struct redis *r, int count) {
  static char out[512];
  size_t length = 0;
  for (int i = 0; i < count; i++)
    length += (size_t)snprintf(out + length, sizeof out - length, "%sredis://127.0.0.1:%d", i ? "," : "", r[i].port);
  return out;
}

void redis_start_all(struct redis *servers, int count, const char **missing) {
  *missing = redis_missing();
  if (*missing) print_message("%s\n", *missing);
  for (int i = 0; i < count && !*missing; i++) redis_start(&servers[i], "");
}

void redis_stop_all(struct redis *servers, int count) {
  for (int i = 0; i < count; i++) redis_stop(&servers[i]);
}

void redis_empty_all(const struct redis *servers, int count) {
  for (int i = 0; i < count; i++) redis_cli(&servers[i], "flushall");
}
