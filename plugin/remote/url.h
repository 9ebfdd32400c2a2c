/* The list of servers: redis://[user[:password]@]host[:port][/db],... */
#ifndef GAP_REMOTE_URL_H
#define GAP_REMOTE_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gapless/remote.h"

enum { GAP__REMOTE_HOST_BYTES = 256, GAP__REMOTE_SECRET_BYTES = 512, GAP__REMOTE_NAME_BYTES = 280 };

struct gap__remote_url {
  bool tls;
  bool has_password;
  uint16_t port;
  uint32_t database;
  char host[GAP__REMOTE_HOST_BYTES]; /* a name, or an address without brackets */
  char user[GAP__REMOTE_SECRET_BYTES];
  char password[GAP__REMOTE_SECRET_BYTES];
};

/* Reads the whole list, 1 to `room` servers.  GAP_EVALUE: `message` says which server is meant by its number and what
 * is wrong, and quotes nothing, since what is wrong may be a password that was not written as it should be. */
int gap__remote_url_parse(const char *list, struct gap__remote_url *out, uint32_t room, uint32_t *count, char *message,
                          size_t bytes);
/* "redis://host:port/db": what may be shown, and what places in the ring of servers are computed from. */
void gap__remote_url_name(const struct gap__remote_url *, char out[GAP__REMOTE_NAME_BYTES]);

#endif
