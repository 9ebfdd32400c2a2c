/* Some threads that do numbered jobs in their order: jobs are let go one after the other (as copies arrive), or all at once.
 * With few jobs, or where no thread can be had, they are done by the caller instead, in the call that lets them go. */
#ifndef GAP_TIER_CREW_H
#define GAP_TIER_CREW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { GAP__CREW_MAX = 16 };

/* Job `index`; other than 0 stops the crew. */
typedef int gap__crew_fn(void *arg, uint32_t index);

struct gap__crew {
  gap__crew_fn *job;
  void *arg;
  pthread_mutex_t mutex; /* guards what follows */
  pthread_cond_t more;
  uint32_t next, free_to; /* the next job that nobody has taken; jobs below `free_to` may be done */
  bool closing;
  int rc; /* of the first job that failed */
  uint32_t thread_count;
  pthread_t threads[GAP__CREW_MAX];
};

/* `threads` 0: the caller does it all. */
void gap__crew_start(struct gap__crew *, uint32_t threads, gap__crew_fn *, void *arg);
/* Jobs below `upto` may be done from here on. */
void gap__crew_let(struct gap__crew *, uint32_t upto);
/* Waits until all jobs that were let go are done, or one failed; ends the threads.  The first failure, or 0. */
int gap__crew_end(struct gap__crew *);
/* Threads for `jobs` of some tens of MiB: processors that this process may use, at most GAP__CREW_MAX, none for a single job. */
uint32_t gap__crew_size(uint32_t jobs);

#endif
