/* Where a password comes from when the URL has none. */
#ifndef GAP_REMOTE_SECRET_H
#define GAP_REMOTE_SECRET_H

#include "url.h"

#define GAP__REMOTE_PASSWORD_VARIABLE "GAPLESS_REMOTE_PASSWORD"

/* Gives it to each server that has none: from the environment, else from the file.  GAP_EIO: the file cannot be used, `message` says why; GAP_EVALUE:
 * it is too long, or a server is to be told a user and has none. */
int gap__remote_secret(const gap_remote_options *, struct gap__remote_url *, uint32_t count, char *message,
                       size_t bytes);
/* Overwrites what the compiler may not leave out. */
void gap__remote_wipe(void *secret, size_t bytes);

#endif
