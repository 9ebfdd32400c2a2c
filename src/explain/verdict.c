/* What stood in the way: the sums of the moment, tried from the smallest cause to the largest. */
#include <inttypes.h>

#include "explain/phrase.h"
#include "explain/subject.h"
#include "replay/cap.h"

#define MIB ((uint64_t)1 << 20)
#define CONTEXT_MAX ((uint64_t)1 << 30) /* what a context with its libraries takes at most; more is somebody else */

enum {
  LITTLE_PART = 50,
  MUCH_PART = 10
}; /* of what is held: a fiftieth idle is full, a tenth out of reach is worth a verdict */

/* ---- what could be had from the driver ----------------------------------------------------------------------------- */

static uint64_t room_below(uint64_t limit, uint64_t held) { return limit > held ? limit - held : 0; }

/* A card or a cap that the recorded program cannot have had is a question about another card: it bounds the advice only. */
static void find_bounds(struct gap__subject *subject) {
  const struct gap__history *history = subject->history;
  const struct gap__refusal *refusal = &subject->refusal;
  const gap_explain_options *options = &subject->options;
  struct gap__bounds *bounds = &subject->bounds;
  const struct gap__hist_facts *facts = &history->devices[subject->device].facts; /* of the end; 0 where nobody told */
  uint64_t seen = refusal->recorded ? subject->figures.held + refusal->driver_free : 0;
  bool has_fraction = history->memory_fraction > 0 && history->memory_fraction < 1 && history->total_bytes;
  bounds->total = options->card_bytes >= seen && options->card_bytes ? options->card_bytes : history->total_bytes;
  if (!bounds->total && facts->card_bytes >= seen) bounds->total = facts->card_bytes;
  if (has_fraction) bounds->limit = (uint64_t)(history->memory_fraction * (double)history->total_bytes);
  else if (facts->cap_bytes && facts->cap_bytes >= subject->figures.held) bounds->limit = facts->cap_bytes;
  else if (!refusal->recorded && options->card_bytes)
    bounds->limit = room_below(options->card_bytes, GAP__CARD_CONTEXT_BYTES);
  if (options->cap_bytes && (!refusal->recorded || options->cap_bytes >= subject->figures.held))
    bounds->limit = options->cap_bytes;
}

/* Nothing was refused at that moment: what the allocator could still take, if it has said. */
static void find_room(struct gap__subject *subject, uint64_t below) {
  const struct gap__hist_facts *facts = gap__subject_facts(subject);
  struct gap__refusal *refusal = &subject->refusal;
  refusal->obtainable = subject->bounds.limit ? below : 0;
  if (!facts) return;
  uint64_t room = room_below(facts->largest_servable_bytes, facts->returnable_bytes);
  if (subject->options.cap_bytes) room = facts->free_bytes; /* the cap asked about is not the one in force */
  refusal->obtainable = room < below ? room : below;
  refusal->driver_free = facts->free_bytes;
  refusal->by_limit = refusal->request && subject->bounds.limit && facts->free_bytes >= refusal->segment;
  refusal->others = room_below(facts->card_bytes, subject->figures.held + facts->free_bytes);
}

static void find_obtainable(struct gap__subject *subject) {
  struct gap__refusal *refusal = &subject->refusal;
  uint64_t held = subject->figures.held, limit = subject->bounds.limit;
  uint64_t below = limit ? room_below(limit, held) : UINT64_MAX;
  if (!refusal->recorded) {
    find_room(subject, below);
    return;
  }
  refusal->by_limit = refusal->driver_free >= refusal->segment;
  if (refusal->by_limit) refusal->obtainable = limit ? below : 0;
  else refusal->obtainable = refusal->driver_free < below ? refusal->driver_free : below;
  if (subject->bounds.total > held + refusal->driver_free)
    refusal->others = subject->bounds.total - held - refusal->driver_free;
}

