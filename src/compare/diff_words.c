/* A comparison for a person's screen. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/diff.h"
#include "explain/phrase.h"

enum { NAME = 32, CELL = 13 };

static void put_head(const struct gap__measure *side, char letter, struct gap__text *out) {
  const struct gap__subject *subject = &side->subject;
  const struct gap__hist_device *from = &subject->history->devices[subject->device];
  gap__text_add(out, "%c  %s: ", letter, side->file);
  if (subject->history->device_count > 1) gap__text_add(out, "device %" PRIu32 ", ", subject->device);
  if (side->step >= 0)
    gap__text_add(out, "step %" PRId64 " of %" PRIu32 ", %s events", side->step, subject->steps.count,
                  GAP__COUNT(side->end - side->first));
  else if (subject->honest.has_events) gap__text_add(out, "%s events", GAP__COUNT(from->event_count));
  else gap__text_add(out, "a snapshot without a history: its end stands for its peak");
  if (side->step < 0 && from->event_count && from->events[from->event_count - 1].time_us > 0)
    gap__text_add(out, " in %s", GAP__LONG(from->events[from->event_count - 1].time_us));
  if (side->step < 0 && subject->steps.count > 1) gap__text_add(out, ", %" PRIu32 " steps", subject->steps.count);
  if (subject->honest.wrapped) gap__text_add(out, "; its beginning is missing");
  if (subject->history->is_torn) gap__text_add(out, "; its end is missing");
  if (subject->honest.contradictions) gap__text_add(out, "; it contradicts itself");
  gap__text_add_char(out, '\n');
}

static void put_figure(const struct gap_diff *diff, enum gap__figure figure, struct gap__text *out) {
  const struct gap__figure_value *a = &diff->sides[0].figures[figure], *b = &diff->sides[1].figures[figure];
  char text[GAP__TEXT_BYTES];
  if (!a->known && !b->known) return;
  gap__text_add(out, "%c %-*s", diff->figure_differs[figure] ? '*' : ' ', NAME, gap__figure_info(figure)->words);
  gap__text_add(out, "%*s", CELL, a->known ? gap__figure_text(figure, a->value, false, text) : "unknown");
  gap__text_add(out, "%*s", CELL, b->known ? gap__figure_text(figure, b->value, false, text) : "unknown");
  bool both = a->known && b->known, same = both && a->value == b->value;
  gap__text_add(out, "%*s", CELL + 1,
                !both  ? "-"
                : same ? "="
                       : gap__figure_text(figure, b->value - a->value, true, text));
  if (both && !same && a->value > 0 && gap__figure_info(figure)->kind != GAP__FIGURE_PERCENT) {
    double ratio = b->value / a->value;
    if (ratio < 10) gap__text_add(out, "%+9.1f %%", 100 * (ratio - 1));
    else gap__text_add(out, "%7.0f-fold", ratio);
  }
  gap__text_add_char(out, '\n');
}

static void put_figures(const struct gap_diff *diff, struct gap__text *out) {
  gap__text_add(out, "\n  %-*s%*s%*s%*s\n", NAME, "", CELL, "A", CELL, "B", CELL + 1, "change");
  for (int i = 0; i < GAP__FIGURE_COUNT; i++) put_figure(diff, (enum gap__figure)i, out);
}

/* ---- parts --------------------------------------------------------------------------------------------------------- */

static const char *title_of(enum gap__cut cut) {
  static const char *const titles[GAP__CUT_COUNT] = {"Call sites at the peaks", "What blocks are for, at the peaks",
                                                     "Streams, live at the peaks", "Sizes of blocks live at the peaks",
                                                     "Driver calls (bytes they were about)"};
  return titles[cut];
}

static void put_side(const struct gap__part *part, struct gap__text *out) {
  gap__text_add(out, "%*s", CELL - 1, part ? GAP__SIZE(part->bytes) : "-");
  gap__text_add(out, " x%-7s", part ? GAP__COUNT(part->blocks) : "0");
}

