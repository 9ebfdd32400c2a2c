/* KV caches for tests: on the backend `host`, where what a step would compute is written by hand and every byte can be checked.
 *
 * What a token's K and V are follows from all tokens up to it, and from the layer: who shares what he should not reads other bytes. */
#ifndef GAP_TESTS_KV_TRY_H
#define GAP_TESTS_KV_TRY_H

#include "gapless/kv.h"
#include "support/api_try.h"

enum { KV_TRY_TOKENS = 4096 };

/* A sequence as the test knows it. */
struct kv_try {
  gap_kv_seq seq;
  uint64_t tenant;
  uint32_t count;    /* tokens */
  uint32_t computed; /* of them written */
  int32_t tokens[KV_TRY_TOKENS];
  uint64_t chain[KV_TRY_TOKENS]; /* what the first i + 1 tokens are, as one number */
};

gap_kv_options kv_try_options(uint32_t page_tokens, uint64_t bytes);
gap_kv *kv_try_open(gap_heap *heap, const gap_kv_options *options);
void kv_try_check(gap_kv *kv);
gap_kv_stats kv_try_stats(gap_kv *kv);
gap_kv_shape kv_try_shape(gap_kv *kv);
uint64_t kv_try_free(gap_kv *kv); /* KV pages that are free or could be evicted */

/* gap_kv_open with these tokens, of which at most `most` may be shared; what was hit must be there. */
void kv_try_begin(gap_kv *kv, struct kv_try *t, uint64_t tenant, const int32_t *tokens, uint32_t count, uint32_t most);
/* Takes the tokens in, which need no place yet. */
void kv_try_learn(struct kv_try *t, const int32_t *tokens, uint32_t count);
/* gap_kv_append of what it has learnt; then the step, unless it fails. */
int kv_try_append(gap_kv *kv, struct kv_try *t);
/* gap_kv_flush, then K and V of the tokens that were not computed. */
void kv_try_step(gap_kv *kv, struct kv_try *t);
/* Every token it should see, in every layer, read through the device's own table. */
void kv_try_verify(gap_kv *kv, const struct kv_try *t);

#endif
