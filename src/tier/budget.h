/* How much host memory this process may still lock: pinned bytes count against its control group, whose answer is SIGKILL.
 *
 * room = the smallest of what the machine has available and, of each memory group from the process's own up to the root, its
 * limit - its use.  Page cache that nobody uses is no use: the kernel drops it.  A fifth of what there was before we took any is
 * left to everything else.  A figure that is there and cannot be read for now, since the process may open no more files or has no memory for it,
 * is no figure that does not exist: then nothing may be locked. */
#ifndef GAP_TIER_BUDGET_H
#define GAP_TIER_BUDGET_H

#include <stddef.h>
#include <stdint.h>

struct gap__budget {
  uint64_t available_bytes; /* MemAvailable; UINT64_MAX: it cannot be told */
  uint64_t group_bytes;     /* limit - use of the tightest group; UINT64_MAX: none limits it */
  int unread;               /* errno, where a file could not be opened for want of descriptors or memory; 0 */
};

/* Looks now; files are read below `root` ("" is this machine: /proc and /sys/fs/cgroup). */
void gap__budget_look(const char *root, struct gap__budget *out);
/* Bytes that may be locked beside those that are, 0 where something is unread: 0.8 x (the smaller figure + locked) - locked.  So a pool that grows in small steps
 * ends where one that grows at once does. */
uint64_t gap__budget_room(const struct gap__budget *, uint64_t locked_bytes);

#endif
