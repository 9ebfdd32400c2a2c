/* Tickets: what callers begin and wait for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "place.h"
#include "store.h"

uint64_t gap__remote_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool gap__remote_sleep(gap_remote *store, uint64_t until_ns) {
  struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
  return pthread_cond_timedwait(&store->changed, &store->lock, &until) == 0;
}

void gap__remote_wake(gap_remote *store) {
  const uint64_t one = 1;
  bool asleep = store->asleep;
  store->asleep = false;
  pthread_mutex_unlock(&store->lock);
  while (asleep && write(store->wake, &one, sizeof one) < 0 && errno == EINTR) continue; /* full: it is awake */
}

static bool is_foreign(const gap_remote *store) { return getpid() != store->process; }

/* ---- making one ---- */

/* Items, keys and values in one piece of memory, for a put that nobody waits for. */
static gap_remote_item *copy_items(const gap_remote_item *items, uint32_t count) {
  size_t bytes = count * sizeof *items;
  for (uint32_t i = 0; i < count; i++) bytes += items[i].key_bytes + items[i].bytes;
  gap_remote_item *copies = malloc(bytes);
  if (!copies) return NULL;
  char *at = (char *)(copies + count);
  for (uint32_t i = 0; i < count; i++) {
    copies[i] = items[i];
    copies[i].key = memcpy(at, items[i].key, items[i].key_bytes);
    at += items[i].key_bytes;
    copies[i].value = items[i].bytes ? memcpy(at, items[i].value, items[i].bytes) : at;
    at += items[i].bytes;
  }
  return copies;
}

static void fill_jobs(const gap_remote *store, struct ticket *t, uint32_t legs) {
  for (uint32_t i = 0; i < t->count; i++) {
    struct job *job = &t->jobs[i];
    job->ticket = t;
    job->item = &t->items[i];
    job->item->outcome = GAP_REMOTE_PENDING;
    job->legs = &t->legs[(size_t)i * legs];
    job->key = gap__piece_digest(job->item->key, job->item->key_bytes);
    gap__place_rank(store->digests, store->count, job->key, store->replicas, job->order);
  }
}

void gap__ticket_free(struct ticket *t) {
  if (!t) return;
  free(t->jobs);
  free(t->legs);
  free(t->copies);
  free(t);
}

static struct ticket *make(gap_remote *store, enum kind kind, gap_remote_item *items, uint32_t count, bool copied) {
  uint32_t legs = kind == KIND_PUT ? store->replicas : 1;
  struct ticket *t = calloc(1, sizeof *t);
  if (!t || !count || !legs) return gap__ticket_free(t), NULL;
  t->store = store, t->kind = kind, t->count = t->left = count, t->items = items;
  t->jobs = calloc(count, sizeof *t->jobs);
  t->legs = calloc((size_t)count * legs, sizeof *t->legs);
  if (copied) t->copies = t->items = copy_items(items, count);
  if (!t->jobs || !t->legs || !t->items) return gap__ticket_free(t), NULL;
  fill_jobs(store, t, legs);
  return t;
}

/* ---- the queue ---- */

/* One ticket that is larger than the queue passes when it is alone and its memory is the caller's. */
static bool has_room(const gap_remote *store, uint32_t count, uint64_t bytes, bool copied) {
  if (store->under_way == 0 && !copied && count <= store->queue_items) return true;
  return store->under_way + count <= store->queue_items && store->under_way_bytes + bytes <= store->queue_bytes;
}

static int reserve(gap_remote *store, uint32_t count, uint64_t bytes, bool copied) {
  pthread_mutex_lock(&store->lock);
  bool room = has_room(store, count, bytes, copied);
  if (room) store->under_way += count, store->under_way_bytes += bytes;
  pthread_mutex_unlock(&store->lock);
  return room ? 0 : GAP_EAGAIN;
}

/* The lock is held. */
static void give_back(gap_remote *store, uint32_t count, uint64_t bytes) {
  store->under_way -= count, store->under_way_bytes -= bytes;
}

static int hand_over(gap_remote *store, struct ticket *t, gap_remote_ticket *out) {
  pthread_mutex_lock(&store->lock);
  t->id = ++store->last_ticket;
  int rc = t->copies ? 0 : gap__map_put(&store->tickets, t->id, (uint64_t)(uintptr_t)t);
  if (rc == 0) {
    t->prev = store->inbox_last;
    if (store->inbox_last) store->inbox_last->next = t;
    else store->inbox = t;
    store->inbox_last = t;
    if (out) *out = t->id;
  } else {
    give_back(store, t->count, t->bytes);
  }
  gap__remote_wake(store);
  return rc;
}

