#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/lock.h"
#include "gapless/gapless.h"

static struct {
  struct gap__lock lock; /* guards fn and arg, which belong together; not held while fn runs */
  gap_log_fn fn;
  void *arg;
  atomic_bool on; /* fn is set */
  atomic_int level;
} sink = {.level = GAP__LOG_WARNING};

void gap_set_log(gap_log_fn fn, void *arg) {
  gap__lock(&sink.lock);
  sink.fn = fn;
  sink.arg = arg;
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
  gap_log_fn fn = sink.fn;
  void *arg = sink.arg;
  gap__unlock(&sink.lock);
  if (fn) fn(arg, level, line);
}
