/* gapless plan: where every request of a repeating program should lie. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bar.h"
#include "base/text.h"
#include "cli.h"
#include "gapless/plan.h"
#include "named.h"
#include "options.h"

static const char help[] =
    "usage: gapless plan FILE [OPTIONS]\n"
    "\n"
    "Places the requests of a repeating program ahead of time, close to the least memory that can hold them.  FILE is "
    "a\n"
    "snapshot with a history that PyTorch wrote, a trace of gapless or another history (gapless convert --formats), "
    "or\n"
    "a MiniMalloc CSV file; plain or .gz .xz .zst; - is standard input.\n"
    "\n"
    "  --steps A..B       these steps, counted from 0; default: the whole history\n"
    "  --mark NAME        a step begins where the program's mark NAME begins; default: profiler or optimiser steps,\n"
    "                     else the period of the requests\n"
    "  -o, --output PLAN  write the plan file; -: to standard output\n"
    "  --apart            no two streams share addresses: for a plan that a program with several streams is to follow\n"
    "  --capacity SIZE    stop as soon as this is met\n"
    "  --time-limit SEC   time for the search; default: 10\n"
    "  --device N         this device of the file; default: the first with requests\n"
    "  --json             one JSON object\n"
    "  --quiet            no progress bar\n"
    "\n"
    "exit codes: 0 placed, within --capacity if given; 1 placed, above --capacity; 2 wrong usage or bad input\n";

struct request {
  gap_plan_options options;
  const char *output;
  bool json, quiet;
};

enum {
  OPT_STEPS = 256,
  OPT_MARK,
  OPT_APART,
  OPT_CAPACITY,
  OPT_LIMIT,
  OPT_DEVICE,
  OPT_JSON,
  OPT_QUIET,
  SECONDS_MAX = 86400
};

static const struct option options[] = {
    {"steps", required_argument, NULL, OPT_STEPS},
    {"mark", required_argument, NULL, OPT_MARK},
    {"output", required_argument, NULL, 'o'},
    {"apart", no_argument, NULL, OPT_APART},
    {"capacity", required_argument, NULL, OPT_CAPACITY},
    {"time-limit", required_argument, NULL, OPT_LIMIT},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"json", no_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {NULL, 0, NULL, 0},
};

/* "A..B", or "A" for one step. */
static int parse_steps(struct request *request, const char *text) {
  const char *dots = strstr(text, "..");
  size_t length = dots ? (size_t)(dots - text) : strlen(text);
  const char *second = dots ? dots + 2 : text;
  uint64_t first, last;
  if (gap__text_parse_u64(text, length, &first) || gap__text_parse_u64(second, strlen(second), &last) || first > last ||
      last > INT32_MAX)
    return usage_error("plan", "--steps %s: two steps A..B are wanted, A not above B (3..3)", text);
  request->options.step_first = (int64_t)first;
  request->options.step_last = (int64_t)last;
  return 0;
}

static int parse_option(void *arg, int option, const char *value) {
  struct request *request = arg;
  uint64_t number = 0;
  int rc = 0;
  switch (option) {
    case OPT_STEPS: return parse_steps(request, value);
    case OPT_MARK: request->options.mark = value; return 0;
    case 'o': request->output = value; return 0;
    case OPT_APART: request->options.apart = 1; return 0;
    case OPT_CAPACITY:
      if (gap__text_parse_size(value, strlen(value), &request->options.capacity_bytes) == 0) return 0;
      return usage_error("plan", "--capacity %s: a size is wanted (26GiB)", value);
    case OPT_LIMIT:
      rc = parse_number("plan", "--time-limit", value, 0, SECONDS_MAX, &number);
      request->options.time_limit_ms = (uint32_t)number * 1000;
      return rc;
    case OPT_DEVICE: return parse_device("plan", value, &request->options.device);
    case OPT_JSON: request->json = true; return 0;
    case OPT_QUIET: request->quiet = true; return 0;
    default: return EXIT_USAGE;
  }
}

