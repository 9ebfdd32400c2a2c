/* What libgapless-remote.so gives the library: one symbol, a table of the calls of gapless/remote.h.
 *
 * The plug-in is apart because it needs hiredis and OpenSSL, and the library depends on nothing but libc.  It holds its own copies of what it
 * uses from base; the library lends it its log. */
#ifndef GAP_REMOTE_PLUGIN_H
#define GAP_REMOTE_PLUGIN_H

#include "gapless/remote.h"

#define GAP__REMOTE_PLUGIN "libgapless-remote.so"
#define GAP__REMOTE_SYMBOL "gapless_remote_plugin"
/* Changes with this table and with any struct of gapless/remote.h. */
#define GAP__REMOTE_ABI 1u

typedef void gap__remote_log(int level, const char *line);

typedef int gap__remote_begin(gap_remote *, gap_remote_item *, uint32_t count, uint32_t timeout_ms,
                              gap_remote_ticket *);

struct gap__remote_plugin {
  uint32_t abi; /* GAP__REMOTE_ABI */
  int (*open)(const gap_remote_options *, gap__remote_log *, gap_remote **, char *message, size_t bytes);
  void (*close)(gap_remote *);
  gap__remote_begin *put, *get, *contains;
  int (*poll)(gap_remote *, gap_remote_ticket);
  int (*wait)(gap_remote *, gap_remote_ticket, uint32_t timeout_ms);
  int (*cancel)(gap_remote *, gap_remote_ticket);
  int (*drain)(gap_remote *, uint32_t timeout_ms);
  int (*stats)(gap_remote *, gap_remote_stats *);
  int (*server_count)(gap_remote *, uint32_t *);
  int (*look)(gap_remote *, uint32_t index, uint32_t timeout_ms, gap_remote_server *);
};

typedef const struct gap__remote_plugin *gap__remote_plugin_fn(void);

/* Loads it at the first call, from beside the library or the program, else from where the system looks for libraries.  GAP_ENOTSUP with
 * the reason in `message`; a later call tries again. */
int gap__remote_load(const struct gap__remote_plugin **out, char *message, size_t bytes);

#endif
