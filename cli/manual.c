#include "manual.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "conf/conf.h"
#include "gapless/tools.h"
#include "usage.h"

#define RELEASED "2026-11-30" /* of pages, which shall not depend on when they are made */

/* ---- the language of manual pages ---- */

/* Hyphens that are to be typed stay such, and no word is an instruction. */
static void put(FILE *out, const char *text) {
  if (*text == '.' || *text == '\'') fputs("\\&", out);
  for (; *text; text++) {
    if (*text == '-') fputs("\\-", out);
    else if (*text == '\\') fputs("\\e", out);
    else if (*text == '\'') fputs("\\(aq", out);
    else if (*text == '`') fputs("\\(ga", out);
    else if (*text == '^') fputs("\\(ha", out);
    else if (*text == '~') fputs("\\(ti", out);
    else fputc(*text, out);
  }
}

static void put_line(FILE *out, const char *text) {
  put(out, text);
  fputc('\n', out);
}

static void head(FILE *out, const char *page, int section) {
  fputs(".\\\" Made by the command itself: gapless help --man\n.TH ", out);
  put(out, page);
  fprintf(out, " %d %s \"gapless %s\" gapless\n", section, RELEASED, gap_version());
}

static void item(FILE *out, const char *name) {
  fputs(".TP\n.B ", out);
  put_line(out, name);
}

/* ---- of a command ---- */

static void option_item(FILE *out, const struct usage_line *line) {
  fputs(".TP\n\\fB", out);
  if (line->letter) fprintf(out, "\\-%c", line->letter);
  if (line->letter && *line->name) fputs("\\fR, \\fB", out);
  if (*line->name) fputs("\\-\\-", out), put(out, line->name);
  fputs("\\fR", out);
  if (*line->value) fputs(" \\fI", out), put(out, line->value), fputs("\\fR", out);
  fputc('\n', out);
}

/* What stands in columns is not filled. */
static bool is_table(const char *text) { return strstr(text, "  ") != NULL; }

struct body {
  FILE *out;
  bool in_options, in_words, wants_break;
};

/* A new paragraph is begun when there is something for it. */
static void begin_words(struct body *body) {
  if (body->in_options) fputs(".SH NOTES\n", body->out);
  else if (!body->in_words && body->wants_break) fputs(".PP\n", body->out);
  body->in_options = false;
  body->in_words = true;
}

static void put_body(struct body *body, const struct usage_line *line) {
  switch (line->kind) {
    case USAGE_EMPTY:
      body->wants_break |= body->in_words;
      body->in_words = false;
      return;
    case USAGE_OPTION:
      if (!body->in_options) fputs(".SH OPTIONS\n", body->out);
      body->in_options = true;
      body->in_words = body->wants_break = false;
      option_item(body->out, line);
      put_line(body->out, *line->text ? line->text : "(no words)");
      return;
    case USAGE_MORE:
      if (is_table(line->text)) fputs(".br\n", body->out);
      put_line(body->out, line->text);
      return;
    default:
      if (strncmp(line->text, "exit code", 9) != 0) {
        begin_words(body);
        put_line(body->out, line->text);
        return;
      }
      fputs(".SH EXIT STATUS\n", body->out);
      body->in_options = body->wants_break = false;
      body->in_words = true;
      put_line(body->out, strchr(line->text, ':') ? strchr(line->text, ':') + 2 : line->text);
  }
}

static void forms(const struct command *command, FILE *out) {
  struct usage_reader reader;
  struct usage_line line;
  bool first = true;
  fputs(".SH SYNOPSIS\n", out);
  usage_begin(&reader, command);
  for (usage_next(&reader, &line); line.kind == USAGE_FORM; usage_next(&reader, &line)) {
    if (!first) fputs(".br\n", out);
    first = false;
    put_line(out, line.text);
  }
}

static void body(const struct command *command, FILE *out) {
  struct usage_reader reader;
  struct usage_line line;
  struct body state = {.out = out};
  fputs(".SH DESCRIPTION\n", out);
  usage_begin(&reader, command);
  for (usage_next(&reader, &line); line.kind != USAGE_END; usage_next(&reader, &line))
    if (line.kind != USAGE_FORM) put_body(&state, &line);
}

static void command_page(const struct command *command, FILE *out) {
  char page[64];
  snprintf(page, sizeof page, "gapless-%s", command->name);
  head(out, page, 1);
  fputs(".SH NAME\n", out);
  put(out, page);
  fputs(" \\- ", out);
  put_line(out, command->summary);
  forms(command, out);
  body(command, out);
  fputs(".SH SEE ALSO\n.BR gapless (1),\n.BR gapless.conf (5)\n", out);
}

static void overview_page(FILE *out) {
  head(out, "gapless", 1);
  fputs(
      ".SH NAME\ngapless \\- a GPU memory manager without gaps\n.SH SYNOPSIS\n.B gapless\nCOMMAND [ARGUMENTS]\n"
      ".br\n.B gapless help\n[COMMAND]\n.br\n.B gapless help \\-\\-completion\nbash|zsh|fish\n"
      ".SH DESCRIPTION\nLooks at GPU memory: in recorded histories, in running processes, and before a program runs.\n"
      "The library libgapless.so serves the memory; this command explains, replays, plans and watches.\n.SH COMMANDS\n",
      out);
  for (int i = 0; i < command_count; i++) {
    char page[64];
    snprintf(page, sizeof page, "gapless-%s", all_commands[i]->name);
    fputs(".TP\n.BR ", out);
    put(out, page);
    fputs(" (1)\n", out);
    put_line(out, all_commands[i]->summary);
  }
  fputs(".SH ENVIRONMENT\n.TP\n.B GAPLESS_CONF\nThe configuration of programs that use the library:\n.BR gapless.conf "
        "(5).\n"
        ".TP\n.B PYTORCH_CUDA_ALLOC_CONF\nPyTorch\\(aqs keys, which are understood too.\n.TP\n.B NO_COLOR\n"
        "Leaves colours out.\n.SH EXIT STATUS\n0 the answer is yes; 1 it is no; 2 wrong usage or bad input.\n"
        ".SH SEE ALSO\n.BR gapless.conf (5)\n",
        out);
}

