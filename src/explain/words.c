/* The questions that people ask, each answered in a sentence or two. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "explain/phrase.h"
#include "explain/subject.h"

typedef void answer_fn(const struct gap__subject *, struct gap__text *);

enum { NAME_BYTES = 160 };

static const char *site_name(const struct gap__subject *subject, uint32_t site, char *out) {
  gap__sites_name(&subject->sites, site, out, NAME_BYTES);
  return out;
}
#define SITE(index) site_name(subject, (index), (char[NAME_BYTES]){0})

static void not_refused(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__hist_facts *facts = gap__subject_facts(subject);
  const char *why = facts ? subject->history->text + facts->refusal : "";
  if (!subject->is_live) gap__text_add(text, "The file records no refusal; the figures are those at its end.");
  else gap__text_add(text, "The figures are those of this moment.");
  if (*why) gap__text_add(text, " Of the last refusal the allocator says: %s", why);
}

static void refused(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__refusal *refusal = &subject->refusal;
  const struct gap__figures *figures = &subject->figures;
  if (!refusal->recorded) {
    not_refused(subject, text);
    return;
  }
  gap__text_add(
      text,
      "At event %s %s were asked, for which %s wanted %s of %s; the driver had %s free, %s were idle inside %s, the "
      "largest piece that could serve it had %s.",
      GAP__COUNT(refusal->event), GAP__SIZE(refusal->request), gap__subject_keeper(subject),
      subject->history->by_gapless ? "pages" : "a new segment", GAP__SIZE(refusal->segment),
      GAP__SIZE(refusal->driver_free), GAP__SIZE(figures->idle), gap__subject_keeper(subject),
      GAP__SIZE(figures->largest_own));
  if (refusal->count > 1) gap__text_add(text, " It is the last of %" PRIu32 " refusals.", refusal->count);
}

static void pieces_or_full(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__figures *figures = &subject->figures;
  uint64_t busy = figures->live + figures->pending, need = gap__lives_rounded(subject->refusal.request);
  uint64_t could = figures->held + subject->refusal.obtainable;
  if (!subject->refusal.request)
    gap__text_add(
        text, "%s of %s held are live (%s); %s of the idle memory is out of reach between live blocks or in pools.",
        GAP__SIZE(busy), GAP__SIZE(figures->held), GAP__PERCENT(busy, figures->held), GAP__SIZE(figures->stuck));
  else if (subject->verdict == GAP_EXPLAIN_FITS)
    gap__text_add(text, "Neither: the request can be served, %s are live.", GAP__SIZE(busy));
  else if (busy + need <= could)
    gap__text_add(
        text,
        "Not full: live blocks and the request need %s together, %s less than what was held or could be taken (%s).",
        GAP__SIZE(busy + need), GAP__SIZE(could - busy - need), GAP__SIZE(could));
  else
    gap__text_add(
        text, "Full: live blocks and the request need %s together, %s more than what was held or could be taken (%s).",
        GAP__SIZE(busy + need), GAP__SIZE(busy + need - could), GAP__SIZE(could));
}

/* What could still be taken is known. */
static void say_room(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__figures *figures = &subject->figures;
  gap__text_add(
      text,
      "%s: the largest idle piece that the stream with most memory may use has %s; %s of other idle memory can "
      "be %s, and %s can still be taken from the card.",
      GAP__SIZE(subject->largest_servable), GAP__SIZE(figures->largest_own), GAP__SIZE(figures->returnable),
      subject->history->by_gapless ? "put where it is wanted" : "given back and come again as one segment",
      GAP__SIZE(subject->refusal.obtainable));
}

