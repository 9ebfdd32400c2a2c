/* What would have let the request through, smallest change first.  Every piece is tried by replay; what does not work is told as well. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "explain/altered.h"
#include "explain/phrase.h"
#include "replay/cap.h"

enum { CHECKPOINT_PARTS = 8, LEAST_CAP_TRIES = 40 };

struct adviser {
  struct gap__subject *subject;
  const struct gap__replayer *replayer;
  gap_progress_fn progress;
  void *progress_arg;
  uint64_t began_ms, last_ms, tries;
  uint64_t cap;             /* 0: none */
  uint64_t before;          /* bytes older than the history, which a replay does not know */
  uint64_t baseline;        /* held by the recorded policy, where there is no cap */
  struct gap__altered base; /* the history that is replayed */
  enum gap_policy policy;   /* the one that the program had, where this build has a model of it */
  bool baseline_fits;
  bool out_of_time;
  gap_replay_result result; /* of the last try */
};

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Would `tries` more replays like the last one end within the budget? */
static bool has_time(struct adviser *adviser, uint64_t tries) {
  uint64_t spent = now_ms() - adviser->began_ms;
  bool enough = spent + tries * adviser->last_ms <= adviser->subject->options.budget_ms;
  adviser->out_of_time |= !enough;
  return enough;
}

/* ---- one try ------------------------------------------------------------------------------------------------------- */

/* False: it could not be tried, for lack of time or because the replay does not take it. */
static bool run(struct adviser *adviser, const struct gap__history *history, enum gap_policy policy, const char *conf,
                uint64_t cap) {
  gap_replay_options how;
  char message[1024];
  if (!has_time(adviser, 1)) return false;
  gap_replay_defaults(&how);
  how.device = adviser->subject->device;
  how.policy = policy;
  how.conf = conf;
  how.cap_bytes = cap;
  how.check = GAP_CHECK_OFF;
  uint64_t began = now_ms();
  int rc = adviser->replayer->replay(history, &how, &adviser->result, message, sizeof message);
  adviser->last_ms = now_ms() - began;
  if (adviser->progress) adviser->progress(adviser->progress_arg, ++adviser->tries, 0);
  return rc == 0;
}

static bool works(const struct adviser *adviser) {
  if (adviser->cap && !adviser->baseline_fits) return adviser->result.fitted;
  return adviser->result.fitted && adviser->result.peak_reserved_bytes * 50 < adviser->baseline * 49;
}

static struct gap__advice *add(struct adviser *adviser, enum gap__advice_kind kind, bool checked) {
  struct gap__subject *subject = adviser->subject;
  if (subject->advice_count == GAP__ADVICE_MAX) return NULL;
  struct gap__advice *advice = &subject->advice[subject->advice_count++];
  *advice = (struct gap__advice){.kind = kind, .checked = checked};
  if (!checked) return advice;
  advice->works = works(adviser);
  advice->reserved = adviser->result.fitted ? adviser->result.peak_reserved_bytes + adviser->before : 0;
  return advice;
}

/* "goes through within 26 GiB, holding 25.99 GiB at most"; "still fails, at event 10,295" */
static void say_outcome(const struct adviser *adviser, char *out, size_t bytes) {
  const gap_replay_result *result = &adviser->result;
  uint64_t held = result->peak_reserved_bytes + adviser->before;
  if (!result->fitted) snprintf(out, bytes, "is refused at event %s still", GAP__COUNT(result->failed.event));
  else if (adviser->cap && !adviser->baseline_fits)
    snprintf(out, bytes, "goes through within %s, holding %s at most", GAP__SIZE(adviser->cap + adviser->before),
             GAP__SIZE(held));
  else
    snprintf(out, bytes, "holds %s at most, instead of %s", GAP__SIZE(held),
             GAP__SIZE(adviser->baseline + adviser->before));
}
enum { OUTCOME_BYTES = 160 };

static void note(struct adviser *adviser, const char *change, const char *text) {
  struct gap__advice *advice = add(adviser, GAP__ADVICE_NOTE, false);
  if (!advice) return;
  snprintf(advice->change, sizeof advice->change, "%s", change);
  snprintf(advice->text, sizeof advice->text, "%s", text);
}

