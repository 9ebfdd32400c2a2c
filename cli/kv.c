/* gapless kv: what a KV cache would do. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bar.h"
#include "base/text.h"
#include "cli.h"
#include "gapless/kv_replay.h"
#include "options.h"

static const char help[] =
    "usage: gapless kv replay TRACE [OPTIONS]\n"
    "\n"
    "Serves a trace of requests with a KV cache on a simulated card, and says what the cache wasted, shared, evicted "
    "and\n"
    "cost.  No GPU is needed.  TRACE is a CSV file of the Azure LLM inference traces or of prompt and output lengths, "
    "or\n"
    "JSON lines as of the Mooncake traces; plain or .gz .xz .zst; - is standard input.\n"
    "\n"
    "  --model NAME         llama-3.1-8b (the default), gapless kv models lists them; or LAYERSxHEADSxSIZE\n"
    "  --card SIZE          memory of the card; default: 80G\n"
    "  --kv SIZE            memory of the cache; default: nine tenths of the card less the weights\n"
    "  --cache-tokens N     the same in tokens\n"
    "  --page-tokens N      tokens of a KV page, a power of two; default: 16\n"
    "  --layout L           block-major (the default) or per-layer\n"
    "  --sharing S          fast (the default), sha256 or off\n"
    "  --no-partial         share whole KV pages only\n"
    "  --sequences N        most that run at once; default: 256\n"
    "  --step-tokens N      most tokens that a step computes; default: 8192\n"
    "  --host SIZE          pinned memory for preempted sequences; default: none, they are computed again\n"
    "  --tiers PLACES       host=SIZE,disk=SIZE,remote=SIZE, or some of them: what is evicted stays there, and comes "
    "up "
    "where\n"
    "                       that takes less time than computing; shares by sha256\n"
    "  --rates RATES        what they give a second; default: host=55.4G,disk=1.6G,remote=1G\n"
    "  --token-time US      microseconds to compute a token of a prompt; default: by the model's parameters\n"
    "  --compact PERCENT    compact when more of the held bytes lies in gaps; 0: never; default: 0.5\n"
    "  --requests N         the first N only\n"
    "  --one-by-one         prompts only, one after the other: hit rates that depend on the cache's size alone\n"
    "  --json               one JSON object\n"
    "  --quiet              no progress bar\n"
    "\n"
    "exit codes: 0 served; 1 a request was longer than the whole cache; 2 wrong usage or bad input\n";

struct request {
  gap_kv_replay_options options;
  uint64_t cache_tokens;
  bool json, quiet, sharing_said;
};

enum {
  OPT_MODEL = 256,
  OPT_CARD,
  OPT_KV,
  OPT_CACHE,
  OPT_PAGE,
  OPT_LAYOUT,
  OPT_SHARING,
  OPT_PARTIAL,
  OPT_SEQUENCES,
  OPT_STEP,
  OPT_HOST,
  OPT_TIERS,
  OPT_RATES,
  OPT_TOKEN,
  OPT_COMPACT,
  OPT_REQUESTS,
  OPT_ONE,
  OPT_JSON,
  OPT_QUIET,
  SEQUENCES_MOST = 65536,
  STEP_MOST = 1 << 24
};

static const struct option options[] = {
    {"model", required_argument, NULL, OPT_MODEL},
    {"card", required_argument, NULL, OPT_CARD},
    {"kv", required_argument, NULL, OPT_KV},
    {"cache-tokens", required_argument, NULL, OPT_CACHE},
    {"page-tokens", required_argument, NULL, OPT_PAGE},
    {"layout", required_argument, NULL, OPT_LAYOUT},
    {"sharing", required_argument, NULL, OPT_SHARING},
    {"no-partial", no_argument, NULL, OPT_PARTIAL},
    {"sequences", required_argument, NULL, OPT_SEQUENCES},
    {"step-tokens", required_argument, NULL, OPT_STEP},
    {"host", required_argument, NULL, OPT_HOST},
    {"tiers", required_argument, NULL, OPT_TIERS},
    {"rates", required_argument, NULL, OPT_RATES},
    {"token-time", required_argument, NULL, OPT_TOKEN},
    {"compact", required_argument, NULL, OPT_COMPACT},
    {"requests", required_argument, NULL, OPT_REQUESTS},
    {"one-by-one", no_argument, NULL, OPT_ONE},
    {"json", no_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {NULL, 0, NULL, 0},
};

static int parse_memory(const char *option, const char *text, uint64_t *out) {
  if (gap__text_parse_size(text, strlen(text), out) == 0 && *out > 0 && *out < (uint64_t)1 << 40) return 0;
  return usage_error("kv", "%s %s: a size below 1 TiB is wanted (80G)", option, text);
}

/* One of a few words; its place in the list. */
static int parse_word(const char *option, const char *text, const char *const *words, int *out) {
  for (int i = 0; words[i]; i++)
    if (strcmp(words[i], text) == 0) return *out = i, 0;
  return usage_error("kv", "%s %s: %s or %s%s%s is wanted", option, text, words[0], words[1], words[2] ? " or " : "",
                     words[2] ? words[2] : "");
}

