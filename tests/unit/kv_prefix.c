/* Prefix sharing: what is hit, what goes first, what stays. */
#include "kv/hash.h"
#include "kv/state.h"
#include "support/kv_try.h"

struct fixture {
  gap_heap *heap;
  gap_kv *kv;
  uint64_t now_ms;
};

static uint64_t now_of(void *arg) { return ((struct fixture *)arg)->now_ms; }

/* 23 KV pages of 16 tokens. */
static void open_cache(struct fixture *f, gap_kv_sharing sharing, unsigned flags) {
  gap_kv_options o = kv_try_options(16, 12 * MIB);
  o.heads = 32, o.head_size = 64, o.layout = GAP_KV_BLOCK_MAJOR, o.sharing = sharing, o.flags = flags;
  o.now = now_of, o.now_arg = f;
  f->heap = api_open(GAP_BACKEND_HOST, 64 * MIB, NULL);
  f->kv = kv_try_open(f->heap, &o);
}

static void close_cache(struct fixture *f) {
  kv_try_check(f->kv);
  gap_kv_destroy(f->kv);
  api_close(f->heap);
}

static const int32_t *text_of(int32_t kind) { /* 400 tokens */
  static int32_t tokens[400];
  for (int32_t i = 0; i < 400; i++) tokens[i] = kind * 1000 + i;
  return tokens;
}

/* Computes `count` tokens of a text as a sequence of this tenant, and leaves; how many were hit. */
static uint32_t serve_as(struct fixture *f, uint64_t tenant, int32_t kind, uint32_t count) {
  struct kv_try t;
  kv_try_begin(f->kv, &t, tenant, text_of(kind), count, count);
  uint32_t hit = t.count;
  kv_try_learn(&t, text_of(kind) + hit, count - hit);
  assert_int_equal(kv_try_append(f->kv, &t), 0);
  kv_try_verify(f->kv, &t);
  assert_int_equal(gap_kv_close(f->kv, t.seq, 0), 0);
  kv_try_check(f->kv);
  return hit;
}
static uint32_t serve(struct fixture *f, int32_t kind, uint32_t count) { return serve_as(f, 1, kind, count); }

/* How much of it is cached, without a change to what goes first: nothing was served in between. */
static uint32_t cached(struct fixture *f, int32_t kind, uint32_t count) {
  gap_kv_prompt p = {.size = sizeof p, .tenant = 1, .tokens = text_of(kind), .count = count};
  gap_kv_seq seq;
  uint32_t hit;
  assert_int_equal(gap_kv_open(f->kv, &p, &seq, &hit), 0);
  assert_int_equal(gap_kv_close(f->kv, seq, 0), 0);
  return hit;
}

static void whole_and_partial_pages(void **state) {
  (void)state;
  for (int sharing = GAP_KV_SHARING_FAST; sharing <= GAP_KV_SHARING_SHA256; sharing++) {
    struct fixture f = {0};
    open_cache(&f, (gap_kv_sharing)sharing, 0);
    assert_int_equal(serve(&f, 1, 100), 0);
    assert_int_equal(serve(&f, 1, 100), 100); /* 6 whole ones and 4 tokens */
    assert_int_equal(serve(&f, 1, 90), 90);   /* the beginning of the sixth */
    assert_int_equal(serve(&f, 1, 130), 100);
    assert_int_equal(serve(&f, 1, 130), 130);
    assert_int_equal(serve(&f, 2, 50), 0);
    assert_int_equal(serve_as(&f, 2, 1, 100), 0); /* another tenant */
    assert_int_equal(serve_as(&f, 2, 1, 100), 100);
    close_cache(&f);
  }
}

/* Who knew the key could write tokens with the hash of others: a factor of 0 hides the other one.  Tokens are compared, so nothing is
 * shared with them, whole KV pages or parts. */
