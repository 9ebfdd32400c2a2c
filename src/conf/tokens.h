/* Takes a configuration string apart: key:value,key:[a:b,...],word.  White space is dropped anywhere, as torch does; only in
 * the raw value (for paths) is it kept inside. A comma inside a bracket does not end an item, nor does one between the
 * places of `tiers`. */
#ifndef GAP_CONF_TOKENS_H
#define GAP_CONF_TOKENS_H

#include <stdbool.h>
#include <stddef.h>

#define GAP__CONF_KEY_BYTES 64
#define GAP__CONF_VALUE_BYTES 1024

struct gap__conf_span {
  const char *start;
  size_t length;
};

struct gap__conf_item {
  struct gap__conf_span whole;       /* the item as written, without blanks around it */
  struct gap__conf_span raw_value;   /* the value as written, without blanks around it */
  char key[GAP__CONF_KEY_BYTES];     /* without blanks; cut when longer (no key is) */
  char value[GAP__CONF_VALUE_BYTES]; /* without blanks */
  char separator;                    /* ':' or '='; 0 = a bare word */
  bool value_too_long;               /* `value` is cut */
  bool bracket_open;                 /* a [ without its ] */
};

/* White space in the sense of the C locale, whatever the locale is. */
bool gap__conf_is_blank(char c);
/* Copies without blanks; false when it had to be cut. */
bool gap__conf_squeeze(struct gap__conf_span, char *out, size_t bytes);
/* The whole string without blanks around it and without one pair of quotes; *quoted says whether there was one. */
struct gap__conf_span gap__conf_unquote(const char *string, bool *quoted);
/* Reads the item that begins at the front of *rest and moves *rest behind it; empty items are skipped. False at the end. */
bool gap__conf_next_item(struct gap__conf_span *rest, struct gap__conf_item *out);

#endif