static bool is_expandable(const struct gap__history *history) {
  bool found = history->settings.expandable_segments;
  for (uint64_t i = 0; i < history->segment_count; i++) found |= history->segments[i].is_expandable;
  return found;
}

/* ---- settings of PyTorch ------------------------------------------------------------------------------------------- */

/* Tried in this order; of one option the first value that works is told. */
static const char *const settings[] = {"max_split_size_mb:512",
                                       "max_split_size_mb:256",
                                       "max_split_size_mb:128",
                                       "max_split_size_mb:64",
                                       "max_split_size_mb:20",
                                       "garbage_collection_threshold:0.8",
                                       "garbage_collection_threshold:0.6",
                                       "roundup_power2_divisions:8",
                                       "roundup_power2_divisions:4"};

static void tell_setting(struct adviser *adviser, const char *conf) {
  char outcome[OUTCOME_BYTES];
  struct gap__advice *advice = add(adviser, GAP__ADVICE_SETTING, true);
  if (!advice) return;
  say_outcome(adviser, outcome, sizeof outcome);
  snprintf(advice->change, sizeof advice->change, "PYTORCH_CUDA_ALLOC_CONF=%s", conf);
  snprintf(advice->text, sizeof advice->text, "With it the program %s.", outcome);
}

/* Its model may be missing from a build; then the setting is not spoken of. */
static bool try_expandable(struct adviser *adviser) {
  static const char name[] = "expandable", conf[] = "expandable_segments:True";
  enum gap_policy policy;
  if (is_expandable(adviser->subject->history) || gap_policy_parse(name, strlen(name), &policy)) return false;
  if (!run(adviser, &adviser->base.history, policy, conf, adviser->cap)) return false;
  tell_setting(adviser, conf);
  return works(adviser);
}

static bool is_same_option(const char *left, const char *right) {
  size_t length = strcspn(left, ":") + 1;
  return strncmp(left, right, length) == 0;
}

/* What was set before stays; of an option that is there twice the last value counts. */
static void join_setting(const char *before, const char *setting, char *out, size_t bytes) {
  snprintf(out, bytes, "%s%s%s", before, *before ? "," : "", setting);
}

static void try_settings(struct adviser *adviser) {
  const char *found = NULL;
  uint32_t tried = 0;
  if (adviser->subject->history->by_gapless) return; /* PyTorch's have no effect there */
  bool any = try_expandable(adviser);
  if (is_expandable(adviser->subject->history)) return; /* the others have no effect there */
  for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
    if (found && is_same_option(settings[i], found)) continue;
    char conf[256];
    join_setting(adviser->subject->history->settings_text, settings[i], conf, sizeof conf);
    if (!run(adviser, &adviser->base.history, GAP_POLICY_NATIVE, conf, adviser->cap)) continue;
    tried++;
    if (!works(adviser)) continue;
    found = settings[i];
    any = true;
    tell_setting(adviser, conf);
  }
  struct gap__advice *advice = found || !tried ? NULL : add(adviser, GAP__ADVICE_NOTE, false);
  if (!advice) return;
  snprintf(advice->change, sizeof advice->change, "%s setting of PyTorch", any ? "no other" : "no");
  snprintf(advice->text, sizeof advice->text,
           "max_split_size_mb (512 down to 20), garbage_collection_threshold (0.8, 0.6) and "
           "roundup_power2_divisions (8, 4) were tried: none of them helps here.");
}

/* ---- a limit, gapless ---------------------------------------------------------------------------------------------- */

/* Sizes from a GiB on are told in hundredths: one that is told cut off would be a limit below the one that was meant. */
static uint64_t as_told(uint64_t bytes) {
  const uint64_t gib = (uint64_t)1 << 30;
  return bytes < gib ? bytes : (bytes * 100 + gib - 1) / gib * gib / 100;
}

