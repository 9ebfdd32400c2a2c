/* gapless: one command with a table of subcommands. */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "gapless/tools.h"
#include "manual.h"
#include "nearest.h"

const struct command *const all_commands[] = {&command_replay, &command_explain, &command_report, &command_plan,
                                              &command_tune,   &command_diff,    &command_check,  &command_convert,
                                              &command_kv,     &command_remote,  &command_top,    &command_metrics,
                                              &command_demo,   &command_conf,    &command_info};

enum { COMMAND_COUNT = sizeof all_commands / sizeof all_commands[0] };
const int command_count = COMMAND_COUNT;

const char *program_path = "gapless";

int usage_error(const char *command, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "gapless %s: ", command);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  return EXIT_USAGE;
}

static const struct command *find_command(const char *name) {
  for (int i = 0; i < COMMAND_COUNT; i++)
    if (strcmp(all_commands[i]->name, name) == 0) return all_commands[i];
  return NULL;
}

static void print_overview(FILE *out) {
  fputs("gapless: a GPU memory manager without gaps\n\nusage: gapless COMMAND [ARGUMENTS]\n\n", out);
  for (int i = 0; i < COMMAND_COUNT; i++) fprintf(out, "  %-8s %s\n", all_commands[i]->name, all_commands[i]->summary);
  fputs("  help     this, or the help of a command: gapless help COMMAND\n"
        "           gapless help --man [COMMAND]: its manual page; --completion bash|zsh|fish: for a shell\n\n"
        "exit codes: 0 the answer is yes; 1 it is no (did not fit, differs, bad value); 2 wrong usage or bad input\n",
        out);
}

static int unknown(const char *name) {
  const char *names[COMMAND_COUNT];
  for (int i = 0; i < COMMAND_COUNT; i++) names[i] = all_commands[i]->name;
  const char *near = nearest_name(name, names, COMMAND_COUNT);
  fprintf(stderr, "gapless: there is no command \"%s\"", name);
  if (near) fprintf(stderr, "; did you mean \"%s\"?", near);
  fputs(" (gapless help lists them)\n", stderr);
  return EXIT_USAGE;
}

static int command_help(const struct command *command) { return fputs(command->help, stdout) < 0; }

static int help(const char *name) {
  if (!name) {
    print_overview(stdout);
    return EXIT_YES;
  }
  const struct command *command = find_command(name);
  return command ? command_help(command) : unknown(name);
}

static int wants_help(int argc, char **argv) {
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return 1;
  return 0;
}

static void log_line(void *arg, int level, const char *line) {
  (void)arg;
  (void)level;
  fprintf(stderr, "gapless: %s\n", line);
}

static int dispatch(int argc, char **argv) {
  if (argc < 2) {
    print_overview(stderr);
    return EXIT_USAGE;
  }
  const char *name = argv[1];
  if (strcmp(name, "--version") == 0) return printf("gapless %s\n", gap_version()) < 0;
  if (strcmp(name, "help") == 0 && argc > 2 && argv[2][0] == '-') return manual_main(argc - 2, argv + 2);
  if (strcmp(name, "help") == 0) return help(argc > 2 ? argv[2] : NULL);
  if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) return help(NULL);
  const struct command *command = find_command(name);
  if (!command) return unknown(name);
  if (wants_help(argc - 1, argv + 1)) return command_help(command);
  return command->run(argc - 1, argv + 1);
}

/* An answer that did not arrive, on a disk that is full for instance, is none: a pipeline must not take it for a yes. */
static int delivered(int code) {
  bool lost = ferror(stdout) != 0;
  if (fflush(stdout) == 0 && !lost) return code;
  fprintf(stderr, "gapless: cannot write standard output%s%s\n", lost ? "" : ": ", lost ? "" : strerror(errno));
  return EXIT_USAGE;
}

int main(int argc, char **argv) {
  gap_set_log(log_line, NULL); /* warnings and errors: of a driver that does not load, for instance */
  if (argc > 0) program_path = argv[0];
  return delivered(dispatch(argc, argv));
}
