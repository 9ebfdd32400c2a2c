/* Real servers for tests: Debian's redis-server on free ports of this machine, with its data in a folder that goes with it. */
#ifndef GAP_TESTS_REDIS_TRY_H
#define GAP_TESTS_REDIS_TRY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "gapless/remote.h"

struct redis {
  pid_t process; /* 0: none runs */
  int port;
  char folder[64];
  char options[1024]; /* for the server's command line, split at blanks */
  bool tls;
};

/* NULL: it can be used; else what is missing. */
const char *redis_missing(void);
int redis_free_port(void);
/* Starts it and waits until it answers.  `options` may hold %s for the folder, three times at most. */
void redis_start(struct redis *, const char *options);
/* Again, on the same port, empty. */
void redis_restart(struct redis *);
void redis_stop(struct redis *); /* kills and reaps it, removes the folder; nothing when none runs */
void redis_kill(struct redis *); /* kills it; it may be restarted */
/* Several, without options: `missing` as redis_missing says, and then it is said and none is started. */
void redis_start_all(struct redis *, int count, const char **missing);
void redis_stop_all(struct redis *, int count);
void redis_empty_all(const struct redis *, int count);
/* What redis-cli prints for a command line, in a static buffer. */
const char *redis_cli(const struct redis *, const char *words);
/* A program of the tests' own that is run like a server: python3 FILE PORT MODE; waits until it listens. */
void redis_start_fake(struct redis *, const char *file, const char *mode);

/* "redis://127.0.0.1:port,..." of `count` servers, in a static buffer. */
const char *redis_urls(const struct redis *, int count);

#endif
