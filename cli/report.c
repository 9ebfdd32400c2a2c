/* gapless report: one page to look at. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bar.h"
#include "base/text.h"
#include "cli.h"
#include "gapless/report.h"
#include "named.h"
#include "options.h"

static const char help[] =
    "usage: gapless report FILE|PID... [-o OUT] [OPTIONS]\n"
    "\n"
    "Draws a memory history as one HTML page that needs no network: the course of live, held and needed memory, by "
    "category\n"
    "and by stream; what lay where at the peak, at a refusal and at the end; the call sites of the peak as a flame "
    "graph; the\n"
    "largest and oldest blocks; what other allocators would have held under several caps, by replay; and the words of\n"
    "gapless explain.  FILE is a snapshot or a history that PyTorch wrote, or a trace of gapless, plain or .gz .xz "
    ".zst; - is\n"
    "standard input.  PID is a running process that uses gapless.  Two files are also compared, as gapless diff does; "
    "more\n"
    "are the ranks of a job.\n"
    "\n"
    "  -o, --out OUT   the page; - is standard output; default: report.html\n"
    "  --cap SIZE      what may be held: it is tried besides 0.9 to 1.4 times the peak: 26GiB\n"
    "  --device N      only this device of each file; default: all that have memory\n"
    "  --top N         rows of each list of blocks and of changes; default: 50\n"
    "  --seconds N     time in which replays may begin; default: 2\n"
    "  --no-what-if    nothing is replayed: neither other allocators nor advice\n"
    "  --json          only the data that is in the page; default: to standard output\n"
    "  --quiet         no progress bar, nothing about what was written\n"
    "\n"
    "exit codes: 0 written; 2 wrong usage, bad input, or it cannot be written\n";

enum { TOP_MAX = 1000, SECONDS_MAX = 86400 };

struct request {
  gap_report_options options;
  const char *out; /* NULL: none was given */
  bool json, quiet;
};

enum { OPT_CAP = 256, OPT_DEVICE, OPT_TOP, OPT_SECONDS, OPT_NO_WHAT_IF, OPT_JSON, OPT_QUIET };

static const struct option options[] = {
    {"out", required_argument, NULL, 'o'},
    {"cap", required_argument, NULL, OPT_CAP},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"top", required_argument, NULL, OPT_TOP},
    {"seconds", required_argument, NULL, OPT_SECONDS},
    {"no-what-if", no_argument, NULL, OPT_NO_WHAT_IF},
    {"json", no_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {NULL, 0, NULL, 0},
};

static int parse_option(void *arg, int option, const char *value) {
  struct request *request = arg;
  uint64_t number = 0;
  int rc = 0;
  switch (option) {
    case 'o': request->out = value; return 0;
    case OPT_CAP: return parse_size("report", "--cap", value, &request->options.cap_bytes);
    case OPT_DEVICE: return parse_device("report", value, &request->options.device);
    case OPT_TOP:
      rc = parse_number("report", "--top", value, 1, TOP_MAX, &number);
      request->options.top = (uint32_t)number;
      return rc;
    case OPT_SECONDS:
      rc = parse_number("report", "--seconds", value, 0, SECONDS_MAX, &number);
      request->options.budget_ms = (uint32_t)number * 1000;
      return rc;
    case OPT_NO_WHAT_IF: request->options.no_what_if = 1; return 0;
    case OPT_JSON: request->json = true; return 0;
    case OPT_QUIET: request->quiet = true; return 0;
    default: return EXIT_USAGE;
  }
}

static int parse(struct request *request, int argc, char **argv) {
  int rc = read_options(argc, argv, "o:", options, parse_option, request);
  if (rc != 0) return rc;
  if (optind == argc) return usage_error("report", "no file and no process; see gapless report --help");
  if (!request->out) request->out = request->json ? "-" : "report.html";
  return check_out("report", request->out, argc - optind, argv + optind);
}

static int add(gap_report *report, const char *name) {
  char message[1024] = "";
  uint64_t process;
  bool is_process = names_process(name, &process);
  int rc = is_process ? gap_report_process(report, (long)process, message, sizeof message)
                      : gap_report_file(report, name, message, sizeof message);
  return rc == 0 ? 0 : usage_error("report", "%s: %s", name, message);
}

static int add_all(gap_report *report, struct bar *bar, int count, char **names) {
  int rc = 0;
  for (int i = 0; i < count && !rc; i++) rc = add(report, names[i]);
  bar_end(bar);
  return rc;
}

static int make(gap_report *report, const struct request *request) {
  struct bar bar;
  bar_begin(&bar, "replaying", !request->quiet);
  int rc = gap_report_make(report, bar_update, &bar);
  bar_end(&bar);
  return rc == 0 ? 0 : usage_error("report", "%s", gap_strerror(rc));
}

static void tell(const struct request *request) {
  struct stat written;
  char size[GAP__TEXT_BYTES];
  if (request->quiet || strcmp(request->out, "-") == 0 || stat(request->out, &written) != 0) return;
  printf("%s: %s, to be opened in a browser\n", request->out, gap__text_size((uint64_t)written.st_size, size));
}

static int write_out(const gap_report *report, const struct request *request) {
  char message[1024] = "";
  int rc = request->json ? gap_report_write_json(report, request->out, message, sizeof message)
                         : gap_report_write(report, request->out, message, sizeof message);
  if (rc != 0) return usage_error("report", "%s", message);
  if (!request->json) tell(request);
  return EXIT_YES;
}

static int run(int argc, char **argv) {
  struct request request = {.quiet = false};
  gap_report *report = NULL;
  struct bar bar;
  gap_report_defaults(&request.options);
  int rc = parse(&request, argc, argv);
  if (rc != 0) return rc;
  bar_begin(&bar, "reading", !request.quiet);
  request.options.progress = bar_update;
  request.options.progress_arg = &bar;
  rc = gap_report_new(&request.options, &report) ? usage_error("report", "%s", gap_strerror(GAP_ENOMETA)) : 0;
  if (!rc) rc = add_all(report, &bar, argc - optind, argv + optind);
  if (!rc) rc = make(report, &request);
  if (!rc) rc = write_out(report, &request);
  gap_report_free(report);
  return rc;
}

const struct command command_report = {
    .name = "report",
    .summary = "all of it on one page: what lay where and when, what else would have fitted",
    .help = help,
    .options = options,
    .run = run};
