/* Independent pieces of work on several threads. */
#ifndef GAP_REPLAY_WORKERS_H
#define GAP_REPLAY_WORKERS_H

#include <stdint.h>

struct gap__workers {
  uint32_t threads;
  void (*run)(void *arg, uint32_t index); /* on any thread; each index once */
  void (*tick)(void *arg);                /* on the calling thread, ten times a second and at the end */
  void *arg;
};

/* Runs indices 0 .. count - 1 and returns when all are done.  Where no thread can be started the caller does the work. */
void gap__workers_run(const struct gap__workers *, uint32_t count);
/* As many as can work at the same time, at least 1. */
uint32_t gap__workers_processors(void);

#endif
