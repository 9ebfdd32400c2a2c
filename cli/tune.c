/* gapless tune: which settings need the least memory? */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bar.h"
#include "base/text.h"
#include "cli.h"
#include "gapless/tune.h"
#include "named.h"
#include "options.h"
#include "table.h"

static const char help[] =
    "usage: gapless tune FILE... [OPTIONS]\n"
    "       gapless tune --merge RESULT... [OPTIONS]\n"
    "\n"
    "Tries more than 200 settings, PyTorch's and ours, on memory histories (ranks, days) that PyTorch recorded, finds "
    "the\n"
    "least cap under which each goes through, and prints the best PYTORCH_CUDA_ALLOC_CONF and what gapless would "
    "need;\n"
    "of several histories also which one needs most, and why.\n"
    "FILE is a snapshot pickle, a trace of gapless or another history (gapless convert --formats), plain or .gz .xz\n"
    ".zst; - is standard input.\n"
    "\n"
    "  --threads N     default: as many as there are processors\n"
    "  --lag US        how far the program runs ahead of the device, in microseconds; default: 20000\n"
    "  --cache DIR     where replays are remembered; default: $XDG_CACHE_HOME/gapless/tune or ~/.cache/gapless/tune\n"
    "  --no-cache      remember nothing\n"
    "  --out RESULT    write the results to a file, for --merge\n"
    "  --merge         the files are results of other runs, of any machine: joined, nothing is replayed\n"
    "  --all           also list every setting\n"
    "  --json          one JSON object a line for each history, and one for all where there are several\n"
    "  --quiet         no progress bar\n"
    "\n"
    "exit codes: 0 done; 1 a history for which some setting is not known, or none fits; 2 wrong usage or bad input\n";

struct request {
  gap_tune_options options;
  const char *cache, *out;
  bool no_cache, merge, all, json, quiet;
};

/* ---- Options ---- */

enum { OPT_THREADS = 256, OPT_LAG, OPT_CACHE, OPT_NO_CACHE, OPT_OUT, OPT_MERGE, OPT_ALL, OPT_JSON, OPT_QUIET };

static const struct option options[] = {
    {"threads", required_argument, NULL, OPT_THREADS},
    {"lag", required_argument, NULL, OPT_LAG},
    {"cache", required_argument, NULL, OPT_CACHE},
    {"no-cache", no_argument, NULL, OPT_NO_CACHE},
    {"out", required_argument, NULL, OPT_OUT},
    {"merge", no_argument, NULL, OPT_MERGE},
    {"all", no_argument, NULL, OPT_ALL},
    {"json", no_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {NULL, 0, NULL, 0},
};

static int parse_option(void *arg, int option, const char *value) {
  struct request *request = arg;
  uint64_t number = 0;
  int rc = 0;
  switch (option) {
    case OPT_THREADS:
      rc = parse_number("tune", "--threads", value, 1, 256, &number);
      request->options.threads = (uint32_t)number;
      return rc;
    case OPT_LAG: return parse_number("tune", "--lag", value, 0, 3600000000, &request->options.lag_us);
    case OPT_CACHE: request->cache = value; return 0;
    case OPT_NO_CACHE: request->no_cache = true; return 0;
    case OPT_OUT: request->out = value; return 0;
    case OPT_MERGE: request->merge = true; return 0;
    case OPT_ALL: request->all = true; return 0;
    case OPT_JSON: request->json = true; return 0;
    case OPT_QUIET: request->quiet = true; return 0;
    default: return EXIT_USAGE;
  }
}

static int parse(struct request *request, int argc, char **argv) {
  int rc = read_options(argc, argv, "", options, parse_option, request);
  if (rc != 0) return rc;
  if (request->cache && request->no_cache) return usage_error("tune", "--cache and --no-cache exclude each other");
  if (optind == argc) return usage_error("tune", "no file; see gapless tune --help");
  if (request->merge) return 0; /* what is joined is in the result */
  return check_out("tune", request->out, argc - optind, argv + optind);
}

/* ---- Words ---- */

static void head(struct table *table) {
  static const char *const titles[] = {"setting", "least cap",     "x ideal",      "driver calls",
                                       "stalls",  "at ease: held", "driver calls", "stalls"};
  table_begin(table, sizeof titles / sizeof titles[0]);
  for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++) table_cell(table, "%s", titles[i]);
}