static void other_tokens_with_the_same_hash(void **state) {
  (void)state;
  struct fixture f = {0};
  open_cache(&f, GAP_KV_SHARING_FAST, 0);
  int32_t tokens[2][17] = {{0}};
  for (int32_t kind = 0; kind < 2; kind++) {
    memcpy(&tokens[kind][8], &f.kv->keys[2], sizeof f.kv->keys[2]);
    for (int32_t i = 10; i < 12; i++) tokens[kind][i] = 1000 * kind + i;
  }
  assert_true(kv_hash_tokens(f.kv->keys, tokens[0], 16) == kv_hash_tokens(f.kv->keys, tokens[1], 16));
  for (int kind = 0; kind < 2; kind++) {
    struct kv_try t;
    kv_try_begin(f.kv, &t, 1, tokens[kind], 17, 17);
    assert_int_equal(t.count, kind ? 10 : 0); /* the beginning, which is the same */
    kv_try_learn(&t, tokens[kind] + t.count, 17 - t.count);
    assert_int_equal(kv_try_append(f.kv, &t), 0);
    kv_try_verify(f.kv, &t);
    assert_int_equal(gap_kv_close(f.kv, t.seq, 0), 0);
    kv_try_check(f.kv);
  }
  for (int kind = 0; kind < 2; kind++) {
    struct kv_try t;
    kv_try_begin(f.kv, &t, 1, tokens[kind], 17, 17);
    assert_int_equal(t.count, 17); /* both are there */
    kv_try_verify(f.kv, &t);
    assert_int_equal(gap_kv_close(f.kv, t.seq, 0), 0);
  }
  close_cache(&f);
}

static void whole_pages_only(void **state) {
  (void)state;
  struct fixture f = {0};
  open_cache(&f, GAP_KV_SHARING_FAST, GAP_KV_NO_PARTIAL);
  assert_int_equal(serve(&f, 1, 100), 0);
  assert_int_equal(serve(&f, 1, 100), 96);
  assert_int_equal(serve(&f, 1, 95), 80);
  close_cache(&f);
}

static void off(void **state) {
  (void)state;
  struct fixture f = {0};
  open_cache(&f, GAP_KV_SHARING_OFF, 0);
  assert_int_equal(serve(&f, 1, 100), 0);
  assert_int_equal(serve(&f, 1, 100), 0);
  assert_int_equal(kv_try_stats(f.kv).kv_pages_cached, 0);
  close_cache(&f);
}

static void two_that_compute_the_same_end_with_one(void **state) {
  (void)state;
  struct fixture f = {0};
  open_cache(&f, GAP_KV_SHARING_FAST, 0);
  struct kv_try a, b;
  kv_try_begin(f.kv, &a, 1, NULL, 0, 0);
  kv_try_begin(f.kv, &b, 1, NULL, 0, 0);
  kv_try_learn(&a, text_of(1), 64);
  kv_try_learn(&b, text_of(1), 64);
  assert_int_equal(kv_try_append(f.kv, &a), 0);
  assert_int_equal(kv_try_append(f.kv, &b), 0);
  assert_int_equal(kv_try_free(f.kv), 23 - 8);
  kv_try_learn(&a, text_of(2), 1);
  kv_try_learn(&b, text_of(3), 1);
  assert_int_equal(kv_try_append(f.kv, &a), 0);
  assert_int_equal(kv_try_append(f.kv, &b), 0);
  assert_int_equal(kv_try_stats(f.kv).merged, 4);
  assert_int_equal(kv_try_free(f.kv), 23 - 6);
  kv_try_verify(f.kv, &a);
  kv_try_verify(f.kv, &b);
  close_cache(&f);
}

static void what_was_not_computed_is_not_shared(void **state) {
  (void)state;
  struct fixture f = {0};
  open_cache(&f, GAP_KV_SHARING_FAST, 0);
  gap_kv_seq seq;
  gap_kv_prompt p = {.size = sizeof p, .tenant = 1};
  assert_int_equal(gap_kv_open(f.kv, &p, &seq, NULL), 0);
  gap_kv_request r = {.seq = seq, .tokens = 80, .ids = text_of(1)};
  assert_int_equal(gap_kv_append(f.kv, &r, 1), 0);
  assert_int_equal(cached(&f, 1, 80), 0);
  assert_int_equal(gap_kv_truncate(f.kv, seq, 0), 0); /* the step did not run */
  assert_int_equal(cached(&f, 1, 80), 0);
  assert_int_equal(kv_try_stats(f.kv).nodes, 1); /* the tenant */
  assert_int_equal(gap_kv_append(f.kv, &r, 1), 0);
  assert_int_equal(gap_kv_truncate(f.kv, seq, 40), 0); /* it did, and 40 tokens were right */
  assert_int_equal(cached(&f, 1, 80), 32);
  close_cache(&f);
}

