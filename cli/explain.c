/* gapless explain: why, in plain words, and what would have helped. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bar.h"
#include "base/text.h"
#include "cli.h"
#include "gapless/explain.h"
#include "named.h"
#include "options.h"
#include "table.h"

static const char help[] =
    "usage: gapless explain FILE|PID... [OPTIONS]\n"
    "\n"
    "Says in plain words why a request was refused, what fills the memory and what would have let the request "
    "through;\n"
    "each piece of advice is tried by replay.  FILE is a snapshot or a memory history that PyTorch wrote\n"
    "(torch.cuda.memory._dump_snapshot), or a trace of gapless, plain or .gz .xz .zst; - is standard input.  PID is\n"
    "a running process that uses gapless: its memory at this moment (GAPLESS_CONF=serve:False keeps it from "
    "answering).\n"
    "\n"
    "Several files, or devices of one file, are the ranks of a job: which of them limits it and why, then all about "
    "that one.\n"
    "\n"
    "  --size SIZE     also say after which event a block of this size can no longer be had: 2GiB\n"
    "  --cap SIZE      what may be held: advice is checked under it; default: what the file says or implies\n"
    "  --card NAME     the card: 24G 80G 141G 192G\n"
    "  --device N      this device of each file; default: all that have memory\n"
    "  --no-advice     only the words: nothing is replayed\n"
    "  --seconds N     time for replays; default: 12\n"
    "  --json          one JSON object\n"
    "  --quiet         no progress bar\n"
    "\n"
    "exit codes: 0 explained; 1 a block of --size cannot be had at the end of a file; 2 wrong usage or bad input\n";

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
    case OPT_SIZE: return parse_size("explain", "--size", value, &request->options.request_bytes);
    case OPT_CAP: return parse_size("explain", "--cap", value, &request->options.cap_bytes);
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
  return 0;
}

static void print(char *text) {
  if (text) fputs(text, stdout);
  free(text);
}

static int open_named(const char *name, const gap_explain_options *wanted, gap_explanation **out, char *message,
                      size_t bytes) {
  uint64_t process;
  if (names_process(name, &process)) return gap_explain_open_process((long)process, wanted, out, message, bytes);
  return gap_explain_open(name, wanted, out, message, bytes);
}

/* ---- Ranks ---- */

struct ranks {
  gap_explain_rank *at;
  uint32_t count, room;
};

static int add_rank(struct ranks *ranks, const char *file, gap_explanation *explanation) {
  if (ranks->count == ranks->room) {
    uint32_t room = ranks->room ? 2 * ranks->room : 8;
    gap_explain_rank *at = realloc(ranks->at, room * sizeof *at);
    if (!at) {
      gap_explain_close(explanation);
      return usage_error("explain", "%s", gap_strerror(GAP_ENOMETA));
    }
    ranks->at = at;
    ranks->room = room;
  }
  ranks->at[ranks->count++] = (gap_explain_rank){.explanation = explanation, .file = file};
  return 0;
}

/* The device of which most is to be said comes first: the others need it. */
static int add_other_devices(struct ranks *ranks, const char *file, const gap_explanation *first) {
  int rc = 0;
  for (uint32_t i = 0; i < gap_explain_device_count(first) && !rc; i++) {
    gap_explanation *other;
    if (i == gap_explain_device(first) || gap_explain_other_device(first, i, &other) != 0) continue;
    rc = add_rank(ranks, file, other);
  }
  return rc;
}

static int add_file(struct ranks *ranks, const struct request *request, const char *file) {
  gap_explain_options wanted = request->options;
  char message[1024] = "";
  gap_explanation *explanation;
  struct bar bar;
  bar_begin(&bar, "reading", !request->quiet);
  wanted.progress = bar_update;
  wanted.progress_arg = &bar;
  int rc = open_named(file, &wanted, &explanation, message, sizeof message);
  bar_end(&bar);
  if (rc != 0) return usage_error("explain", "%s: %s", file, message);
  rc = add_rank(ranks, file, explanation);
  return rc || wanted.device >= 0 ? rc : add_other_devices(ranks, file, explanation);
}

static void close_ranks(struct ranks *ranks) {
  for (uint32_t i = ranks->count; i-- > 0;) gap_explain_close(ranks->at[i].explanation);
  free(ranks->at);
}