static void find_target(struct gap__subject *subject) {
  struct gap__bounds *bounds = &subject->bounds;
  bounds->target = subject->options.cap_bytes ? subject->options.cap_bytes : bounds->limit;
  bounds->is_other_card = subject->options.card_bytes && subject->options.card_bytes != bounds->total;
  if (!subject->options.cap_bytes && bounds->is_other_card)
    bounds->target = room_below(subject->options.card_bytes, GAP__CARD_CONTEXT_BYTES);
  if (bounds->target || !subject->refusal.recorded || !subject->honest.tells_driver) return;
  bounds->is_inferred = true;
  bounds->target = (subject->figures.held + subject->refusal.obtainable) / (2 * MIB) * (2 * MIB);
}

/* ---- the verdict --------------------------------------------------------------------------------------------------- */

static bool is_absurd(const struct gap__subject *subject) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < gap__card_count(); i++)
    if (gap__card_at(i)->total_bytes > most) most = gap__card_at(i)->total_bytes;
  return subject->refusal.request > (subject->bounds.total ? subject->bounds.total : most);
}

static gap_explain_verdict judge_shortage(const struct gap__subject *subject, uint64_t need, uint64_t all) {
  const struct gap__refusal *refusal = &subject->refusal;
  if (refusal->by_limit) return GAP_EXPLAIN_LIMIT;
  if (refusal->others && need <= all + refusal->others)
    return refusal->others > CONTEXT_MAX ? GAP_EXPLAIN_NEIGHBOUR : GAP_EXPLAIN_CONTEXT;
  return GAP_EXPLAIN_FULL;
}

/* A request that was refused, or that would be. */
static gap_explain_verdict judge_request(const struct gap__subject *subject) {
  const struct gap__refusal *refusal = &subject->refusal;
  const struct gap__figures *figures = &subject->figures;
  uint64_t need = gap__lives_rounded(refusal->request), could = refusal->obtainable;
  uint64_t own = figures->idle - figures->pool_idle - figures->stream_idle; /* other kinds included */
  if (is_absurd(subject)) return GAP_EXPLAIN_ABSURD;
  if (!refusal->recorded && (need <= figures->largest_own || refusal->segment <= could + figures->returnable))
    return GAP_EXPLAIN_FITS;
  if (refusal->recorded && refusal->segment <= could) return GAP_EXPLAIN_LIMIT;
  if (need <= own + could) return GAP_EXPLAIN_FRAGMENTED;
  if (need <= own + could + figures->stream_idle && figures->stream_idle >= figures->pool_idle)
    return GAP_EXPLAIN_STREAM;
  if (need <= own + could + figures->pool_idle) return GAP_EXPLAIN_POOL;
  if (need <= figures->idle + could)
    return figures->stream_idle > figures->pool_idle ? GAP_EXPLAIN_STREAM : GAP_EXPLAIN_POOL;
  if (need <= figures->idle + could + figures->pending) return GAP_EXPLAIN_PENDING;
  return judge_shortage(subject, need, figures->idle + could + figures->pending);
}

/* Nothing was refused: what would be in the way if the driver had nothing more to give. */
static gap_explain_verdict judge_state(const struct gap__subject *subject) {
  const struct gap__figures *figures = &subject->figures;
  uint64_t little = figures->held / LITTLE_PART, much = figures->held / MUCH_PART;
  uint64_t between = figures->stuck - (figures->pool_idle < figures->stuck ? figures->pool_idle : figures->stuck);
  if (figures->held == 0) return GAP_EXPLAIN_FITS;
  if (figures->idle <= little && figures->pending <= little) return GAP_EXPLAIN_FULL;
  if (between >= much && between >= figures->pool_idle && between >= figures->pending) return GAP_EXPLAIN_FRAGMENTED;
  if (figures->pool_idle >= much && figures->pool_idle >= figures->pending) return GAP_EXPLAIN_POOL;
  return figures->pending >= much ? GAP_EXPLAIN_PENDING : GAP_EXPLAIN_FITS;
}

