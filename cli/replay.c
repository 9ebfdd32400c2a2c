/* gapless replay: would it have fitted? */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bar.h"
#include "base/text.h"
#include "cli.h"
#include "gapless/tools.h"
#include "options.h"
#include "table.h"

static const char help[] =
    "usage: gapless replay FILE... [OPTIONS]\n"
    "\n"
    "Replays memory histories that PyTorch recorded (torch.cuda.memory._dump_snapshot) on a simulated card and says "
    "whether\n"
    "they fit, and if not, which request fails and why.  FILE is a snapshot pickle, a trace of gapless or another\n"
    "history (gapless convert --formats), plain or .gz .xz .zst; - is standard input.\n"
    "\n"
    "  --policy LIST   of gapless, native (PyTorch's caching allocator), expandable (the same with "
    "expandable_segments),\n"
    "                  ideal (no allocator: the floor), pooled (gapless in size classes) and "
    "heuristic (whichever fits);\n"
    "                  default: the first four\n"
    "  --cap SIZE      limit on the memory held: 26GiB, or a factor of the peak of live bytes P: 1.005xP; default: "
    "none\n"
    "  --card NAME     the memory of a card: 24G 80G 141G 192G\n"
    "  --min-cap       find the least cap with which it fits\n"
    "  --lag US        how far the program runs ahead of the device, in microseconds; default: 20000\n"
    "  --backend CARD  sim (default); or replay on a real card through its driver: cuda, cuda:1; or on host memory: "
    "host\n"
    "  --speed X       1: at the recorded pace (default); 0: as fast as the calls return; 2: twice the pace\n"
    "  --verify        compare the policy that was recorded, native or expandable, with every event; stops at the "
    "first\n"
    "                  file that differs\n"
    "  --conf STRING   configure the allocator; default for native and expandable: what the file records\n"
    "  --check WHEN    the independent checker: every (event), a number N (every N-th), off;\n"
    "                  default: every below 20,000 events, else 1000\n"
    "  --device N      only this device of the file\n"
    "  --json          one JSON object a line per file, device and policy\n"
    "  --quiet         no table and no progress bar\n"
    "\n"
    "P is the peak over time of the sizes, rounded to 512 bytes, of blocks not yet free for all streams.  A recorded\n"
    "out-of-memory event counts as a request to be served, live from then on.\n"
    "\n"
    "exit codes: 0 everything fits (and agrees); 1 something does not; 2 wrong usage or bad input\n";

struct request {
  bool policies[GAP_POLICY_COUNT];
  const char *cap, *card, *conf;
  uint64_t lag_us;
  double speed;
  gap_backend backend;
  int ordinal;
  int64_t check, device; /* device -1: all */
  bool min_cap, verify, json, quiet;
  int answer; /* the worst exit code so far */
};

/* ---- Options ---- */

enum {
  OPT_POLICY = 256,
  OPT_CAP,
  OPT_CARD,
  OPT_MIN_CAP,
  OPT_LAG,
  OPT_BACKEND,
  OPT_SPEED,
  OPT_VERIFY,
  OPT_CONF,
  OPT_CHECK,
  OPT_DEVICE,
  OPT_JSON,
  OPT_QUIET
};

static const struct option options[] = {
    {"policy", required_argument, NULL, OPT_POLICY},   {"cap", required_argument, NULL, OPT_CAP},
    {"card", required_argument, NULL, OPT_CARD},       {"min-cap", no_argument, NULL, OPT_MIN_CAP},
    {"lag", required_argument, NULL, OPT_LAG},         {"verify", no_argument, NULL, OPT_VERIFY},
    {"conf", required_argument, NULL, OPT_CONF},       {"check", required_argument, NULL, OPT_CHECK},
    {"device", required_argument, NULL, OPT_DEVICE},   {"json", no_argument, NULL, OPT_JSON},
    {"backend", required_argument, NULL, OPT_BACKEND}, {"speed", required_argument, NULL, OPT_SPEED},
    {"quiet", no_argument, NULL, OPT_QUIET},           {NULL, 0, NULL, 0},
};

static int parse_policies(struct request *request, const char *list) {
  memset(request->policies, 0, sizeof request->policies);
  for (const char *at = list;; at++) {
    size_t length = strcspn(at, ",");
    enum gap_policy policy;
    if (gap_policy_parse(at, length, &policy) != 0)
      return usage_error("replay",
                         "--policy %s: \"%.*s\" is none of gapless, native, expandable, pooled, heuristic, ideal", list,
                         (int)length, at);
    request->policies[policy] = true;
    at += length;
    if (*at == '\0') return 0;
  }
}

