/* A heap on a simulated card, with the independent checker beside it. */
#include <stdlib.h>

#include "core/heap.h"
#include "dev/sim/sim.h"
#include "gapless/tools.h"
#include "replay/checker.h"
#include "replay/replay.h"

enum { CARD_LAG_US = 100 };

struct gap_card {
  gap_heap *heap;
  struct gap__dev *dev;
  struct gap__checker *checker;
  uint64_t bytes;
  char diagnosis[1024];
};

static int open_heap(gap_card *card, enum gap_policy policy) {
  struct gap__sim_params params = {.total_bytes = card->bytes, .lag_us = CARD_LAG_US};
  struct gap__conf_set *set = gap__conf_new();
  if (!set) return GAP_ENOMETA;
  struct gap__conf conf = *gap__conf_values(set);
  gap__conf_free(set);
  conf.strategy = gap__replay_strategy(policy);
  conf.expandable_segments = policy == GAP_POLICY_EXPANDABLE;
  int rc = gap__sim_create(0, &params, &card->dev);
  if (rc != 0) return rc;
  struct gap__heap_params heap = {.devs = &card->dev, .dev_count = 1, .conf = &conf, .maker = GAP__MAKER_STEPPED};
  rc = gap__heap_create(&heap, &card->heap);
  if (rc != 0) card->dev = NULL; /* it has ended with the heap */
  return rc != 0 ? rc : gap__heap_set_cap(card->heap, 0, card->bytes);
}

int gap_card_open(enum gap_policy policy, uint64_t bytes, gap_card **out) {
  if ((unsigned)policy >= GAP_POLICY_IDEAL) return GAP_EINVAL;
  gap_card *card = calloc(1, sizeof *card);
  if (!card) return GAP_ENOMETA;
  card->bytes = bytes;
  int rc = open_heap(card, policy);
  if (rc == 0) {
    struct gap__checker_source source = gap__checker_sim(card->dev);
    rc = gap__checker_create(&source, &card->checker);
  }
  if (rc != 0) {
    gap_card_close(card);
    return rc;
  }
  *out = card;
  return 0;
}

void gap_card_close(gap_card *card) {
  if (!card) return;
  gap__checker_destroy(card->checker);
  if (card->heap) gap__heap_destroy(card->heap);
  else if (card->dev) gap__dev_destroy(card->dev);
  free(card);
}

int gap_card_alloc(gap_card *card, uint64_t bytes, gap_addr *out) {
  gap__heap_tick(card->heap, 0);
  int rc = gap__heap_alloc(card->heap, 0, 0, (gap_pool_id){0, 0}, bytes, out);
  return rc != 0 || bytes == 0 ? rc : gap__checker_alloc(card->checker, *out, bytes);
}

int gap_card_free(gap_card *card, gap_addr addr) {
  int rc = gap__heap_free(card->heap, addr);
  return rc != 0 || addr == 0 ? rc : gap__checker_free(card->checker, addr);
}

void gap_card_pass(gap_card *card, uint64_t us) {
  gap__sim_clock_advance(card->dev, us * 1000);
  gap__heap_tick(card->heap, 0);
}

uint64_t gap_card_held(gap_card *card) { return gap__sim_chunk_bytes(card->dev); }

const char *gap_card_diagnosis(gap_card *card) {
  if (gap__heap_diagnosis(card->heap, 0, card->diagnosis, sizeof card->diagnosis) < 0) card->diagnosis[0] = '\0';
  return card->diagnosis;
}

struct walk {
  gap_piece_fn fn;
  void *arg;
};

static int visit(void *arg, const struct gap__block_info *info) {
  static const enum gap_piece pieces[] = {[GAP__BLOCK_IDLE] = GAP_PIECE_IDLE,
                                          [GAP__BLOCK_LIVE] = GAP_PIECE_LIVE,
                                          [GAP__BLOCK_PENDING] = GAP_PIECE_PENDING,
                                          [GAP__BLOCK_HOLE] = GAP_PIECE_HOLE};
  const struct walk *walk = arg;
  return walk->fn(walk->arg, pieces[info->state], info->addr, info->bytes);
}

int gap_card_walk(gap_card *card, gap_piece_fn fn, void *arg) {
  struct walk walk = {fn, arg};
  return gap__heap_walk(card->heap, 0, visit, &walk);
}

int gap_card_check(gap_card *card, char *text, size_t bytes) {
  int rc = gap__checker_check(card->checker, card->bytes, text, bytes);
  return rc != 0 ? rc : gap__heap_check(card->heap, 0, text, bytes);
}
