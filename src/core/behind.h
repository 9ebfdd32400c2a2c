/* What lies behind a lane's stream in the graph that captures it: the nodes after whose end every later operation of the stream comes.
 *
 * Found backwards from the stream's front, each node once: what lies behind the stream once does so for the rest of the capture, so
 * a search stops at what earlier ones have found.  Bounds: GAP__BEHIND_MAX nodes of a capture, and GAP__BEHIND_WIDTH nodes
 * directly before each; what is beyond them is not found, and so is never taken for ended.  Under the device lock, by a thread
 * that asks for memory on the stream: graphs may be looked at by who captures only. */
#ifndef GAP_BEHIND_H
#define GAP_BEHIND_H

#include "core/state.h"

enum { GAP__BEHIND_MAX = 1 << 16, GAP__BEHIND_WIDTH = 64 };

/* Looks.  False: the stream takes no part in this capture, or nothing can be told. */
bool gap__behind_look(struct gap__lane *, uint64_t capture);
/* Of the capture that was looked at last. */
bool gap__behind_has(const struct gap__lane *, gap__node);
void gap__behind_forget(struct gap__lane *);

#endif