static void row(struct table *table, const char *label, const gap_tune_setting *one, uint64_t ideal) {
  char text[GAP__TEXT_BYTES];
  table_cell(table, "%s", label);
  if (one->least_cap_bytes == 0) {
    for (int i = 0; i < 4; i++) table_cell(table, "%s", i > 0 ? "-" : one->known ? "none" : "unknown");
  } else {
    table_cell(table, "%s", gap__text_size(one->least_cap_bytes, text));
    table_cell(table, "%.4f", (double)one->least_cap_bytes / (double)ideal);
    table_cell(table, "%s", gap__text_thousands(one->least_driver_calls, text));
    table_cell(table, "%s", gap__text_thousands(one->least_stalls, text));
  }
  table_cell(table, "%s", gap__text_size(one->peak_reserved_bytes, text));
  table_cell(table, "%s", gap__text_thousands(one->driver_calls, text));
  table_cell(table, "%s", gap__text_thousands(one->stalls, text));
}

static gap_tune_setting setting_of(const gap_tune *tune, uint32_t history, uint32_t setting) {
  gap_tune_setting one = {0};
  if (setting != GAP_TUNE_NONE) gap_tune_setting_at(tune, history, setting, &one);
  return one;
}

static void few_rows(struct table *table, const gap_tune *tune, uint32_t history, const gap_tune_history *facts) {
  const struct {
    const char *label;
    uint32_t setting;
    bool wanted;
  } rows[] = {{"as recorded", facts->recorded, true},
              {"PyTorch, no setting", facts->stock, facts->stock != facts->recorded},
              {"PyTorch, least", facts->best, facts->best != facts->recorded && facts->best != GAP_TUNE_NONE},
              {"PyTorch, advised", facts->advised, facts->advised != facts->best && facts->advised != facts->recorded},
              {"gapless", facts->gapless, true},
              {"gapless, least", facts->best_gapless,
               facts->best_gapless != facts->gapless && facts->best_gapless != GAP_TUNE_NONE},
              {"gapless, advised", facts->advised_gapless,
               facts->advised_gapless != facts->gapless && facts->advised_gapless != facts->best_gapless}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    gap_tune_setting one = setting_of(tune, history, rows[i].setting);
    if (rows[i].wanted) row(table, rows[i].label, &one, facts->ideal_bytes);
  }
}

static void every_row(struct table *table, const gap_tune *tune, uint32_t history, const gap_tune_history *facts) {
  for (uint32_t i = 0; i < facts->count; i++) {
    gap_tune_setting one = setting_of(tune, history, i);
    char label[256];
    bool is_plain = one.conf[0] == '\0';
    snprintf(label, sizeof label, "%s", is_plain ? gap_policy_name(one.policy) : one.conf);
    row(table, label, &one, facts->ideal_bytes);
  }
}

static void print_table(const gap_tune *tune, uint32_t history, const gap_tune_history *facts, bool all) {
  struct table table;
  char text[GAP__TEXT_BYTES];
  head(&table);
  few_rows(&table, tune, history, facts);
  table_cell(&table, "ideal");
  table_cell(&table, "%s", gap__text_size(facts->ideal_bytes, text));
  table_cell(&table, "1.0000");
  for (int i = 3; i < table.columns; i++) table_cell(&table, "-");
  if (all) every_row(&table, tune, history, facts);
  table_end(&table, 2, stdout);
}

static double percent_less(uint64_t better, uint64_t worse) { return 100 - 100 * (double)better / (double)worse; }

static void say_least(const gap_tune_setting *best, const gap_tune_setting *advised) {
  if (strcmp(best->conf, advised->conf) == 0 || best->least_cap_bytes >= advised->least_cap_bytes) return;
  printf("  The very least, %.1f %% less at more driver calls or stalls: %s\n",
         percent_less(best->least_cap_bytes, advised->least_cap_bytes), *best->conf ? best->conf : "no setting");
}

static void say_torch(const gap_tune_setting *advised, const gap_tune_setting *recorded, uint64_t ideal) {
  char size[GAP__TEXT_BYTES], before[GAP__TEXT_BYTES];
  double above = 100 * (double)advised->least_cap_bytes / (double)ideal - 100;
  gap__text_size(advised->least_cap_bytes, size);
  if (!gap_tune_gains(advised->least_cap_bytes, recorded->least_cap_bytes)) {
    printf("  Nothing is to be gained from PyTorch's settings: the best within 1 %% of the least takes %s, %.1f %% "
           "above the ideal.\n",
           size, above);
    return;
  }
  if (*advised->conf) printf("  PYTORCH_CUDA_ALLOC_CONF=%s\n  is best", advised->conf);
  else printf("  No setting at all is best");
  if (recorded->least_cap_bytes)
    printf(" for PyTorch: %s, %.1f %% less than the %s of what was recorded, %.1f %% above the ideal.\n", size,
           percent_less(advised->least_cap_bytes, recorded->least_cap_bytes),
           gap__text_size(recorded->least_cap_bytes, before), above);
  else printf(" for PyTorch: %s, %.1f %% above the ideal; as recorded it fits under no cap.\n", size, above);
  if (strstr(advised->conf, "large_segment_size_mb")) puts("  large_segment_size_mb is known to torch 2.11 and later.");
}