static uint64_t pages_of(uint64_t bytes) { return bytes / (2 * MIB) * (2 * MIB); }

/* An idle piece as it is, or a new segment from what is given back and what the driver still has. */
static void find_largest(struct gap__subject *subject) {
  uint64_t fresh = pages_of(subject->figures.returnable + subject->refusal.obtainable);
  subject->largest_servable = subject->figures.largest_own > fresh ? subject->figures.largest_own : fresh;
}

void gap__verdict_find(struct gap__subject *subject) {
  find_bounds(subject);
  find_obtainable(subject);
  find_target(subject);
  find_largest(subject);
  if (subject->honest.contradictions) subject->verdict = GAP_EXPLAIN_CONTRADICTORY;
  else if (gap__subject_is_empty(subject)) subject->verdict = GAP_EXPLAIN_UNKNOWN;
  else if (!subject->honest.tells_driver && !(subject->refusal.request && is_absurd(subject)))
    subject->verdict = GAP_EXPLAIN_UNKNOWN;
  else subject->verdict = subject->refusal.request ? judge_request(subject) : judge_state(subject);
}

/* ---- in words ------------------------------------------------------------------------------------------------------ */

const char *gap_explain_verdict_name(gap_explain_verdict verdict) {
  static const char *const names[GAP_EXPLAIN_VERDICT_COUNT] = {"fits",   "full",    "fragmented",    "pool",
                                                               "stream", "pending", "neighbour",     "context",
                                                               "limit",  "absurd",  "contradictory", "unknown"};
  return (unsigned)verdict < GAP_EXPLAIN_VERDICT_COUNT ? names[verdict] : "unknown";
}

static void say_limit(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__refusal *refusal = &subject->refusal;
  if (!refusal->by_limit) return;
  if (!refusal->recorded && subject->verdict != GAP_EXPLAIN_LIMIT) return;
  if (subject->bounds.limit)
    gap__text_add(text, " The limit of %s %s it, not the card, which %s %s free.", GAP__SIZE(subject->bounds.limit),
                  refusal->recorded ? "refused" : "would refuse", refusal->recorded ? "had" : "has",
                  GAP__SIZE(refusal->driver_free));
  else
    gap__text_add(
        text, " A limit of the program's own refused it (somewhere from %s to %s), not the card, which had %s free.",
        GAP__SIZE(subject->figures.held), GAP__SIZE(subject->figures.held + refusal->segment),
        GAP__SIZE(refusal->driver_free));
}

static void say_sums(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__figures *figures = &subject->figures;
  gap__text_add(text, "%s held = %s live", GAP__SIZE(figures->held), GAP__SIZE(figures->live));
  if (figures->pending) gap__text_add(text, " + %s freed but pending", GAP__SIZE(figures->pending));
  gap__text_add(text, " + %s idle", GAP__SIZE(figures->idle));
}