static int parse(struct request *request, int argc, char **argv) {
  int rc = read_options(argc, argv, "o:", options, parse_option, request);
  if (rc != 0) return rc;
  if (optind == argc) return usage_error("plan", "no file; see gapless plan --help");
  if (optind + 1 < argc) return usage_error("plan", "one file at a time; \"%s\" is a second one", argv[optind + 1]);
  return check_out("plan", request->output, 1, argv + optind);
}

static double percent_over(uint64_t bytes, uint64_t bound) {
  return bound ? 100 * ((double)bytes / (double)bound - 1) : 0;
}

static void tell(const char *file, const gap_plan_info *info, bool apart, FILE *to) {
  char a[GAP__TEXT_BYTES], b[GAP__TEXT_BYTES];
  fprintf(to, "%s\n", file);
  if (info->steps_found)
    fprintf(to, "  steps        %" PRIu64 "..%" PRIu64 " of %" PRIu64 " (%s)\n", info->step_first, info->step_last,
            info->steps_found, info->steps_from);
  fprintf(to, "  requests     %s on %" PRIu64 " stream%s%s\n", gap__text_thousands(info->requests, a), info->streams,
          info->streams == 1 ? "" : "s", apart && info->streams > 1 ? ", apart" : "");
  if (info->left_out) fprintf(to, "  left out     %s in private pools\n", gap__text_thousands(info->left_out, a));
  if (info->resident_bytes)
    fprintf(to, "  resident     %s from before these steps\n", gap__text_size(info->resident_bytes, a));
  fprintf(to, "  lower bound  %s (%s bytes)\n", gap__text_size(info->bound_bytes, a),
          gap__text_thousands(info->bound_bytes, b));
  fprintf(to, "  greedy       %s, %.3f %% over it (by %s)\n", gap__text_size(info->greedy_bytes, a),
          percent_over(info->greedy_bytes, info->bound_bytes), info->order);
  fprintf(to, "  plan         %s (%s bytes), %.3f %% over it (%s)%s\n", gap__text_size(info->plan_bytes, a),
          gap__text_thousands(info->plan_bytes, b), percent_over(info->plan_bytes, info->bound_bytes), info->method,
          info->proved ? "; no placement is lower" : "");
  if (info->wrapped) fputs("  note: the file does not hold the beginning; blocks from before are not placed.\n", to);
}

static int answer(const struct request *request, const char *file, const gap_plan *plan) {
  char message[512];
  gap_plan_info info;
  gap_plan_info_get(plan, &info);
  if (request->output && gap_plan_write(plan, request->output, message, sizeof message) != 0)
    return usage_error("plan", "%s", message);
  FILE *to = request->output && strcmp(request->output, "-") == 0 ? stderr : stdout; /* a plan is bytes to the last */
  if (request->json) {
    char *json = gap_plan_json(plan, file);
    if (json) fprintf(to, "%s\n", json);
    free(json);
  } else {
    tell(file, &info, request->options.apart, to);
  }
  return request->options.capacity_bytes && info.plan_bytes > request->options.capacity_bytes ? EXIT_NO : EXIT_YES;
}

static int run(int argc, char **argv) {
  struct request request = {.quiet = false};
  char message[1024] = "";
  gap_plan *plan;
  struct bar bar;
  gap_plan_defaults(&request.options);
  int rc = parse(&request, argc, argv);
  if (rc != 0) return rc;
  const char *file = argv[optind];
  bar_begin(&bar, "planning", !request.quiet);
  request.options.progress = bar_update;
  request.options.progress_arg = &bar;
  rc = gap_plan_make(file, &request.options, &plan, message, sizeof message);
  bar_end(&bar);
  if (rc != 0) return usage_error("plan", "%s: %s", file, message);
  rc = answer(&request, file, plan);
  gap_plan_close(plan);
  return rc;
}

const struct command command_plan = {.name = "plan",
                                     .summary = "where should each request of a repeating program lie?",
                                     .help = help,
                                     .options = options,
                                     .run = run};
