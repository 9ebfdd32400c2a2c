/* gapless remote: are the servers there, and what do they reach? */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli.h"
#include "options.h"
#include "remote_bench.h"
#include "table.h"

static const char help[] =
    "usage: gapless remote URL... [OPTIONS]\n"
    "\n"
    "Asks Redis or Valkey servers, on which several machines share values, whether they are there, how full they are "
    "and "
    "what\n"
    "they do then.  URL is redis://[user@]host[:port][/database], or rediss:// for TLS; several may be joined by "
    "commas.\n"
    "\n"
    "  --password-file FILE  its first line; nobody else may be able to read the file.  Or the environment's\n"
    "                        GAPLESS_REMOTE_PASSWORD; the command line is read by everybody on the machine\n"
    "  --ca FILE             PEM, the authorities to trust; default: the system's\n"
    "  --cert FILE           PEM, a certificate that the servers know us by\n"
    "  --key FILE            PEM, its key; default: in the same file\n"
    "  --timeout MS          most for a connection and for an answer; default: 2000\n"
    "  --replicas N          servers that each value is written to; default: 1\n"
    "  --bench               measure: put values for some seconds, then get them; they expire after a minute\n"
    "  --size SIZE           of a value; default: 1MiB\n"
    "  --depth N             values under way at once; default: 16\n"
    "  --seconds S           of putting, and of getting; default: 3\n"
    "  --json                one JSON object\n"
    "  --quiet               no progress bar\n"
    "\n"
    "With --bench and one server without TLS and password, redis-benchmark (where it is installed) is run beside it "
    "with "
    "the\n"
    "same size and depth.\n"
    "\n"
    "exit codes: 0 all servers are there; 1 one is not, or a value was not stored or not found; 2 wrong usage\n";

enum {
  OPT_PASSWORD = 256,
  OPT_CA,
  OPT_CERT,
  OPT_KEY,
  OPT_TIMEOUT,
  OPT_REPLICAS,
  OPT_BENCH,
  OPT_SIZE,
  OPT_DEPTH,
  OPT_SECONDS,
  OPT_JSON,
  OPT_QUIET
};

static const struct option options[] = {
    {"password-file", required_argument, NULL, OPT_PASSWORD},
    {"ca", required_argument, NULL, OPT_CA},
    {"cert", required_argument, NULL, OPT_CERT},
    {"key", required_argument, NULL, OPT_KEY},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"replicas", required_argument, NULL, OPT_REPLICAS},
    {"bench", no_argument, NULL, OPT_BENCH},
    {"size", required_argument, NULL, OPT_SIZE},
    {"depth", required_argument, NULL, OPT_DEPTH},
    {"seconds", required_argument, NULL, OPT_SECONDS},
    {"json", no_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {NULL, 0, NULL, 0},
};

#define SIZE_MOST ((uint64_t)1 << 30)

struct request {
  gap_remote_options store;
  struct remote_bench bench;
  uint64_t timeout_ms;
  bool measures, json;
  struct gap__text urls;
};

struct answer {
  gap_remote_server *servers;
  uint32_t count, down;
  struct remote_speed put, get;
  bool beside;
  double set_beside, get_beside;
};

/* ---- options ---- */

static int parse_value_size(const char *text, uint64_t *out) {
  if (gap__text_parse_size(text, strlen(text), out) == 0 && *out <= SIZE_MOST) return 0;
  return usage_error("remote", "--size %s: a size up to 1 GiB is wanted (1MiB)", text);
}

static int parse_seconds(const char *text, double *out) {
  if (gap__text_parse_real(text, strlen(text), out) == 0 && *out >= 0.01 && *out <= 3600) return 0;
  return usage_error("remote", "--seconds %s: seconds from 0.01 to 3600 are wanted", text);
}

static int parse_small(const char *option, const char *text, uint64_t most, uint32_t *out) {
  uint64_t number = 0;
  int rc = parse_number("remote", option, text, 1, most, &number);
  *out = (uint32_t)number;
  return rc;
}

static int parse_option(void *arg, int option, const char *value) {
  struct request *r = arg;
  switch (option) {
    case OPT_PASSWORD: r->store.password_file = value; return 0;
    case OPT_CA: r->store.ca_file = value; return 0;
    case OPT_CERT: r->store.certificate_file = value; return 0;
    case OPT_KEY: r->store.key_file = value; return 0;
    case OPT_TIMEOUT: return parse_number("remote", "--timeout", value, 1, 60000, &r->timeout_ms);
    case OPT_REPLICAS: return parse_small("--replicas", value, GAP_REMOTE_REPLICAS_MAX, &r->store.replicas);
    case OPT_BENCH: r->measures = true; return 0;
    case OPT_SIZE: return parse_value_size(value, &r->bench.value_bytes);
    case OPT_DEPTH: return parse_small("--depth", value, 1024, &r->bench.depth);
    case OPT_SECONDS: return parse_seconds(value, &r->bench.seconds);
    case OPT_JSON: r->json = true; return 0;
    default: r->bench.quiet = true; return 0;
  }
}

