/* One device of one file, reduced to what a page shows of it. */
#ifndef GAP_REPORT_PANEL_H
#define GAP_REPORT_PANEL_H

#include "report/flame.h"
#include "report/moment.h"
#include "report/timeline.h"
#include "report/what_if.h"

enum { GAP__PANEL_MOMENTS = 3 };

struct gap__panel_limits {
  uint32_t stretches; /* of the timeline */
  uint32_t flame_nodes;
  struct gap__moment_limits moment;
  bool no_what_if;
};

struct gap__panel {
  const char *file;
  struct gap__subject *subject; /* with its explanation; borrowed */
  struct gap__streams streams;
  struct gap__names names;
  struct gap__timeline timeline;
  struct gap__moment moments[GAP__PANEL_MOMENTS];
  uint32_t moment_count;
  struct gap__flame flame;
  struct gap__what_if what_if; /* prepared; the jobs are run by whoever has the replays */
};

/* The page is for `panels` panels: the more, the less of each. */
struct gap__panel_limits gap__panel_limits(uint32_t panels, uint32_t top);
/* `file` and the subject, which is studied, must stay.  0 or GAP_ENOMETA; to be freed whatever is returned. */
int gap__panel_make(struct gap__panel *, const char *file, struct gap__subject *, const struct gap__panel_limits *);
void gap__panel_free(struct gap__panel *);
int gap__panel_emit(struct gap__panel *, struct gap__emit *); /* 0 or GAP_ENOMETA */

#endif
