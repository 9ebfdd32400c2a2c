#include "toolsapi/conf_show.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "gapless/gapless.h"
#include "toolsapi/conf_view.h"

enum { EXIT_FINE = 0, EXIT_REFUSED = 1, EXIT_USAGE = 2 };

const char gap__conf_usage[] =
    "usage: gapless conf [STRING] [--json] [--strict] [--card SIZE] [--markdown] [--help]\n"
    "\n"
    "Shows what a configuration string means: every value in force, who set it, and what is wrong.\n"
    "Without STRING it shows the environment's: PYTORCH_CUDA_ALLOC_CONF and the like, and GAPLESS_CONF.\n"
    "\n"
    "  --json       one JSON object\n"
    "  --strict     an unknown key is an error\n"
    "  --card SIZE  the card's memory, e.g. 80G, for limits that are shares of it\n"
    "  --markdown   the table of all keys, as in docs/configuration.md\n"
    "\n"
    "exit code: 0; 1 for a bad value or, with --strict, an unknown key; 2 for wrong arguments\n"
    "example: gapless conf 'expandable_segments:True,max_split_size_mb:128'\n";

struct arguments {
  const char *string;
  uint64_t card_bytes;
  bool json, strict, markdown, help;
};

static int read_card(const char *text, struct arguments *arguments, FILE *err) {
  if (text && !gap__text_parse_size(text, strlen(text), &arguments->card_bytes) && arguments->card_bytes) return 0;
  fprintf(err, "gapless conf: --card takes a size such as 80G%s%s\n", text ? ", not " : "", text ? text : "");
  return EXIT_USAGE;
}

static int read_flag(const char *argument, struct arguments *arguments, FILE *err) {
  if (!strcmp(argument, "--json")) arguments->json = true;
  else if (!strcmp(argument, "--strict")) arguments->strict = true;
  else if (!strcmp(argument, "--markdown")) arguments->markdown = true;
  else if (!strcmp(argument, "--help") || !strcmp(argument, "-h")) arguments->help = true;
  else {
    fprintf(err, "gapless conf: unknown option %s (see gapless conf --help)\n", argument);
    return EXIT_USAGE;
  }
  return 0;
}

static int read_string(const char *argument, struct arguments *arguments, FILE *err) {
  if (arguments->string) {
    fprintf(err, "gapless conf: more than one string: put it in quotes if it has blanks\n");
    return EXIT_USAGE;
  }
  arguments->string = argument;
  return 0;
}

static int read_arguments(int argc, char **argv, struct arguments *arguments, FILE *err) {
  int wrong = 0;
  for (int i = 1; i < argc && !wrong; i++) {
    if (!strcmp(argv[i], "--card")) wrong = read_card(i + 1 < argc ? argv[++i] : NULL, arguments, err);
    else if (!strncmp(argv[i], "--card=", 7)) wrong = read_card(argv[i] + 7, arguments, err);
    else if (argv[i][0] == '-') wrong = read_flag(argv[i], arguments, err);
    else wrong = read_string(argv[i], arguments, err);
  }
  return wrong;
}

static const char *environment(const char *name) { return getenv(name); }

static int apply(struct gap__conf_view *view, bool strict) {
  struct gap__conf_report unused = {0};
  int result = strict ? gap__conf_apply(view->set, GAP__CONF_RUNTIME, "--strict", "strict:True", &unused) : 0;
  if (result) return result;
  if (!view->string) return gap__conf_apply_env(view->set, environment, &view->report);
  return gap__conf_apply(view->set, GAP__CONF_GAPLESS_ENV, "command line", view->string, &view->report);
}

static int show(const struct arguments *arguments, FILE *out, FILE *err) {
  struct gap__conf_view view = {
      .string = arguments->string, .card_bytes = arguments->card_bytes, .set = gap__conf_new()};
  int result = view.set ? apply(&view, arguments->strict) : GAP_ENOMETA;
  view.refused = result != 0;
  if (!result) gap__conf_warn_waiting(view.set, GAP__CONF_PYTORCH_ENV, &view.report);
  if (result == GAP_ENOMETA) fprintf(err, "gapless conf: %s\n", gap_strerror(result));
  else if (arguments->json) (void)gap__conf_print_json(&view, out);
  else gap__conf_print_text(&view, out);
  gap__conf_free(view.set);
  return result ? EXIT_REFUSED : EXIT_FINE;
}

int gap__conf_main(int argc, char **argv, FILE *out, FILE *err) {
  struct arguments arguments = {0};
  if (read_arguments(argc, argv, &arguments, err)) return EXIT_USAGE;
  if (arguments.help) {
    fputs(gap__conf_usage, out);
    return EXIT_FINE;
  }
  if (arguments.markdown) {
    gap__conf_print_markdown(out);
    return EXIT_FINE;
  }
  return show(&arguments, out, err);
}
