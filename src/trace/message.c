#include "trace/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gap__message_set_v(char **message, int code, const char *format, va_list arguments) {
  char *text = NULL;
  if (*message) return code;
  if (vasprintf(&text, format, arguments) >= 0) *message = text;
  return code;
}

int gap__message_set(char **message, int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  gap__message_set_v(message, code, format, arguments);
  va_end(arguments);
  return code;
}

int gap__message_settle(char **message, int code) {
  if (!*message) *message = strdup("out of host memory");
  return code;
}