static int parse_check(struct request *request, const char *text) {
  uint64_t every = 0;
  int rc = 0;
  if (strcmp(text, "every") == 0) every = GAP_CHECK_EVERY;
  else if (strcmp(text, "off") == 0) every = GAP_CHECK_OFF;
  else rc = parse_number("replay", "--check", text, 0, 1000000000, &every);
  request->check = (int64_t)every;
  return rc;
}

static int parse_card(struct request *request, const char *name) {
  uint64_t total, usable;
  request->card = name;
  if (gap_card_parse(name, &total, &usable) == 0) return 0;
  return usage_error("replay", "--card %s: the cards are 24G, 80G, 141G and 192G", name);
}

static int parse_cap(struct request *request, const char *text) {
  uint64_t cap;
  request->cap = text;
  if (gap_cap_parse(text, (uint64_t)1 << 40, &cap) == 0) return 0;
  return usage_error("replay", "--cap %s: a size (26GiB) or a factor of P above 0 (1.005xP) is wanted", text);
}

static int parse_backend(struct request *request, const char *text) {
  if (gap_backend_parse(text, &request->backend, &request->ordinal) == 0) return 0;
  return usage_error("replay", "--backend %s: sim, host, cuda or cuda:N is wanted", text);
}

static int parse_speed(struct request *request, const char *text) {
  char *end;
  request->speed = strtod(text, &end);
  if (*text && !*end && request->speed >= 0 && request->speed <= 1000) return 0;
  return usage_error("replay", "--speed %s: a number from 0 to 1000 is wanted", text);
}

static int parse_option(void *arg, int option, const char *value) {
  struct request *request = arg;
  switch (option) {
    case OPT_POLICY: return parse_policies(request, value);
    case OPT_CAP: return parse_cap(request, value);
    case OPT_CARD: return parse_card(request, value);
    case OPT_MIN_CAP: request->min_cap = true; return 0;
    case OPT_LAG: return parse_number("replay", "--lag", value, 0, 3600000000, &request->lag_us);
    case OPT_BACKEND: return parse_backend(request, value);
    case OPT_SPEED: return parse_speed(request, value);
    case OPT_VERIFY: request->verify = true; return 0;
    case OPT_CONF: request->conf = value; return 0;
    case OPT_CHECK: return parse_check(request, value);
    case OPT_DEVICE: return parse_device("replay", value, &request->device);
    case OPT_JSON: request->json = true; return 0;
    case OPT_QUIET: request->quiet = true; return 0;
    default: return EXIT_USAGE;
  }
}

static int parse(struct request *request, int argc, char **argv) {
  int rc = read_options(argc, argv, "", options, parse_option, request);
  if (rc != 0) return rc;
  bool any_policy = memchr(request->policies, true, sizeof request->policies) != NULL;
  for (int i = 0; i < GAP_POLICY_COUNT && !any_policy; i++)
    request->policies[i] = !request->verify && i != GAP_POLICY_POOLED && i != GAP_POLICY_HEURISTIC;
  if (request->cap && request->card) return usage_error("replay", "--cap and --card exclude each other");
  if (optind == argc) return usage_error("replay", "no file; see gapless replay --help");
  return 0;
}

/* ---- One device of one file ---- */

static void lower(struct request *request, int code) {
  if (code > request->answer) request->answer = code;
}

/* The cap needs P, which the ideal policy knows. */
static int find_cap(const struct request *request, const gap_history *history, gap_replay_options *to, char *message,
                    size_t bytes) {
  if (request->card) return gap_card_parse(request->card, &to->card_bytes, &to->cap_bytes);
  if (!request->cap) return 0;
  gap_replay_options ideal = *to;
  gap_replay_result result;
  ideal.policy = GAP_POLICY_IDEAL;
  int rc = gap_replay(history, &ideal, &result, message, bytes);
  if (rc == 0 && result.peak_live_bytes == 0) return 0; /* nothing was asked: any cap will do */
  if (rc == 0) rc = gap_cap_parse(request->cap, result.peak_live_bytes, &to->cap_bytes);
  if (rc == GAP_EVALUE) snprintf(message, bytes, "--cap %s: less than a page", request->cap);
  return rc;
}