static void one_piece(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__figures *figures = &subject->figures;
  if (gap__subject_facts(subject)) say_room(subject, text);
  else
    gap__text_add(
        text,
        "%s without anything new from the card: the largest idle piece that the asking stream may use has %s, and %s "
        "can go back to the driver and come again as one segment.",
        GAP__SIZE(subject->largest_servable), GAP__SIZE(figures->largest_own), GAP__SIZE(figures->returnable));
  if (!figures->pins) return;
  gap__text_add(
      text,
      " In the way: %" PRIu32 " live block%s of %s in all keep%s %s idle in %" PRIu32 " segment%s; the worst has %s, "
      "keeps %s (%s).",
      figures->pins, GAP__PLURAL(figures->pins), GAP__SIZE(figures->pin_bytes), figures->pins == 1 ? "s" : "",
      GAP__SIZE(figures->pinned_idle), figures->pinned_segments, GAP__PLURAL(figures->pinned_segments),
      GAP__SIZE(figures->pin_size), GAP__SIZE(figures->pin_keeps), SITE(subject->sites.of_stack[figures->pin_stack]));
}

static void who_else(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__refusal *refusal = &subject->refusal;
  const struct gap__figures *figures = &subject->figures;
  const struct gap__hist_facts *facts = gap__subject_facts(subject);
  if (refusal->recorded && subject->bounds.total && !refusal->others)
    gap__text_add(text, "Nobody that the figures show: %s held and %s free are the whole card.",
                  GAP__SIZE(figures->held), GAP__SIZE(refusal->driver_free));
  else if (refusal->others)
    gap__text_add(
        text,
        "Of the card's %s %s held %s and %s were free; the other %s are the driver's context, libraries and other "
        "programs.",
        GAP__SIZE(subject->bounds.total), gap__subject_keeper(subject), GAP__SIZE(figures->held),
        GAP__SIZE(facts ? facts->free_bytes : refusal->driver_free), GAP__SIZE(refusal->others));
  else if (facts && facts->card_bytes)
    gap__text_add(text, "Nobody that the figures show: %s held and %s free are the whole card.",
                  GAP__SIZE(figures->held), GAP__SIZE(facts->free_bytes));
  else if (refusal->recorded)
    gap__text_add(
        text,
        "%s held %s and the driver had %s free; what of the card is missing from their sum (%s) belongs to the "
        "context and to others: give its size with --card.",
        gap__subject_keeper(subject), GAP__SIZE(figures->held), GAP__SIZE(refusal->driver_free),
        GAP__SIZE(figures->held + refusal->driver_free));
  else
    gap__text_add(text,
                  "The %s what %s's allocator holds (%s) and nothing else: nvidia-smi lists the other programs; a "
                  "context takes about 0.5 GiB.",
                  subject->is_live ? "process tells" : "file holds", gap__subject_keeper(subject),
                  GAP__SIZE(figures->held));
}

static void options_in_force(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__history *history = subject->history;
  const struct gap__hist_settings *settings = &history->settings;
  bool expandable = false;
  for (uint64_t i = 0; i < history->segment_count; i++) expandable |= history->segments[i].is_expandable;
  if (!settings->present && !history->settings_text[0] && !subject->is_live)
    gap__text_add(text, "The file does not say.");
  else if (history->settings_text[0])
    gap__text_add(text, "In force %s: \"%.*s\".", subject->is_live ? "now" : "when the file was written",
                  gap__text_fit(history->settings_text, 200), history->settings_text);
  else if (subject->is_live) gap__text_add(text, "None but the defaults.");
  else gap__text_add(text, "No option was set: the variable was empty when the allocator started.");
  if (history->by_gapless) {
    gap__text_add(text,
                  " They are gapless's (GAPLESS_CONF, gap_configure); docs/configuration.md tells which can change "
                  "while the program runs.");
    return;
  }
  if (expandable) gap__text_add(text, " Expandable segments are in use.");
  gap__text_add(text,
                " Options go into PYTORCH_CUDA_ALLOC_CONF before the first CUDA call; later changes have no effect.");
}

