/* Messages about a string. */
#ifndef GAP_CONF_REPORT_H
#define GAP_CONF_REPORT_H

#include "conf/conf.h"
#include "conf/tokens.h"

enum gap__conf_level { GAP__CONF_ERROR, GAP__CONF_WARNING, GAP__CONF_NOTE };

/* Adds a line; a full report only counts it. NULL is fine. */
void gap__conf_say(struct gap__conf_report *, enum gap__conf_level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether the next line would be kept. */
bool gap__conf_has_room(const struct gap__conf_report *);

/* Enough for every quotation. */
#define GAP__CONF_QUOTE_BYTES 96

/* The span as plain ASCII: other bytes as \xHH, cut with "..." where it is longer than `most` (at most 90) characters. */
char *gap__conf_quote(struct gap__conf_span, size_t most, char out[GAP__CONF_QUOTE_BYTES]);

#endif
