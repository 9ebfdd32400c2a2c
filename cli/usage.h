/* The parts of a command's help text, from which its manual page and the completions of shells are made.
 *
 *     usage: gapless NAME ...          the forms, up to the first empty line
 *
 *     words                            paragraphs
 *
 *       -x, --name VALUE  words        options: two blanks before the words; what goes on is indented further
 *
 *     exit codes: ...                  and "Keys: ..." and the like are paragraphs */
#ifndef GAP_CLI_USAGE_H
#define GAP_CLI_USAGE_H

#include <stdbool.h>

#include "cli.h"

enum usage_kind { USAGE_FORM, USAGE_WORDS, USAGE_OPTION, USAGE_MORE, USAGE_EMPTY, USAGE_END };

struct usage_line {
  enum usage_kind kind;
  char letter;              /* of an option; 0 none */
  char name[32], value[32]; /* of an option, without "--"; "" none */
  char text[256];           /* the words */
};

struct usage_reader {
  const char *at;
  bool in_forms, in_options;
};

void usage_begin(struct usage_reader *, const struct command *);
/* The next line; USAGE_END behind the last. */
void usage_next(struct usage_reader *, struct usage_line *out);
/* The options alone.  False: there are no more. */
bool usage_next_option(struct usage_reader *, struct usage_line *out);
/* Whether the value of an option is a file or a folder, by its name in the help. */
bool usage_is_file(const char *value);
/* An option that the command knows and its help does not tell, or NULL. */
const char *usage_untold(const struct command *);

#endif