/* Who lists processes sees command lines: a user may stand there, a password may not. */
static bool has_password(const char *urls) {
  for (const char *at = strchr(urls, '@'); at; at = strchr(at + 1, '@')) {
    const char *begin = at;
    while (begin > urls && begin[-1] != ',') begin--;
    const char *scheme = strstr(begin, "://");
    if (scheme && scheme < at) begin = scheme + 3;
    if (memchr(begin, ':', (size_t)(at - begin))) return true;
  }
  return false;
}

static int take_urls(struct request *r, int count, char **urls) {
  if (count == 0) return usage_error("remote", "no server; see gapless remote --help");
  for (int i = 0; i < count; i++) {
    if (has_password(urls[i]))
      return usage_error("remote", "a password on the command line is seen by everybody on this machine: "
                                   "--password-file, or the environment's GAPLESS_REMOTE_PASSWORD");
    gap__text_add(&r->urls, "%s%s", i ? "," : "", urls[i]);
  }
  r->store.servers = gap__text_str(&r->urls);
  return r->urls.failed ? usage_error("remote", "no host memory") : 0;
}

/* ---- asking ---- */

static int look_at_all(gap_remote *remote, const struct request *r, struct answer *a) {
  gap_remote_server_count(remote, &a->count);
  a->servers = calloc(a->count, sizeof *a->servers);
  if (!a->servers) return usage_error("remote", "no host memory");
  for (uint32_t i = 0; i < a->count; i++) {
    a->servers[i].size = sizeof a->servers[i];
    gap_remote_look(remote, i, (uint32_t)r->timeout_ms * 2, &a->servers[i]);
    a->down += !a->servers[i].up;
  }
  return 0;
}

/* "redis://host:port/0": one server without TLS; whether it wants a password its own answer says. */
static bool run_beside(const struct request *r, struct answer *a) {
  char host[sizeof a->servers[0].name];
  const char *name = a->servers[0].name, *plain = "redis://";
  if (a->count != 1 || r->store.password_file || strncmp(name, plain, strlen(plain)) != 0) return false;
  snprintf(host, sizeof host, "%s", name + strlen(plain));
  char *slash = strrchr(host, '/'), *colon;
  if (!slash) return false;
  *slash = '\0';
  colon = strrchr(host, ':');
  if (!colon || host[0] == '[') return false;
  *colon = '\0';
  return remote_beside(host, colon + 1, &r->bench, &a->set_beside, &a->get_beside);
}

static int measure(gap_remote *remote, const struct request *r, struct answer *a) {
  int rc = remote_bench_run(remote, &r->bench, &a->put, &a->get);
  if (rc) return usage_error("remote", "measuring: %s", gap_strerror(rc));
  a->beside = run_beside(r, a);
  return 0;
}

/* ---- for people ---- */

static void tell_server(struct table *table, const gap_remote_server *s) {
  char text[GAP__TEXT_BYTES];
  table_cell(table, "%.47s", s->name);
  table_cell(table, "%s", s->version[0] ? s->version : "?");
  table_cell(table, "%s", gap__text_size(s->used_bytes, text));
  table_cell(table, "%s", s->limit_bytes ? gap__text_size(s->limit_bytes, text) : "no limit");
  table_cell(table, "%s", s->policy[0] ? s->policy : "?");
  table_cell(table, "%s", gap__text_thousands(s->evicted, text));
  table_cell(table, "%s", gap__text_duration(s->round_trip_ns, text));
}

static void tell_servers(const struct answer *a) {
  static const char *const titles[] = {"server", "version", "used", "limit", "when full", "evicted", "round trip"};
  struct table table;
  table_begin(&table, 7);
  for (int i = 0; i < 7; i++) table_cell(&table, "%s", titles[i]);
  for (uint32_t i = 0; i < a->count; i++)
    if (a->servers[i].up) tell_server(&table, &a->servers[i]);
  if (a->down < a->count) table_end(&table, 0, stdout);
  else free(table.cells);
  for (uint32_t i = 0; i < a->count; i++)
    if (!a->servers[i].up) printf("%s is not there: %s\n", a->servers[i].name, a->servers[i].reason);
}

/* A cache that refuses instead of evicting fills up once and for all. */
static void warn(const struct answer *a) {
  for (uint32_t i = 0; i < a->count; i++) {
    const gap_remote_server *s = &a->servers[i];
    if (s->up && s->limit_bytes == 0 && s->policy[0])
      printf("%s has no limit: set maxmemory, or it grows until the machine is out of memory\n", s->name);
    else if (s->up && strcmp(s->policy, "noeviction") == 0)
      printf("%s evicts nothing: when it is full it takes no new values; allkeys-lru makes room\n", s->name);
  }
}

