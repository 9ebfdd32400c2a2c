/* Threads that do tasks in the order in which they were given, but for what cannot wait.  A task is cut into parts, which several
 * threads may do side by side. */
#ifndef GAP_TIER_HANDS_H
#define GAP_TIER_HANDS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { GAP__HANDS_MAX = 16 };

struct gap__task { /* the first member of its owner's */
  struct gap__task *next;
  uint32_t parts, taken;
};

/* Who does the last part may free the task: nobody looks at it any more. */
typedef void gap__task_fn(void *arg, struct gap__task *, uint32_t part);

struct gap__hands {
  gap__task_fn *work;
  void *arg;
  pthread_mutex_t mutex; /* guards what follows; the last one that a thread takes */
  pthread_cond_t more;
  struct gap__task *head, *tail;
  bool closing;
  uint32_t thread_count; /* 0: not started */
  pthread_t threads[GAP__HANDS_MAX];
};

/* GAP_ENOMETA: the system gives no thread. */
int gap__hands_start(struct gap__hands *, uint32_t threads, gap__task_fn *, void *arg);
/* `parts` is at least 1. */
void gap__hands_give(struct gap__hands *, struct gap__task *, uint32_t parts);
/* Before all that was not begun. */
void gap__hands_give_first(struct gap__hands *, struct gap__task *, uint32_t parts);
/* Does what was given, then ends; fine where it was not started. */
void gap__hands_end(struct gap__hands *);

#endif
