/* Asks a running process what its heaps hold (api/door.h). */
#ifndef GAP_TOOLSAPI_ASK_H
#define GAP_TOOLSAPI_ASK_H

#include <stddef.h>
#include <sys/types.h>

#include "base/text.h"

/* The answer, a trace, is appended to `reply`.  0; GAP_EINVAL, there is nobody to ask; GAP_EIO, nobody answered; GAP_EFORMAT,
 * not with a trace; GAP_ENOMETA; with the reason in `message`. */
int gap__ask_state(pid_t process, struct gap__text *reply, char *message, size_t bytes);

#endif