/* ---- Telling ---- */

static void advise(const struct request *request, gap_explanation *explanation) {
  struct bar bar;
  bar_begin(&bar, "trying advice", !request->quiet);
  gap_explain_advise(explanation, bar_update, &bar);
  bar_end(&bar);
}

/* The words come at once; the advice takes a while. */
static void tell(const struct request *request, const gap_explain_rank *rank) {
  printf("%s\n", rank->file);
  print(gap_explain_words(rank->explanation, COLUMNS));
  fflush(stdout);
  if (!request->advice) return;
  advise(request, rank->explanation);
  print(gap_explain_advice_words(rank->explanation, COLUMNS));
}

static void tell_json(const gap_explain_rank *rank) {
  print(gap_explain_json(rank->explanation, rank->file));
  putchar('\n');
}

enum { NAME_COLUMNS = 40 };

/* Of a long name the end, where ranks differ. */
static void name_cell(struct table *table, const char *name) {
  size_t length = strlen(name);
  if (length <= NAME_COLUMNS) table_cell(table, "%s", name);
  else table_cell(table, "...%s", name + length - (NAME_COLUMNS - 3));
}

static void print_ranks(const struct ranks *ranks) {
  static const char *const titles[] = {"rank", "device", "needs", "live at most", "refusals", "verdict"};
  struct table table;
  char text[GAP__TEXT_BYTES];
  table_begin(&table, sizeof titles / sizeof titles[0]);
  for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++) table_cell(&table, "%s", titles[i]);
  for (uint32_t i = 0; i < ranks->count; i++) {
    const gap_explain_rank *rank = &ranks->at[i];
    name_cell(&table, rank->file);
    table_cell(&table, "%" PRIu32, gap_explain_device(rank->explanation));
    table_cell(&table, "%s", gap__text_size(rank->need_bytes, text));
    table_cell(&table, "%s", gap__text_size(rank->peak_live_bytes, text));
    table_cell(&table, "%" PRIu32, rank->refusals);
    table_cell(&table, "%s", gap_explain_verdict_name(gap_explain_verdict_of(rank->explanation)));
  }
  table_end(&table, 2, stdout);
}

/* One rank is told of at length, the one that limits the job. */
static int tell_job(const struct request *request, struct ranks *ranks) {
  gap_explain_job *job;
  int rc = gap_explain_job_open(ranks->at, ranks->count, &job);
  if (rc != 0) return usage_error("explain", "%s", gap_strerror(rc));
  const gap_explain_rank *limits = &ranks->at[gap_explain_job_limits(job)];
  if (request->json) {
    if (request->advice) advise(request, limits->explanation);
    for (uint32_t i = 0; i < ranks->count; i++) tell_json(&ranks->at[i]);
    print(gap_explain_job_json(job));
    putchar('\n');
  } else {
    printf("%" PRIu32 " ranks\n", ranks->count);
    print_ranks(ranks);
    print(gap_explain_job_words(job, COLUMNS));
    putchar('\n');
    tell(request, limits);
  }
  gap_explain_job_close(job);
  return 0;
}

static int tell_all(const struct request *request, struct ranks *ranks) {
  if (ranks->count > 1) return tell_job(request, ranks);
  if (!request->json) {
    tell(request, ranks->at);
    return 0;
  }
  if (request->advice) advise(request, ranks->at->explanation);
  tell_json(ranks->at);
  return 0;
}

static int answer(const struct ranks *ranks) {
  for (uint32_t i = 0; i < ranks->count; i++)
    if (!gap_explain_can_be_had(ranks->at[i].explanation)) return EXIT_NO;
  return EXIT_YES;
}

static int run(int argc, char **argv) {
  struct request request = {.advice = true};
  struct ranks ranks = {0};
  gap_explain_defaults(&request.options);
  int rc = parse(&request, argc, argv);
  for (int i = optind; i < argc && !rc; i++) rc = add_file(&ranks, &request, argv[i]);
  if (!rc) rc = tell_all(&request, &ranks);
  if (!rc) rc = answer(&ranks);
  close_ranks(&ranks);
  return rc;
}

const struct command command_explain = {.name = "explain",
                                        .summary = "why was it refused, what fills the memory, what would have helped?",
                                        .help = help,
                                        .options = options,
                                        .run = run};