static void try_limit(struct adviser *adviser) {
  struct gap__subject *subject = adviser->subject;
  gap_replay_options how;
  gap_replay_result result;
  char message[1024];
  bool by_limit = subject->options.cap_bytes || (subject->refusal.by_limit && !subject->bounds.is_other_card);
  if (!adviser->cap || adviser->baseline_fits || !by_limit) return;
  if (!has_time(adviser, LEAST_CAP_TRIES)) return;
  gap_replay_defaults(&how);
  how.device = subject->device;
  how.policy = adviser->policy;
  how.check = GAP_CHECK_OFF;
  how.progress = adviser->progress;
  how.progress_arg = adviser->progress_arg;
  if (adviser->replayer->least_cap(&adviser->base.history, &how, &result, message, sizeof message) ||
      !result.least_cap_bytes)
    return;
  uint64_t least = as_told(result.least_cap_bytes + adviser->before);
  if (!run(adviser, &adviser->base.history, adviser->policy, NULL, least - adviser->before)) return;
  struct gap__advice *advice = add(adviser, GAP__ADVICE_LIMIT, true);
  if (!advice) return;
  snprintf(advice->change, sizeof advice->change, "a limit of %s instead of %s", GAP__SIZE(least),
           GAP__SIZE(adviser->cap + adviser->before));
  snprintf(advice->text, sizeof advice->text, "The least limit under which %s goes through is %s.",
           subject->history->by_gapless ? "the program" : "PyTorch's own policy", GAP__SIZE(least));
}

static void try_gapless(struct adviser *adviser) {
  char outcome[OUTCOME_BYTES];
  if (adviser->subject->history->by_gapless) return; /* it is */
  if (!run(adviser, &adviser->base.history, GAP_POLICY_GAPLESS, NULL, adviser->cap)) return;
  struct gap__advice *advice = add(adviser, GAP__ADVICE_GAPLESS, true);
  if (!advice) return;
  say_outcome(adviser, outcome, sizeof outcome);
  snprintf(advice->change, sizeof advice->change, "gapless as the allocator (backend:gapless)");
  snprintf(advice->text, sizeof advice->text, "The unchanged program %s.", outcome);
}

/* ---- changes of the program ---------------------------------------------------------------------------------------- */

static void name_holders(const struct gap__subject *subject, char *out, size_t bytes) {
  static const char *const scaling[] = {"", ", does not grow with the step", ", grows less than the step",
                                        ", grows with the step", ", grows faster than the step"};
  size_t used = 0;
  out[0] = 0;
  for (uint32_t i = 0, told = 0; i < subject->holders.count && told < 2; i++) {
    const struct gap__holder *holder = &subject->holders.at[i];
    char name[96];
    if (!holder->site || holder->category != GAP__CAT_ACTIVATIONS) continue;
    gap__sites_name(&subject->sites, holder->site, name, sizeof name);
    name[strcspn(name, ",")] = 0;
    int more = snprintf(out + used, bytes - used, "%s%s (%s%s)", told++ ? ", " : " Most is held at ", name,
                        GAP__SIZE(holder->bytes), scaling[holder->scaling]);
    if (more < 0 || (used += (size_t)more) >= bytes) return;
  }
  if (used) snprintf(out + used, bytes - used, ".");
}

static void try_batch(struct adviser *adviser) {
  static const double factors[] = {0.95, 0.9, 0.85, 0.8, 0.75, 0.667, 0.5, 0.333, 0.25, 0.125};
  struct gap__subject *subject = adviser->subject;
  char outcome[OUTCOME_BYTES], holders[256];
  if (!adviser->cap || adviser->baseline_fits || !subject->holders.scaling_bytes) return;
  for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
    struct gap__altered altered = {0};
    bool ran = gap__altered_scale(subject, factors[i], &altered) == 0 &&
               run(adviser, &altered.history, adviser->policy, NULL, adviser->cap);
    gap__altered_free(&altered);
    if (!ran) return;
    if (!works(adviser) && i + 1 < sizeof factors / sizeof factors[0]) continue;
    struct gap__advice *advice = add(adviser, GAP__ADVICE_BATCH, true);
    if (!advice) return;
    say_outcome(adviser, outcome, sizeof outcome);
    name_holders(subject, holders, sizeof holders);
    snprintf(advice->change, sizeof advice->change, "a batch (or sequences) of %.0f %% of the size", factors[i] * 100);
    snprintf(advice->text, sizeof advice->text, "%s of the peak grow with the step; at %.0f %% the program %s.%s",
             GAP__SIZE(subject->holders.scaling_bytes), factors[i] * 100, outcome, holders);
    return;
  }
}