/* "model.py:12" of a call site, "20 MiB" of a size. */
static size_t length_of_place(const char *name) {
  size_t size = strcspn(name, "(");
  return name[size] && size ? size - 1 : strcspn(name, " ");
}

/* The name of a site that moved is followed by where it was. */
static void put_name(const struct gap__pair *pair, struct gap__text *out) {
  const struct gap__part *a = pair->side[0], *b = pair->side[1];
  gap__text_add(out, "  %s", b ? b->name : a->name);
  if (a && b && strcmp(a->name, b->name) != 0)
    gap__text_add(out, " (in A %.*s)", (int)length_of_place(a->name), a->name);
}

static void put_pair(const struct gap__pair *pair, struct gap__text *out) {
  int64_t change = gap__pair_change(pair);
  char signed_size[GAP__TEXT_BYTES + 1];
  snprintf(signed_size, sizeof signed_size, "%s%s",
           change < 0   ? "-"
           : change > 0 ? "+"
                        : "",
           change ? GAP__SIZE((uint64_t)llabs(change)) : "=");
  gap__text_add(out, "%c %*s", pair->differs ? '*' : ' ', CELL, signed_size);
  put_side(pair->side[0], out);
  put_side(pair->side[1], out);
  put_name(pair, out);
  gap__text_add_char(out, '\n');
}

static bool is_worth_a_line(const struct gap__pair *pair) {
  uint64_t a = pair->side[0] ? pair->side[0]->blocks : 0, b = pair->side[1] ? pair->side[1]->blocks : 0;
  return gap__pair_change(pair) != 0 || a != b;
}

static void put_pairs(const struct gap_diff *diff, enum gap__cut cut, unsigned rows, struct gap__text *out) {
  const struct gap__pairs *pairs = &diff->pairs[cut];
  uint32_t changed = 0, shown = 0;
  for (uint32_t i = 0; i < pairs->count; i++) changed += is_worth_a_line(&pairs->at[i]);
  if (!changed) return;
  gap__text_add(out, "\n%s\n  %*s%*s%*s\n", title_of(cut), CELL, "change", CELL, "A", CELL + 8, "B");
  for (uint32_t i = 0; i < pairs->count; i++) {
    if (!is_worth_a_line(&pairs->at[i]) || (rows && shown == rows)) continue;
    put_pair(&pairs->at[i], out);
    shown++;
  }
  if (shown < changed) gap__text_add(out, "  %*s %s more that changed\n", CELL - 1, "...", GAP__COUNT(changed - shown));
  if (changed < pairs->count)
    gap__text_add(out, "  %*s %s unchanged\n", CELL - 1, "", GAP__COUNT(pairs->count - changed));
}

static void put_notes(const struct gap_diff *diff, struct gap__text *out) {
  bool a = diff->sides[0].subject.honest.has_stacks, b = diff->sides[1].subject.honest.has_stacks;
  if (!a || !b)
    gap__text_add(out, "\nCall sites are not compared: %s.\n",
                  a || b ? a ? "B was recorded without them" : "A was recorded without them" : "no file has them");
  if (!diff->is_same) gap__text_add(out, "\n* beyond the tolerance of %g %%\n", 100 * diff->options.tolerance);
}

char *gap__diff_words(const struct gap_diff *diff, unsigned columns, unsigned rows) {
  struct gap__text out = {0}, line = {0};
  gap__diff_say(diff, &line);
  gap__phrase_paragraph(&out, gap__text_str(&line), columns, 0, 0);
  gap__text_free(&line);
  gap__text_add_char(&out, '\n');
  put_head(&diff->sides[0], 'A', &out);
  put_head(&diff->sides[1], 'B', &out);
  put_figures(diff, &out);
  for (int cut = 0; cut < GAP__CUT_COUNT; cut++) put_pairs(diff, (enum gap__cut)cut, rows, &out);
  put_notes(diff, &out);
  return gap__text_take(&out);
}