static int parse_page(struct request *r, const char *value) {
  uint64_t tokens = 0;
  int rc = parse_number("kv", "--page-tokens", value, 1, 1024, &tokens);
  if (!rc && tokens & (tokens - 1)) rc = usage_error("kv", "--page-tokens %s: a power of two is wanted (16)", value);
  r->options.page_tokens = (uint32_t)tokens;
  return rc;
}

static int parse_choice(struct request *r, int option, const char *value) {
  static const char *const layouts[] = {"per-layer", "block-major", NULL}, *const sharings[] = {"off", "fast", "sha256",
                                                                                                NULL};
  int at = 0, rc;
  if (option == OPT_LAYOUT) {
    rc = parse_word("--layout", value, layouts, &at);
    r->options.layout = (gap_kv_layout)at;
  } else {
    rc = parse_word("--sharing", value, sharings, &at);
    r->options.sharing = (gap_kv_sharing)at;
  }
  return rc;
}

static int parse_count(struct request *r, int option, const char *value) {
  uint64_t number = 0;
  int rc;
  switch (option) {
    case OPT_CACHE: return parse_number("kv", "--cache-tokens", value, 1, (uint64_t)1 << 40, &r->cache_tokens);
    case OPT_REQUESTS: return parse_number("kv", "--requests", value, 1, UINT64_MAX, &r->options.requests);
    case OPT_SEQUENCES:
      rc = parse_number("kv", "--sequences", value, 1, SEQUENCES_MOST, &number);
      r->options.sequences = (uint32_t)number;
      return rc;
    default:
      rc = parse_number("kv", "--step-tokens", value, 1, STEP_MOST, &number);
      r->options.step_tokens = (uint32_t)number;
      return rc;
  }
}

/* PLACE=SIZE,...: each goes to its own. */
static int parse_places(const char *option, const char *value, uint64_t *const out[3]) {
  static const char *const names[] = {"host", "disk", "remote"};
  for (const char *at = value, *end; *at; at = *end ? end + 1 : end) {
    bool known = false;
    end = at + strcspn(at, ",");
    for (int i = 0; i < 3; i++) {
      size_t name = strlen(names[i]);
      if (strncmp(at, names[i], name) != 0 || at[name] != '=') continue;
      const char *size = at + name + 1;
      known =
          gap__text_parse_size(size, (size_t)(end - size), out[i]) == 0 && *out[i] > 0 && *out[i] < (uint64_t)1 << 50;
    }
    if (!known)
      return usage_error("kv", "%s %s: host=SIZE,disk=SIZE,remote=SIZE, or some of them, are wanted", option, value);
  }
  return 0;
}

static int parse_tiers(struct request *r, int option, const char *value) {
  gap_kv_replay_options *o = &r->options;
  uint64_t us = 0;
  if (option == OPT_TIERS)
    return parse_places("--tiers", value,
                        (uint64_t *[]){&o->tier_host_bytes, &o->tier_disk_bytes, &o->tier_remote_bytes});
  if (option == OPT_RATES)
    return parse_places("--rates", value,
                        (uint64_t *[]){&o->rates.host.bytes_s, &o->rates.disk.bytes_s, &o->rates.remote.bytes_s});
  int rc = parse_number("kv", "--token-time", value, 1, 1000000, &us);
  o->rates.token_ns = us * 1000;
  return rc;
}

