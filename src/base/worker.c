#include "base/worker.h"

#include <signal.h>

bool gap__worker_start(pthread_t *out, void *(*work)(void *), void *arg) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = pthread_create(out, NULL, work, arg) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return started;
}