static void tokens_that_were_not_told(void **state) {
  (void)state;
  struct fixture f = {0};
  open_cache(&f, GAP_KV_SHARING_FAST, 0);
  gap_kv_seq seq;
  gap_kv_prompt p = {.size = sizeof p, .tenant = 1};
  assert_int_equal(gap_kv_open(f.kv, &p, &seq, NULL), 0);
  gap_kv_request known = {.seq = seq, .tokens = 32, .ids = text_of(1)}, unknown = {.seq = seq, .tokens = 32};
  assert_int_equal(gap_kv_append(f.kv, &known, 1), 0);
  assert_int_equal(gap_kv_append(f.kv, &unknown, 1), 0);
  known.ids += 64;
  assert_int_equal(gap_kv_append(f.kv, &known, 1), 0);
  assert_int_equal(gap_kv_close(f.kv, seq, 0), 0);
  assert_int_equal(cached(&f, 1, 96), 32);
  close_cache(&f);
}

/* ---- what goes first ---- */

static void least_recently_used_and_its_end_first(void **state) {
  (void)state;
  struct fixture f = {0};
  open_cache(&f, GAP_KV_SHARING_FAST, GAP_KV_NO_PARTIAL);
  serve(&f, 1, 128); /* 8 KV pages each */
  serve(&f, 2, 128);
  serve(&f, 1, 32);  /* the beginning of the first is newer than the second */
  serve(&f, 3, 192); /* 12: 7 free ones, 5 from the end of the first */
  assert_int_equal(cached(&f, 1, 128), 48);
  assert_int_equal(cached(&f, 2, 128), 128);
  assert_int_equal(cached(&f, 3, 192), 192);
  close_cache(&f);
}

static void keep(struct fixture *f, int32_t kind, uint32_t priority, uint64_t ttl_ms, int pin, int rc) {
  gap_kv_prompt p = {.size = sizeof p, .tenant = 1, .tokens = text_of(kind), .count = 64};
  gap_kv_retention r = {.size = sizeof r, .tokens = 64, .priority = priority, .ttl_ms = ttl_ms, .pin = pin};
  gap_kv_seq seq;
  uint32_t hit;
  assert_int_equal(gap_kv_open(f->kv, &p, &seq, &hit), 0);
  assert_int_equal(gap_kv_retain(f->kv, seq, &r), rc);
  assert_int_equal(gap_kv_close(f->kv, seq, 0), 0);
  kv_try_check(f->kv);
}

static void priorities(void **state) {
  (void)state;
  struct fixture f = {0};
  open_cache(&f, GAP_KV_SHARING_FAST, GAP_KV_NO_PARTIAL);
  for (int32_t kind = 1; kind <= 4; kind++) serve(&f, kind, 64); /* 4 KV pages each */
  keep(&f, 1, 6, 0, 0, 0);
  keep(&f, 4, 0, 0, 0, 0); /* the newest goes first */
  serve(&f, 5, 160);       /* 10: 7 free, 3 of the fourth */
  assert_int_equal(cached(&f, 4, 64), 16);
  serve(&f, 6, 96); /* the last of the fourth, the second, one of the third */
  assert_int_equal(cached(&f, 1, 64), 64);
  assert_int_equal(cached(&f, 2, 64), 0);
  keep(&f, 1, 1, 0, 0, 0); /* the higher one holds */
  serve(&f, 7, 300);
  assert_int_equal(cached(&f, 1, 64), 64);
  close_cache(&f);
}

static void time_to_live(void **state) {
  (void)state;
  struct fixture f = {.now_ms = 1000};
  open_cache(&f, GAP_KV_SHARING_FAST, GAP_KV_NO_PARTIAL);
  serve(&f, 1, 64);
  serve(&f, 2, 64);
  keep(&f, 1, 7, 500, 0, 0);
  serve(&f, 3, 288); /* 18: 15 free ones, 3 of the second */
  assert_int_equal(cached(&f, 1, 64), 64);
  assert_int_equal(cached(&f, 2, 64), 16);
  f.now_ms += 600;
  serve(&f, 4, 32); /* its time is over: it is the oldest */
  assert_int_equal(cached(&f, 1, 64), 32);
  assert_int_equal(kv_try_stats(f.kv).expired, 4);
  close_cache(&f);
}