static void would_help(const struct gap__subject *subject, struct gap__text *text) {
  uint32_t checked = 0, working = 0;
  const struct gap__advice *first = NULL;
  for (uint32_t i = 0; i < subject->advice_count; i++) {
    checked += subject->advice[i].checked;
    if (!subject->advice[i].checked || !subject->advice[i].works) continue;
    if (!first) first = &subject->advice[i];
    working++;
  }
  if (!subject->honest.has_events && subject->is_live)
    gap__text_add(text, "Without a history nothing can be tried; GAPLESS_CONF=trace:FILE writes one.");
  else if (!subject->honest.has_events)
    gap__text_add(
        text, "Without a history nothing can be tried; record one with torch.cuda.memory._record_memory_history().");
  else if (!subject->advised) gap__text_add(text, "The advice tells what was tried by replay; none was asked for yet.");
  else if (first)
    gap__text_add(text, "%" PRIu32 " change%s tried by replay, %" PRIu32 " work%s; the smallest is: %s.", checked,
                  checked == 1 ? " was" : "s were", working, working == 1 ? "s" : "", first->change);
  else if (checked)
    gap__text_add(text, "%" PRIu32 " change%s tried by replay, none works.", checked, checked == 1 ? " was" : "s were");
  else gap__text_add(text, "Nothing could be tried.");
}

/* The highest live bytes, and of events which one reached them. */
static void say_peak(const struct gap__subject *subject, struct gap__text *text) {
  if (!subject->honest.has_events && gap__subject_facts(subject))
    gap__text_add(text, "Live memory was highest with %s.", GAP__SIZE(gap__subject_peak(subject)));
  else if (!subject->honest.has_events)
    gap__text_add(text, "The file has no history, only the state at one moment, with %s live.",
                  GAP__SIZE(gap__subject_peak(subject)));
  else
    gap__text_add(text, "No steps can be told apart in this file; live memory was highest at event %s with %s.",
                  GAP__COUNT(subject->lives.peak_event), GAP__SIZE(subject->lives.peak_bytes));
}

static void why_now(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__steps *steps = &subject->steps;
  char number[GAP__TEXT_BYTES];
  uint32_t largest = 0;
  if (steps->count < 2) {
    say_peak(subject, text);
    return;
  }
  for (uint32_t i = 1; i < steps->count; i++)
    if (steps->at[i].peak_bytes > steps->at[largest].peak_bytes) largest = i;
  snprintf(number, sizeof number, "step %" PRIu32, largest);
  gap__text_add(text, "Of %" PRIu32 " steps (0 to %" PRIu32 ") %s needs most: %s live at its peak", steps->count,
                steps->count - 1,
                largest == 0                  ? "the first"
                : largest + 1 == steps->count ? "the last"
                                              : number,
                GAP__SIZE(steps->at[largest].peak_bytes));
  if (largest) gap__text_add(text, ", the first one %s", GAP__SIZE(steps->at[0].peak_bytes));
  gap__text_add_char(text, '.');
  if (subject->categories.most[GAP__CAT_OPTIMISER])
    gap__text_add(text,
                  " The optimiser makes its states (%s) at the end of the first step and keeps them: every later step "
                  "begins with "
                  "that much less.",
                  GAP__SIZE(subject->categories.most[GAP__CAT_OPTIMISER]));
}

static void what_grows(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__growth *growth = &subject->growth;
  if (!growth->steps) gap__text_add(text, "Too few steps can be told apart to say.");
  else if (!growth->grows)
    gap__text_add(text, "Nothing: over %" PRIu32 " steps the floor of live memory moves by %s%s a step.", growth->steps,
                  growth->per_step < 0 ? "-" : "",
                  GAP__SIZE((uint64_t)(growth->per_step < 0 ? -growth->per_step : growth->per_step)));
  else if (growth->site)
    gap__text_add(text, "Live memory grows by %s a step over %" PRIu32 " steps; %s of it stay behind at %s.",
                  GAP__SIZE((uint64_t)growth->per_step), growth->steps, GAP__SIZE(growth->site_bytes),
                  SITE(growth->site));
  else
    gap__text_add(
        text, "Live memory grows by %s a step over %" PRIu32 " steps; the file has no stacks that would name the line.",
        GAP__SIZE((uint64_t)growth->per_step), growth->steps);
}

static void still_taken(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__figures *figures = &subject->figures;
  gap__text_add(
      text, "Freed memory stays with %s's allocator: %s are idle in it, and %s would hand back %s of them.",
      gap__subject_keeper(subject), GAP__SIZE(figures->idle),
      subject->history->by_gapless ? "gap_trim (PyTorch: torch.cuda.empty_cache())" : "torch.cuda.empty_cache()",
      GAP__SIZE(figures->returnable));
  if (figures->live) gap__text_add(text, " %s are live: something still refers to them.", GAP__SIZE(figures->live));
}

