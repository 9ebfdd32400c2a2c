/* Who writes down what heaps do: at the program's end each has a last word, and a child after fork is none of them. */
#ifndef GAP_API_RECORDER_H
#define GAP_API_RECORDER_H

#include <pthread.h>
#include <stdbool.h>

struct gap__recorder {
  struct gap__recorder *next; /* guarded by the list's lock */
  void (*at_exit)(struct gap__recorder *);
  void (*in_child)(struct gap__recorder *); /* the file and the thread are the parent's */
};

void gap__recorder_add(struct gap__recorder *);
/* False: it is a parent's, or the program is at its end; then there is nothing left to do. */
bool gap__recorder_remove(const struct gap__recorder *);
/* At the program's end a thread of the library's is waited for, but not for long. */
bool gap__recorder_join(pthread_t);

#endif
