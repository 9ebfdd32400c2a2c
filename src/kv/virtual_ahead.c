/* The thread that maps pages before they are asked for: a page at a time, so that nobody waits long for the lock. */
#include "base/worker.h"
#include "kv/virtual.h"

/* False: nothing to do.  Where memory is out the range is left to who asks for it. */
static bool place_one(struct gap_kv_virtual *v) {
  gap__lock_give_way(&v->lock);
  gap__lock(&v->lock);
  uint32_t range = v->hungry.count ? kv_bits_first(&v->hungry) : KV_NONE;
  if (range != KV_NONE) {
    uint32_t place = range * v->pages + v->have[range];
    if (v->leaving_in[place] ||
        gap__virtual_place_next(v, range)) { /* not now: it would have to be waited for, or there is none */
      kv_bits_remove(&v->hungry, range);
      v->want[range] = v->have[range];
    } else {
      v->counted[place] = 1;
    }
  }
  gap__unlock(&v->lock);
  return range != KV_NONE;
}

static bool next_call(struct gap_kv_virtual *v) {
  pthread_mutex_lock(&v->mutex);
  while (!v->wanted && !v->stop) pthread_cond_wait(&v->cond, &v->mutex);
  v->wanted = false;
  bool on = !v->stop;
  pthread_mutex_unlock(&v->mutex);
  return on;
}

static bool stopped(struct gap_kv_virtual *v) {
  pthread_mutex_lock(&v->mutex);
  bool stop = v->stop;
  pthread_mutex_unlock(&v->mutex);
  return stop;
}

static void *work(void *arg) {
  struct gap_kv_virtual *v = arg;
  gap__dev_background(v->dev, true);
  while (next_call(v))
    while (!stopped(v) && place_one(v)) continue;
  gap__dev_background(v->dev, false);
  return NULL;
}

void gap__virtual_start(struct gap_kv_virtual *v) {
  pthread_mutex_init(&v->mutex, NULL);
  pthread_cond_init(&v->cond, NULL);
  if (v->options.flags & GAP_KV_VIRTUAL_NO_THREAD || !v->ahead || v->dev->caps.stepped) return;
  v->running = gap__worker_start(&v->thread, work, v);
}

void gap__virtual_wake(struct gap_kv_virtual *v) {
  if (!v->running) return;
  pthread_mutex_lock(&v->mutex);
  v->wanted = true;
  pthread_cond_signal(&v->cond);
  pthread_mutex_unlock(&v->mutex);
}

void gap__virtual_stop(struct gap_kv_virtual *v) {
  if (!v->running) return;
  pthread_mutex_lock(&v->mutex);
  v->stop = true;
  pthread_cond_signal(&v->cond);
  pthread_mutex_unlock(&v->mutex);
  pthread_join(v->thread, NULL);
  v->running = false;
}
