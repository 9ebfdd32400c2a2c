/* `gapless conf`: what a configuration string means, each value in force and who set it. */
#ifndef GAP_TOOLSAPI_CONF_SHOW_H
#define GAP_TOOLSAPI_CONF_SHOW_H

#include <stdio.h>

extern const char gap__conf_usage[]; /* its help */

/* argv[0] is the command's name ("conf").  The answer goes to `out`, complaints about the arguments to `err`.
 * Returns the exit code: 0; 1 for a bad value or, with --strict, an unknown key; 2 for arguments it does not understand. */
int gap__conf_main(int argc, char **argv, FILE *out, FILE *err);

#endif
