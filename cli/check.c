/* gapless check: histories against limits, for scripts that let a change through or not. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bar.h"
#include "base/text.h"
#include "cli.h"
#include "gapless/compare.h"
#include "named.h"
#include "options.h"

static const char help[] =
    "usage: gapless check FILE... LIMITS [OPTIONS]\n"
    "\n"
    "Holds histories or snapshots that PyTorch wrote against limits, and prints each rule with what was asked and "
    "what\n"
    "was reached.  - is standard input.  A limit is an amount, or begins with + and says how far the --baseline may "
    "be\n"
    "exceeded (+5%, +512MiB).  With a --baseline and no such limit the most live and the most held may exceed it by\n"
    "the --tolerance.\n"
    "\n"
    "  --max-peak SIZE      most live bytes at a time\n"
    "  --max-held SIZE      most bytes taken from the driver at a time\n"
    "  --max-idle SIZE      idle when most is held\n"
    "  --max-waste PERCENT  held beyond the most live, of what is held\n"
    "  --max-end SIZE       live at the end of the file\n"
    "  --max-end-held SIZE  held at the end of the file\n"
    "  --max-stuck SIZE     idle at the end, but not to be given back to the driver\n"
    "  --max-growth SIZE    by which live memory rises from step to step\n"
    "  --max-allocs N       allocations\n"
    "  --max-calls N        driver calls\n"
    "  --max-retries N      times memory was given back and asked for again\n"
    "  --max-refusals N     requests that were refused (out of memory)\n"
    "\n"
    "  --baseline FILE      another history, or figures written by --save\n"
    "  --tolerance P        percent by which the baseline may be exceeded where no limit says so; default: 5\n"
    "  --save OUT           write the figures of FILE, to be a later baseline; needs no limits\n"
    "  --allow-missing      a rule passes whose figure the file does not tell\n"
    "  --junit OUT          also write the results as JUnit XML\n"
    "  --device N           this device of the files; default: the one with the last refusal, else the one that holds\n"
    "                       most\n"
    "  --json               one JSON object a line for each file\n"
    "  --quiet              no progress bar\n"
    "\n"
    "exit codes: 0 every rule passed; 1 one failed; 2 none failed, but a figure is missing; or wrong usage or bad "
    "input\n";

struct request {
  gap_limits_options options;
  const char *baseline, *save, *junit;
  const char *limits[32]; /* by index, as given */
  bool any_limit, json, quiet;
};

enum {
  OPT_LIMIT = 256, /* and the index of the limit */
  OPT_BASELINE = 512,
  OPT_TOLERANCE,
  OPT_SAVE,
  OPT_MISSING,
  OPT_JUNIT,
  OPT_DEVICE,
  OPT_JSON,
  OPT_QUIET,
  OPTIONS_MAX = 48
};

/* ---- options ------------------------------------------------------------------------------------------------------- */

static void list_options(struct option *out) {
  static const struct option plain[] = {
      {"baseline", required_argument, NULL, OPT_BASELINE},
      {"tolerance", required_argument, NULL, OPT_TOLERANCE},
      {"save", required_argument, NULL, OPT_SAVE},
      {"allow-missing", no_argument, NULL, OPT_MISSING},
      {"junit", required_argument, NULL, OPT_JUNIT},
      {"device", required_argument, NULL, OPT_DEVICE},
      {"json", no_argument, NULL, OPT_JSON},
      {"quiet", no_argument, NULL, OPT_QUIET},
      {NULL, 0, NULL, 0},
  };
  int count = 0;
  for (uint32_t i = 0; gap_limits_name(i); i++)
    out[count++] = (struct option){gap_limits_name(i), required_argument, NULL, OPT_LIMIT + (int)i};
  memcpy(&out[count], plain, sizeof plain);
}