static void tell_speed(const char *name, const struct remote_speed *s, bool beside, double other) {
  char size[GAP__TEXT_BYTES], median[GAP__TEXT_BYTES], p99[GAP__TEXT_BYTES];
  printf("  %-4s %s/s, %.0f values/s, median %s, p99 %s", name, gap__text_size((uint64_t)s->bytes_per_s, size),
         s->values_per_s, gap__text_duration(s->median_ns, median), gap__text_duration(s->p99_ns, p99));
  if (beside)
    printf("; redis-benchmark %s/s (%.0f %%)", gap__text_size((uint64_t)other, size), 100 * s->bytes_per_s / other);
  if (s->failed) printf("; %llu values failed", (unsigned long long)s->failed);
  putchar('\n');
}

static void tell(const struct request *r, const struct answer *a) {
  char size[GAP__TEXT_BYTES];
  tell_servers(a);
  warn(a);
  if (!r->measures || a->down) return;
  printf("values of %s, %u under way\n", gap__text_size(r->bench.value_bytes, size), r->bench.depth);
  tell_speed("put", &a->put, a->beside, a->set_beside);
  tell_speed("get", &a->get, a->beside, a->get_beside);
}

/* ---- JSON ---- */

static json_t *server_json(const gap_remote_server *s) {
  if (!s->up) return json_pack("{s:s s:b s:s}", "name", s->name, "up", 0, "reason", s->reason);
  return json_pack("{s:s s:b s:s s:s s:I s:I s:I s:I s:I}", "name", s->name, "up", 1, "version", s->version, "policy",
                   s->policy, "used_bytes", (json_int_t)s->used_bytes, "limit_bytes", (json_int_t)s->limit_bytes,
                   "evicted", (json_int_t)s->evicted, "expired", (json_int_t)s->expired, "round_trip_ns",
                   (json_int_t)s->round_trip_ns);
}

static json_t *speed_json(const struct remote_speed *s, bool beside, double other) {
  json_t *out = json_pack("{s:I s:I s:f s:f s:f s:I s:I}", "values", (json_int_t)s->values, "failed",
                          (json_int_t)s->failed, "seconds", s->seconds, "bytes_per_s", s->bytes_per_s, "values_per_s",
                          s->values_per_s, "median_ns", (json_int_t)s->median_ns, "p99_ns", (json_int_t)s->p99_ns);
  if (beside) json_object_set_new(out, "redis_benchmark_bytes_per_s", json_real(other));
  return out;
}

static void tell_json(const struct request *r, const struct answer *a) {
  json_t *servers = json_array(), *json = json_pack("{s:o}", "servers", servers);
  for (uint32_t i = 0; i < a->count; i++) json_array_append_new(servers, server_json(&a->servers[i]));
  if (r->measures && !a->down) {
    json_object_set_new(json, "value_bytes", json_integer((json_int_t)r->bench.value_bytes));
    json_object_set_new(json, "depth", json_integer(r->bench.depth));
    json_object_set_new(json, "replicas", json_integer(r->store.replicas));
    json_object_set_new(json, "put", speed_json(&a->put, a->beside, a->set_beside));
    json_object_set_new(json, "get", speed_json(&a->get, a->beside, a->get_beside));
  }
  char *text = json_dumps(json, JSON_INDENT(2));
  if (text) puts(text);
  free(text);
  json_decref(json);
}

/* ---- the command ---- */

static int ask(struct request *r, struct answer *a) {
  char message[400];
  gap_remote *remote;
  gap_set_log(NULL, NULL); /* what it would say is in the answer */
  int rc = gap_remote_open(&r->store, &remote, message, sizeof message);
  if (rc) return usage_error("remote", "%s", message);
  rc = look_at_all(remote, r, a);
  if (rc == 0 && r->measures && !a->down) rc = measure(remote, r, a);
  gap_remote_close(remote);
  return rc;
}

static int run(int argc, char **argv) {
  struct request r = {.store = GAP_REMOTE_OPTIONS_INIT, .timeout_ms = 2000, .bench = {1 << 20, 16, 3, false}};
  struct answer a = {0};
  int rc = read_options(argc, argv, "", options, parse_option, &r);
  if (rc == 0) rc = take_urls(&r, argc - optind, argv + optind);
  r.store.connect_ms = r.store.request_ms = (uint32_t)r.timeout_ms;
  r.store.tag = "gapless remote", r.store.ttl_ms = 60000;
  r.store.queue_bytes = r.bench.depth * (r.bench.value_bytes + 1);
  if (rc == 0) rc = ask(&r, &a);
  if (rc == 0 && r.json) tell_json(&r, &a);
  else if (rc == 0) tell(&r, &a);
  bool bad = a.down || a.put.failed || a.get.failed;
  free(a.servers);
  gap__text_free(&r.urls);
  return rc ? rc : bad ? EXIT_NO : EXIT_YES;
}

const struct command command_remote = {.name = "remote",
                                       .summary = "are the shared servers there, and what do they reach",
                                       .help = help,
                                       .options = options,
                                       .run = run};
