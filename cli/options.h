/* What the commands' options have in common. */
#ifndef GAP_CLI_OPTIONS_H
#define GAP_CLI_OPTIONS_H

#include <getopt.h>
#include <stdint.h>

/* Says what is wrong with an option that getopt_long refused: it lacks its value, or there is none of that name ("did you mean").
 * Returns EXIT_USAGE. */
int bad_option(const char *command, const struct option *options, const char *given);
/* A whole number from `least` to `most`; else says so and returns EXIT_USAGE. */
int parse_number(const char *command, const char *option, const char *text, uint64_t least, uint64_t most,
                 uint64_t *out);

#endif
