/* A small HTTP/1.1 server for one page: one thread, few guests, each with little time. */
#ifndef GAP_CLI_HTTP_H
#define GAP_CLI_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"

/* The body of /metrics, appended; nothing: there is none at the moment, which the guest is told (503). */
typedef void http_page_fn(void *arg, struct gap__text *out);

struct http_place {
  int listener;
  bool is_tcp;
  unsigned port;  /* of TCP */
  char path[108]; /* of a Unix socket; "" for TCP */
};

/* "unix:/PATH", "127.0.0.1:PORT", "localhost:PORT", "[::1]:PORT"; port 0 takes any.  Else, or where nobody can listen there, says why in
 * `why` and returns -1. */
int http_open(const char *address, struct http_place *out, char *why, size_t bytes);
/* Until SIGINT or SIGTERM; then the socket is closed and its name taken away.  0, or -1 with errno. */
int http_serve(struct http_place *, http_page_fn *, void *arg);

#endif