static int replay_one(const struct request *request, const gap_history *history, const gap_replay_options *how,
                      gap_replay_result *result, char *message, size_t bytes) {
  struct bar bar;
  gap_replay_options with_bar = *how;
  bar_begin(&bar, gap_policy_name(how->policy), !request->quiet);
  with_bar.progress = bar_update;
  with_bar.progress_arg = &bar;
  int rc = request->min_cap ? gap_replay_min_cap(history, &with_bar, result, message, bytes)
                            : gap_replay(history, &with_bar, result, message, bytes);
  if (rc == 0 && request->verify && how->policy == gap_history_policy(history, how->device))
    rc = gap_replay_verify(history, how->device, result, message, bytes);
  bar_end(&bar);
  return rc;
}

static void head(struct table *table) {
  static const char *const titles[] = {"policy",      "cap",       "fits",        "held, most",
                                       "x P",         "least cap", "x P",         "driver calls",
                                       "driver time", "stalls",    "longest call"};
  table_begin(table, sizeof titles / sizeof titles[0]);
  for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++) table_cell(table, "%s", titles[i]);
}

static void size_and_factor(struct table *table, uint64_t bytes, uint64_t peak) {
  char text[GAP__TEXT_BYTES];
  if (bytes == 0 || peak == 0) {
    table_cell(table, "-");
    table_cell(table, "-");
    return;
  }
  table_cell(table, "%s", gap__text_size(bytes, text));
  table_cell(table, "%.4f", (double)bytes / (double)peak);
}

static void row(struct table *table, const gap_replay_result *result) {
  char text[GAP__TEXT_BYTES];
  table_cell(table, "%s", gap_policy_name(result->policy));
  table_cell(table, "%s", result->cap_bytes ? gap__text_size(result->cap_bytes, text) : "none");
  table_cell(table, "%s", result->fitted ? "yes" : "NO");
  size_and_factor(table, result->peak_reserved_bytes, result->peak_live_bytes);
  size_and_factor(table, result->least_cap_bytes, result->peak_live_bytes);
  table_cell(table, "%s", gap__text_thousands(result->driver_calls, text));
  table_cell(table, "%s", gap__text_duration(result->driver_time_us * 1000, text));
  table_cell(table, "%s", gap__text_thousands(result->stalls, text));
  table_cell(table, "%s", gap__text_duration(result->longest_call_us * 1000, text));
}

static void explain_failure(const gap_replay_result *result) {
  char number[GAP__TEXT_BYTES];
  const gap_replay_failure *failed = &result->failed;
  size_t length = strlen(failed->reason);
  const char *dot = length > 0 && failed->reason[length - 1] == '.' ? "" : ".";
  printf("  %s did not fit at event %s (%s): %s%s\n", gap_policy_name(result->policy),
         gap__text_thousands(failed->event, number), failed->action, failed->reason, dot);
}

static void explain_verdict(const gap_replay_result *result) {
  char number[GAP__TEXT_BYTES];
  const char *name = gap_policy_name(result->policy);
  if (result->verdict == GAP_VERDICT_AGREES)
    printf("  %s agrees with all %s recorded events.\n", name, gap__text_thousands(result->verified_events, number));
  if (result->verdict == GAP_VERDICT_DIFFERS)
    printf("  %s differs from what was recorded: %s.\n", name, result->difference);
  if (result->verdict == GAP_VERDICT_CANNOT)
    printf("  %s cannot be compared with what was recorded: %s.\n", name, result->difference);
}

static void explain_plan(const gap_replay_result *result) {
  const gap_replay_plan *plan = &result->plan;
  char placed[GAP__TEXT_BYTES], all[GAP__TEXT_BYTES], one[GAP__TEXT_BYTES], two[GAP__TEXT_BYTES],
      three[GAP__TEXT_BYTES];
  uint64_t others = plan->unexpected + plan->taken + plan->unbacked, requests = plan->placed + others;
  if (!plan->requests || !requests) return;
  printf("  %s served %s of %s requests where the plan says (%.1f %%)", gap_policy_name(result->policy),
         gap__text_thousands(plan->placed, placed), gap__text_thousands(requests, all),
         100 * (double)plan->placed / (double)requests);
  if (others)
    printf(": %s were not in the plan there, %s found the place in use, for %s it had no pages",
           gap__text_thousands(plan->unexpected, one), gap__text_thousands(plan->taken, two),
           gap__text_thousands(plan->unbacked, three));
  puts(".");
}

