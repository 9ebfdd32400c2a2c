/* Error messages of the readers: made once, at the first failure, and owned by the caller. */
#ifndef GAP_TRACE_MESSAGE_H
#define GAP_TRACE_MESSAGE_H

#include <stdarg.h>

/* Stores the formatted text in *message unless one is there already; returns `code`.  When the host has no memory for the
 * text, *message stays NULL: gap__message_settle() puts a short one there. */
int gap__message_set(char **message, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
int gap__message_set_v(char **message, int code, const char *format, va_list arguments);
/* After a failure: makes sure that *message is a malloc'ed text.  Returns `code`. */
int gap__message_settle(char **message, int code);

#endif
