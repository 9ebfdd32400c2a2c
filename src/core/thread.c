/* Thread numbers and the end of threads.
 *
 * The driver destroys a thread's default stream in a destructor of its own, so ours must run before that one: measured with
 * driver 580, a pthread key made after the driver's is too late (the handle then names a new stream), while destructors of
 * thread-local objects (__cxa_thread_atexit_impl, glibc since 2.18) always run before those of keys.  Where that function is
 * missing a key has to do; whoever records an event compares the stream's id, so a destructor that comes too late is noticed.
 *
 * The library is linked with -z nodelete: neither kind of destructor may point into a library that is gone. */
#include "core/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "core/heap.h"

extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

static _Atomic uint64_t last;
static _Thread_local uint64_t mine;
static pthread_key_t key;
static int key_failed;

static void at_end(void *number) {
  (void)number;
  uint64_t ending = mine;
  if (ending) gap__heap_thread_end(ending);
  mine = 0; /* a destructor that runs after this one and allocates gets a number of its own, and an end of its own */
}

static void make_key(void) { key_failed = pthread_key_create(&key, at_end); }

static void announce_end(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (__cxa_thread_atexit_impl && __cxa_thread_atexit_impl(at_end, NULL, &__dso_handle) == 0) return;
  pthread_once(&once, make_key);
  if (!key_failed) pthread_setspecific(key, &mine);
}

uint64_t gap__thread_number(void) {
  if (__builtin_expect(mine == 0, 0)) {
    mine = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    announce_end();
  }
  return mine;
}
