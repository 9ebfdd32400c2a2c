/* Threads: what tells their per-thread default streams apart, and what happens when one ends. */
#ifndef GAP_THREAD_H
#define GAP_THREAD_H

#include <stdint.h>

/* A number that differs between threads alive or dead; 0 is never given.  A thread that has one tells every heap of its end
 * (gap__heap_thread_end) while its streams still exist. */
uint64_t gap__thread_number(void);

#endif
