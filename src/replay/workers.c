#include "replay/workers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 256, TICK_NS = 100000000 };

struct crew {
  const struct gap__workers *workers;
  uint32_t count;
  _Atomic uint32_t next;
  pthread_mutex_t lock;
  pthread_cond_t ended;
  uint32_t running; /* threads; `lock` guards it */
};

static void work(struct crew *crew) {
  for (;;) {
    uint32_t index = atomic_fetch_add(&crew->next, 1);
    if (index >= crew->count) return;
    crew->workers->run(crew->workers->arg, index);
  }
}

static void *thread_main(void *arg) {
  struct crew *crew = arg;
  work(crew);
  pthread_mutex_lock(&crew->lock);
  crew->running--;
  pthread_cond_signal(&crew->ended);
  pthread_mutex_unlock(&crew->lock);
  return NULL;
}

static struct timespec next_tick(void) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  at.tv_nsec += TICK_NS;
  if (at.tv_nsec >= 1000000000) {
    at.tv_nsec -= 1000000000;
    at.tv_sec++;
  }
  return at;
}

static void wait_for_all(struct crew *crew) {
  pthread_mutex_lock(&crew->lock);
  while (crew->running > 0) {
    struct timespec at = next_tick();
    pthread_cond_timedwait(&crew->ended, &crew->lock, &at);
    pthread_mutex_unlock(&crew->lock);
    crew->workers->tick(crew->workers->arg);
    pthread_mutex_lock(&crew->lock);
  }
  pthread_mutex_unlock(&crew->lock);
}

/* How many began; threads of this crew alone touch what `run` is given. */
static uint32_t begin(struct crew *crew, pthread_t *threads, uint32_t wanted) {
  uint32_t begun = 0;
  crew->running = wanted;
  while (begun < wanted && pthread_create(&threads[begun], NULL, thread_main, crew) == 0) begun++;
  pthread_mutex_lock(&crew->lock);
  crew->running -= wanted - begun;
  pthread_mutex_unlock(&crew->lock);
  return begun;
}

void gap__workers_run(const struct gap__workers *workers, uint32_t count) {
  pthread_t threads[THREADS_MAX];
  struct crew crew = {.workers = workers, .count = count};
  uint32_t wanted = workers->threads < THREADS_MAX ? workers->threads : THREADS_MAX;
  if (wanted > count) wanted = count;
  pthread_mutex_init(&crew.lock, NULL);
  pthread_cond_init(&crew.ended, NULL);
  uint32_t begun = begin(&crew, threads, wanted);
  if (begun == 0) work(&crew);
  wait_for_all(&crew);
  for (uint32_t i = 0; i < begun; i++) pthread_join(threads[i], NULL);
  pthread_mutex_destroy(&crew.lock);
  pthread_cond_destroy(&crew.ended);
  workers->tick(workers->arg);
}

uint32_t gap__workers_processors(void) {
  long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count < 1 ? 1 : count > THREADS_MAX ? THREADS_MAX : (uint32_t)count;
}