static int parse_option(void *arg, int option, const char *value) {
  struct request *r = arg;
  switch (option) {
    case OPT_MODEL: r->options.model = value; return 0;
    case OPT_CARD: return parse_memory("--card", value, &r->options.card_bytes);
    case OPT_KV: return parse_memory("--kv", value, &r->options.kv_bytes);
    case OPT_HOST: return parse_memory("--host", value, &r->options.host_bytes);
    case OPT_TIERS:
    case OPT_RATES:
    case OPT_TOKEN: return parse_tiers(r, option, value);
    case OPT_PAGE: return parse_page(r, value);
    case OPT_SHARING: r->sharing_said = true; return parse_choice(r, option, value);
    case OPT_LAYOUT: return parse_choice(r, option, value);
    case OPT_PARTIAL: r->options.flags |= GAP_KV_NO_PARTIAL; return 0;
    case OPT_COMPACT: return parse_percent("kv", "--compact", value, 100, &r->options.compact_above);
    case OPT_CACHE:
    case OPT_REQUESTS:
    case OPT_SEQUENCES:
    case OPT_STEP: return parse_count(r, option, value);
    case OPT_ONE: r->options.one_by_one = 1; return 0;
    case OPT_JSON: r->json = true; return 0;
    case OPT_QUIET: r->quiet = true; return 0;
    default: return EXIT_USAGE;
  }
}

/* ---- for people ---- */

static double percent(uint64_t part, uint64_t whole) { return whole ? 100 * (double)part / (double)whole : 0; }

static void tell_memory(const gap_kv_replay_options *o, const gap_kv_replay_result *r) {
  char a[GAP__TEXT_BYTES], b[GAP__TEXT_BYTES];
  printf("  cache        %s, %s KV pages of %u tokens, %s\n", gap__text_size(r->kv_bytes, a),
         gap__text_thousands(r->kv_pages, b), o->page_tokens,
         o->layout == GAP_KV_PER_LAYER ? "per layer" : "block major");
  if (o->one_by_one) return;
  printf("  waste        held / live tokens: median %.4f, p90 %.4f, most %.2f\n", r->waste.median, r->waste.p90,
         r->waste.most);
  printf("               mean share: tails %.2f %%, gaps %.2f %%, empty slabs %.2f %%, tables %.2f %%\n", 100 * r->tail,
         100 * r->free, 100 * r->spare, 100 * r->tables);
  printf("  held         at most %s\n", gap__text_size(r->held_bytes_peak, a));
}

static void tell_work(const gap_kv_replay_options *o, const gap_kv_replay_result *r) {
  char a[GAP__TEXT_BYTES], b[GAP__TEXT_BYTES], c[GAP__TEXT_BYTES];
  printf("  requests     %s, %s tokens in, %s out", gap__text_thousands(r->requests, a),
         gap__text_thousands(r->tokens_in, b), gap__text_thousands(r->tokens_out, c));
  if (r->refused) printf("; %s were longer than the cache", gap__text_thousands(r->refused, a));
  printf("\n  hit rate     %.2f %% of prompt tokens; an endless cache: about %.1f %% of whole KV pages\n",
         percent(r->stats.tokens_hit, r->tokens_in), percent(r->stats.kv_pages_ceiling, r->stats.kv_pages_asked));
  printf("  evictions    %s KV pages\n", gap__text_thousands(r->stats.evicted, a));
  if (o->one_by_one) return;
  printf("  preemptions  %s\n", gap__text_thousands(r->stats.preempted, a));
  printf("  sequences    at most %s; median %.0f\n", gap__text_thousands(r->stats.sequences_peak, a),
         r->running.median);
  printf("  host         %s a step, median; p90 %s; %s steps\n", gap__text_duration((uint64_t)r->host_ns.median, a),
         gap__text_duration((uint64_t)r->host_ns.p90, b), gap__text_thousands(r->steps, c));
  if (r->stats.compactions)
    printf("  compaction   %s times, %s moved\n", gap__text_thousands(r->stats.compactions, a),
           gap__text_size(r->stats.bytes_compacted, b));
}

static void tell_place(const char *name, const gap_kv_tier_stats *t, uint64_t stored, uint64_t fetched,
                       uint64_t refused) {
  char a[GAP__TEXT_BYTES], b[GAP__TEXT_BYTES], c[GAP__TEXT_BYTES];
  printf("  %-12s %s stored, %s brought up; %s refused: computing is faster\n", name,
         gap__text_size(stored * t->page_bytes, a), gap__text_size(fetched * t->page_bytes, b),
         gap__text_size(refused * t->page_bytes, c));
}

