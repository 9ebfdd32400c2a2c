#include "tier/hands.h"

#include "base/worker.h"
#include "gapless/gapless.h"

/* The next part, and its number; the mutex is held. */
static struct gap__task *take_part(struct gap__hands *h, uint32_t *part) {
  struct gap__task *task = h->head;
  *part = task->taken++;
  if (task->taken == task->parts) h->head = task->next;
  if (!h->head) h->tail = NULL;
  return task;
}

static void *work(void *arg) {
  struct gap__hands *h = arg;
  uint32_t part;
  pthread_mutex_lock(&h->mutex);
  while (h->head || !h->closing) {
    if (h->head) {
      struct gap__task *task = take_part(h, &part);
      pthread_mutex_unlock(&h->mutex);
      h->work(h->arg, task, part);
      pthread_mutex_lock(&h->mutex);
    } else {
      pthread_cond_wait(&h->more, &h->mutex);
    }
  }
  pthread_mutex_unlock(&h->mutex);
  return NULL;
}

int gap__hands_start(struct gap__hands *h, uint32_t threads, gap__task_fn *fn, void *arg) {
  *h = (struct gap__hands){.work = fn, .arg = arg};
  pthread_mutex_init(&h->mutex, NULL);
  pthread_cond_init(&h->more, NULL);
  for (; h->thread_count < threads && h->thread_count < GAP__HANDS_MAX; h->thread_count++)
    if (!gap__worker_start(&h->threads[h->thread_count], work, h)) break;
  if (h->thread_count) return 0;
  pthread_cond_destroy(&h->more);
  pthread_mutex_destroy(&h->mutex);
  return GAP_ENOMETA;
}

static void give(struct gap__hands *h, struct gap__task *task, uint32_t parts, bool first) {
  pthread_mutex_lock(&h->mutex);
  *task = (struct gap__task){.parts = parts, .next = first ? h->head : NULL};
  if (first || !h->head) h->head = task;
  else h->tail->next = task;
  if (!task->next) h->tail = task;
  pthread_cond_broadcast(&h->more);
  pthread_mutex_unlock(&h->mutex);
}

void gap__hands_give(struct gap__hands *h, struct gap__task *task, uint32_t parts) { give(h, task, parts, false); }

void gap__hands_give_first(struct gap__hands *h, struct gap__task *task, uint32_t parts) { give(h, task, parts, true); }

void gap__hands_end(struct gap__hands *h) {
  if (!h->thread_count) return;
  pthread_mutex_lock(&h->mutex);
  h->closing = true;
  pthread_cond_broadcast(&h->more);
  pthread_mutex_unlock(&h->mutex);
  for (uint32_t i = 0; i < h->thread_count; i++) pthread_join(h->threads[i], NULL);
  pthread_cond_destroy(&h->more);
  pthread_mutex_destroy(&h->mutex);
  h->thread_count = 0;
}
