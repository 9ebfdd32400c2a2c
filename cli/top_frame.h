/* What `gapless top` shows, as lines of text (screen.h says how a line looks). */
#ifndef GAP_CLI_TOP_FRAME_H
#define GAP_CLI_TOP_FRAME_H

#include <stdbool.h>

#include "base/text.h"
#include "toolsapi/sheets_say.h"

enum top_sort { SORT_HELD, SORT_LIVE, SORT_IDLE, SORT_STALLS, SORT_PROCESS, SORT_COUNT };
extern const char *const top_sort_names[SORT_COUNT];

struct top_row { /* a device of a process */
  const struct gap__sheet_view *view;
  uint32_t index; /* of the device in the view; view->device_count: the process has opened none yet */
  struct gap__sheet_brief brief;
  double allocations_per_s, stalls_per_s; /* since the last look; negative: not known yet */
};

struct top_look {
  const struct gap__sheets *sheets;
  const struct gap__nvml *nvml;
  struct top_row *rows; /* sorted */
  uint32_t count;
};

struct top_view { /* how it is shown */
  enum top_sort sort;
  bool paused, help, is_live; /* is_live: there are keys */
  double interval_s;
  long process;         /* asked for; 0: all */
  uint32_t chosen;      /* the row whose details are shown */
  uint32_t screen_rows; /* lines there is room for */
};

const char *sheets_folder_fault(int code); /* why --folder cannot be read */

void top_frame(const struct top_look *, const struct top_view *, struct gap__text *out);

#endif
