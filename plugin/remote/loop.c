/* The I/O thread: waits for all servers at once, for callers, and for the next deadline. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store.h"

/* ---- what callers left ---- */

static void admit(gap_remote *store, struct ticket *t) {
  t->prev = NULL, t->next = store->live;
  if (t->next) t->next->prev = t;
  store->live = t;
  if (t->deadline_ns < store->next_deadline_ns) store->next_deadline_ns = t->deadline_ns;
  /* The ticket may be done, and gone, with its last job. */
  struct job *jobs = t->jobs;
  for (uint32_t i = 0, count = t->count; i < count; i++) gap__job_start(&jobs[i]);
}

static void hand_look(gap_remote *store, struct look *look) {
  struct server *s = &store->servers[look->server];
  if (!gap__server_usable(s)) {
    gap__look_end(s, look);
    return;
  }
  look->next = s->looks;
  s->looks = look;
}

static void abandon(struct ticket *t, gap_remote_outcome outcome) {
  struct job *jobs = t->jobs;
  for (uint32_t i = 0, count = t->count, left = t->left; i < count && left; i++) {
    if (jobs[i].over) continue;
    left--;
    gap__job_abandon(&jobs[i], outcome);
  }
}

static bool is_cancelled(gap_remote *store, const struct ticket *t) {
  pthread_mutex_lock(&store->lock);
  bool cancelled = t->cancelled;
  pthread_mutex_unlock(&store->lock);
  return cancelled;
}

static void cancel_some(gap_remote *store, bool all) {
  for (struct ticket *t = store->live, *next; t; t = next) {
    next = t->next;
    if (all || is_cancelled(store, t)) abandon(t, GAP_REMOTE_CANCELLED);
  }
}

static void expire(gap_remote *store) {
  if (store->now_ns < store->next_deadline_ns) return;
  store->next_deadline_ns = UINT64_MAX;
  for (struct ticket *t = store->live, *next; t; t = next) {
    next = t->next;
    if (t->deadline_ns <= store->now_ns) abandon(t, GAP_REMOTE_LATE);
    else if (t->deadline_ns < store->next_deadline_ns) store->next_deadline_ns = t->deadline_ns;
  }
}

/* False: the store is being closed. */
static bool take_in(gap_remote *store) {
  pthread_mutex_lock(&store->lock);
  struct ticket *t = store->inbox;
  struct look *look = store->looks;
  bool cancels = store->cancels, closing = store->closing;
  store->inbox = store->inbox_last = NULL;
  store->looks = NULL;
  store->cancels = false;
  pthread_mutex_unlock(&store->lock);
  for (struct ticket *next; t; t = next) next = t->next, admit(store, t);
  for (struct look *next; look; look = next) next = look->next, hand_look(store, look);
  if (cancels || closing) cancel_some(store, closing);
  return !closing;
}

/* ---- the thread ---- */

/* From here on callers wake it, unless one has left something already. */
static bool may_sleep(gap_remote *store) {
  pthread_mutex_lock(&store->lock);
  store->asleep = !store->inbox && !store->looks && !store->cancels && !store->closing;
  bool asleep = store->asleep;
  pthread_mutex_unlock(&store->lock);
  return asleep;
}

static int wait_ms(const gap_remote *store) {
  uint64_t until = store->next_deadline_ns, now = gap__remote_now_ns();
  for (uint32_t i = 0; i < store->count; i++) {
    uint64_t alarm = gap__server_alarm(&store->servers[i]);
    if (alarm < until) until = alarm;
  }
  if (until <= now) return 0;
  uint64_t ms = (until - now + MS_NS - 1) / MS_NS;
  return ms < 60000 ? (int)ms : 60000;
}

static void look_around(gap_remote *store, struct pollfd *fds) {
  uint64_t calls;
  fds[0] = (struct pollfd){.fd = store->wake, .events = POLLIN};
  for (uint32_t i = 0; i < store->count; i++) {
    short events = gap__server_events(&store->servers[i]);
    fds[i + 1] = (struct pollfd){.fd = events ? store->servers[i].wire.fd : -1, .events = events};
  }
  int ms = wait_ms(store);
  if (poll(fds, store->count + 1, ms && may_sleep(store) ? ms : 0) <= 0)
    for (uint32_t i = 0; i <= store->count; i++) fds[i].revents = 0;
  if (fds[0].revents && read(store->wake, &calls, sizeof calls) < 0) fds[0].revents = 0;
}

void *gap__remote_loop(void *arg) {
  gap_remote *store = arg;
  struct pollfd fds[GAP_REMOTE_SERVERS_MAX + 1];
  memset(fds, 0, sizeof fds);
  store->now_ns = gap__remote_now_ns();
  while (take_in(store)) {
    for (uint32_t i = 0; i < store->count; i++) gap__server_handle(&store->servers[i], fds[i + 1].revents);
    for (uint32_t i = 0; i < store->count; i++) gap__server_step(&store->servers[i]);
    expire(store);
    for (uint32_t i = 0; i < store->count; i++) gap__server_flush(&store->servers[i]);
    look_around(store, fds);
    store->now_ns = gap__remote_now_ns();
  }
  return NULL;
}
