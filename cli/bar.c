#include "bar.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CELLS = 30, REDRAW_MS = 80 };

static uint64_t milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static bool can_draw(void) {
  const char *term = getenv("TERM");
  return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

void bar_begin(struct bar *bar, const char *label, bool wanted) {
  *bar = (struct bar){.label = label, .on = wanted && can_draw(), .last_ms = milliseconds()};
}

static void draw(const struct bar *bar, uint64_t done, uint64_t total) {
  char cells[CELLS + 1];
  if (total == 0) {
    fprintf(stderr, "\r%.44s: %" PRIu64 " tries\x1b[K", bar->label, done);
    return;
  }
  if (done > total) done = total;
  uint64_t full = (uint64_t)((double)done / (double)total * CELLS);
  for (uint64_t i = 0; i < CELLS; i++) cells[i] = i < full ? '#' : '.';
  cells[CELLS] = '\0';
  fprintf(stderr, "\r%.44s [%s] %3d%%\x1b[K", bar->label, cells, (int)((double)done / (double)total * 100));
}

void bar_update(void *arg, uint64_t done, uint64_t total) {
  struct bar *bar = arg;
  if (!bar->on) return;
  uint64_t now = milliseconds();
  if (now - bar->last_ms < REDRAW_MS) return;
  bar->last_ms = now;
  bar->drawn = true;
  draw(bar, done, total);
  fflush(stderr);
}

void bar_end(struct bar *bar) {
  if (!bar->drawn) return;
  fputs("\r\x1b[K", stderr);
  fflush(stderr);
  bar->drawn = false;
}