/* Somebody else has what is missing, or nobody. */
static void say_others(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__refusal *refusal = &subject->refusal;
  const struct gap__figures *figures = &subject->figures;
  switch (subject->verdict) {
    case GAP_EXPLAIN_POOL:
      gap__text_add(
          text,
          "Private pools (CUDA graphs, MemPool) keep %s idle for themselves; %s were asked and only %s were idle "
          "outside of them.",
          GAP__SIZE(figures->pool_idle), GAP__SIZE(refusal->request), GAP__SIZE(figures->idle - figures->pool_idle));
      break;
    case GAP_EXPLAIN_STREAM:
      gap__text_add(
          text,
          "%s are idle but belong to other streams, whose memory PyTorch never gives to this one; %s were asked, and "
          "of its own stream %s were idle, in pieces of at most %s.",
          GAP__SIZE(figures->stream_idle), GAP__SIZE(refusal->request), GAP__SIZE(figures->own_idle),
          GAP__SIZE(figures->largest_own));
      break;
    case GAP_EXPLAIN_PENDING:
      gap__text_add(text,
                    "%s were freed, but another stream had not finished with them (record_stream); %s were asked and "
                    "%s were idle.",
                    GAP__SIZE(figures->pending), GAP__SIZE(refusal->request), GAP__SIZE(figures->idle));
      break;
    case GAP_EXPLAIN_NEIGHBOUR:
      gap__text_add(
          text,
          "Somebody else is on the card: %s of it are neither held by %s nor free; %s were asked and %s were free "
          "or idle.",
          GAP__SIZE(refusal->others), gap__subject_keeper(subject), GAP__SIZE(refusal->request),
          GAP__SIZE(figures->idle + refusal->obtainable));
      break;
    case GAP_EXPLAIN_CONTEXT:
      gap__text_add(
          text,
          "The request of %s misses by less than the driver's context and libraries take (%s); %s were free or idle.",
          GAP__SIZE(refusal->request), GAP__SIZE(refusal->others), GAP__SIZE(figures->idle + refusal->obtainable));
      break;
    case GAP_EXPLAIN_LIMIT:
      gap__text_add(text, "A limit, not the card: %s were asked on top of %s live, more than is allowed to be held.",
                    GAP__SIZE(refusal->request), GAP__SIZE(figures->live + figures->pending));
      break;
    case GAP_EXPLAIN_ABSURD:
      gap__text_add(text, "%s were asked, more than %s has: most likely a size that was computed wrongly.",
                    GAP__SIZE(refusal->request), subject->bounds.total ? "the whole card" : "any card");
      break;
    default: break;
  }
}

static void say_request(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__refusal *refusal = &subject->refusal;
  const struct gap__figures *figures = &subject->figures;
  uint64_t need = gap__lives_rounded(refusal->request);
  switch (subject->verdict) {
    case GAP_EXPLAIN_FITS:
      gap__text_add(text, "A request of %s would be served", GAP__SIZE(refusal->request));
      if (need <= figures->largest_own)
        gap__text_add(text, ": an idle piece of %s is there.", GAP__SIZE(figures->largest_own));
      else gap__text_add(text, ", after %s of idle segments went back to the driver.", GAP__SIZE(figures->returnable));
      break;
    case GAP_EXPLAIN_FULL:
      gap__text_add(
          text,
          "The card is full; it is no matter of pieces: %s were asked, and even if all %s idle lay in one piece and %s "
          "were taken from the driver, %s would be missing.",
          GAP__SIZE(refusal->request), GAP__SIZE(figures->idle), GAP__SIZE(refusal->obtainable),
          GAP__SIZE(need - figures->idle - refusal->obtainable));
      break;
    case GAP_EXPLAIN_FRAGMENTED:
      gap__text_add(
          text,
          "Fragmentation: %s were asked and %s were idle, but the largest idle piece that could serve it had %s; "
          "the rest lies between live blocks.",
          GAP__SIZE(refusal->request), GAP__SIZE(figures->idle), GAP__SIZE(figures->largest_own));
      break;
    default: say_others(subject, text); break;
  }
}

/* A request that was only asked about, under a bound that nobody knows. */
static void say_unbounded(const struct gap__subject *subject, struct gap__text *text) {
  bool is_asked = subject->refusal.request && !subject->refusal.recorded;
  if (is_asked && !subject->bounds.limit && !gap__subject_facts(subject) && subject->verdict != GAP_EXPLAIN_FITS)
    gap__text_add(text, " What the driver could still give is not known: say so with --cap or --card.");
}

/* What comes before the sentence about the state. */
static void say_moment(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__hist_facts *facts = gap__subject_facts(subject);
  if (!subject->is_live) gap__text_add(text, "Nothing was refused in this file; at its end ");
  else if (!facts || !facts->refusals) gap__text_add(text, "Nothing was refused so far; at the moment ");
  else
    gap__text_add(text, "%s request%s refused so far; at the moment ", GAP__COUNT(facts->refusals),
                  facts->refusals == 1 ? " was" : "s were");
}

