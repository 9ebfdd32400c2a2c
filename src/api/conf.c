/* The configuration of a heap: the environment, options.conf, and gap_configure at run time. */
#include <stdlib.h>
#include <string.h>

#include "api/client.h"
#include "api/neighbours.h"
#include "api/serve.h"
#include "base/log.h"

static void log_report(const struct gap__conf_report *report) {
  for (uint32_t i = 0; i < report->count; i++) gap__log(report->messages[i].level, "%s", report->messages[i].line);
  if (report->dropped) gap__log(GAP__LOG_WARNING, "%u more messages about the configuration", report->dropped);
}

/* A set-user-id program does not follow the variables of who started it: a trace would empty any file. */
static const char *environment(const char *name) { return secure_getenv(name); }

static int find_option(const char *key, uint32_t *out) {
  for (uint32_t i = 0; i < gap__conf_option_count(); i++)
    if (strcmp(gap__conf_option_at(i)->key, key) == 0) {
      *out = i;
      return 0;
    }
  return GAP_EKEY;
}

static void say_what_waits(const struct gap__conf_set *set, enum gap__conf_source weakest) {
  struct gap__conf_report report = {0};
  gap__conf_warn_waiting(set, weakest, &report);
  log_report(&report);
}

static int apply(struct gap__conf_set *set, const char *variable, const char *conf) {
  struct gap__conf_report report = {0};
  int rc = gap__conf_apply(set, GAP__CONF_RUNTIME, variable, conf, &report);
  if (!rc) gap__log_level_set(gap__conf_values(set)->log_level);
  log_report(&report);
  return rc;
}

/* What is wrong is said; the rest holds. */
static void read_environment(const struct gap__client *client, struct gap__conf_set *set) {
  struct gap__conf_report report = {0};
  if (client->options.flags & GAP_HEAP_NO_ENVIRONMENT) return;
  gap__conf_apply_env(set, environment, &report);
  gap__log_level_set(gap__conf_values(set)->log_level);
  log_report(&report);
}

int gap__client_conf_begin(struct gap__client *client) {
  if (!(client->conf = gap__conf_new())) return GAP_ENOMETA;
  read_environment(client, client->conf);
  int rc = client->options.conf ? apply(client->conf, "options.conf", client->options.conf) : 0;
  if (!rc) say_what_waits(client->conf, GAP__CONF_PYTORCH_ENV);
  return rc;
}

/* The new values are tried on a copy, so that what is refused leaves everything as it was. */
static int configure(gap_heap *heap, struct gap__client *client, const char *conf) {
  struct gap__conf_set *next = gap__conf_copy(client->conf);
  if (!next) return GAP_ENOMETA;
  int rc = 0;
  if (conf) rc = apply(next, "gap_configure", conf);
  else read_environment(client, next);
  if (!rc && conf) say_what_waits(next, GAP__CONF_RUNTIME);
  if (!rc) rc = gap__heap_configure(heap, gap__conf_values(next));
  gap__conf_free(rc ? next : client->conf);
  if (!rc) client->conf = next;
  else gap__log_level_set(gap__conf_values(client->conf)->log_level);
  return rc;
}

int gap_configure(gap_heap *heap, const char *conf) {
  struct gap__client *client = gap__client_of(heap);
  if (gap__heap_forked(heap)) return GAP_EFORKED;
  gap__lock(&client->lock);
  int rc = configure(heap, client, conf);
  gap__unlock(&client->lock);
  if (rc) return rc;
  gap__serve_update(heap);
  gap__neighbours_update(heap);
  return 0;
}

int gap_conf_value(gap_heap *heap, const char *key, char *text, size_t bytes) {
  struct gap__client *client = gap__client_of(heap);
  uint32_t option;
  int rc = find_option(key, &option);
  if (!rc && gap__heap_forked(heap)) rc = GAP_EFORKED;
  if (rc) return rc;
  gap__lock(&client->lock);
  gap__conf_value_text(client->conf, option, text, bytes);
  gap__unlock(&client->lock);
  return 0;
}
