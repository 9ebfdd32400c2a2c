/* Keys that are fine alone and contradict each other. */
#ifndef GAP_CONF_CHECK_H
#define GAP_CONF_CHECK_H

#include "conf/set.h"

struct gap__conf_check {
  const struct gap__conf_set *set;
  enum gap__conf_source source;          /* the string's */
  const char *variable;                  /* the string's */
  const struct gap__conf_merged *merged; /* values as they would be with the string */
  uint64_t named;                        /* keys of the string: what it makes impossible is refused */
  uint64_t watched;                      /* keys whose contradictions are warned of */
  struct gap__conf_report *report;
};

/* True when the string has to be refused; every contradiction is said in words. */
bool gap__conf_contradicts(const struct gap__conf_check *);

#endif
