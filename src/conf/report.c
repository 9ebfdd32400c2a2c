#include "conf/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MESSAGES_MAX (sizeof((struct gap__conf_report *)0)->messages / sizeof(struct gap__conf_message))

/* Bytes that the character takes in a quotation. */
static size_t quoted_length(unsigned char c) { return c >= 0x20 && c < 0x7f ? 1 : 4; }

/* Parts of the string stand in reasons as written; a line is plain ASCII all the same. */
static void make_plain(char *line) {
  for (; *line; line++)
    if (quoted_length((unsigned char)*line) != 1) *line = '?';
}

bool gap__conf_has_room(const struct gap__conf_report *report) { return report && report->count < MESSAGES_MAX; }

void gap__conf_say(struct gap__conf_report *report, enum gap__conf_level level, const char *format, ...) {
  if (!report) return;
  if (level == GAP__CONF_ERROR) report->errors++;
  if (level == GAP__CONF_WARNING) report->warnings++;
  if (!gap__conf_has_room(report)) {
    report->dropped++;
    return;
  }
  struct gap__conf_message *message = &report->messages[report->count++];
  message->level = (int)level;
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(message->line, sizeof message->line, format, arguments);
  va_end(arguments);
  make_plain(message->line);
}

static size_t put_quoted(unsigned char c, char *out) {
  static const char hex[] = "0123456789abcdef";
  if (quoted_length(c) == 1) {
    out[0] = (char)c;
    return 1;
  }
  out[0] = '\\', out[1] = 'x', out[2] = hex[c >> 4], out[3] = hex[c & 15];
  return 4;
}

char *gap__conf_quote(struct gap__conf_span span, size_t most, char out[GAP__CONF_QUOTE_BYTES]) {
  size_t used = 0;
  for (size_t i = 0; i < span.length; i++) {
    unsigned char c = (unsigned char)span.start[i];
    if (used + quoted_length(c) > most) {
      memcpy(out + used, "...", 3);
      used += 3;
      break;
    }
    used += put_quoted(c, out + used);
  }
  out[used] = 0;
  return out;
}
