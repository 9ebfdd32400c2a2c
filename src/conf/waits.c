/* Keys that are read, checked and kept, but that no code stands behind yet. */
#include <string.h>

#include "conf/report.h"
#include "conf/table.h"

static const char *const waiting[] = {
#define GAP_WAITS(key) key,
#include "conf/options.def"
};
enum { WAITING = sizeof waiting / sizeof *waiting };

bool gap__conf_waits(const char *key) { return gap__conf_find_word(key, waiting, WAITING) >= 0; }

void gap__conf_warn_waiting(const struct gap__conf_set *set, enum gap__conf_source weakest,
                            struct gap__conf_report *report) {
  for (int i = 0; i < WAITING; i++) {
    uint32_t option = (uint32_t)gap__conf_find(waiting[i]);
    const char *variable;
    char value[300];
    gap__conf_value_text(set, option, value, sizeof value);
    if (gap__conf_value_source(set, option, &variable) >= weakest &&
        strcmp(value, gap__conf_option_at(option)->default_text) != 0)
      gap__conf_say(report, GAP__CONF_WARNING, "%s: %s:%s has no effect in this version", variable, waiting[i], value);
  }
}
