/* The configuration, as the public header offers it. */
#include <stdlib.h>

#include "conf/conf.h"
#include "gapless/tools.h"
#include "toolsapi/conf_show.h"

int gap_conf_main(int argc, char **argv, FILE *out, FILE *err) { return gap__conf_main(argc, argv, out, err); }

void gap_conf_warn(const char *name, const char *string, FILE *err) {
  struct gap__conf_report *report = calloc(1, sizeof *report);
  struct gap__conf_set *set = gap__conf_new();
  if (report && set) gap__conf_apply(set, GAP__CONF_RUNTIME, name, string, report);
  for (uint32_t i = 0; report && i < report->count; i++)
    if (report->messages[i].level == 1) fprintf(err, "warning: %s\n", report->messages[i].line);
  if (set) gap__conf_free(set);
  free(report);
}
