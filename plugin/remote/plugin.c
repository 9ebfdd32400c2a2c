/* The plug-in's table; opening and closing a store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/worker.h"
#include "place.h"
#include "secret.h"
#include "store.h"

enum { READ_ROOM = 256 << 10 };

static bool within(uint64_t value, uint64_t least, uint64_t most) { return value >= least && value <= most; }

static int check(const gap_remote_options *o, char *message, size_t bytes) {
  const char *fault = NULL;
  if (!o->servers) fault = "no servers";
  else if (o->tag && strlen(o->tag) > GAP_REMOTE_TAG_BYTES_MAX) fault = "the tag is too long";
  else if (o->flags & ~(unsigned)GAP_REMOTE_NO_ENVIRONMENT) fault = "unknown flags";
  else if (!within(o->connect_ms, 1, 60000) || !within(o->request_ms, 1, 60000)) fault = "a time-out is out of range";
  else if (!within(o->replicas, 1, GAP_REMOTE_REPLICAS_MAX)) fault = "replicas: 1 to 4";
  else if (!within(o->piece_bytes, GAP_REMOTE_PIECE_BYTES_MIN, GAP_REMOTE_PIECE_BYTES_MAX))
    fault = "pieces: 4 KiB to 4 MiB";
  else if (!within(o->queue_items, 1, 1 << 20)) fault = "queue_items: 1 to 1048576";
  else if (o->ttl_ms > INT64_MAX / 4) fault = "ttl_ms is too large";
  if (fault) snprintf(message, bytes, "%s", fault);
  return fault ? GAP_EINVAL : 0;
}

/* ---- making ---- */

static void set_options(gap_remote *store, const gap_remote_options *o, gap__remote_log *log) {
  const char *tag = o->tag ? o->tag : "";
  store->process = getpid();
  store->log = log;
  store->tag = gap__piece_digest(tag, strlen(tag));
  store->connect_ms = o->connect_ms, store->request_ms = o->request_ms;
  store->replicas = o->replicas < store->count ? o->replicas : store->count;
  store->piece_bytes = o->piece_bytes;
  store->queue_items = o->queue_items, store->queue_bytes = o->queue_bytes, store->ttl_ms = o->ttl_ms;
  store->shelf.bytes = o->piece_bytes + 1024u; /* with header, key and the rest of the command */
  store->next_deadline_ns = UINT64_MAX;
  store->dice = gap__remote_now_ns();
  store->stats.size = sizeof store->stats;
}

static bool set_servers(gap_remote *store, const struct gap__remote_url *urls) {
  bool tls = false;
  for (uint32_t i = 0; i < store->count; i++) {
    struct server *s = &store->servers[i];
    s->store = store;
    s->url = urls[i];
    s->wire.fd = -1;
    gap__remote_url_name(&s->url, s->name);
    store->digests[i] = gap__piece_digest(s->name, strlen(s->name));
    tls |= s->url.tls;
  }
  return tls;
}

static bool set_locks(gap_remote *store) {
  pthread_condattr_t clock;
  if (pthread_condattr_init(&clock)) return false;
  bool good =
      pthread_condattr_setclock(&clock, CLOCK_MONOTONIC) == 0 && pthread_cond_init(&store->changed, &clock) == 0;
  pthread_condattr_destroy(&clock);
  return good && pthread_mutex_init(&store->lock, NULL) == 0;
}

static void free_tickets(gap_remote *store) {
  struct gap__map_slot slot;
  for (size_t cursor = 0; gap__map_next(&store->tickets, &cursor, &slot);)
    gap__ticket_free((struct ticket *)(uintptr_t)slot.value);
  gap__map_free(&store->tickets);
}

static void dispose(gap_remote *store) {
  if (store->wake >= 0) close(store->wake);
  if (store->tls) gap__wire_context_free(store->tls);
  free_tickets(store);
  while (store->shelf.count) free(store->shelf.buffers[--store->shelf.count]);
  free(store->buffer);
  gap__remote_wipe(store->servers, store->count * sizeof store->servers[0]);
  free(store);
}

static int make(const gap_remote_options *o, const struct gap__remote_url *urls, uint32_t count, gap__remote_log *log,
                gap_remote **out, char *message, size_t bytes) {
  gap_remote *store = calloc(1, sizeof *store + count * sizeof store->servers[0]);
  int rc = 0;
  if (!store) return snprintf(message, bytes, "no host memory"), GAP_ENOMETA;
  store->count = count;
  store->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  store->buffer = malloc(READ_ROOM);
  set_options(store, o, log);
  if (set_servers(store, urls)) rc = gap__wire_context(o, &store->tls, message, bytes);
  if (rc == 0 && (store->wake < 0 || !store->buffer || !set_locks(store) ||
                  !gap__worker_start(&store->thread, gap__remote_loop, store))) {
    snprintf(message, bytes, "no host memory, no thread or no descriptor");
    rc = GAP_ENOMETA;
  }
  if (rc) dispose(store);
  else *out = store;
  return rc;
}

static int open_store(const gap_remote_options *o, gap__remote_log *log, gap_remote **out, char *message,
                      size_t bytes) {
  uint32_t count = 0;
  size_t room = GAP_REMOTE_SERVERS_MAX * sizeof(struct gap__remote_url);
  int rc = check(o, message, bytes);
  if (rc) return rc;
  struct gap__remote_url *urls = calloc(1, room);
  if (!urls) return snprintf(message, bytes, "no host memory"), GAP_ENOMETA;
  rc = gap__remote_url_parse(o->servers, urls, GAP_REMOTE_SERVERS_MAX, &count, message, bytes);
  if (rc == 0) rc = gap__remote_secret(o, urls, count, message, bytes);
  if (rc == 0) rc = make(o, urls, count, log, out, message, bytes);
  gap__remote_wipe(urls, room);
  free(urls);
  return rc;
}

/* ---- the end ---- */

static void close_store(gap_remote *store) {
  if (getpid() != store->process) return; /* the connections and the thread are the parent's */
  pthread_mutex_lock(&store->lock);
  store->closing = true;
  gap__remote_wake(store);
  pthread_join(store->thread, NULL);
  store->log = NULL;
  for (uint32_t i = 0; i < store->count; i++)
    gap__server_fail(&store->servers[i], CAUSE_BROKEN, "the store was closed");
  pthread_cond_destroy(&store->changed);
  pthread_mutex_destroy(&store->lock);
  dispose(store);
}

static int get_stats(gap_remote *store, gap_remote_stats *out) {
  if (getpid() != store->process) return GAP_EFORKED;
#define X(name) out->name = __atomic_load_n(&store->stats.name, __ATOMIC_RELAXED);
  GAP_REMOTE_STATS(X)
#undef X
  pthread_mutex_lock(&store->lock);
  out->under_way = store->under_way, out->under_way_bytes = store->under_way_bytes;
  pthread_mutex_unlock(&store->lock);
  return 0;
}

static int count_servers(gap_remote *store, uint32_t *out) { return *out = store->count, 0; }

static const struct gap__remote_plugin table = {
    .abi = GAP__REMOTE_ABI,
    .open = open_store,
    .close = close_store,
    .put = gap__ticket_put,
    .get = gap__ticket_get,
    .contains = gap__ticket_contains,
    .poll = gap__ticket_poll,
    .wait = gap__ticket_wait,
    .cancel = gap__ticket_cancel,
    .drain = gap__ticket_drain,
    .stats = get_stats,
    .server_count = count_servers,
    .look = gap__look,
};

GAP_API gap__remote_plugin_fn gapless_remote_plugin;
const struct gap__remote_plugin *gapless_remote_plugin(void) { return &table; }
