/* What every command shares.  A command is a file with one entry in main.c's table. */
#ifndef GAP_CLI_H
#define GAP_CLI_H

#include <getopt.h>

/* The answer of a command, fit for scripts. */
enum {
  EXIT_YES = 0,   /* done; the answer is yes */
  EXIT_NO = 1,    /* done; the answer is no: did not fit, differs, bad value */
  EXIT_USAGE = 2, /* not done: wrong usage or bad input */
};

struct command {
  const char *name, *summary;
  const char *help;                  /* in the form that usage.h reads */
  const struct option *options;      /* its long options; NULL: none */
  int (*run)(int argc, char **argv); /* argv[0] is the command's name */
};

extern const struct command command_replay, command_explain, command_report, command_plan, command_tune, command_diff,
    command_check, command_convert, command_kv, command_remote, command_top, command_metrics, command_demo,
    command_conf, command_info;

extern const struct command *const all_commands[]; /* main.c: in the order in which they are told */
extern const int command_count;

/* How this program was called: argv[0] of main. */
extern const char *program_path;

/* "gapless NAME: message" on standard error; returns EXIT_USAGE. */
int usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
