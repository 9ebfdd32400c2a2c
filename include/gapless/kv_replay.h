/* gapless kv replay: what a KV cache would do under a trace of requests, on a simulated card.
 *
 * A trace is a file of one of these forms, plain or packed (.gz .xz .zst); "-" is standard input:
 *     TIMESTAMP,ContextTokens,GeneratedTokens                    CSV of the Azure LLM inference traces
 *     num_prefill_tokens,num_decode_tokens,...                   CSV of lengths; all requests are there from the start
 *     {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [...]}   JSON lines of the Mooncake traces: equal ids are equal blocks of
 *                                                                512 tokens of the prompt, so they say what can be shared
 * Not for libgapless.so: it lives in the command and in the static library behind it.  Functions return 0 or a negative
 * GAP_E... and never print. */
#ifndef GAPLESS_KV_REPLAY_H
#define GAPLESS_KV_REPLAY_H

#include "gapless/kv.h"
#include "gapless/kv_tiers.h"
#include "gapless/tools.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gap_kv_replay_options {
  size_t size;       /* sizeof(gap_kv_replay_options) */
  const char *model; /* see gap_kv_model_at, or LAYERSxHEADSxSIZE */
  uint64_t card_bytes;
  uint64_t kv_bytes; /* for the cache; 0: nine tenths of the card less the weights, which must be known then */
  uint32_t page_tokens;
  gap_kv_layout layout;
  gap_kv_sharing sharing;
  unsigned flags;       /* GAP_KV_NO_... */
  uint32_t sequences;   /* most that run at once */
  uint64_t host_bytes;  /* for swapped sequences */
  uint32_t step_tokens; /* most that are computed in a step: long prompts take several */
  uint64_t requests;    /* the first so many; 0: all */
  int one_by_one;       /* each request has the cache for itself, prompts only: hit rates without a schedule */
  double compact_above; /* compact when more than this share of the held bytes lies in gaps of slabs; 0: never */
  /* for cached KV pages below the device; all 0: there are no tiers */
  uint64_t tier_host_bytes, tier_disk_bytes, tier_remote_bytes;
  /* what they give; token_ns 0: as the model's arithmetic takes, where its parameters are known */
  gap_kv_rates rates;
  gap_progress_fn progress; /* may be NULL: requests */
  void *progress_arg;
} gap_kv_replay_options;
void gap_kv_replay_defaults(gap_kv_replay_options *);

typedef struct gap_kv_spread { /* over steps */
  double median, p90, most;
} gap_kv_spread;

typedef struct gap_kv_replay_result {
  size_t size;
  uint64_t requests, refused; /* refused: longer than the whole cache */
  /* computed: prompt tokens, those of sequences that were dropped again included */
  uint64_t steps, tokens_in, tokens_out, computed;
  double seconds; /* of the simulated clock */
  uint64_t kv_pages, kv_page_bytes, card_bytes, kv_bytes;
  gap_kv_spread waste;                      /* bytes held, but for what is cached, / bytes of live tokens */
  gap_kv_spread running;                    /* sequences */
  gap_kv_spread host_ns;                    /* of a step: the cache's calls, and what the device is told */
  double tail, window, free, spare, tables; /* mean share of the bytes held but for what is cached */
  uint64_t held_bytes_peak;
  gap_kv_stats stats;      /* at the end */
  gap_kv_tier_stats tiers; /* of the tiers; size 0: there were none */
  double fetch_seconds;    /* that bringing up took in all, by the rates; it goes on beside the steps of others */
} gap_kv_replay_result;

/* GAP_EIO, GAP_EFORMAT, GAP_ELIMIT, GAP_ENOMETA; GAP_EVALUE: no such model, or nothing is left for the cache; the
 * reason in `message`. */
int gap_kv_replay(const char *path, const gap_kv_replay_options *, gap_kv_replay_result *out, char *message,
                  size_t bytes);
/* As one JSON object, malloc'ed; NULL: no memory. */
char *gap_kv_replay_json(const char *path, const gap_kv_replay_options *, const gap_kv_replay_result *);

/* The models that are known by name: NULL at the end. */
const char *gap_kv_model_at(uint32_t index);
/* K and V of one token in all layers, of two bytes a number.  GAP_EVALUE: no such model. */
int gap_kv_token_bytes(const char *model, uint64_t *out);

#ifdef __cplusplus
}
#endif
#endif