static void try_altered(struct adviser *adviser, enum gap__advice_kind kind, struct gap__altered *altered,
                        const char *change, const char *what, const char *how, uint64_t bytes) {
  struct gap__subject *subject = adviser->subject;
  char outcome[OUTCOME_BYTES];
  if (!run(adviser, &altered->history, adviser->policy, NULL, adviser->cap)) return;
  struct gap__advice *advice = add(adviser, kind, true);
  if (!advice) return;
  say_outcome(adviser, outcome, sizeof outcome);
  snprintf(advice->change, sizeof advice->change, "%s", change);
  snprintf(advice->text, sizeof advice->text, "%s are %s, %s of the peak of %s. %s the peak is %s, and the program %s.",
           what, GAP__SIZE(bytes), GAP__PERCENT(bytes, subject->lives.peak_bytes), GAP__SIZE(subject->lives.peak_bytes),
           how, GAP__SIZE(adviser->result.peak_live_bytes + adviser->before), outcome);
}

static void try_checkpoints(struct adviser *adviser) {
  struct gap__subject *subject = adviser->subject;
  uint64_t bytes = subject->categories.at_peak[GAP__CAT_ACTIVATIONS];
  struct gap__altered altered = {0};
  if (!subject->steps.trains || bytes < subject->lives.peak_bytes / 10) return;
  if (gap__altered_checkpoint(subject, CHECKPOINT_PARTS, &altered) == 0)
    try_altered(adviser, GAP__ADVICE_CHECKPOINTING, &altered,
                "gradient checkpointing (torch.utils.checkpoint) in 8 parts", "Activations",
                "Computed again instead of kept,", bytes);
  gap__altered_free(&altered);
}

static void try_offload(struct adviser *adviser) {
  struct gap__subject *subject = adviser->subject;
  uint64_t bytes = subject->categories.at_peak[GAP__CAT_OPTIMISER];
  struct gap__altered altered = {0};
  if (bytes < subject->lives.peak_bytes / 50) return;
  if (gap__altered_offload(subject, &altered) == 0)
    try_altered(adviser, GAP__ADVICE_OFFLOAD, &altered, "optimiser states in host memory", "Optimiser states",
                "Without them", bytes);
  gap__altered_free(&altered);
}

/* ---- a card -------------------------------------------------------------------------------------------------------- */

static const char *smallest_card(struct adviser *adviser, enum gap_policy policy) {
  for (uint32_t i = 0; i < gap__card_count(); i++) {
    const struct gap__card_preset *card = gap__card_at(i);
    uint64_t usable = card->total_bytes - GAP__CARD_CONTEXT_BYTES;
    if (usable < adviser->subject->lives.peak_bytes) continue;
    if (!run(adviser, &adviser->base.history, policy, NULL, usable - adviser->before)) return NULL;
    if (adviser->result.fitted) return card->name;
  }
  return NULL;
}

