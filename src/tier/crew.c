#include "tier/crew.h"

#include <sched.h>

#include "base/worker.h"

/* The mutex is held, and held again at the end. */
static void do_job(struct gap__crew *crew) {
  uint32_t index = crew->next++;
  pthread_mutex_unlock(&crew->mutex);
  int rc = crew->job(crew->arg, index);
  pthread_mutex_lock(&crew->mutex);
  if (rc && !crew->rc) crew->rc = rc;
}

static bool has_job(const struct gap__crew *crew) { return crew->next < crew->free_to && !crew->rc; }

static void *work(void *arg) {
  struct gap__crew *crew = arg;
  pthread_mutex_lock(&crew->mutex);
  for (;;) {
    if (has_job(crew)) do_job(crew);
    else if (crew->closing || crew->rc) break;
    else pthread_cond_wait(&crew->more, &crew->mutex);
  }
  pthread_mutex_unlock(&crew->mutex);
  return NULL;
}

void gap__crew_start(struct gap__crew *crew, uint32_t threads, gap__crew_fn *job, void *arg) {
  crew->job = job;
  crew->arg = arg;
  crew->next = crew->free_to = crew->thread_count = 0;
  crew->closing = false;
  crew->rc = 0;
  pthread_mutex_init(&crew->mutex, NULL);
  pthread_cond_init(&crew->more, NULL);
  for (; crew->thread_count < threads && crew->thread_count < GAP__CREW_MAX; crew->thread_count++)
    if (!gap__worker_start(&crew->threads[crew->thread_count], work, crew)) break;
}

void gap__crew_let(struct gap__crew *crew, uint32_t upto) {
  pthread_mutex_lock(&crew->mutex);
  if (upto > crew->free_to) crew->free_to = upto;
  while (!crew->thread_count && has_job(crew)) do_job(crew);
  pthread_cond_broadcast(&crew->more);
  pthread_mutex_unlock(&crew->mutex);
}

int gap__crew_end(struct gap__crew *crew) {
  pthread_mutex_lock(&crew->mutex);
  crew->closing = true;
  pthread_cond_broadcast(&crew->more);
  pthread_mutex_unlock(&crew->mutex);
  for (uint32_t i = 0; i < crew->thread_count; i++) pthread_join(crew->threads[i], NULL);
  pthread_cond_destroy(&crew->more);
  pthread_mutex_destroy(&crew->mutex);
  return crew->rc;
}

uint32_t gap__crew_size(uint32_t jobs) {
  cpu_set_t mine;
  if (jobs < 2) return 0;
  uint32_t cores = sched_getaffinity(0, sizeof mine, &mine) ? 1 : (uint32_t)CPU_COUNT(&mine);
  if (cores > GAP__CREW_MAX) cores = GAP__CREW_MAX;
  return cores < jobs ? cores : jobs;
}