static void count_begun(gap_remote *store, enum kind kind, uint32_t count, bool dropped) {
  if (dropped && kind == KIND_PUT) COUNT(store, puts_dropped, count);
  else if (dropped) COUNT(store, gets_dropped, count);
  else if (kind == KIND_PUT) COUNT(store, puts, count);
  else if (kind == KIND_GET) COUNT(store, gets, count);
  else COUNT(store, asked, count);
}

static int begin(gap_remote *store, enum kind kind, gap_remote_item *items, uint32_t count, uint32_t timeout_ms,
                 gap_remote_ticket *out) {
  uint64_t bytes = 0;
  if (is_foreign(store)) return GAP_EFORKED;
  for (uint32_t i = 0; i < count && kind == KIND_PUT; i++) bytes += items[i].bytes;
  int rc = reserve(store, count, bytes, !out);
  if (rc) return count_begun(store, kind, count, true), rc;
  struct ticket *t = make(store, kind, items, count, !out);
  if (!t) {
    pthread_mutex_lock(&store->lock);
    give_back(store, count, bytes);
    pthread_mutex_unlock(&store->lock);
    return GAP_ENOMETA;
  }
  t->bytes = bytes;
  t->deadline_ns = gap__remote_now_ns() + timeout_ms * MS_NS;
  rc = hand_over(store, t, out);
  if (rc) gap__ticket_free(t);
  else count_begun(store, kind, count, false);
  return rc;
}

int gap__ticket_put(gap_remote *store, gap_remote_item *items, uint32_t count, uint32_t timeout_ms,
                    gap_remote_ticket *out) {
  return begin(store, KIND_PUT, items, count, timeout_ms, out);
}
int gap__ticket_get(gap_remote *store, gap_remote_item *items, uint32_t count, uint32_t timeout_ms,
                    gap_remote_ticket *out) {
  return begin(store, KIND_GET, items, count, timeout_ms, out);
}
int gap__ticket_contains(gap_remote *store, gap_remote_item *items, uint32_t count, uint32_t timeout_ms,
                         gap_remote_ticket *out) {
  return begin(store, KIND_CONTAINS, items, count, timeout_ms, out);
}

/* ---- the end of one ---- */

void gap__ticket_done(gap_remote *store, struct ticket *t) {
  bool unwatched = t->copies != NULL;
  pthread_mutex_lock(&store->lock);
  t->done = true;
  give_back(store, t->count, t->bytes);
  pthread_mutex_unlock(&store->lock);
  pthread_cond_broadcast(&store->changed); /* without the lock, which who wakes wants */
  if (unwatched) gap__ticket_free(t);
}

/* The lock is held; NULL: there is none. */
static struct ticket *find(gap_remote *store, gap_remote_ticket id) {
  uint64_t value;
  return gap__map_get(&store->tickets, id, &value) ? (struct ticket *)(uintptr_t)value : NULL;
}

/* By number, again and again: another thread may have taken it meanwhile. */
static int take(gap_remote *store, gap_remote_ticket id) {
  struct ticket *t = find(store, id);
  if (!t) return GAP_EINVAL;
  if (!t->done) return GAP_EAGAIN;
  gap__map_remove(&store->tickets, id, NULL);
  gap__ticket_free(t);
  return 0;
}

int gap__ticket_wait(gap_remote *store, gap_remote_ticket id, uint32_t timeout_ms) {
  if (is_foreign(store)) return GAP_EFORKED;
  uint64_t until = timeout_ms ? gap__remote_now_ns() + timeout_ms * MS_NS : 0;
  pthread_mutex_lock(&store->lock);
  int rc = take(store, id);
  while (rc == GAP_EAGAIN && until) {
    bool in_time = gap__remote_sleep(store, until);
    rc = take(store, id);
    if (!in_time) break;
  }
  pthread_mutex_unlock(&store->lock);
  return rc;
}

int gap__ticket_poll(gap_remote *store, gap_remote_ticket id) { return gap__ticket_wait(store, id, 0); }

int gap__ticket_cancel(gap_remote *store, gap_remote_ticket id) {
  if (is_foreign(store)) return GAP_EFORKED;
  pthread_mutex_lock(&store->lock);
  struct ticket *t = find(store, id);
  if (t) t->cancelled = store->cancels = true;
  gap__remote_wake(store);
  return t ? 0 : GAP_EINVAL;
}

int gap__ticket_drain(gap_remote *store, uint32_t timeout_ms) {
  if (is_foreign(store)) return GAP_EFORKED;
  uint64_t until = gap__remote_now_ns() + timeout_ms * MS_NS;
  pthread_mutex_lock(&store->lock);
  while (store->under_way && gap__remote_sleep(store, until)) continue;
  bool empty = store->under_way == 0;
  pthread_mutex_unlock(&store->lock);
  return empty ? 0 : GAP_EAGAIN;
}
