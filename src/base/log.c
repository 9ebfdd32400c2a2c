#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/lock.h"
#include "gapless/gapless.h"

struct listener {
  gap_log_fn fn;
  void *arg;
};

/* The child of a fork may find the lock taken by a thread that is gone, in the middle of a change: so a change is made beside
 * what is in force. */
static struct {
  struct gap__lock lock; /* guards what follows; not held while fn runs */
  struct listener listeners[2];
  atomic_uint current; /* of them */
  atomic_bool on;      /* somebody listens */
  atomic_int level;
} sink = {.level = GAP__LOG_WARNING};

static void in_child(void) { sink.lock = (struct gap__lock){0}; }
static void install(void) { pthread_atfork(NULL, NULL, in_child); }

void gap_set_log(gap_log_fn fn, void *arg) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, install);
  gap__lock(&sink.lock);
  unsigned next = !atomic_load(&sink.current);
  sink.listeners[next] = (struct listener){fn, arg};
  atomic_store(&sink.current, next);
  atomic_store(&sink.on, fn != NULL);
  gap__unlock(&sink.lock);
}

void gap__log_level_set(int level) { atomic_store(&sink.level, level); }

void gap__log(int level, const char *format, ...) {
  if (!atomic_load(&sink.on) || level > atomic_load(&sink.level)) return;
  char line[501];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  gap__lock(&sink.lock);
  struct listener listener = sink.listeners[atomic_load(&sink.current)];
  gap__unlock(&sink.lock);
  if (listener.fn) listener.fn(listener.arg, level, line);
}
