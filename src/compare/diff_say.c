/* What explains most of a difference, in plain sentences. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare/diff.h"
#include "explain/phrase.h"

#define ABS_SIZE(bytes) GAP__SIZE((uint64_t)llabs(bytes))
#define AS_TEXT(figure, value) gap__figure_text((figure), (value), false, (char[GAP__TEXT_BYTES]){0})

static double value_of(const struct gap_diff *diff, int side, enum gap__figure figure) {
  return diff->sides[side].figures[figure].value;
}

static int64_t change_of(const struct gap_diff *diff, enum gap__figure figure) {
  return (int64_t)(value_of(diff, 1, figure) - value_of(diff, 0, figure));
}

static bool both_know(const struct gap_diff *diff, enum gap__figure figure) {
  return diff->sides[0].figures[figure].known && diff->sides[1].figures[figure].known;
}

static uint64_t blocks_of(const struct gap__pair *pair, int side) {
  return pair->side[side] ? pair->side[side]->blocks : 0;
}

/* "more" or "less" bytes, and what part of the first that is. */
static void say_change(const struct gap_diff *diff, enum gap__figure figure, struct gap__text *text) {
  int64_t change = change_of(diff, figure);
  uint64_t before = (uint64_t)value_of(diff, 0, figure);
  gap__text_add(text, "%s %s than A", ABS_SIZE(change), change > 0 ? "more" : "less");
  if (before) gap__text_add(text, " (%s)", GAP__PERCENT((uint64_t)llabs(change), before));
}

/* ---- parts that explain a difference ------------------------------------------------------------------------------- */

static const struct gap__part *present(const struct gap__pair *pair) {
  return pair->side[1] ? pair->side[1] : pair->side[0];
}

/* Blocks without a call site are many lines of a program, or PyTorch's own threads. */
static bool is_nameless(const struct gap__pair *pair) { return strcmp(present(pair)->name, GAP__SITES_NONE) == 0; }

/* The part that changed most in the direction of the whole; NULL. */
static const struct gap__pair *first_part(const struct gap_diff *diff, enum gap__cut cut, int64_t whole) {
  for (uint32_t i = 0; i < diff->pairs[cut].count; i++) {
    const struct gap__pair *pair = &diff->pairs[cut].at[i];
    int64_t change = gap__pair_change(pair);
    if (change && (change > 0) == (whole > 0) && !is_nameless(pair)) return pair;
  }
  return NULL;
}

/* The same, if it makes half of the whole. */
static const struct gap__pair *main_part(const struct gap_diff *diff, enum gap__cut cut, int64_t whole) {
  const struct gap__pair *pair = first_part(diff, cut, whole);
  return pair && llabs(gap__pair_change(pair)) * 2 >= llabs(whole) ? pair : NULL;
}

/* "3 GiB of it (80 %) is NAME"; parts may also outweigh the whole, where others change the other way. */
static void say_share(const char *name, bool many, int64_t change, int64_t whole, struct gap__text *text) {
  if (llabs(change) <= llabs(whole))
    gap__text_add(text, " %s of it (%s) %s %s", ABS_SIZE(change),
                  GAP__PERCENT((uint64_t)llabs(change), (uint64_t)llabs(whole)), many ? "are" : "is", name);
  else
    gap__text_add(text, " Other parts change the other way, but there are %s %s of %s", ABS_SIZE(change),
                  change > 0 ? "more" : "less", name);
}

static const char *words_of(uint8_t category) {
  static const char *const words[GAP__CAT_COUNT] = {"weights",          "gradients",         "activations",
                                                    "optimiser states", "temporary buffers", "blocks of unknown use"};
  return words[category];
}

static void say_counts(const struct gap__pair *pair, struct gap__text *text) {
  uint64_t a = blocks_of(pair, 0), b = blocks_of(pair, 1);
  if (!a) gap__text_add(text, ", which has nothing there in A and %s block%s in B", GAP__COUNT(b), GAP__PLURAL(b));
  else if (!b) gap__text_add(text, ", which has %s block%s there in A and nothing in B", GAP__COUNT(a), GAP__PLURAL(a));
  else if (a == b)
    gap__text_add(text, ", whose %s block%s %s larger in %s", GAP__COUNT(a), GAP__PLURAL(a), a == 1 ? "is" : "are",
                  gap__pair_change(pair) > 0 ? "B" : "A");
  else
    gap__text_add(text, ", which has %s block%s there in A and %s in B", GAP__COUNT(a), GAP__PLURAL(a), GAP__COUNT(b));
}