static void say_state(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__figures *figures = &subject->figures;
  uint64_t between = figures->stuck > figures->pool_idle ? figures->stuck - figures->pool_idle : 0;
  say_moment(subject, text);
  if (figures->held == 0) gap__text_add(text, "nothing is held.");
  switch (figures->held ? subject->verdict : GAP_EXPLAIN_VERDICT_COUNT) {
    case GAP_EXPLAIN_FULL:
      gap__text_add(
          text,
          "what is held is full: %s of %s are live and only %s idle, so if the driver refuses more, the card is "
          "full and it is no matter of pieces.",
          GAP__SIZE(figures->live), GAP__SIZE(figures->held), GAP__SIZE(figures->idle));
      break;
    case GAP_EXPLAIN_FRAGMENTED:
      gap__text_add(text, "%s, a share of %s of what is held, lie idle between live blocks (fragmentation).",
                    GAP__PART(between), GAP__PERCENT(between, figures->held));
      break;
    case GAP_EXPLAIN_POOL:
      gap__text_add(text, "%s lie idle in private pools (CUDA graphs, MemPool), which keep them for themselves.",
                    GAP__SIZE(figures->pool_idle));
      break;
    case GAP_EXPLAIN_PENDING:
      gap__text_add(text, "%s are freed but pending: another stream had not finished with them (record_stream).",
                    GAP__SIZE(figures->pending));
      break;
    case GAP_EXPLAIN_FITS:
      gap__text_add(text, "nothing stands in the way of a request of up to %s.", GAP__SIZE(subject->largest_servable));
      break;
    default: break;
  }
}

static uint64_t live_before(const struct gap__subject *subject, uint32_t event) {
  const struct gap__hist_device *from = &subject->history->devices[subject->device];
  int64_t live = gap__lives_at_start(&subject->lives);
  for (uint32_t i = 0; i < event; i++) live += gap__lives_change(&subject->lives, &from->events[i], i);
  return (uint64_t)(live > 0 ? live : 0);
}

static void say_unknown(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__refusal *refusal = &subject->refusal;
  if (gap__subject_is_empty(subject)) {
    gap__text_add(text,
                  "The file holds nothing of this device, neither segments nor events: either no memory was in use "
                  "when it was written, or another device's was.");
    return;
  }
  if (refusal->recorded)
    gap__text_add(text, "%s were asked at event %s and refused, while %s were live. ", GAP__SIZE(refusal->request),
                  GAP__COUNT(refusal->event), GAP__SIZE(live_before(subject, refusal->event)));
  gap__text_add(
      text, "The file records what a program asked for, not what was taken from the driver for it: whether memory was "
            "full or in pieces it does not tell. What each allocator would need is told by replay.");
}

void gap__verdict_say(const struct gap__subject *subject, struct gap__text *text) {
  const struct gap__figures *figures = &subject->figures;
  if (subject->verdict == GAP_EXPLAIN_UNKNOWN) {
    say_unknown(subject, text);
    return;
  }
  if (subject->verdict == GAP_EXPLAIN_CONTRADICTORY) {
    gap__text_add(text,
                  "The %s contradicts itself in %" PRIu32 " place%s, so no figure below is more than what it says. %s",
                  gap__subject_source(subject), subject->honest.contradictions,
                  GAP__PLURAL(subject->honest.contradictions), gap__text_str(&subject->honest.first));
    return;
  }
  if (subject->refusal.request) say_request(subject, text);
  else say_state(subject, text);
  say_limit(subject, text);
  say_unbounded(subject, text);
  if (figures->held == 0) return;
  gap__text_add_char(text, ' ');
  say_sums(subject, text);
  gap__text_add(text, ".");
  if (figures->idle)
    gap__text_add(text, " Of %s idle, %s can be returned to the driver at once and %s lies between live blocks%s.",
                  GAP__SIZE(figures->idle), GAP__PART(figures->returnable), GAP__PART(figures->stuck),
                  figures->pool_idle ? " or in private pools" : "");
}
