/* The parts of an explanation, put together for a person's screen. */
#ifndef GAP_EXPLAIN_REPORT_H
#define GAP_EXPLAIN_REPORT_H

#include "explain/subject.h"

/* Lines of at most `columns`, 0 unlimited.  Malloc'ed, NULL when the host has no memory. */
char *gap__report_head(const struct gap__subject *); /* what is explained, in a sentence */
char *gap__report_words(const struct gap__subject *, unsigned columns);
char *gap__report_advice(const struct gap__subject *, unsigned columns);
const char *gap__advice_kind_name(enum gap__advice_kind);

#endif