static int parse_option(void *arg, int option, const char *value) {
  struct request *request = arg;
  switch (option) {
    case OPT_BASELINE: request->baseline = value; return 0;
    case OPT_TOLERANCE: return parse_percent("check", "--tolerance", value, 1000, &request->options.tolerance);
    case OPT_SAVE: request->save = value; return 0;
    case OPT_MISSING: request->options.allow_missing = 1; return 0;
    case OPT_JUNIT: request->junit = value; return 0;
    case OPT_DEVICE: return parse_device("check", value, &request->options.device);
    case OPT_JSON: request->json = true; return 0;
    case OPT_QUIET: request->quiet = true; return 0;
    default:
      request->limits[option - OPT_LIMIT] = value;
      request->any_limit = true;
      return 0;
  }
}

static int parse(struct request *request, int argc, char **argv) {
  struct option options[OPTIONS_MAX];
  list_options(options);
  int rc = read_options(argc, argv, "", options, parse_option, request);
  if (rc != 0) return rc;
  if (optind == argc) return usage_error("check", "no file; see gapless check --help");
  if (!request->any_limit && !request->baseline && !request->save)
    return usage_error("check", "nothing to check: give a limit (--max-peak 26GiB) or a --baseline");
  if (request->save && optind + 1 < argc) return usage_error("check", "--save is for one file");
  rc = check_out("check", request->save, argc - optind, argv + optind);
  return rc ? rc : check_out("check", request->junit, argc - optind, argv + optind);
}

/* ---- the work ------------------------------------------------------------------------------------------------------ */

static int set_limits(const struct request *request, gap_limits *check) {
  char message[400];
  for (uint32_t i = 0; gap_limits_name(i); i++)
    if (request->limits[i] && gap_limits_set(check, i, request->limits[i], message, sizeof message) != 0)
      return usage_error("check", "%s", message);
  return 0;
}

static int measure(const struct request *request, gap_limits *check, int count, char **files) {
  char message[1024] = "out of host memory";
  int rc = request->baseline ? gap_limits_baseline(check, request->baseline, message, sizeof message) : 0;
  for (int i = 0; rc == 0 && i < count; i++) rc = gap_limits_file(check, files[i], message, sizeof message);
  if (rc == 0 && request->save) rc = gap_limits_save(check, request->save, message, sizeof message);
  return rc ? usage_error("check", "%s", message) : 0;
}

static int write_junit(const gap_limits *check, const char *path) {
  char *xml = gap_limits_junit(check);
  FILE *file = xml ? fopen(path, "w") : NULL;
  bool ok = file && fputs(xml, file) >= 0;
  if (file && fclose(file) != 0) ok = false;
  free(xml);
  return ok ? 0 : usage_error("check", "%s: %s", path, strerror(errno));
}

static void print(char *text, const char *end) {
  if (text) printf("%s%s", text, end);
  free(text);
}

static int answer(const struct request *request, const gap_limits *check) {
  static const int codes[] = {EXIT_YES, EXIT_NO, EXIT_USAGE};
  int rc = request->junit ? write_junit(check, request->junit) : 0;
  if (rc) return rc;
  for (uint32_t i = 0; request->json && i < gap_limits_file_count(check); i++) print(gap_limits_json(check, i), "\n");
  if (!request->json && (request->any_limit || request->baseline)) print(gap_limits_words(check), "");
  return codes[gap_limits_answer_of(check)];
}

static int run(int argc, char **argv) {
  struct request request = {.quiet = false};
  gap_limits *check = NULL;
  struct bar bar;
  gap_limits_defaults(&request.options);
  int rc = parse(&request, argc, argv);
  if (rc != 0) return rc;
  bar_begin(&bar, "reading", !request.quiet);
  request.options.progress = bar_update;
  request.options.progress_arg = &bar;
  if (gap_limits_new(&request.options, &check) != 0) return usage_error("check", "out of host memory");
  rc = set_limits(&request, check);
  if (rc == 0) rc = measure(&request, check, argc - optind, argv + optind);
  bar_end(&bar);
  if (rc == 0) rc = answer(&request, check);
  gap_limits_free(check);
  return rc;
}

const struct command command_check = {
    .name = "check", .summary = "does a history keep within limits, or a baseline? (for CI)", .help = help, .run = run};
