/* Threads of the library's own. */
#ifndef GAP_WORKER_H
#define GAP_WORKER_H

#include <pthread.h>
#include <stdbool.h>

/* A thread in which no signal of the program's is handled: a handler that ran there might find this library's locks held.  False:
 * there is no thread. */
bool gap__worker_start(pthread_t *out, void *(*work)(void *), void *arg);

#endif
