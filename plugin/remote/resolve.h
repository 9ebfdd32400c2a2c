/* Names of hosts, without waiting: the system's resolver blocks for as long as it likes, so each question has a thread of its own. */
#ifndef GAP_REMOTE_RESOLVE_H
#define GAP_REMOTE_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>

struct addrinfo;
struct gap__resolve;

/* `wake` is an eventfd that is written to when there is an answer.  NULL: no memory, no thread. */
struct gap__resolve *gap__resolve_begin(const char *host, uint16_t port, int wake);
bool gap__resolve_done(const struct gap__resolve *);
/* When done: the addresses, or NULL with the reason. */
const struct addrinfo *gap__resolve_list(const struct gap__resolve *, const char **reason);
/* At any time; NULL is fine. */
void gap__resolve_end(struct gap__resolve *);

#endif
