/* What an argument names: a file or a running process. */
#ifndef GAP_CLI_NAMED_H
#define GAP_CLI_NAMED_H

#include <stdbool.h>
#include <stdint.h>

/* A number is a process, unless there is a file of that name. */
bool names_process(const char *name, uint64_t *number);

/* A history is not to be lost to what is said about it: 0 where `out` (NULL, "-": no file) is none of the files, "-" among them standard
 * input; else says so and returns EXIT_USAGE. */
int check_out(const char *command, const char *out, int count, char *const *files);

#endif