static void explain_conversion(const gap_replay_result *result) {
  const gap_replay_conversion *conversion = &result->conversion;
  char chunks[GAP__TEXT_BYTES], copied[GAP__TEXT_BYTES], freed[GAP__TEXT_BYTES];
  if (!conversion->chunks) return;
  printf("  %s exchanged %s partly idle chunks: %s copied, %s freed.\n", gap_policy_name(result->policy),
         gap__text_thousands(conversion->chunks, chunks), gap__text_size(conversion->copied_bytes, copied),
         gap__text_size(conversion->freed_bytes, freed));
}

static void explain_overflow(const gap_replay_result *result) {
  const gap_replay_overflow *overflow = &result->overflow;
  char peak[GAP__TEXT_BYTES], requests[GAP__TEXT_BYTES], all[GAP__TEXT_BYTES];
  if (!overflow->requests) return;
  printf("  %s put %s requests (%s) into host memory, at most %s of it at a time.\n", gap_policy_name(result->policy),
         gap__text_thousands(overflow->requests, requests), gap__text_size(overflow->bytes, all),
         gap__text_size(overflow->peak_bytes, peak));
}

/* What holds for the history, whatever the policy. */
static void warn(const gap_replay_result *result) {
  char number[GAP__TEXT_BYTES];
  if (result->wrapped)
    puts("  note: the recorder's ring overwrote its oldest entries; blocks from before are not counted.");
  if (result->unknown_frees > 0)
    printf("  note: %s frees of blocks from before the history's start were passed over.\n",
           gap__text_thousands(result->unknown_frees, number));
}

static void print_head(const char *file, const gap_history *history, const gap_replay_result *result) {
  char events[GAP__TEXT_BYTES], length[GAP__TEXT_BYTES], peak[GAP__TEXT_BYTES];
  printf("%s", file);
  if (gap_history_device_count(history) > 1) printf(", device %" PRIu32, result->device);
  printf(": %s events", gap__text_thousands(gap_history_event_count(history, result->device), events));
  if (result->recorded_us > 0) printf(" in %s", gap__text_duration(result->recorded_us * 1000, length));
  printf(", live at the peak (P) %s\n", gap__text_size(result->peak_live_bytes, peak));
}

static void print_results(const char *file, const gap_history *history, const gap_replay_result *results, int count) {
  struct table table;
  print_head(file, history, &results[0]);
  head(&table);
  for (int i = 0; i < count; i++) row(&table, &results[i]);
  table_end(&table, 2, stdout);
  for (int i = 0; i < count; i++) {
    if (!results[i].fitted) explain_failure(&results[i]);
    explain_plan(&results[i]);
    explain_conversion(&results[i]);
    explain_overflow(&results[i]);
    explain_verdict(&results[i]);
  }
  warn(&results[0]);
}

static void print_json(const char *file, const gap_replay_result *results, int count) {
  for (int i = 0; i < count; i++) {
    char *line = gap_replay_json(file, &results[i]);
    if (line) puts(line);
    free(line);
  }
}

/* An answer of no ends the whole run when it is a verification's. */
static bool judge(struct request *request, const gap_replay_result *result) {
  if (!result->fitted || result->verdict == GAP_VERDICT_DIFFERS) lower(request, EXIT_NO);
  if (result->verdict == GAP_VERDICT_CANNOT) lower(request, EXIT_USAGE);
  return result->verdict != GAP_VERDICT_DIFFERS;
}

