/* The call sites and frames that a page speaks of, each once. */
#ifndef GAP_REPORT_NAMES_H
#define GAP_REPORT_NAMES_H

#include "base/map.h"
#include "explain/sites.h"
#include "report/emit.h"

enum { GAP__NAMES_SITES_MAX = 4096 }; /* the first and the last stand for unknown and for further ones */

struct gap__names {
  const struct gap__sites *sites;
  struct gap__map site_index, frame_index;
  uint32_t site_at[GAP__NAMES_SITES_MAX];
  uint32_t site_count;
  bool has_further; /* more call sites than there is room for */
  uint32_t *frames; /* of the history */
  uint32_t frame_count, frame_room;
};

void gap__names_begin(struct gap__names *, const struct gap__sites *);
void gap__names_free(struct gap__names *);
/* The index of a stack's call site in the page.  0 or GAP_ENOMETA, like the next. */
int gap__names_site(struct gap__names *, uint32_t stack, uint32_t *out);
/* The index of a frame; frames of equal text have one. */
int gap__names_frame(struct gap__names *, uint32_t frame, uint32_t *out);
void gap__names_emit_sites(const struct gap__names *, struct gap__emit *);
void gap__names_emit_frames(const struct gap__names *, struct gap__emit *);

#endif
