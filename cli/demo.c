/* gapless demo: the main job in three parts on one screen.  Every number is computed here and now. */
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bar.h"
#include "base/text.h"
#include "cli.h"
#include "data.h"
#include "gapless/tools.h"
#include "picture.h"
#include "table.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

struct demo {
  const char *data;
  uint64_t checks; /* of the independent checker, all parts */
  bool failed;     /* something could not be shown */
};

static void sorry(struct demo *demo, const char *what, const char *why) {
  fflush(stdout);
  fprintf(stderr, "gapless demo: %s: %s\n", what, why);
  demo->failed = true;
}

/* ---- 1: the question ---- */

/* One step of training frees eight blocks of 3 GiB; the next cuts each into a live part and a temporary one, and frees
 * the temporary ones: 19 GiB stay live, 5 GiB lie idle between them. */
enum { BLOCKS = 8 };
#define CARD_BYTES (24 * GIB)
#define ASKED_BYTES (2 * GIB)
static const uint64_t gap_mib[BLOCKS] = {1024, 512, 768, 384, 896, 640, 256, 640};

static int alloc_and_free_all(gap_card *card) {
  gap_addr blocks[BLOCKS];
  int rc = 0;
  for (int i = 0; i < BLOCKS && rc == 0; i++) rc = gap_card_alloc(card, CARD_BYTES / BLOCKS, &blocks[i]);
  for (int i = 0; i < BLOCKS && rc == 0; i++) rc = gap_card_free(card, blocks[i]);
  return rc;
}

static int make_gaps(gap_card *card) {
  gap_addr kept, gaps[BLOCKS];
  int rc = alloc_and_free_all(card);
  for (int i = 0; i < BLOCKS && rc == 0; i++) {
    rc = gap_card_alloc(card, CARD_BYTES / BLOCKS - gap_mib[i] * MIB, &kept);
    if (rc == 0) rc = gap_card_alloc(card, gap_mib[i] * MIB, &gaps[i]);
  }
  for (int i = 0; i < BLOCKS && rc == 0; i++) rc = gap_card_free(card, gaps[i]);
  gap_card_pass(card, 1000);
  return rc;
}

static void print_sizes(const struct picture *picture) {
  char live[GAP__TEXT_BYTES], idle[GAP__TEXT_BYTES], largest[GAP__TEXT_BYTES], asked[GAP__TEXT_BYTES];
  printf("   %s live, %s idle in gaps of at most %s, %s asked for   (# live  . idle  2 new)\n",
         gap__text_size(picture->live_bytes, live), gap__text_size(picture->idle_bytes, idle),
         gap__text_size(picture->largest_idle_bytes, largest), gap__text_size(ASKED_BYTES, asked));
}

static int ask(struct demo *demo, enum gap_policy policy, const char *name, bool first) {
  gap_card *card;
  struct picture picture;
  gap_addr addr = 0;
  char text[400];
  int rc = gap_card_open(policy, CARD_BYTES, &card);
  if (rc != 0) return rc;
  rc = make_gaps(card);
  if (rc == 0) rc = picture_draw(card, 384 * MIB, 0, &picture);
  if (rc == 0 && first) print_sizes(&picture);
  int served = rc == 0 ? gap_card_alloc(card, ASKED_BYTES, &addr) : rc;
  if (rc == 0) rc = picture_draw(card, 384 * MIB, addr, &picture);
  if (rc == 0) printf("   %-17s %-7s |%s|\n", name, served == 0 ? "served" : "REFUSED", picture.cells);
  if (gap_card_check(card, text, sizeof text) != 0) sorry(demo, "the checker", text);
  demo->checks++;
  gap_card_close(card);
  return rc;
}

static void show_question(struct demo *demo) {
  puts("1. A 24 GB card");
  int rc = ask(demo, GAP_POLICY_NATIVE, "caching_allocator", true);
  if (rc == 0) rc = ask(demo, GAP_POLICY_GAPLESS, "gapless", false);
  if (rc != 0) sorry(demo, "the 24 GB card", gap_strerror(rc));
}

/* ---- Histories ---- */

static gap_history *open_data(struct demo *demo, const char *name) {
  char path[PATH_MAX + 64], message[512] = "";
  gap_history *history;
  snprintf(path, sizeof path, "%s/%s.pickle.xz", demo->data, name);
  int rc = gap_history_open(path, NULL, NULL, &history, message, sizeof message);
  if (rc == 0) return history;
  sorry(demo, path, message);
  return NULL;
}

static bool run_policy(struct demo *demo, const gap_history *history, const char *name, enum gap_policy policy,
                       uint64_t cap, bool min_cap, gap_replay_result *result) {
  gap_replay_options options;
  char message[512] = "", label[64];
  struct bar bar;
  gap_replay_defaults(&options);
  options.policy = policy;
  options.cap_bytes = cap;
  snprintf(label, sizeof label, "%s, %s", name, gap_policy_name(policy));
  bar_begin(&bar, label, min_cap);
  options.progress = bar_update;
  options.progress_arg = &bar;
  int rc = min_cap ? gap_replay_min_cap(history, &options, result, message, sizeof message)
                   : gap_replay(history, &options, result, message, sizeof message);
  bar_end(&bar);
  demo->checks += rc == 0 ? result->checks : 0;
  if (rc != 0) sorry(demo, name, message);
  return rc == 0;
}

/* ---- 2: the run that died ---- */