static void pins(void **state) {
  (void)state;
  struct fixture f = {0};
  open_cache(&f, GAP_KV_SHARING_FAST, GAP_KV_NO_PARTIAL);
  serve(&f, 1, 64);
  keep(&f, 1, 3, 0, 1, 0);
  keep(&f, 1, 3, 0, 1, 0); /* twice */
  serve(&f, 2, 300);
  serve(&f, 3, 300);
  assert_int_equal(cached(&f, 1, 64), 64);
  assert_int_equal(gap_kv_forget(f.kv), 0);
  assert_int_equal(kv_try_stats(f.kv).kv_pages_pinned, 4);
  keep(&f, 1, 3, 0, -1, 0);
  assert_int_equal(gap_kv_forget(f.kv), 0);
  assert_int_equal(cached(&f, 1, 64), 64);
  keep(&f, 1, 3, 0, -1, 0);
  assert_int_equal(gap_kv_forget(f.kv), 0);
  assert_int_equal(cached(&f, 1, 64), 0);
  for (int32_t kind = 1; kind <= 4; kind++) serve(&f, kind, 64);
  for (int32_t kind = 1; kind <= 3; kind++) keep(&f, kind, 3, 0, 1, 0);
  keep(&f, 4, 3, 0, 1, GAP_ELIMIT); /* half of 24 are */
  close_cache(&f);
}

static void sessions(void **state) {
  (void)state;
  struct fixture f = {0};
  open_cache(&f, GAP_KV_SHARING_FAST, GAP_KV_NO_PARTIAL);
  for (int32_t kind = 1; kind <= 2; kind++) {
    gap_kv_prompt p = {.size = sizeof p, .tenant = 1, .session = 40 + (uint64_t)kind};
    gap_kv_request r = {.tokens = 64, .ids = text_of(kind)};
    assert_int_equal(gap_kv_open(f.kv, &p, &r.seq, NULL), 0);
    assert_int_equal(gap_kv_append(f.kv, &r, 1), 0);
    assert_int_equal(gap_kv_close(f.kv, r.seq, 0), 0);
  }
  keep(&f, 2, 7, 0, 0, 0);
  assert_int_equal(gap_kv_end_session(f.kv, 42), 0);
  assert_int_equal(gap_kv_end_session(f.kv, 0), GAP_EINVAL);
  serve(&f, 3, 288);
  assert_int_equal(cached(&f, 1, 64), 64);
  assert_int_equal(cached(&f, 2, 64), 16);
  close_cache(&f);
}

static void the_ceiling(void **state) {
  (void)state;
  struct fixture f = {0};
  open_cache(&f, GAP_KV_SHARING_FAST, GAP_KV_NO_PARTIAL);
  for (int round = 0; round < 3; round++)
    for (int32_t kind = 0; kind < 40; kind++) serve(&f, kind, 160);
  gap_kv_stats s = kv_try_stats(f.kv);
  assert_int_equal(s.kv_pages_asked, 1200);
  assert_in_range(s.kv_pages_ceiling, 780, 820); /* 400 different ones, each asked for three times */
  assert_int_equal(s.tokens_hit, 0);             /* the cache is too small for any */
  close_cache(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_and_partial_pages),
      cmocka_unit_test(other_tokens_with_the_same_hash),
      cmocka_unit_test(whole_pages_only),
      cmocka_unit_test(off),
      cmocka_unit_test(two_that_compute_the_same_end_with_one),
      cmocka_unit_test(what_was_not_computed_is_not_shared),
      cmocka_unit_test(tokens_that_were_not_told),
      cmocka_unit_test(least_recently_used_and_its_end_first),
      cmocka_unit_test(priorities),
      cmocka_unit_test(time_to_live),
      cmocka_unit_test(pins),
      cmocka_unit_test(sessions),
      cmocka_unit_test(the_ceiling),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
