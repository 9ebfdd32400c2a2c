/* A file or a process, read and studied: what explanations and reports begin with. */
#ifndef GAP_TOOLSAPI_OPEN_H
#define GAP_TOOLSAPI_OPEN_H

#include "explain/subject.h"

/* `path` is NULL where a process is asked.  The subject's options are set before, and it is to be freed whatever is returned: 0, or an
 * error with the reason in `message`, as of gap_explain_open and gap_explain_open_process. */
int gap__open_subject(struct gap__subject *, const char *path, long process, char *message, size_t bytes);
/* Files keep a place for devices that nothing happened on. */
bool gap__open_has_memory(const struct gap__history *, uint32_t device);

#endif
