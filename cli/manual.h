/* Manual pages and completions, made from the table of commands, their help and the table of configuration keys. */
#ifndef GAP_CLI_MANUAL_H
#define GAP_CLI_MANUAL_H

#include <stdio.h>

#include "cli.h"

/* gapless-NAME(1); NULL: gapless(1). */
void manual_page(const struct command *, FILE *out);
/* gapless.conf(5): every key. */
void manual_keys(FILE *out);

/* Scripts that complete commands, options and configuration keys.  "bash", "zsh", "fish"; -1: another shell. */
int completion(const char *shell, FILE *out);

/* gapless help --man [COMMAND|conf-keys], --completion SHELL, --write DIR; an exit code. */
int manual_main(int argc, char **argv);

#endif