static bool replay_device(struct request *request, const char *file, const gap_history *history, uint32_t device) {
  gap_replay_options how;
  gap_replay_result results[GAP_POLICY_COUNT];
  char message[1024] = "";
  int count = 0;
  bool go_on = true;
  gap_replay_defaults(&how);
  how.device = device;
  how.lag_us = request->lag_us;
  how.speed = request->speed;
  how.backend = request->backend;
  how.ordinal = request->ordinal;
  how.check = request->check;
  how.conf = request->conf;
  int rc = find_cap(request, history, &how, message, sizeof message);
  for (int i = 0; i < GAP_POLICY_COUNT && rc == 0 && go_on; i++) {
    bool wanted = request->policies[i] || (request->verify && i == (int)gap_history_policy(history, device));
    if (!wanted) continue;
    how.policy = (enum gap_policy)i;
    rc = replay_one(request, history, &how, &results[count], message, sizeof message);
    if (rc == 0) go_on = judge(request, &results[count++]);
  }
  if (count > 0 && request->json) print_json(file, results, count);
  else if (count > 0 && !request->quiet) print_results(file, history, results, count);
  if (rc == 0) return go_on;
  fflush(stdout);
  fprintf(stderr, "gapless replay: %s: %s\n", file, message);
  lower(request, rc == GAP_EMISMATCH ? EXIT_NO : EXIT_USAGE);
  return true;
}

static void say_difference(const struct request *request, const char *file, const gap_history *history,
                           gap_replay_result *result) {
  char events[GAP__TEXT_BYTES];
  result->failed.action = "history";
  snprintf(result->failed.reason, sizeof result->failed.reason, "%s", result->difference);
  if (request->json) print_json(file, result, 1);
  if (request->json || request->quiet) return;
  printf("%s: %s events\n", file, gap__text_thousands(gap_history_event_count(history, result->device), events));
  explain_verdict(result);
}

/* A history that contradicts itself cannot be replayed, but the odd event can be named.  False: it cannot. */
static bool verify_only(struct request *request, const char *file, const gap_history *history) {
  char message[1024] = "";
  bool differs = false;
  for (uint32_t i = 0; i < gap_history_device_count(history) && !differs; i++) {
    gap_replay_result result = {.size = sizeof result, .policy = gap_history_policy(history, i), .device = i};
    if (request->device >= 0 ? (uint32_t)request->device != i : gap_history_event_count(history, i) == 0) continue;
    int rc = gap_replay_verify(history, i, &result, message, sizeof message);
    differs = rc == 0 && result.verdict == GAP_VERDICT_DIFFERS;
    if (differs) say_difference(request, file, history, &result);
  }
  if (differs) lower(request, EXIT_NO);
  return differs;
}

/* 0 and *differs false: it can be replayed. */
static int open_history(struct request *request, const char *file, gap_history **out, bool *differs) {
  char message[1024] = "";
  struct bar bar;
  *out = NULL;
  bar_begin(&bar, "reading", !request->quiet);
  int rc = gap_history_read(file, bar_update, &bar, out, message, sizeof message);
  bar_end(&bar);
  if (rc == 0) rc = gap_history_check(*out, message, sizeof message);
  *differs = rc == GAP_EFORMAT && *out && request->verify && verify_only(request, file, *out);
  if (rc == 0 || *differs) return rc;
  fprintf(stderr, "gapless replay: %s: %s\n", file, message);
  lower(request, EXIT_USAGE);
  return rc;
}

static bool replay_file(struct request *request, const char *file) {
  gap_history *history;
  bool go_on = true, differs;
  if (open_history(request, file, &history, &differs) != 0) {
    gap_history_close(history);
    return !differs;
  }
  uint32_t devices = 0;
  for (uint32_t i = 0; i < gap_history_device_count(history) && go_on; i++) {
    if ((request->device >= 0 && (uint32_t)request->device != i) || !gap_history_has_requests(history, i)) continue;
    devices++;
    go_on = replay_device(request, file, history, i);
  }
  if (devices == 0) {
    fprintf(stderr, "gapless replay: %s: no requests were recorded%s: there is nothing to replay\n", file,
            request->device >= 0 ? " on that device" : "");
    lower(request, EXIT_USAGE);
  }
  gap_history_close(history);
  return go_on;
}

static int run(int argc, char **argv) {
  gap_replay_options defaults;
  gap_replay_defaults(&defaults);
  struct request request = {.lag_us = defaults.lag_us,
                            .speed = defaults.speed,
                            .backend = defaults.backend,
                            .check = defaults.check,
                            .device = -1};
  int rc = parse(&request, argc, argv);
  if (rc != 0) return rc;
  if (request.conf) gap_conf_warn("--conf", request.conf, stderr);
  for (int i = optind; i < argc && replay_file(&request, argv[i]); i++) continue;
  return request.answer;
}

const struct command command_replay = {.name = "replay",
                                       .summary = "would a recorded program have fitted, and with which policy?",
                                       .help = help,
                                       .options = options,
                                       .run = run};
