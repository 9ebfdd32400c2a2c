/* How a server is: the quickest of a few round trips, and what INFO says. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "store.h"

/* ---- for callers ---- */

static bool is_answered(gap_remote *store, struct look *look, uint64_t until_ns) {
  while (!look->done && gap__remote_sleep(store, until_ns)) continue;
  return look->done;
}

int gap__look(gap_remote *store, uint32_t index, uint32_t timeout_ms, gap_remote_server *out) {
  if (getpid() != store->process) return GAP_EFORKED;
  if (index >= store->count || timeout_ms > 3600000) return GAP_EINVAL;
  struct look *look = calloc(1, sizeof *look);
  if (!look) return GAP_ENOMETA;
  look->server = index;
  uint64_t until = gap__remote_now_ns() + timeout_ms * MS_NS;
  pthread_mutex_lock(&store->lock);
  look->next = store->looks;
  store->looks = look;
  gap__remote_wake(store);
  pthread_mutex_lock(&store->lock);
  bool answered = is_answered(store, look, until);
  if (answered) *out = look->found;
  else look->abandoned = true;
  pthread_mutex_unlock(&store->lock);
  if (answered) return free(look), 0;
  memset(out, 0, sizeof *out);
  out->size = sizeof *out;
  snprintf(out->name, sizeof out->name, "%s", store->servers[index].name);
  snprintf(out->reason, sizeof out->reason, "no answer in time");
  return 0;
}

/* ---- for the I/O thread ---- */

static bool ask(struct server *s, struct look *look, enum request request, const char *word) {
  struct flight f = {.request = request, .look = look};
  size_t length = strlen(word);
  f.command = gap__command(1, &word, &length, &f.length);
  if (f.command) gap__server_push(s, f);
  look->asked_ns = gap__remote_now_ns();
  return f.command != NULL;
}

void gap__look_begin(struct server *s, struct look *look) {
  look->best_ns = UINT64_MAX;
  if (!ask(s, look, REQUEST_PING, "PING")) gap__look_end(s, look);
}

void gap__look_end(struct server *s, struct look *look) {
  gap_remote_server *found = &look->found;
  found->size = sizeof *found;
  found->up = s->state == STATE_UP;
  if (found->up) found->round_trip_ns = look->best_ns;
  snprintf(found->name, sizeof found->name, "%s", s->name);
  snprintf(found->reason, sizeof found->reason, "%s", s->reason);
  pthread_mutex_lock(&s->store->lock);
  bool abandoned = look->abandoned;
  look->done = true;
  pthread_cond_broadcast(&s->store->changed);
  pthread_mutex_unlock(&s->store->lock);
  if (abandoned) free(look);
}

/* ---- INFO ---- */

static bool field(const char *text, size_t length, const char *name, char *out, size_t room) {
  size_t bytes = strlen(name);
  for (const char *at = text, *end = text + length; at < end;) {
    const char *eol = memchr(at, '\n', (size_t)(end - at));
    size_t line = (size_t)((eol ? eol : end) - at);
    if (line > bytes && memcmp(at, name, bytes) == 0 && at[bytes] == ':') {
      size_t value = line - bytes - 1;
      if (value && at[bytes + value] == '\r') value--;
      snprintf(out, room, "%.*s", (int)(value < room ? value : room - 1), at + bytes + 1);
      gap__text_make_plain(out);
      return true;
    }
    at += line + 1;
  }
  return false;
}

static uint64_t number(const char *text, size_t length, const char *name) {
  char digits[24] = "";
  uint64_t out = 0;
  if (field(text, length, name, digits, sizeof digits)) gap__text_parse_u64(digits, strlen(digits), &out);
  return out;
}

static void read_info(const char *text, size_t length, gap_remote_server *out) {
  char version[20] = "";
  bool valkey = field(text, length, "valkey_version", version, sizeof version);
  if (valkey || field(text, length, "redis_version", version, sizeof version))
    snprintf(out->version, sizeof out->version, "%s %s", valkey ? "Valkey" : "Redis", version);
  field(text, length, "maxmemory_policy", out->policy, sizeof out->policy);
  out->used_bytes = number(text, length, "used_memory");
  out->limit_bytes = number(text, length, "maxmemory");
  out->evicted = number(text, length, "evicted_keys");
  out->expired = number(text, length, "expired_keys");
}

static bool took_ping(struct server *s, struct look *look) {
  uint64_t took = gap__remote_now_ns() - look->asked_ns;
  if (took < look->best_ns) look->best_ns = took;
  return ++look->pings < LOOK_PINGS ? ask(s, look, REQUEST_PING, "PING") : ask(s, look, REQUEST_INFO, "INFO");
}

void gap__look_reply(struct server *s, struct look *look, enum request request, int type, const char *text,
                     size_t length) {
  if (request == REQUEST_PING && type == REDIS_REPLY_STATUS) {
    if (!took_ping(s, look)) gap__look_end(s, look);
    return;
  }
  if (request == REQUEST_INFO && type == REDIS_REPLY_STRING) read_info(text, length, &look->found);
  gap__look_end(s, look);
}