static void say_site(const struct gap__pair *pair, int64_t whole, struct gap__text *text) {
  uint8_t category = present(pair)->category;
  say_share(present(pair)->name, false, gap__pair_change(pair), whole, text);
  if (category != GAP__CAT_UNKNOWN) gap__text_add(text, " (%s)", words_of(category));
  say_counts(pair, text);
  gap__text_add(text, ".");
}

static int category_of(const struct gap__pair *pair) {
  for (int i = 0; i < GAP__CAT_COUNT; i++)
    if (strcmp(gap__category_name((enum gap__category)i), present(pair)->name) == 0) return i;
  return GAP__CAT_UNKNOWN;
}

static uint64_t blocks_live(const struct gap_diff *diff, int side) {
  uint64_t blocks = 0;
  for (uint32_t i = 0; i < diff->pairs[GAP__CUT_CATEGORIES].count; i++)
    blocks += blocks_of(&diff->pairs[GAP__CUT_CATEGORIES].at[i], side);
  return blocks;
}

static void say_category(const struct gap_diff *diff, const struct gap__pair *pair, int64_t whole,
                         struct gap__text *text) {
  const struct gap__pair *site = first_part(diff, GAP__CUT_SITES, whole);
  uint64_t a = blocks_live(diff, 0), b = blocks_live(diff, 1);
  say_share(words_of((uint8_t)category_of(pair)), true, gap__pair_change(pair), whole, text);
  if (site)
    gap__text_add(text, "; no call site makes half of it, the largest is %s with %s", present(site)->name,
                  ABS_SIZE(gap__pair_change(site)));
  gap__text_add(text, ".");
  if (a == b)
    gap__text_add(text, " As many blocks are live (%s), so they are %s, as those of a %s batch are.", GAP__COUNT(a),
                  whole > 0 ? "larger" : "smaller", whole > 0 ? "larger" : "smaller");
}

static void say_size(const struct gap__pair *pair, struct gap__text *text) {
  const char *name = present(pair)->name;
  size_t length = strcspn(name, " ("); /* "20 MiB (20971520)" */
  length += strcspn(name + length + 1, " ") + 1;
  gap__text_add(text, " Blocks of %.*s: %s live at the peak in A, %s in B.", (int)length, name,
                GAP__COUNT(blocks_of(pair, 0)), GAP__COUNT(blocks_of(pair, 1)));
}

/* The smallest part that makes half of the whole: a call site, a category, a size. */
static void say_cause(const struct gap_diff *diff, int64_t whole, struct gap__text *text) {
  const struct gap__pair *site = main_part(diff, GAP__CUT_SITES, whole);
  const struct gap__pair *category = main_part(diff, GAP__CUT_CATEGORIES, whole);
  const struct gap__pair *size = main_part(diff, GAP__CUT_SIZES, whole), *first;
  if (site && site->side[1] != site->side[0]) {
    say_site(site, whole, text);
    return;
  }
  if (category) say_category(diff, category, whole, text);
  if (size && !diff->pairs[GAP__CUT_SITES].count) say_size(size, text);
  if (category || size) return;
  first = first_part(diff, GAP__CUT_SITES, whole);
  if (!first) first = first_part(diff, GAP__CUT_CATEGORIES, whole);
  if (first)
    gap__text_add(text, " It is spread over many places; the largest part is %s with %s.", present(first)->name,
                  ABS_SIZE(gap__pair_change(first)));
}

/* ---- the sentences ------------------------------------------------------------------------------------------------- */

static void say_live(const struct gap_diff *diff, struct gap__text *text) {
  gap__text_add(text, "At its peak B has %s live, ",
                AS_TEXT(GAP__FIGURE_PEAK_LIVE, value_of(diff, 1, GAP__FIGURE_PEAK_LIVE)));
  say_change(diff, GAP__FIGURE_PEAK_LIVE, text);
  gap__text_add(text, ".");
  say_cause(diff, change_of(diff, GAP__FIGURE_PEAK_LIVE), text);
}

static void say_same_live(const struct gap_diff *diff, struct gap__text *text) {
  gap__text_add(text, "At their peaks both have the same live (%s in B)",
                AS_TEXT(GAP__FIGURE_PEAK_LIVE, value_of(diff, 1, GAP__FIGURE_PEAK_LIVE)));
}

