#include "conf/number.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "conf/table.h"
#include "gapless/gapless.h"

int gap__conf_refuse(char reason[GAP__CONF_REASON_BYTES], const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(reason, GAP__CONF_REASON_BYTES, format, arguments);
  va_end(arguments);
  return GAP_EVALUE;
}

static bool all_of(const char *text, const char *set) { return *text && text[strspn(text, set)] == 0; }

/* Only called for what is not a number of the kind wanted. */
static int refuse_number(const char *text, char *reason) {
  if (!*text) return gap__conf_refuse(reason, "there is no value");
  if (text[0] == '-' && all_of(text + 1, "0123456789.")) return gap__conf_refuse(reason, "it is negative");
  if (all_of(text, "0123456789.")) return gap__conf_refuse(reason, "it is not a whole number");
  return gap__conf_refuse(reason, "it is not a number");
}

int gap__conf_read_count(const char *text, uint64_t *out, char reason[GAP__CONF_REASON_BYTES]) {
  int result = gap__text_parse_u64(text, strlen(text), out);
  if (result == GAP_ELIMIT) return gap__conf_refuse(reason, "it does not fit into 64 bits");
  return result ? refuse_number(text, reason) : 0;
}

static int too_large(char *reason) {
  return gap__conf_refuse(reason, "it is more than 2^60 bytes, which no device has");
}

static int read_plain_size(const char *text, uint64_t unit, uint64_t *out, char *reason) {
  uint64_t number;
  int result = gap__text_parse_u64(text, strlen(text), &number);
  if (result == GAP_ELIMIT || (!result && number > GAP__CONF_SIZE_MOST / unit)) return too_large(reason);
  if (result) return refuse_number(text, reason);
  *out = number * unit;
  return 0;
}

int gap__conf_read_size(const char *text, uint64_t plain_unit, uint64_t *out, char reason[GAP__CONF_REASON_BYTES]) {
  if (all_of(text, "0123456789.")) return read_plain_size(text, plain_unit, out, reason);
  uint64_t bytes;
  int result = gap__text_parse_size(text, strlen(text), &bytes);
  if (result == GAP_ELIMIT || (!result && bytes > GAP__CONF_SIZE_MOST)) return too_large(reason);
  if (result) {
    if (text[0] >= '0' && text[0] <= '9')
      return gap__conf_refuse(reason, "it is not a number with one of K M G T KiB MiB GiB TiB");
    return refuse_number(text, reason);
  }
  *out = bytes;
  return 0;
}

int gap__conf_read_real(const char *text, double *out, char reason[GAP__CONF_REASON_BYTES]) {
  if (gap__text_parse_real(text, strlen(text), out))
    return gap__conf_refuse(reason, *text ? "it is not a number" : "there is no value");
  return 0;
}