static void try_cards(struct adviser *adviser) {
  struct gap__subject *subject = adviser->subject;
  const char *native = smallest_card(adviser, adviser->policy);
  const char *gapless = smallest_card(adviser, GAP_POLICY_GAPLESS);
  struct gap__advice *advice = native || gapless ? add(adviser, GAP__ADVICE_CARD, false) : NULL;
  if (!advice) return;
  advice->checked = advice->works = true;
  snprintf(advice->change, sizeof advice->change, "a card of %s", native ? native : gapless);
  if (native && gapless && strcmp(native, gapless) != 0)
    snprintf(advice->text, sizeof advice->text,
             "The smallest usual card on which the recorded program fits has %s with PyTorch's own "
             "policy and %s with gapless (live at the peak: %s).",
             native, gapless, GAP__SIZE(subject->lives.peak_bytes));
  else
    snprintf(advice->text, sizeof advice->text,
             "The smallest usual card on which the recorded program fits has %s (live at the peak: "
             "%s).",
             native ? native : gapless, GAP__SIZE(subject->lives.peak_bytes));
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

/* The policy that the program had, if this build has a model of it. */
static void choose_policy(struct adviser *adviser) {
  static const char name[] = "expandable";
  adviser->policy = adviser->subject->history->by_gapless ? GAP_POLICY_GAPLESS : GAP_POLICY_NATIVE;
  if (adviser->policy == GAP_POLICY_GAPLESS || !is_expandable(adviser->subject->history) ||
      gap_policy_parse(name, strlen(name), &adviser->policy) == 0)
    return;
  note(adviser, "how it was tried",
       "The file was recorded with expandable segments, of which this build has no model: changes of the "
       "program are tried with the native policy, which takes more.");
}

/* The recorded policy under the same bound: it should fail there; if it does not, the bound was not what refused. */
static bool try_baseline(struct adviser *adviser) {
  choose_policy(adviser);
  if (!run(adviser, &adviser->base.history, adviser->policy, NULL, adviser->cap)) return false;
  adviser->baseline_fits = adviser->result.fitted;
  adviser->baseline = adviser->result.peak_reserved_bytes;
  if (adviser->cap && adviser->baseline_fits && adviser->subject->refusal.recorded)
    note(adviser, "nothing",
         adviser->subject->bounds.is_inferred
             ? "A replay of the policy goes through under the same bound: something that the history does not show, "
               "such as another "
               "program, must have taken memory."
             : "Under this bound the recorded program goes through unchanged; what follows takes less.");
  return true;
}

static void advise(struct adviser *adviser) {
  if (gap__altered_none(adviser->subject, &adviser->base) || !try_baseline(adviser)) return;
  if (adviser->subject->honest.wrapped)
    note(adviser, "the part that is missing",
         "The replays know only what was asked in the part that was recorded, and which blocks were there before: "
         "what was held besides from earlier on is in none of these figures.");
  if (adviser->subject->refusal.count > 1)
    note(adviser, "the refusals before the last", "The program survived them; they are left out of the replays.");
  if (adviser->subject->verdict != GAP_EXPLAIN_ABSURD) {
    try_settings(adviser);
    try_limit(adviser);
    try_gapless(adviser);
    try_batch(adviser);
    try_checkpoints(adviser);
    try_offload(adviser);
    try_cards(adviser);
  }
}

int gap__advice_find(struct gap__subject *subject, const struct gap__replayer *replayer, gap_progress_fn progress,
                     void *arg) {
  struct adviser adviser = {.subject = subject,
                            .replayer = replayer,
                            .progress = progress,
                            .progress_arg = arg,
                            .began_ms = now_ms(),
                            .before = gap__subject_before(subject)};
  subject->advised = true;
  if (!subject->honest.has_events) {
    note(&adviser, "record a history",
         subject->is_live
             ? "A running process tells its state, and no history to replay: begin it with "
               "GAPLESS_CONF=trace:FILE, then explain the file."
             : "Without one nothing can be replayed: torch.cuda.memory._record_memory_history() before the "
               "program, _dump_snapshot() after it.");
    return 0;
  }
  if (subject->honest.contradictions) {
    note(&adviser, "record it again", "A history that contradicts itself cannot be replayed.");
    return 0;
  }
  if (subject->verdict == GAP_EXPLAIN_ABSURD)
    note(&adviser, "look at the size that was asked",
         "No setting serves it; print the shape of the tensor at that line.");
  adviser.cap = subject->bounds.target > adviser.before ? subject->bounds.target - adviser.before : 0;
  advise(&adviser);
  gap__altered_free(&adviser.base);
  if (adviser.out_of_time) note(&adviser, "more time", "Some changes were not tried within the time given.");
  return 0;
}
