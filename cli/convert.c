/* gapless convert: a history in another format. */
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bar.h"
#include "base/text.h"
#include "cli.h"
#include "gapless/convert.h"
#include "named.h"
#include "options.h"
#include "trace/json_text.h"

static const char help[] =
    "usage: gapless convert IN OUT [OPTIONS]\n"
    "       gapless convert --formats\n"
    "\n"
    "Writes a memory history in another format, and says in a line what that format cannot carry of it.  IN is read "
    "by\n"
    "its contents; OUT is written in the format that its name ends in, packed if that is followed by .gz .xz .zst.\n"
    "- is standard input or output.\n"
    "\n"
    "  --to FORMAT   trace       gapless's own trace: all of it, small              .trace\n"
    "                pickle      a snapshot as PyTorch writes and shows it        .pickle .pkl\n"
    "                json        the short JSON form of a history                 .json\n"
    "                rmm         the log of RMM's logging resource adaptor        .csv .rmm.csv .log\n"
    "                minimalloc  MiniMalloc's blocks                              .minimalloc.csv\n"
    "                perfetto    for ui.perfetto.dev; cannot be read back         .perfetto.json .trace.json\n"
    "  --device N    this device only; json, rmm and minimalloc hold one: default: the first with events\n"
    "  --blocks SIZE  perfetto: only blocks of SIZE and more become events, and their lives slices; default: all\n"
    "  --formats     list the formats\n"
    "  --json        one JSON object about the conversion\n"
    "  --quiet       no progress bar, no line about the conversion\n"
    "\n"
    "exit codes: 0 written; 2 wrong usage or bad input\n";

struct request {
  gap_convert_options options;
  bool formats, json, quiet;
};

enum { OPT_TO = 256, OPT_DEVICE, OPT_BLOCKS, OPT_FORMATS, OPT_JSON, OPT_QUIET };

static const struct option options[] = {
    {"to", required_argument, NULL, OPT_TO},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"blocks", required_argument, NULL, OPT_BLOCKS},
    {"formats", no_argument, NULL, OPT_FORMATS},
    {"json", no_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {NULL, 0, NULL, 0},
};

static int parse_option(void *arg, int option, const char *value) {
  struct request *request = arg;
  switch (option) {
    case OPT_TO: request->options.to = value; return 0;
    case OPT_DEVICE: return parse_device("convert", value, &request->options.device);
    case OPT_BLOCKS: return parse_size("convert", "--blocks", value, &request->options.blocks_from);
    case OPT_FORMATS: request->formats = true; return 0;
    case OPT_JSON: request->json = true; return 0;
    case OPT_QUIET: request->quiet = true; return 0;
    default: return EXIT_USAGE;
  }
}

static int parse(struct request *request, int argc, char **argv) {
  int rc = read_options(argc, argv, "", options, parse_option, request);
  if (rc != 0) return rc;
  if (request->formats) return 0;
  if (optind + 2 > argc) return usage_error("convert", "two names are wanted, IN and OUT; see gapless convert --help");
  if (optind + 2 < argc) return usage_error("convert", "one file at a time; \"%s\" is a third name", argv[optind + 2]);
  return check_out("convert", argv[optind + 1], 1, argv + optind);
}

static int list_formats(void) {
  gap_format format;
  for (uint32_t i = 0; (format = gap_format_at(i)).name; i++)
    printf("  %-11s %-5s %-5s  %s  (%.*s)\n", format.name, format.reads ? "read" : "", format.writes ? "write" : "",
           format.words, (int)strlen(format.endings) - 1, format.endings);
  return EXIT_YES;
}

static void tell_json(const char *in, const char *out, const gap_convert_result *result, FILE *to) {
  json_t *object =
      json_pack("{s:o, s:o, s:s, s:s, s:I, s:I, s:I, s:s}", "in", gap__json_text(in), "out", gap__json_text(out),
                "from", result->from, "to", result->to, "events", (json_int_t)result->events, "bytes",
                (json_int_t)result->bytes, "torn_at", (json_int_t)result->torn_at, "lost", result->lost);
  char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
  if (text) fprintf(to, "%s\n", text);
  free(text);
  json_decref(object);
}

static void tell_words(const char *in, const char *out, const gap_convert_result *result, FILE *to) {
  char events[GAP__TEXT_BYTES], size[GAP__TEXT_BYTES];
  fprintf(to, "%s: %s events from %s to %s, %s\n", out, gap__text_thousands(result->events, events), result->from,
          result->to, gap__text_size(result->bytes, size));
  if (result->torn_at)
    fprintf(to, "%s ends in the middle, at byte %" PRIu64 ": what comes before it was converted\n", in,
            result->torn_at);
  if (result->lost[0]) fprintf(to, "left out, for %s cannot carry it: %s\n", result->to, result->lost);
}

/* Where the history itself goes to standard output, what is said about it goes beside it. */
static void tell(const struct request *request, const char *in, const char *out, const gap_convert_result *result) {
  FILE *to = strcmp(out, "-") == 0 ? stderr : stdout;
  if (request->json) tell_json(in, out, result, to);
  else if (!request->quiet) tell_words(in, out, result, to);
}

static int run(int argc, char **argv) {
  struct request request = {.quiet = false};
  gap_convert_result result;
  char message[1024] = "";
  struct bar bar;
  gap_convert_defaults(&request.options);
  int rc = parse(&request, argc, argv);
  if (rc != 0) return rc;
  if (request.formats) return list_formats();
  const char *in = argv[optind], *out = argv[optind + 1];
  bar_begin(&bar, "converting", !request.quiet);
  request.options.progress = bar_update;
  request.options.progress_arg = &bar;
  rc = gap_convert(in, out, &request.options, &result, message, sizeof message);
  bar_end(&bar);
  if (rc != 0) return usage_error("convert", "%s: %s", in, message);
  tell(&request, in, out, &result);
  return EXIT_YES;
}

const struct command command_convert = {.name = "convert",
                                        .summary = "a history in another format: pickle, RMM, MiniMalloc, Perfetto",
                                        .help = help,
                                        .options = options,
                                        .run = run};
