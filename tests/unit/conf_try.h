/* One string tried on a fresh set. */
#ifndef GAP_TESTS_CONF_TRY_H
#define GAP_TESTS_CONF_TRY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "conf/table.h"
#include "gapless/gapless.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

struct try {
  struct gap__conf_set *set;
  struct gap__conf_report report;
  int result;
};

static inline struct try try_string(const char *string) {
  struct try try = {.set = gap__conf_new()};
  assert_non_null(try.set);
  try.result = gap__conf_apply(try.set, GAP__CONF_GAPLESS_ENV, "GAPLESS_CONF", string, &try.report);
  return try;
}

static inline void try_end(struct try *try) { gap__conf_free(try->set); }

static inline const char *try_text(const struct gap__conf_set *set, const char *key, char out[1280]) {
  int index = gap__conf_find(key);
  assert_true(index >= 0);
  gap__conf_value_text(set, (uint32_t)index, out, 1280);
  return out;
}

/* Whether some message of this level (-1: any) has the words. */
static inline int try_said(const struct gap__conf_report *report, int level, const char *words) {
  for (uint32_t i = 0; i < report->count; i++)
    if ((level < 0 || report->messages[i].level == level) && strstr(report->messages[i].line, words)) return 1;
  return 0;
}

static inline void try_print(const struct gap__conf_report *report) {
  for (uint32_t i = 0; i < report->count; i++)
    print_error("  %d %s\n", report->messages[i].level, report->messages[i].line);
}

#endif
