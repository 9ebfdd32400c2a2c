/* What is in a page: panels, and what they say side by side. */
#ifndef GAP_REPORT_DOCUMENT_H
#define GAP_REPORT_DOCUMENT_H

#include "compare/diff.h"
#include "explain/job.h"
#include "report/panel.h"

#define GAP__REPORT_VERSION 1 /* of the data: FORMAT_VERSION in web/src/data.ts */

struct gap__document {
  struct gap__panel **panels;
  uint32_t panel_count;
  const struct gap_diff *diff; /* NULL: nothing is compared */
  uint32_t diff_panels[2];
  uint32_t diff_rows;
  const struct gap__job *job; /* its ranks are the panels; NULL: none */
};

/* One JSON object, malloc'ed.  0 or GAP_ENOMETA. */
int gap__document_json(const struct gap__document *, char **out);

#endif