static void tell_tiers(const gap_kv_replay_options *o, const gap_kv_replay_result *r) {
  const gap_kv_tier_stats *t = &r->tiers;
  char a[GAP__TEXT_BYTES], b[GAP__TEXT_BYTES];
  if (!t->size) return;
  printf("  tiers        %.2f %% of prompt tokens brought up, in %s; %s dropped for want of room\n",
         percent(t->tokens_fetched, r->tokens_in), gap__text_duration((uint64_t)(r->fetch_seconds * 1e9), a),
         gap__text_size(t->dropped * t->page_bytes, b));
  if (o->tier_host_bytes) tell_place("host", t, t->host_stored, t->host_fetched, t->host_refused);
  if (o->tier_disk_bytes) tell_place("disk", t, t->disk_stored, t->disk_fetched, t->disk_refused);
  if (o->tier_remote_bytes) tell_place("remote", t, t->remote_stored, t->remote_fetched, t->remote_refused);
}

/* ---- the command ---- */

static int choose_sharing(struct request *r) {
  gap_kv_replay_options *o = &r->options;
  if (!o->tier_host_bytes && !o->tier_disk_bytes && !o->tier_remote_bytes) return 0;
  if (r->sharing_said && o->sharing != GAP_KV_SHARING_SHA256)
    return usage_error("kv", "--tiers: KV pages below the device are known by SHA-256; --sharing sha256 goes with it");
  o->sharing = GAP_KV_SHARING_SHA256;
  return 0;
}

static int cache_bytes(struct request *r) {
  gap_kv_replay_options *o = &r->options;
  uint64_t token_bytes;
  if (!r->cache_tokens) return 0;
  if (gap_kv_token_bytes(o->model, &token_bytes)) return usage_error("kv", "model \"%s\" is not known", o->model);
  o->kv_bytes = (r->cache_tokens + o->page_tokens) * token_bytes; /* with the null page */
  return 0;
}

static int answer(const struct request *r, const char *file, const gap_kv_replay_result *result) {
  if (r->json) {
    char *json = gap_kv_replay_json(file, &r->options, result);
    if (json) printf("%s\n", json);
    free(json);
  } else {
    printf("%s\n", file);
    tell_memory(&r->options, result);
    tell_work(&r->options, result);
    tell_tiers(&r->options, result);
  }
  return result->refused ? EXIT_NO : EXIT_YES;
}

static int run_replay(int argc, char **argv) {
  struct request r;
  gap_kv_replay_result result;
  char message[512];
  memset(&r, 0, sizeof r);
  gap_kv_replay_defaults(&r.options);
  int rc = read_options(argc, argv, "", options, parse_option, &r);
  if (rc != 0) return rc;
  if (optind == argc) return usage_error("kv", "no trace; see gapless kv --help");
  if (optind + 1 < argc) return usage_error("kv", "one trace at a time; \"%s\" is a second one", argv[optind + 1]);
  rc = cache_bytes(&r);
  if (!rc) rc = choose_sharing(&r);
  if (rc) return rc;
  struct bar bar;
  bar_begin(&bar, "serving", !r.quiet);
  r.options.progress = bar_update, r.options.progress_arg = &bar;
  rc = gap_kv_replay(argv[optind], &r.options, &result, message, sizeof message);
  bar_end(&bar);
  return rc ? usage_error("kv", "%s: %s", argv[optind], message) : answer(&r, argv[optind], &result);
}

static int run_models(void) {
  for (uint32_t i = 0; gap_kv_model_at(i); i++) printf("%s\n", gap_kv_model_at(i));
  return EXIT_YES;
}

static int run(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "replay") == 0) return run_replay(argc - 1, argv + 1);
  if (argc == 2 && strcmp(argv[1], "models") == 0) return run_models();
  return usage_error("kv", "gapless kv replay TRACE, or gapless kv models; see gapless kv --help");
}

const struct command command_kv = {.name = "kv",
                                   .summary = "serves a trace of requests with a KV cache, without a GPU",
                                   .help = help,
                                   .options = options,
                                   .run = run};
