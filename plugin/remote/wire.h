/* A connection without protocol: a socket that never blocks, with TLS over it or not. */
#ifndef GAP_REMOTE_WIRE_H
#define GAP_REMOTE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "gapless/remote.h"

struct addrinfo;
struct ssl_st;
struct ssl_ctx_st;

struct gap__wire {
  int fd; /* -1: none */
  struct ssl_st *ssl;
  short wanted; /* of poll: what TLS waits for besides what its user does */
  char reason[120];
};

enum { GAP__WIRE_BROKEN = -1 }; /* of all that follows; `reason` says why */

/* Whom to trust and who we are.  GAP_EIO: a file; `message` names it. */
int gap__wire_context(const gap_remote_options *, struct ssl_ctx_st **out, char *message, size_t bytes);
void gap__wire_context_free(struct ssl_ctx_st *);

int gap__wire_connect(struct gap__wire *, const struct addrinfo *);
/* After poll has said that the socket is writable. */
int gap__wire_connected(struct gap__wire *);
/* Begins TLS; the certificate must be for `host`. */
int gap__wire_secure(struct gap__wire *, struct ssl_ctx_st *, const char *host);
/* 1: done; 0: wait for `wanted`. */
int gap__wire_shake(struct gap__wire *);
/* Bytes, or 0: not now. */
ssize_t gap__wire_read(struct gap__wire *, void *buffer, size_t bytes);
ssize_t gap__wire_write(struct gap__wire *, const struct iovec *, int count);
/* There is something to read that poll does not know of. */
bool gap__wire_pending(const struct gap__wire *);
/* The other side sees the end even if a child of fork still holds the descriptor. */
void gap__wire_close(struct gap__wire *);

#endif
