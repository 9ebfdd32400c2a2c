/* Numbers of the grammar, with the reason in words when one is refused.  Where torch reads on silently (-1 wraps to 2^64 - 1,
 * 1.5 is 1, 512MB is 512) a number is refused instead. Nothing here depends on the locale. */
#ifndef GAP_CONF_NUMBER_H
#define GAP_CONF_NUMBER_H

#include "conf/values.h"

/* Whole numbers without a sign. */
int gap__conf_read_count(const char *text, uint64_t *out, char reason[GAP__CONF_REASON_BYTES]);
/* Sizes with or without a unit; a plain number counts `plain_unit` bytes. At most GAP__CONF_SIZE_MOST. */
int gap__conf_read_size(const char *text, uint64_t plain_unit, uint64_t *out, char reason[GAP__CONF_REASON_BYTES]);
/* Finite real numbers. */
int gap__conf_read_real(const char *text, double *out, char reason[GAP__CONF_REASON_BYTES]);
/* Writes the reason and returns GAP_EVALUE. */
int gap__conf_refuse(char reason[GAP__CONF_REASON_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static inline bool gap__conf_is_power(uint64_t number) { return number && !(number & (number - 1)); }

#endif