#define OOM_CAP (26 * GIB)

static void say_outcome(const gap_replay_result *result) {
  char event[GAP__TEXT_BYTES], size[3][GAP__TEXT_BYTES];
  const gap_replay_failure *failed = &result->failed;
  if (result->fitted) {
    printf("   %-8s serves it and everything else, holding at most %s.\n", gap_policy_name(result->policy),
           gap__text_size(result->peak_reserved_bytes, size[0]));
    return;
  }
  printf("   %-8s fails %s, at event %s: %s live, %s idle, %s asked.\n", gap_policy_name(result->policy),
         strcmp(failed->action, "oom") == 0 ? "where it died" : "elsewhere than it died",
         gap__text_thousands(failed->event, event), gap__text_size(failed->live_bytes, size[0]),
         gap__text_size(failed->held_bytes - failed->live_bytes, size[1]), gap__text_size(failed->size, size[2]));
}

static void show_oom(struct demo *demo) {
  gap_replay_result native, gapless;
  gap_history *history = open_data(demo, "oom");
  if (!history) return;
  puts("2. A training run that died under a limit of 26 GiB, replayed under the same limit");
  if (run_policy(demo, history, "oom", GAP_POLICY_NATIVE, OOM_CAP, false, &native)) say_outcome(&native);
  if (run_policy(demo, history, "oom", GAP_POLICY_GAPLESS, OOM_CAP, false, &gapless)) say_outcome(&gapless);
  gap_history_close(history);
}

/* ---- 3: the table ---- */

static const char *const table_names[] = {"gnn", "diffusion_serve", "llama_sft"};
enum { TABLE_NAMES = sizeof table_names / sizeof table_names[0] };

static void factor(struct table *table, uint64_t bytes, uint64_t peak) {
  if (bytes == 0) table_cell(table, "?");
  else table_cell(table, "%.4f P", (double)bytes / (double)peak);
}

static void show_history(struct demo *demo, struct table *table, const char *name) {
  gap_replay_result native, gapless;
  char events[GAP__TEXT_BYTES], peak[GAP__TEXT_BYTES];
  gap_history *history = open_data(demo, name);
  if (!history) return;
  bool done = run_policy(demo, history, name, GAP_POLICY_NATIVE, 0, true, &native) &&
              run_policy(demo, history, name, GAP_POLICY_GAPLESS, 0, true, &gapless);
  if (done) {
    table_cell(table, "%s", name);
    table_cell(table, "%s", gap__text_thousands(gap_history_event_count(history, 0), events));
    table_cell(table, "%s", gap__text_size(native.peak_live_bytes, peak));
    factor(table, native.peak_reserved_bytes, native.peak_live_bytes);
    factor(table, native.least_cap_bytes, native.peak_live_bytes);
    factor(table, gapless.least_cap_bytes, gapless.peak_live_bytes);
  }
  gap_history_close(history);
}

static void show_table(struct demo *demo) {
  static const char *const titles[] = {"history",       "events",        "live (P)",
                                       "PyTorch holds", "PyTorch needs", "gapless needs"};
  struct table table;
  puts("3. Real histories of an H200: how much memory is needed for the same program");
  table_begin(&table, sizeof titles / sizeof titles[0]);
  for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++) table_cell(&table, "%s", titles[i]);
  for (int i = 0; i < TABLE_NAMES; i++) show_history(demo, &table, table_names[i]);
  table_end(&table, 3, stdout);
}

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int show_all(struct demo *demo) {
  double start = seconds_now();
  char checks[GAP__TEXT_BYTES];
  show_question(demo);
  putchar('\n');
  show_oom(demo);
  putchar('\n');
  show_table(demo);
  if (!demo->failed)
    printf("   independent checker: no overlap, every live byte on mapped memory, caps kept: %s checks\n\n",
           gap__text_thousands(demo->checks, checks));
  printf("Took %.1f s. Next: %s replay YOUR_SNAPSHOT.pickle --card 24G\n", seconds_now() - start, program_path);
  return demo->failed ? EXIT_NO : EXIT_YES;
}

static int run(int argc, char **argv) {
  static const struct option options[] = {{"data", required_argument, NULL, 'd'}, {NULL, 0, NULL, 0}};
  const char *given = NULL;
  char folder[PATH_MAX + 32];
  opterr = 0;
  optind = 1;
  for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    if (option != 'd') return usage_error("demo", "the only option is --data DIR");
    given = optarg;
  }
  if (optind < argc) return usage_error("demo", "unexpected argument \"%s\"", argv[optind]);
  if (data_folder(given, folder, sizeof folder) != 0)
    return usage_error("demo", "the histories were not found%s%s; --data names the folder with oom.pickle.xz",
                       given ? " in " : "", given ? given : "");
  struct demo demo = {.data = folder};
  return show_all(&demo);
}

const struct command command_demo = {
    .name = "demo",
    .summary = "the main job on one screen, in a few seconds",
    .help = "usage: gapless demo [--data DIR]\n\n"
            "Three parts: a request that a full-looking card refuses and gapless serves; a training run that ran out "
            "of memory,\n"
            "replayed; and how much memory recorded programs need.  Everything is computed when it is shown.\n\n"
            "  --data DIR  the folder of the recorded histories (default: tests/data of the source)\n\n"
            "exit codes: 0 shown; 1 a part failed; 2 wrong usage\n",
    .run = run,
};
