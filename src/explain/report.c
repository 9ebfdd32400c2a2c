#include "explain/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "explain/phrase.h"

enum { NAME_BYTES = 160, OPTION_QUESTION = 5, HOLDER_INDENT = 14 };

static void say_process(const struct gap__subject *subject, struct gap__text *line) {
  const struct gap__history *history = subject->history;
  gap__text_add(line, "Process %" PRIu64 " (%s), device %" PRIu32 ": %s stretch%s of memory.", history->process,
                history->text + history->program, subject->device, GAP__COUNT(subject->figures.segments),
                subject->figures.segments == 1 ? "" : "es");
}

static void say_head(const struct gap__subject *subject, struct gap__text *line) {
  const struct gap__hist_device *from = &subject->history->devices[subject->device];
  if (subject->is_live) {
    say_process(subject, line);
    return;
  }
  gap__text_add(line, "Device %" PRIu32 ": %s event%s", subject->device, GAP__COUNT(from->event_count),
                GAP__PLURAL(from->event_count));
  if (from->event_count && from->events[from->event_count - 1].time_us > 0)
    gap__text_add(line, " in %s", GAP__LONG(from->events[from->event_count - 1].time_us));
  gap__text_add(line, ", %s segment%s", GAP__COUNT(subject->figures.segments), GAP__PLURAL(subject->figures.segments));
  if (subject->steps.count > 1) gap__text_add(line, ", %" PRIu32 " steps", subject->steps.count);
  gap__text_add(line, ".");
}

char *gap__report_head(const struct gap__subject *subject) {
  struct gap__text line = {0};
  say_head(subject, &line);
  return gap__text_take(&line);
}

static const char *const category_words[GAP__CAT_COUNT] = {"weights",          "gradients",         "activations",
                                                           "optimiser states", "temporary buffers", "unknown"};

static void say_categories(const struct gap__subject *subject, struct gap__text *line) {
  const struct gap__categories *categories = &subject->categories;
  uint64_t peak = subject->lives.peak_bytes;
  if (subject->honest.has_events)
    gap__text_add(line, "At the peak %s are live (event %s):", GAP__SIZE(peak), GAP__COUNT(subject->lives.peak_event));
  else gap__text_add(line, "%s are live:", GAP__SIZE(peak));
  for (int i = 0; i < GAP__CAT_COUNT; i++) {
    if (!categories->at_peak[i] && !categories->most[i]) continue;
    gap__text_add(line, " %s %s (%s)", category_words[i], GAP__SIZE(categories->at_peak[i]),
                  GAP__PERCENT(categories->at_peak[i], peak));
    if (categories->most[i] > categories->at_peak[i] + peak / 100)
      gap__text_add(line, ", at most %s", GAP__SIZE(categories->most[i]));
    gap__text_add(line, ";");
  }
  if (line->length && strchr(":;", line->bytes[line->length - 1])) line->bytes[line->length - 1] = '.';
}

static void say_holder(const struct gap__subject *subject, const struct gap__holder *holder, struct gap__text *line) {
  static const char *const scaling[] = {"", "; does not grow with the step", "; grows less than the step",
                                        "; grows with the step", "; grows faster than the step"};
  char name[NAME_BYTES];
  gap__sites_name(&subject->sites, holder->site, name, sizeof name);
  gap__text_add(line, "%s, %" PRIu32 " block%s: %s%s", category_words[holder->category], holder->blocks,
                GAP__PLURAL(holder->blocks), name, scaling[holder->scaling]);
}

static void say_servable(const struct gap__subject *subject, struct gap__text *line) {
  const struct gap__servable *servable = &subject->servable;
  const char *size = GAP__SIZE(subject->options.request_bytes), *limit = GAP__SIZE(subject->servable_limit);
  gap__text_add(line, "A block of %s, under %s of %s: ", size,
                subject->servable_implied ? "the most ever held," : "a bound", limit);
  if (servable->first_lost == GAP__LIFE_NEVER)
    gap__text_add(line, "%s", servable->at_end ? "it could be had after every event." : "it could never be had.");
  else
    gap__text_add(line,
                  "event %s is the first after which it cannot be had (%s held, %s live, %s of it can be returned)%s.",
                  GAP__COUNT(servable->first_lost), GAP__SIZE(servable->held_then), GAP__SIZE(servable->live_then),
                  GAP__SIZE(servable->returnable_then),
                  servable->at_end                              ? ", at the end it can again"
                  : servable->last_lost != servable->first_lost ? ", later it comes and goes"
                                                                : ", nor ever again");
}