/* What is held beyond what is live. */
static void say_held(const struct gap_diff *diff, struct gap__text *text) {
  bool live = diff->figure_differs[GAP__FIGURE_PEAK_LIVE];
  if (!live) say_same_live(diff, text);
  gap__text_add(text, "%s B holds %s at most, ", live ? " From the driver" : ", but from the driver",
                AS_TEXT(GAP__FIGURE_PEAK_HELD, value_of(diff, 1, GAP__FIGURE_PEAK_HELD)));
  say_change(diff, GAP__FIGURE_PEAK_HELD, text);
  gap__text_add(text, ": %s of it %s idle then, %s in A.",
                AS_TEXT(GAP__FIGURE_PEAK_IDLE, value_of(diff, 1, GAP__FIGURE_PEAK_IDLE)),
                value_of(diff, 1, GAP__FIGURE_PEAK_IDLE) == 1 ? "is" : "are",
                AS_TEXT(GAP__FIGURE_PEAK_IDLE, value_of(diff, 0, GAP__FIGURE_PEAK_IDLE)));
}

static bool is_expandable(const struct gap__measure *side) {
  const struct gap__hist_device *from = &side->subject.history->devices[side->subject.device];
  for (uint64_t i = 0; i < from->event_count; i++)
    if (from->events[i].action == GAP__ACT_SEGMENT_MAP) return true;
  return false;
}

static void say_settings(const struct gap_diff *diff, struct gap__text *text) {
  const char *a = diff->sides[0].subject.history->settings_text, *b = diff->sides[1].subject.history->settings_text;
  bool grows_a = is_expandable(&diff->sides[0]), grows_b = is_expandable(&diff->sides[1]);
  if (strcmp(a, b) != 0) gap__text_add(text, " The settings differ: A has \"%s\", B \"%s\".", a, b);
  else if (grows_a != grows_b) gap__text_add(text, " Only %s has expandable segments.", grows_a ? "A" : "B");
}

static void say_growth(const struct gap_diff *diff, struct gap__text *text) {
  if (!diff->figure_differs[GAP__FIGURE_GROWTH]) return;
  gap__text_add(text, " Live memory grows by %s a step in A and by %s in B.",
                AS_TEXT(GAP__FIGURE_GROWTH, value_of(diff, 0, GAP__FIGURE_GROWTH)),
                AS_TEXT(GAP__FIGURE_GROWTH, value_of(diff, 1, GAP__FIGURE_GROWTH)));
}

/* Nothing of the peaks: the parts of them, the end, or counts. */
static void say_other(const struct gap_diff *diff, struct gap__text *text) {
  unsigned figures = 0, parts = 0;
  const struct gap__pair *site = NULL;
  for (int i = 0; i < GAP__FIGURE_COUNT; i++) figures += diff->figure_differs[i];
  for (int cut = 0; cut < GAP__CUT_CALLS; cut++)
    for (uint32_t i = 0; i < diff->pairs[cut].count; i++) {
      parts += diff->pairs[cut].at[i].differs;
      if (!site && diff->pairs[cut].at[i].differs) site = &diff->pairs[cut].at[i];
    }
  say_same_live(diff, text);
  gap__text_add(text, ", and %s held",
                both_know(diff, GAP__FIGURE_PEAK_HELD) ? "the same" : "nothing is known of what is");
  if (site)
    gap__text_add(text, ", but not of the same parts: %s changes most, by %s", present(site)->name,
                  ABS_SIZE(gap__pair_change(site)));
  if (figures && !parts) gap__text_add(text, "; what differs is marked below");
  gap__text_add(text, ".");
}

void gap__diff_say(const struct gap_diff *diff, struct gap__text *text) {
  char percent[GAP__TEXT_BYTES];
  if (diff->is_same) {
    gap__phrase_percent((uint64_t)(diff->options.tolerance * 100000), 100000, percent);
    gap__text_add(text, "The same, within %s of the higher peak (%s): nothing that both files tell differs by more.",
                  percent, GAP__SIZE(diff->scale));
  } else if (diff->figure_differs[GAP__FIGURE_PEAK_LIVE]) {
    say_live(diff, text);
    if (diff->figure_differs[GAP__FIGURE_PEAK_HELD]) say_held(diff, text);
  } else if (diff->figure_differs[GAP__FIGURE_PEAK_HELD]) {
    say_held(diff, text);
  } else {
    say_other(diff, text);
  }
  say_growth(diff, text);
  say_settings(diff, text);
}
