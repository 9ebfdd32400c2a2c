/* What the commands' options have in common. */
#ifndef GAP_CLI_OPTIONS_H
#define GAP_CLI_OPTIONS_H

#include <getopt.h>
#include <stdint.h>

/* Takes one option into a command's own request; 0, or an exit code. */
typedef int option_fn(void *request, int option, const char *value);
/* Reads all options of a command, argv[0]; what is no option then begins at argv[optind].  0, or the exit code: `take` gave it, or an
 * option lacks its value, or there is none of that name ("did you mean"). */
int read_options(int argc, char **argv, const char *letters, const struct option *options, option_fn *take,
                 void *request);
/* A whole number from `least` to `most`; else says so and returns EXIT_USAGE. */
int parse_number(const char *command, const char *option, const char *text, uint64_t least, uint64_t most,
                 uint64_t *out);
/* A size above 0, with a unit or in bytes: 26GiB. */
int parse_size(const char *command, const char *option, const char *text, uint64_t *out);
/* A share in percent, with or without the sign, from 0 to `most`; *out is the share itself. */
int parse_percent(const char *command, const char *option, const char *text, double most, double *out);
/* The value of --device. */
int parse_device(const char *command, const char *text, int64_t *out);

#endif