static void say_ours(const gap_tune_setting *ours, const gap_tune_setting *tuned, const gap_tune_setting *best,
                     uint64_t ideal) {
  char size[GAP__TEXT_BYTES];
  if (ours->least_cap_bytes == 0) {
    puts("  gapless is not known to get through.");
    return;
  }
  printf("  gapless would need %s, %.1f %% above the ideal", gap__text_size(ours->least_cap_bytes, size),
         100 * (double)ours->least_cap_bytes / (double)ideal - 100);
  if (gap_tune_gains(ours->least_cap_bytes, best->least_cap_bytes) && best->least_cap_bytes)
    printf(": %.1f %% less than PyTorch's best", percent_less(ours->least_cap_bytes, best->least_cap_bytes));
  else if (best->least_cap_bytes) printf(": no gain over PyTorch's best");
  if (gap_tune_gains(tuned->least_cap_bytes, ours->least_cap_bytes))
    printf("; with GAPLESS_CONF=%s %s", tuned->conf, gap__text_size(tuned->least_cap_bytes, size));
  puts(".");
}

/* Our setting that costs less than the defaults do at the margin. */
static void say_cheaper(const gap_tune_setting *ours, const gap_tune_setting *advised) {
  char size[GAP__TEXT_BYTES], calls[GAP__TEXT_BYTES], before[GAP__TEXT_BYTES];
  if (ours->least_cap_bytes == 0 || strcmp(ours->conf, advised->conf) == 0) return;
  printf("  GAPLESS_CONF=%s\n  is cheaper for gapless: %s, with %s driver calls there in place of %s.\n", advised->conf,
         gap__text_size(advised->least_cap_bytes, size), gap__text_thousands(advised->least_driver_calls, calls),
         gap__text_thousands(ours->least_driver_calls, before));
  if (strstr(advised->conf, "convert:gated"))
    puts("  convert:gated is not for programs whose streams use memory that nobody told of (docs/conversion.md).");
}

static void print_head(const gap_tune_history *facts) {
  char events[GAP__TEXT_BYTES], peak[GAP__TEXT_BYTES], replays[GAP__TEXT_BYTES], time[GAP__TEXT_BYTES];
  printf("%s", facts->file);
  if (facts->device_count > 1) printf(", device %" PRIu32, facts->device);
  printf(": %s events, live at the peak (P) %s; %" PRIu32 " settings, %s replays in %s\n",
         gap__text_thousands(facts->events, events), gap__text_size(facts->peak_live_bytes, peak), facts->known,
         gap__text_thousands(facts->replays, replays), gap__text_duration((uint64_t)(facts->seconds * 1e9), time));
}

static void print_history(const gap_tune *tune, uint32_t history, bool all) {
  gap_tune_history facts;
  gap_tune_at(tune, history, &facts);
  gap_tune_setting advised = setting_of(tune, history, facts.advised), best = setting_of(tune, history, facts.best);
  gap_tune_setting recorded = setting_of(tune, history, facts.recorded);
  gap_tune_setting ours = setting_of(tune, history, facts.gapless);
  gap_tune_setting tuned = setting_of(tune, history, facts.best_gapless);
  gap_tune_setting cheaper = setting_of(tune, history, facts.advised_gapless);
  print_head(&facts);
  print_table(tune, history, &facts, all);
  if (facts.advised == GAP_TUNE_NONE) {
    puts("  No setting of PyTorch is known to get through.");
  } else {
    say_torch(&advised, &recorded, facts.ideal_bytes);
    say_least(&best, &advised);
  }
  say_ours(&ours, &tuned, &best, facts.ideal_bytes);
  say_cheaper(&ours, &cheaper);
  if (facts.known < facts.count)
    printf("  note: of %" PRIu32 " settings the results are incomplete.\n", facts.count - facts.known);
  if (facts.wrapped)
    puts("  note: the recorder's ring overwrote its oldest entries; blocks from before are not counted.");
}