static void one_card_worse(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__history *history = subject->history;
  uint32_t devices = 0;
  for (uint32_t i = 0; i < history->device_count; i++) {
    uint64_t held = 0, active = 0;
    for (uint64_t j = 0; j < history->segment_count; j++) {
      if ((uint32_t)history->segments[j].device != i) continue;
      held += history->segments[j].total_size;
      active += history->segments[j].active_size;
    }
    if (!held && !history->devices[i].event_count) continue;
    if (devices++ < 8)
      gap__text_add(text, "%sdevice %" PRIu32 " holds %s (%s live)", devices == 1 ? "At the end " : ", ", i,
                    GAP__SIZE(held), GAP__SIZE(active));
  }
  if (devices > 1) gap__text_add(text, ".");
  else {
    gap__text_clear(text);
    gap__text_add(text, "The %s has one device only; compare %s of the ranks.", gap__subject_source(subject),
                  subject->is_live ? "the processes" : "the files");
  }
}

static void private_pools(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__figures *figures = &subject->figures;
  if (!figures->pools) {
    gap__text_add(text, "None: no private pool exists.");
    return;
  }
  gap__text_add(
      text,
      "%" PRIu32
      " private pool%s (CUDA graphs, MemPool) hold%s %s, of which %s are idle; nothing else can use them until "
      "the graphs or pools are released.",
      figures->pools, GAP__PLURAL(figures->pools), figures->pools == 1 ? "s" : "", GAP__SIZE(figures->pool_held),
      GAP__SIZE(figures->pool_idle));
}

static void smaller_failed(const struct gap__subject *subject, struct gap__text *text) {
  uint64_t least = UINT64_MAX, most = 0;
  uint32_t steps = 0;
  for (uint32_t i = 0; i + 1 < subject->steps.count; i++, steps++) {
    uint64_t peak = subject->steps.at[i].peak_bytes;
    if (peak < least) least = peak;
    if (peak > most) most = peak;
  }
  if (steps >= 2)
    gap__text_add(text, "Steps differ: their peaks reach from %s to %s. ", GAP__SIZE(least), GAP__SIZE(most));
  if (subject->history->by_gapless)
    gap__text_add(
        text,
        "Idle whole pages serve every request, of any stream; what lies on pages that live blocks use in part "
        "(%s) serves only what fits into it.",
        GAP__SIZE(subject->figures.stuck));
  else
    gap__text_add(
        text,
        "Idle pieces serve only what fits into them, so another size, even a smaller one, can need new segments (there "
        "are %s now).",
        GAP__COUNT(subject->figures.segments));
}

static void slow_near_limit(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__segment_counts *counts = &subject->segment_counts;
  const struct gap__hist_facts *facts = gap__subject_facts(subject);
  if (!counts->made && !counts->freed && facts)
    gap__text_add(text,
                  "Requests that needed memory given back or a wait: %s; waits of the host inside an allocation: %s.",
                  GAP__COUNT(facts->retries), GAP__COUNT(facts->stalls));
  else if (!counts->made && !counts->freed) gap__text_add(text, "The file records no calls of the driver.");
  else if (!counts->bursts)
    gap__text_add(text,
                  "It was not: %s took %s segment%s from the driver, gave back %s, and never had to give back in "
                  "order to take.",
                  gap__subject_keeper(subject), GAP__COUNT(counts->made), GAP__PLURAL(counts->made),
                  GAP__COUNT(counts->freed));
  else
    gap__text_add(text,
                  "%s gave idle segments back in order to take others %s time%s; each time it waits for the whole "
                  "device, and "
                  "then pays for the segments again (%s taken, %s given back in all).",
                  gap__subject_keeper(subject), GAP__COUNT(counts->bursts), GAP__PLURAL(counts->bursts),
                  GAP__COUNT(counts->made), GAP__COUNT(counts->freed));
}

