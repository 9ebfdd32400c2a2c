/* What an argument names: a file or a running process. */
#ifndef GAP_CLI_NAMED_H
#define GAP_CLI_NAMED_H

#include <stdbool.h>
#include <stdint.h>

/* A number is a process, unless there is a file of that name. */
bool names_process(const char *name, uint64_t *number);

#endif
