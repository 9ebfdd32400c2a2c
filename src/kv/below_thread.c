/* The thread that works below the device, and its one turn. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/worker.h"
#include "kv/below.h"
#include "kv/below_fetch.h"

enum { CARGOES_MOST = 24 };
#define BUSY_NS 100000u   /* between two looks at what is under way */
#define IDLE_NS 50000000u /* half-full crates are looked at, too */
#define SECOND_NS 1000000000u

uint64_t gap__kv_below_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

void gap__kv_meter(struct kv_below *b, enum kv_place place, int by, uint64_t bytes) {
  struct kv_meter *m = &b->meters[place];
  if (!m->active) *m = (struct kv_meter){.since_ns = gap__kv_below_now()};
  m->active += (uint32_t)by;
  m->bytes += bytes;
  if (!m->active && b->learns)
    gap__kv_worth_learn(gap__kv_worth_rate(&b->rates, place), m->bytes, gap__kv_below_now() - m->since_ns);
}

/* ---- a turn ---- */

static bool add(struct kv_below *b, struct kv_cargo *cargo) {
  if (!cargo) return false;
  cargo->step = -1;
  cargo->next = b->cargoes;
  b->cargoes = cargo;
  b->under_way++;
  return true;
}

static void pick(struct kv_below *b) {
  bool more = true;
  while (more && b->under_way < CARGOES_MOST) { /* what somebody waits for goes first */
    more = add(b, gap__kv_pick_up(b));
    more |= add(b, gap__kv_pick_rise(b));
    more |= add(b, gap__kv_pick_fall(b));
    more |= add(b, gap__kv_pick_store(b));
    more |= add(b, gap__kv_pick_sink(b));
    more |= add(b, gap__kv_pick_put(b));
  }
}

/* Has it ended? */
static bool work_on(struct kv_below *b, struct kv_cargo *cargo) {
  if (cargo->step < 0) {
    cargo->rc = b->ending ? GAP_ESTATE : cargo->way->launch(b, cargo);
    if (cargo->rc) return cargo->rc != GAP_EAGAIN;
    cargo->step = 0;
  }
  cargo->rc = cargo->way->poll(b, cargo);
  return cargo->rc != GAP_EAGAIN;
}

/* Those that have ended, as a list of their own. */
static struct kv_cargo *work(struct kv_below *b) {
  struct kv_cargo *ended = NULL;
  for (struct kv_cargo **at = &b->cargoes; *at && !b->lost;) {
    struct kv_cargo *cargo = *at;
    if (!work_on(b, cargo) || b->lost) {
      at = &cargo->next;
      continue;
    }
    *at = cargo->next;
    cargo->next = ended;
    ended = cargo;
  }
  return ended;
}

static void finish(struct kv_below *b, struct kv_cargo *ended) {
  while (ended) {
    struct kv_cargo *cargo = ended;
    ended = cargo->next;
    cargo->way->finish(b, cargo);
    b->under_way--;
    free(cargo->host);
    free(cargo);
  }
}

static void drop_items(struct kv_below *b, const uint64_t *items, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) (void)gap__tier_drop(b->tier, b->kv->options.device, items[i]);
}

bool gap__kv_below_busy(const struct kv_below *b) {
  if (b->lost) return false;
  for (const struct kv_fetch *f = b->fetches; f; f = f->next)
    if (f->state != KV_FETCH_DONE) return true;
  return b->under_way || gap__kv_store_due(b) || b->to_servers.count || gap__kv_sequences_move(b);
}

static void enter(struct kv_below *b) {
  gap__lock_give_way(&b->kv->lock);
  gap__lock(&b->kv->lock);
}

bool gap__kv_below_turn(struct kv_below *b) {
  enter(b);
  pick(b);
  uint64_t *drops = b->drops;
  uint32_t drop_count = b->drop_count;
  b->drops = NULL;
  b->drop_count = b->drop_room = 0;
  gap__unlock(&b->kv->lock);
  drop_items(b, drops, drop_count);
  free(drops);
  struct kv_cargo *ended = work(b);
  enter(b);
  bool changed = ended != NULL;
  finish(b, ended);
  bool busy = gap__kv_below_busy(b);
  gap__unlock(&b->kv->lock);
  if (changed) gap__kv_below_call(b); /* there is room for more */
  return busy;
}

/* ---- waiting ---- */

/* For a call, or so long. */
static void await(struct kv_below *b, pthread_cond_t *cond, uint64_t ns) {
  struct timespec until;
  uint64_t at = gap__kv_below_now() + ns;
  until.tv_sec = (time_t)(at / SECOND_NS);
  until.tv_nsec = (long)(at % SECOND_NS);
  pthread_cond_timedwait(cond, &b->mutex, &until);
}

void gap__kv_below_call(struct kv_below *b) {
  if (!b->running) return;
  pthread_mutex_lock(&b->mutex);
  b->called = true;
  pthread_cond_signal(&b->work);
  pthread_mutex_unlock(&b->mutex);
}

void gap__kv_below_rest(struct kv_below *b, uint64_t ns) {
  if (!b->running) {
    gap__kv_below_turn(b);
    return;
  }
  pthread_mutex_lock(&b->mutex);
  await(b, &b->rest, ns < 10000000u ? ns : 10000000u);
  pthread_mutex_unlock(&b->mutex);
}

/* ---- the thread ---- */

static bool next_turn(struct kv_below *b, bool busy) {
  pthread_mutex_lock(&b->mutex);
  pthread_cond_broadcast(&b->rest);
  if (!b->called && !b->closing) await(b, &b->work, busy ? BUSY_NS : IDLE_NS);
  b->called = false;
  bool on = !b->closing;
  pthread_mutex_unlock(&b->mutex);
  return on;
}

static void *run(void *arg) {
  struct kv_below *b = arg;
  gap__dev_background(b->kv->dev, true);
  if (b->measures) gap__kv_measure_remote(b);
  for (bool busy = true; next_turn(b, busy);) busy = gap__kv_below_turn(b);
  gap__dev_background(b->kv->dev, false);
  return NULL;
}

void gap__kv_below_start(struct kv_below *b) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&b->mutex, NULL);
  pthread_cond_init(&b->work, &monotonic);
  pthread_cond_init(&b->rest, &monotonic);
  pthread_condattr_destroy(&monotonic);
  if (!b->simulated) b->running = gap__worker_start(&b->thread, run, b);
}

/* Nothing new is begun; what is under way ends by itself: copies soon, servers' answers at once, since the store is closed. */
static void end_cargoes(struct kv_below *b) {
  while (b->cargoes && !b->lost) {
    struct kv_cargo *ended = work(b);
    gap__lock(&b->kv->lock);
    finish(b, ended);
    gap__unlock(&b->kv->lock);
    struct timespec pause = {.tv_nsec = BUSY_NS};
    nanosleep(&pause, NULL);
  }
}

void gap__kv_below_stop(struct kv_below *b) {
  if (b->running) {
    pthread_mutex_lock(&b->mutex);
    b->closing = true;
    pthread_cond_signal(&b->work);
    pthread_mutex_unlock(&b->mutex);
    pthread_join(b->thread, NULL);
    b->running = false;
  }
  b->ending = true;
  for (struct kv_cargo *cargo = b->cargoes; cargo; cargo = cargo->next)
    if (cargo->ticket && b->remote) (void)gap_remote_cancel(b->remote, cargo->ticket);
  end_cargoes(b);
  pthread_cond_destroy(&b->work);
  pthread_cond_destroy(&b->rest);
  pthread_mutex_destroy(&b->mutex);
}