static void say_most(const char *what, const char *conf, uint64_t most, uint64_t stock) {
  char size[GAP__TEXT_BYTES];
  if (most == 0) {
    printf("  %s: does not get through all of them\n", what);
    return;
  }
  printf("  %s%s%s: at most %s", what, conf ? "=" : "", conf ? conf : "", gap__text_size(most, size));
  if (conf && !gap_tune_gains(most, stock)) printf("; no gain over no setting");
  printf("\n");
}

/* One setting for all ranks, or all days. */
static void print_overall(const gap_tune *tune) {
  gap_tune_history first;
  uint64_t most = 0;
  gap_tune_at(tune, 0, &first);
  uint32_t best = gap_tune_best_of_all(tune, 1, &most);
  uint64_t stock = gap_tune_most(tune, first.stock);
  printf("One setting for all %" PRIu32 ", by the most that any needs:\n", gap_tune_count(tune));
  say_most("PyTorch, no setting", NULL, stock, stock);
  if (best != GAP_TUNE_NONE) say_most("PYTORCH_CUDA_ALLOC_CONF", setting_of(tune, 0, best).conf, most, stock);
  say_most("gapless", NULL, gap_tune_most(tune, first.gapless), stock);
  char *why = gap_tune_limits_words(tune, NULL);
  if (why && *why) printf("  %s\n", why);
  free(why);
}

static void print_all(const gap_tune *tune, const struct request *request) {
  if (request->json) {
    char *lines = gap_tune_json(tune);
    if (lines) fputs(lines, stdout);
    free(lines);
    return;
  }
  for (uint32_t i = 0; i < gap_tune_count(tune); i++) print_history(tune, i, request->all);
  if (gap_tune_count(tune) > 1) print_overall(tune);
}

/* ---- Running ---- */

static int add_file(gap_tune *tune, const struct request *request, const char *file) {
  char message[1024] = "";
  struct bar bar;
  bar_begin(&bar, file, !request->quiet);
  int rc = request->merge ? gap_tune_merge(tune, file, message, sizeof message)
                          : gap_tune_file(tune, file, bar_update, &bar, message, sizeof message);
  bar_end(&bar);
  if (rc != 0) return usage_error("tune", "%s: %s", file, message);
  if (message[0] && !request->merge) fprintf(stderr, "gapless tune: warning: %s\n", message);
  return 0;
}

static int answer(const gap_tune *tune) {
  for (uint32_t i = 0; i < gap_tune_count(tune); i++) {
    gap_tune_history facts;
    gap_tune_at(tune, i, &facts);
    if (facts.known < facts.count || facts.best == GAP_TUNE_NONE) return EXIT_NO;
  }
  return EXIT_YES;
}

/* A file that cannot be read does not keep the others from being tried. */
static int run_files(gap_tune *tune, const struct request *request, char **files) {
  char message[1024] = "";
  int worst = 0;
  for (; *files; files++) {
    int code = add_file(tune, request, *files);
    if (code > worst) worst = code;
  }
  gap_tune_conclude(tune);
  print_all(tune, request);
  if (request->out && gap_tune_write(tune, request->out, message, sizeof message) != 0)
    return usage_error("tune", "%s: %s", request->out, message);
  int code = answer(tune);
  return code > worst ? code : worst;
}

/* The usual folder may be missing its home; a folder that was asked for must be usable. */
static int open_session(const struct request *request, gap_tune **out) {
  gap_tune_options how = request->options;
  char message[1024] = "", *usual = NULL;
  if (!request->cache && !request->no_cache && !request->merge) usual = gap_tune_cache_default();
  how.cache = request->merge || request->no_cache ? NULL : request->cache ? request->cache : usual;
  int rc = gap_tune_open(&how, out, message, sizeof message);
  if (rc == GAP_EIO && usual) {
    fprintf(stderr, "gapless tune: warning: no cache: %s\n", message);
    how.cache = NULL;
    rc = gap_tune_open(&how, out, message, sizeof message);
  }
  free(usual);
  return rc == 0 ? 0 : usage_error("tune", "%s", message[0] ? message : gap_strerror(rc));
}

static int run(int argc, char **argv) {
  struct request request = {0};
  gap_tune *tune = NULL;
  gap_tune_defaults(&request.options);
  int rc = parse(&request, argc, argv);
  if (rc == 0) rc = open_session(&request, &tune);
  if (rc != 0) return rc;
  rc = run_files(tune, &request, argv + optind);
  gap_tune_close(tune);
  return rc;
}

const struct command command_tune = {
    .name = "tune", .summary = "which settings need the least memory?", .help = help, .options = options, .run = run};
