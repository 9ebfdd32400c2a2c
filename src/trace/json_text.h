/* Text in JSON.  Names of files and of call sites may hold bytes that are no UTF-8, which JSON cannot: U+FFFD stands for each. */
#ifndef GAP_TRACE_JSON_TEXT_H
#define GAP_TRACE_JSON_TEXT_H

#include <jansson.h>

#include "trace/output.h"

/* NULL: null. */
json_t *gap__json_text(const char *text);
/* A document as text, malloc'ed; it is freed.  NULL: of NULL, or the host has no memory. */
char *gap__json_take(json_t *, size_t flags);
/* What stands between the quotation marks. */
void gap__json_put(struct gap__output *, const char *text);

#endif
