/* Reads one value of the grammar into the members that its key sets. */
#ifndef GAP_CONF_VALUES_H
#define GAP_CONF_VALUES_H

#include "conf/table.h"

#define GAP__CONF_REASON_BYTES 120

/* 0, or GAP_EVALUE with a half sentence in `reason` ("it is negative"). `value` is without blanks. */
int gap__conf_read_value(const struct gap__conf_entry *, const char *value, struct gap__conf *out,
                         char reason[GAP__CONF_REASON_BYTES]);
/* True, true, 1, on, yes and their opposites, in any case. */
bool gap__conf_read_bool(const char *value, bool *out);

/* The two kinds with brackets (lists.c). */
int gap__conf_read_roundup(const struct gap__conf_entry *, const char *value, uint32_t slots[GAP__CONF_SLOTS],
                           char reason[GAP__CONF_REASON_BYTES]);
int gap__conf_read_sizes(const struct gap__conf_entry *, const char *value, struct gap__conf *out,
                         char reason[GAP__CONF_REASON_BYTES]);

#endif