static void this_machine(const struct gap__subject *subject, struct gap__text *text) {
  if (subject->is_live && subject->history->by_gapless) {
    gap__text_add(text, "Yes: the memory is mapped, page by page.");
    return;
  }
  gap__text_add(
      text, "The file does not say. `gapless info` tells what a machine can do; without virtual memory management (old "
            "drivers, vGPU, some WSL and MIG set-ups) neither expandable segments nor page stealing work.");
}

/* What the end of a trace of ours shows. */
static void say_losses(const struct gap__history *history, struct gap__text *text) {
  if (history->is_torn)
    gap__text_add(text, "No: the file ends in the middle, at byte %" PRIu64 "; what comes before is used. ",
                  history->torn_at);
  if (history->lost_events) gap__text_add(text, "No: %s events were not written. ", GAP__COUNT(history->lost_events));
  if (history->earlier_events)
    gap__text_add(text, "The ring has written over its first %s entries. ", GAP__COUNT(history->earlier_events));
}

static void is_complete(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__honest *honest = &subject->honest;
  const struct gap__hist_device *from = &subject->history->devices[subject->device];
  if (honest->contradictions) {
    gap__text_add(text, "It contradicts itself in %" PRIu32 " place%s. %s", honest->contradictions,
                  GAP__PLURAL(honest->contradictions), gap__text_str(&honest->first));
    return;
  }
  say_losses(subject->history, text);
  if (gap__subject_is_empty(subject)) gap__text_add(text, "No: it holds nothing of this device.");
  else if (!honest->has_events)
    gap__text_add(text, "No: it has no history, only the state at one moment. That tells what is held, by whom and in "
                        "which pieces; not "
                        "what came before, what would have helped, or what grows.");
  else if (honest->wrapped)
    gap__text_add(
        text,
        "No: the history does not reach back to the beginning (the recorder's ring wrapped, or recording began late); "
        "%s blocks are older than its %s events. Sums at the end are exact, the peak is that of the part recorded.",
        GAP__COUNT(honest->lives_before), GAP__COUNT(from->event_count));
  else if (subject->history->is_torn || subject->history->lost_events)
    gap__text_add(text, "It has %s events from the first allocation on.", GAP__COUNT(from->event_count));
  else
    gap__text_add(text, "Yes: %s events from the first allocation on%s.", GAP__COUNT(from->event_count),
                  honest->has_segments ? ", and they agree with the segments at the end" : " (no segments are listed)");
  if (honest->has_events && !honest->has_stacks)
    gap__text_add(text, " It has no stacks: record with stacks to see call sites.");
  if (subject->history->unknown_actions)
    gap__text_add(text, " %s entries of a kind unknown to this version are left out.",
                  GAP__COUNT(subject->history->unknown_actions));
}

static const struct {
  const char *title;
  answer_fn *answer;
  bool needs_driver; /* of what was taken from it */
} questions[GAP__QUESTIONS] = {
    {"Why was it refused?", refused, true},
    {"In pieces, or full?", pieces_or_full, true},
    {"How much in one piece, and what is in the way?", one_piece, true},
    {"Who else is on the card?", who_else, true},
    {"Which options are in force?", options_in_force, false},
    {"Would an option help?", would_help, false},
    {"Why now and not earlier?", why_now, false},
    {"What grows, and where?", what_grows, false},
    {"Why is it still taken after it was freed?", still_taken, true},
    {"Why is one card worse than the others?", one_card_worse, false},
    {"What is in graphs and other private pools?", private_pools, false},
    {"Why does something smaller fail?", smaller_failed, true},
    {"Why is it slow near the limit?", slow_near_limit, false},
    {"Does this machine support it?", this_machine, false},
    {"Is the file complete?", is_complete, false},
};

const char *gap__words_question(uint32_t index) { return questions[index].title; }

void gap__words_answer(const struct gap__subject *subject, uint32_t index, struct gap__text *text) {
  if (questions[index].needs_driver && gap__subject_is_empty(subject))
    gap__text_add(text, "The file does not say: it holds nothing of this device.");
  else if (questions[index].needs_driver && !subject->honest.tells_driver)
    gap__text_add(text, "The file does not say: it is a log of requests, without what was taken from the driver.");
  else questions[index].answer(subject, text);
}
