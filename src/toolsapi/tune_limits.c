/* Which rank of a job limits it: the one that needs most, and what it has more of than the next. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/text.h"
#include "gapless/tune.h"

static uint64_t need(const gap_tune *tune, uint32_t history, uint32_t setting) {
  gap_tune_setting one;
  gap_tune_setting_at(tune, history, setting, &one);
  return one.least_cap_bytes;
}

static uint64_t live(const gap_tune *tune, uint32_t history) {
  gap_tune_history facts;
  gap_tune_at(tune, history, &facts);
  return facts.ideal_bytes;
}

/* The history that needs most under a setting, `but` for one. */
static uint32_t most_but(const gap_tune *tune, uint32_t setting, uint32_t but) {
  uint32_t most = GAP_TUNE_NONE;
  for (uint32_t i = 0; i < gap_tune_count(tune); i++) {
    if (i == but) continue;
    if (most == GAP_TUNE_NONE || need(tune, i, setting) > need(tune, most, setting)) most = i;
  }
  return most;
}

int gap_tune_limits(const gap_tune *tune, uint32_t setting, gap_tune_limit *out) {
  if (gap_tune_count(tune) < 2 || gap_tune_most(tune, setting) == 0) return GAP_EINVAL;
  out->history = most_but(tune, setting, GAP_TUNE_NONE);
  out->next = most_but(tune, setting, out->history);
  out->most_bytes = need(tune, out->history, setting);
  out->next_bytes = need(tune, out->next, setting);
  out->live_bytes = live(tune, out->history);
  out->next_live_bytes = live(tune, out->next);
  return 0;
}

/* The rest of a least cap is what the allocator adds to what lives. */
static void say_why(const gap_tune_limit *limit, struct gap__text *out) {
  int64_t more_live = (int64_t)(limit->live_bytes - limit->next_live_bytes);
  int64_t more_lost = (int64_t)(limit->most_bytes - limit->next_bytes) - more_live;
  char live_text[GAP__TEXT_BYTES], lost_text[GAP__TEXT_BYTES];
  gap__text_size((uint64_t)(more_live > 0 ? more_live : 0), live_text);
  gap__text_size((uint64_t)(more_lost > 0 ? more_lost : 0), lost_text);
  if (more_live <= 0) gap__text_add(out, " No more is live there at the peak; the allocator loses %s more.", lost_text);
  else if (more_lost <= more_live / 100) gap__text_add(out, " %s more are live at its peak.", live_text);
  else gap__text_add(out, " %s more are live at its peak, and the allocator loses %s more.", live_text, lost_text);
}

static void say(const gap_tune *tune, const gap_tune_limit *limit, struct gap__text *out) {
  gap_tune_history most, next;
  char size[GAP__TEXT_BYTES], more[GAP__TEXT_BYTES];
  gap_tune_at(tune, limit->history, &most);
  gap_tune_at(tune, limit->next, &next);
  if (!gap_tune_gains(limit->next_bytes, limit->most_bytes)) {
    gap__text_add(out, "No rank limits the others: the two that need most, up to %s, are within 1 %%.",
                  gap__text_size(limit->most_bytes, size));
    return;
  }
  gap__text_add(out, "%s, device %" PRIu32 ", limits: it needs %s, %s more than the next, %s, device %" PRIu32 ".",
                most.file, most.device, gap__text_size(limit->most_bytes, size),
                gap__text_size(limit->most_bytes - limit->next_bytes, more), next.file, next.device);
  say_why(limit, out);
}

char *gap_tune_limits_words(const gap_tune *tune, gap_tune_limit *out) {
  struct gap__text text = {0};
  gap_tune_history first;
  gap_tune_limit limit = {.history = GAP_TUNE_NONE, .next = GAP_TUNE_NONE};
  gap_tune_at(tune, 0, &first);
  uint32_t best = gap_tune_best_of_all(tune, 1, NULL);
  int rc = gap_tune_limits(tune, best != GAP_TUNE_NONE ? best : first.gapless, &limit);
  if (rc == 0) say(tune, &limit, &text);
  if (out) *out = limit;
  return gap__text_take(&text);
}
