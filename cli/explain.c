/* gapless explain: why, in plain words, and what would have helped. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bar.h"
#include "base/text.h"
#include "cli.h"
#include "gapless/explain.h"
#include "options.h"

static const char help[] =
    "usage: gapless explain FILE|PID [OPTIONS]\n"
    "\n"
    "Says in plain words why a request was refused, what fills the memory and what would have let the request "
    "through;\n"
    "each piece of advice is tried by replay.  FILE is a snapshot or a memory history that PyTorch wrote\n"
    "(torch.cuda.memory._dump_snapshot), or a trace of gapless, plain or .gz .xz .zst; - is standard input.  PID is\n"
    "a running process that uses gapless: its memory at this moment (GAPLESS_CONF=serve:False keeps it from "
    "answering).\n"
    "\n"
    "  --size SIZE     also say after which event a block of this size can no longer be had: 2GiB\n"
    "  --cap SIZE      what may be held: advice is checked under it; default: what the file says or implies\n"
    "  --card NAME     the card: 24G 80G 141G 192G\n"
    "  --device N      this device of the file; default: the one with the last refusal, else the one that holds most\n"
    "  --no-advice     only the words: nothing is replayed\n"
    "  --seconds N     time for replays; default: 12\n"
    "  --json          one JSON object\n"
    "  --quiet         no progress bar\n"
    "\n"
    "exit codes: 0 explained; 1 a block of --size cannot be had at the end of the file; 2 wrong usage or bad input\n";

enum { COLUMNS = 110, SECONDS_MAX = 86400 };

struct request {
  gap_explain_options options;
  bool advice, json, quiet;
};

enum { OPT_SIZE = 256, OPT_CAP, OPT_CARD, OPT_DEVICE, OPT_NO_ADVICE, OPT_SECONDS, OPT_JSON, OPT_QUIET };

static const struct option options[] = {
    {"size", required_argument, NULL, OPT_SIZE},
    {"cap", required_argument, NULL, OPT_CAP},
    {"card", required_argument, NULL, OPT_CARD},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"no-advice", no_argument, NULL, OPT_NO_ADVICE},
    {"seconds", required_argument, NULL, OPT_SECONDS},
    {"json", no_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {NULL, 0, NULL, 0},
};

static int parse_size(const char *option, const char *text, uint64_t *out) {
  if (gap__text_parse_size(text, strlen(text), out) == 0 && *out > 0) return 0;
  return usage_error("explain", "%s %s: a size above 0 is wanted (26GiB)", option, text);
}

static int parse_card(struct request *request, const char *name) {
  uint64_t usable;
  if (gap_card_parse(name, &request->options.card_bytes, &usable) == 0) return 0;
  return usage_error("explain", "--card %s: the cards are 24G, 80G, 141G and 192G", name);
}

static int parse_option(void *arg, int option, const char *value) {
  struct request *request = arg;
  uint64_t number = 0;
  int rc = 0;
  switch (option) {
    case OPT_SIZE: return parse_size("--size", value, &request->options.request_bytes);
    case OPT_CAP: return parse_size("--cap", value, &request->options.cap_bytes);
    case OPT_CARD: return parse_card(request, value);
    case OPT_DEVICE: return parse_device("explain", value, &request->options.device);
    case OPT_NO_ADVICE: request->advice = false; return 0;
    case OPT_SECONDS:
      rc = parse_number("explain", "--seconds", value, 0, SECONDS_MAX, &number);
      request->options.budget_ms = (uint32_t)number * 1000;
      return rc;
    case OPT_JSON: request->json = true; return 0;
    case OPT_QUIET: request->quiet = true; return 0;
    default: return EXIT_USAGE;
  }
}

static int parse(struct request *request, int argc, char **argv) {
  int rc = read_options(argc, argv, "", options, parse_option, request);
  if (rc != 0) return rc;
  if (optind == argc) return usage_error("explain", "no file and no process; see gapless explain --help");
  if (optind + 1 < argc) return usage_error("explain", "one file at a time; \"%s\" is a second one", argv[optind + 1]);
  return 0;
}

static void print(char *text) {
  if (text) fputs(text, stdout);
  free(text);
}

/* A number is a process, unless there is a file of that name. */
static bool is_process(const char *name, uint64_t *number) {
  return gap__text_parse_u64(name, strlen(name), number) == 0 && *number <= INT32_MAX && access(name, F_OK) != 0;
}

static int open_named(const char *name, const gap_explain_options *wanted, gap_explanation **out, char *message,
                      size_t bytes) {
  uint64_t process;
  if (is_process(name, &process)) return gap_explain_open_process((long)process, wanted, out, message, bytes);
  return gap_explain_open(name, wanted, out, message, bytes);
}

/* The words come at once; the advice takes a while. */
static void tell(const struct request *request, const char *file, gap_explanation *explanation) {
  struct bar bar;
  if (!request->json) {
    printf("%s\n", file);
    print(gap_explain_words(explanation, COLUMNS));
    fflush(stdout);
  }
  if (request->advice) {
    bar_begin(&bar, "trying advice", !request->quiet);
    gap_explain_advise(explanation, bar_update, &bar);
    bar_end(&bar);
  }
  if (request->json) {
    print(gap_explain_json(explanation, file));
    putchar('\n');
  } else if (request->advice) {
    print(gap_explain_advice_words(explanation, COLUMNS));
  }
}

static int run(int argc, char **argv) {
  struct request request = {.advice = true};
  char message[1024] = "";
  gap_explanation *explanation;
  struct bar bar;
  gap_explain_defaults(&request.options);
  int rc = parse(&request, argc, argv);
  if (rc != 0) return rc;
  const char *file = argv[optind];
  bar_begin(&bar, "reading", !request.quiet);
  request.options.progress = bar_update;
  request.options.progress_arg = &bar;
  rc = open_named(file, &request.options, &explanation, message, sizeof message);
  bar_end(&bar);
  if (rc != 0) return usage_error("explain", "%s: %s", file, message);
  tell(&request, file, explanation);
  int answer = gap_explain_can_be_had(explanation) ? EXIT_YES : EXIT_NO;
  gap_explain_close(explanation);
  return answer;
}

const struct command command_explain = {.name = "explain",
                                        .summary = "why was it refused, what fills the memory, what would have helped?",
                                        .help = help,
                                        .run = run};