static void add_paragraph(struct gap__text *out, struct gap__text *line, unsigned columns, unsigned indent) {
  gap__phrase_paragraph(out, gap__text_str(line), columns, indent, 0);
  gap__text_clear(line);
}

static void put_question(const struct gap__subject *subject, uint32_t index, struct gap__text *out,
                         struct gap__text *line, unsigned columns) {
  struct gap__text answer = {0};
  gap__words_answer(subject, index, &answer);
  if (index < 9) gap__text_add_char(out, ' ');
  gap__text_add(line, "%" PRIu32 ". %s %s", index + 1, gap__words_question(index), gap__text_str(&answer));
  gap__text_free(&answer);
  add_paragraph(out, line, columns, 4);
}

static void put_questions(const struct gap__subject *subject, struct gap__text *out, struct gap__text *line,
                          unsigned columns) {
  gap__text_add(out, "\nQuestions and answers\n");
  for (uint32_t i = 0; i < GAP__QUESTIONS; i++) {
    if (i == OPTION_QUESTION) continue; /* answered by the advice */
    put_question(subject, i, out, line, columns);
  }
}

char *gap__report_words(const struct gap__subject *subject, unsigned columns) {
  struct gap__text out = {0}, line = {0};
  char name[32];
  say_head(subject, &line);
  add_paragraph(&out, &line, columns, 0);
  snprintf(name, sizeof name, "%s", gap_explain_verdict_name(subject->verdict));
  for (char *at = name; *at; at++) *at = (char)(*at >= 'a' && *at <= 'z' ? *at - 32 : *at);
  gap__text_add(&line, "%s. ", name);
  gap__verdict_say(subject, &line);
  add_paragraph(&out, &line, columns, 0);
  if (subject->has_servable) {
    say_servable(subject, &line);
    add_paragraph(&out, &line, columns, 0);
  }
  gap__text_add(&out, "\nWhat fills it\n");
  say_categories(subject, &line);
  add_paragraph(&out, &line, columns, 2);
  for (uint32_t i = 0; i < subject->holders.count; i++) {
    say_holder(subject, &subject->holders.at[i], &line);
    gap__text_add(&out, "%*s  ", HOLDER_INDENT - 2, GAP__SIZE(subject->holders.at[i].bytes));
    gap__phrase_paragraph(&out, gap__text_str(&line), columns, HOLDER_INDENT, HOLDER_INDENT);
    gap__text_clear(&line);
  }
  put_questions(subject, &out, &line, columns);
  gap__text_free(&line);
  return gap__text_take(&out);
}

const char *gap__advice_kind_name(enum gap__advice_kind kind) {
  static const char *const names[] = {"setting",       "limit",   "gapless", "batch",
                                      "checkpointing", "offload", "card",    "note"};
  return names[kind];
}

char *gap__report_advice(const struct gap__subject *subject, unsigned columns) {
  struct gap__text out = {0}, line = {0};
  put_question(subject, OPTION_QUESTION, &out, &line, columns);
  gap__text_add(&out, "\n%s\n",
                subject->refusal.recorded ? "What would have let it through, smallest change first"
                                          : "What would take less, smallest change first");
  for (uint32_t i = 0; i < subject->advice_count; i++) {
    const struct gap__advice *advice = &subject->advice[i];
    gap__text_add(&line, "[%s] %s: %s",
                  !advice->checked ? "--"
                  : advice->works  ? "yes"
                                   : "no",
                  advice->change, advice->text);
    gap__text_add(&out, "  ");
    add_paragraph(&out, &line, columns, 6);
  }
  gap__text_free(&line);
  return gap__text_take(&out);
}
