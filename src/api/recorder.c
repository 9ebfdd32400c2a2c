#include "api/recorder.h"

#include <stdlib.h>
#include <time.h>

#include "api/frames.h"
#include "base/lock.h"

enum { EXIT_SECONDS = 2 };

static struct {
  struct gap__lock lock;
  struct gap__recorder *first;
} recorders;

/* At exit the heaps stay, and their memory too: nothing is freed. */
static void at_end(void) {
  gap__lock(&recorders.lock);
  for (struct gap__recorder *recorder = recorders.first; recorder; recorder = recorder->next)
    recorder->at_exit(recorder);
  recorders.first = NULL;
  gap__unlock(&recorders.lock);
}

static void before_fork(void) {
  gap__lock(&recorders.lock);
  gap__frames_before_fork();
}
static void in_parent(void) {
  gap__frames_after_fork();
  gap__unlock(&recorders.lock);
}
static void in_child(void) {
  for (struct gap__recorder *recorder = recorders.first; recorder; recorder = recorder->next)
    recorder->in_child(recorder);
  recorders.first = NULL;
  in_parent();
}

static void install(void) {
  pthread_atfork(before_fork, in_parent, in_child);
  atexit(at_end);
}

void gap__recorder_add(struct gap__recorder *recorder) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, install);
  gap__lock(&recorders.lock);
  recorder->next = recorders.first;
  recorders.first = recorder;
  gap__unlock(&recorders.lock);
}

bool gap__recorder_remove(const struct gap__recorder *recorder) {
  gap__lock(&recorders.lock);
  struct gap__recorder **at = &recorders.first;
  while (*at && *at != recorder) at = &(*at)->next;
  bool found = *at != NULL;
  if (found) *at = recorder->next;
  gap__unlock(&recorders.lock);
  return found;
}

bool gap__recorder_join(pthread_t thread) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += EXIT_SECONDS;
  return pthread_timedjoin_np(thread, NULL, &until) == 0;
}
