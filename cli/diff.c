/* gapless diff: what changed between two histories, and what explains most of it. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bar.h"
#include "base/text.h"
#include "cli.h"
#include "gapless/compare.h"
#include "options.h"

static const char help[] =
    "usage: gapless diff A B [OPTIONS]\n"
    "       gapless diff FILE --steps A,B\n"
    "\n"
    "Says what changed between two histories or snapshots that PyTorch wrote: before and after a change of the "
    "program,\n"
    "two ranks, two settings, two steps.  First what explains most of the difference, then the peaks, what is idle, "
    "and\n"
    "what grew, shrank, came or went: call sites, categories, streams, sizes of blocks, driver calls.  A or B may be "
    "-,\n"
    "standard input.\n"
    "\n"
    "  --tolerance P     what differs by less than P percent is the same; bytes: of the higher peak; default: 1\n"
    "  --steps A[,B]     compare step A of the first file with step B of the second, counted from 0\n"
    "  --devices A[,B]   these devices of the files; default: the one with the last refusal, else the one that holds "
    "most\n"
    "  --rows N          lines of each list; 0: all; default: 10\n"
    "  --json            one JSON object, with all parts\n"
    "  --quiet           no progress bar\n"
    "\n"
    "exit codes: 0 the same within the tolerance; 1 different; 2 wrong usage or bad input\n";

enum { COLUMNS = 110, ROWS = 10, ROWS_MAX = 1000000, STEPS_MAX = INT32_MAX };

struct request {
  gap_diff_options options;
  unsigned rows;
  bool json, quiet;
};

enum { OPT_TOLERANCE = 256, OPT_STEPS, OPT_DEVICES, OPT_ROWS, OPT_JSON, OPT_QUIET };

static const struct option options[] = {
    {"tolerance", required_argument, NULL, OPT_TOLERANCE},
    {"steps", required_argument, NULL, OPT_STEPS},
    {"devices", required_argument, NULL, OPT_DEVICES},
    {"rows", required_argument, NULL, OPT_ROWS},
    {"json", no_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {NULL, 0, NULL, 0},
};

/* "A,B", or "A" for both. */
static int parse_two(const char *option, const char *text, int64_t out[2]) {
  const char *comma = strchr(text, ',');
  size_t length = comma ? (size_t)(comma - text) : strlen(text);
  const char *second = comma ? comma + 1 : text;
  uint64_t a, b;
  if (gap__text_parse_u64(text, length, &a) || gap__text_parse_u64(second, strlen(second), &b) || a > STEPS_MAX ||
      b > STEPS_MAX)
    return usage_error("diff", "%s %s: one number or two are wanted (3,9)", option, text);
  out[0] = (int64_t)a;
  out[1] = (int64_t)b;
  return 0;
}

static int parse_option(void *arg, int option, const char *value) {
  struct request *request = arg;
  uint64_t number = 0;
  int rc = 0;
  switch (option) {
    case OPT_TOLERANCE: return parse_percent("diff", "--tolerance", value, 100, &request->options.tolerance);
    case OPT_STEPS: return parse_two("--steps", value, request->options.step);
    case OPT_DEVICES: return parse_two("--devices", value, request->options.device);
    case OPT_ROWS:
      rc = parse_number("diff", "--rows", value, 0, ROWS_MAX, &number);
      request->rows = (unsigned)number;
      return rc;
    case OPT_JSON: request->json = true; return 0;
    case OPT_QUIET: request->quiet = true; return 0;
    default: return EXIT_USAGE;
  }
}

/* One file alone is compared with itself: two of its steps or devices. */
static int take_files(const struct request *request, int count, char **given, const char *files[2]) {
  const gap_diff_options *chosen = &request->options;
  bool two = chosen->step[0] != chosen->step[1] || chosen->device[0] != chosen->device[1];
  if (count == 0) return usage_error("diff", "no file; see gapless diff --help");
  if (count == 1 && !two) return usage_error("diff", "two files are wanted, or one with two --steps or --devices");
  if (count > 2) return usage_error("diff", "two files at a time; \"%s\" is a third one", given[2]);
  files[0] = given[0];
  files[1] = given[count - 1];
  if (strcmp(files[0], "-") == 0 && strcmp(files[1], "-") == 0)
    return usage_error("diff", "standard input can be read once only");
  return 0;
}

static int parse(struct request *request, int argc, char **argv, const char *files[2]) {
  int rc = read_options(argc, argv, "", options, parse_option, request);
  if (rc != 0) return rc;
  return take_files(request, argc - optind, argv + optind, files);
}

static int run(int argc, char **argv) {
  struct request request = {.rows = ROWS};
  const char *files[2];
  char message[1024] = "";
  gap_diff *diff;
  struct bar bar;
  gap_diff_defaults(&request.options);
  int rc = parse(&request, argc, argv, files);
  if (rc != 0) return rc;
  bar_begin(&bar, "reading", !request.quiet);
  request.options.progress = bar_update;
  request.options.progress_arg = &bar;
  rc = gap_diff_open(files, &request.options, &diff, message, sizeof message);
  bar_end(&bar);
  if (rc != 0) return usage_error("diff", "%s", message);
  char *text = request.json ? gap_diff_json(diff) : gap_diff_words(diff, COLUMNS, request.rows);
  if (text) printf("%s%s", text, request.json ? "\n" : "");
  free(text);
  int answer = !text ? EXIT_USAGE : gap_diff_is_same(diff) ? EXIT_YES : EXIT_NO;
  gap_diff_close(diff);
  return answer;
}

const struct command command_diff = {.name = "diff",
                                     .summary = "what changed between two histories, and what explains it?",
                                     .help = help,
                                     .options = options,
                                     .run = run};
