/* The simulated card: the clock is set, holds and lags are the simulation's own. */
#include <stdlib.h>

#include "dev/sim/sim.h"
#include "replay/card.h"

#define WITHOUT_LIMIT ((uint64_t)1 << 44) /* 16 TiB */

static void wait_until(struct gap__card *card, uint64_t ns) { gap__sim_clock_set(card->dev, ns); }

static int stream(struct gap__card *card, uint64_t recorded, gap_stream *out) {
  (void)card;
  *out = recorded;
  return 0;
}

static int hold(struct gap__card *card, gap_stream held) {
  gap__sim_stream_hold(card->dev, held);
  return 0;
}

static int release(struct gap__card *card, gap_stream held) {
  gap__sim_stream_release(card->dev, held);
  return 0;
}

static void lag_set(struct gap__card *card, uint64_t us) { gap__sim_lag_set(card->dev, us); }

static void close_card(struct gap__card *card) { free(card); }

static const struct gap__card_ops ops = {wait_until, stream, hold, release, lag_set, close_card};

int gap__card_sim(const gap_replay_options *options, struct gap__card **out) {
  struct gap__sim_params params = {.total_bytes = options->card_bytes ? options->card_bytes : WITHOUT_LIMIT,
                                   .lag_us = options->lag_us};
  struct gap__card *card = malloc(sizeof *card);
  if (!card) return GAP_ENOMETA;
  *card = (struct gap__card){.ops = &ops, .maker = GAP__MAKER_STEPPED};
  int rc = gap__sim_create(options->ordinal, &params, &card->dev);
  if (rc) free(card);
  else *out = card;
  return rc;
}
