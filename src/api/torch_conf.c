/* What the Python package needs of the configuration and of the log. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "conf/conf.h"
#include "conf/reduce.h"
#include "gapless/pluggable.h"

static void say_all(const struct gap__conf_report *report) {
  for (uint32_t i = 0; i < report->count; i++)
    if (report->messages[i].level <= 1) gap__log(report->messages[i].level, "%s", report->messages[i].line);
}

int gap_torch_conf(const char *string, char *text, size_t bytes, size_t *needed, int *asks) {
  if (!string || !needed || !asks || (bytes && !text)) return GAP_EINVAL;
  struct gap__conf_report *report = calloc(1, sizeof *report);
  if (!report) return GAP_ENOMETA;
  *asks = gap__conf_asks_gapless(string);
  int result = gap__conf_reduce(string, text, bytes, needed, report);
  say_all(report);
  free(report);
  return result;
}

static _Thread_local struct {
  char *text;
  size_t bytes, length;
} captured;

void gap_torch_capture(char *text, size_t bytes) {
  captured.text = bytes ? text : NULL;
  captured.bytes = bytes;
  captured.length = 0;
  if (captured.text) *text = 0;
}

static void keep(const char *line) {
  size_t room = captured.bytes - captured.length;
  int length = snprintf(captured.text + captured.length, room, "%s\n", line);
  captured.length += (size_t)length < room ? (size_t)length : room - 1;
}

void gap_torch_log(void *unused, int level, const char *line) {
  static const char *const words[] = {"error: ", "warning: ", "", "debug: "};
  char text[600];
  (void)unused;
  if (captured.text && level <= 1) {
    keep(line);
    return;
  }
  int length = snprintf(text, sizeof text, "gapless: %s%s\n", level >= 0 && level < 4 ? words[level] : "", line);
  if (length >= (int)sizeof text) length = (int)sizeof text - 1;
  ssize_t written = write(STDERR_FILENO, text, (size_t)length);
  (void)written; /* there is nobody left to tell */
}