void manual_page(const struct command *command, FILE *out) {
  if (command) command_page(command, out);
  else overview_page(out);
}

/* ---- the keys ---- */

void manual_keys(FILE *out) {
  head(out, "gapless.conf", 5);
  fputs(".SH NAME\ngapless.conf \\- configuration of programs that use gapless\n.SH SYNOPSIS\n"
        "GAPLESS_CONF=\\fIkey\\fR:\\fIvalue\\fR[,\\fIkey\\fR:\\fIvalue\\fR...]\n.SH DESCRIPTION\n"
        "Keys and values as in PYTORCH_CUDA_ALLOC_CONF, whose keys are understood in either variable.\n"
        ".BR gapless\\-conf (1)\nshows what a string means and what is wrong with it.\n.SH KEYS\n",
        out);
  for (uint32_t i = 0; i < gap__conf_option_count(); i++) {
    const struct gap__conf_option *option = gap__conf_option_at(i);
    item(out, option->key);
    put_line(out, option->help);
    fputs(".br\nValues: ", out);
    put(out, option->range);
    if (*option->unit) fputs("; ", out), put(out, option->unit);
    fputs(". Default: ", out);
    put(out, option->default_text);
    fputs(".\n", out);
  }
  fputs(".SH SEE ALSO\n.BR gapless (1),\n.BR gapless\\-conf (1)\n", out);
}

/* ---- files ---- */

static int make_folder(const char *root, const char *below) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", root, below);
  for (char *at = path + strlen(root); at; at = strchr(at + 1, '/')) {
    char kept = *at;
    *at = '\0';
    int rc = mkdir(path, 0755);
    *at = kept;
    if (rc && errno != EEXIST) return -1;
  }
  return mkdir(path, 0755) && errno != EEXIST ? -1 : 0;
}

static FILE *open_file(const char *root, const char *folder, const char *name) {
  char path[768];
  if (make_folder(root, folder)) return NULL;
  snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
  return fopen(path, "we");
}

static int close_file(FILE *file) { return ferror(file) | fclose(file) ? -1 : 0; }

static int write_page(const char *root, const struct command *command) {
  char name[64];
  snprintf(name, sizeof name, "gapless%s%s.1", command ? "-" : "", command ? command->name : "");
  FILE *file = open_file(root, "man/man1", name);
  if (!file) return -1;
  manual_page(command, file);
  return close_file(file);
}

static int write_keys(const char *root) {
  FILE *file = open_file(root, "man/man5", "gapless.conf.5");
  if (!file) return -1;
  manual_keys(file);
  return close_file(file);
}

static int write_completion(const char *root, const char *shell, const char *folder, const char *name) {
  FILE *file = open_file(root, folder, name);
  if (!file) return -1;
  completion(shell, file);
  return close_file(file);
}

/* As a system has them under /usr/share. */
static int write_all(const char *root) {
  int rc = write_page(root, NULL);
  for (int i = 0; i < command_count && !rc; i++) rc = write_page(root, all_commands[i]);
  if (!rc) rc = write_keys(root);
  if (!rc) rc = write_completion(root, "bash", "bash-completion/completions", "gapless");
  if (!rc) rc = write_completion(root, "zsh", "zsh/site-functions", "_gapless");
  if (!rc) rc = write_completion(root, "fish", "fish/vendor_completions.d", "gapless.fish");
  return rc ? usage_error("help", "--write %s: %s", root, strerror(errno)) : EXIT_YES;
}

/* ---- the whole ---- */

/* What a command takes and does not tell would be missing in all that is made. */
static int check_told(void) {
  for (int i = 0; i < command_count; i++) {
    const char *untold = usage_untold(all_commands[i]);
    if (untold) return usage_error(all_commands[i]->name, "its help does not tell of --%s", untold);
  }
  return 0;
}

static int man(const char *name) {
  if (name && strcmp(name, "gapless.conf") == 0) return manual_keys(stdout), EXIT_YES;
  for (int i = 0; i < command_count && name; i++)
    if (strcmp(all_commands[i]->name, name) == 0) return manual_page(all_commands[i], stdout), EXIT_YES;
  if (name) return usage_error("help", "--man %s: a command, or gapless.conf, is wanted", name);
  return manual_page(NULL, stdout), EXIT_YES;
}

int manual_main(int argc, char **argv) {
  const char *what = argc > 0 ? argv[0] : "", *value = argc > 1 ? argv[1] : NULL;
  int rc = check_told();
  if (rc) return rc;
  if (argc > 2) return usage_error("help", "unexpected argument \"%s\"", argv[2]);
  if (strcmp(what, "--man") == 0) return man(value);
  if (strcmp(what, "--write") == 0 && value) return write_all(value);
  if (strcmp(what, "--completion") == 0 && value && completion(value, stdout) == 0) return EXIT_YES;
  return usage_error("help", "--man [COMMAND], --completion bash|zsh|fish or --write DIR is wanted");
}
