#include "support/kv_try.h"

#include <stdbool.h>

static uint32_t windows_of[GAP_KV_GROUPS_MAX]; /* of the cache opened last */

gap_kv_options kv_try_options(uint32_t page_tokens, uint64_t bytes) {
  gap_kv_options o = GAP_KV_OPTIONS_INIT;
  o.layers = 4, o.heads = 2, o.head_size = 16, o.page_tokens = page_tokens;
  o.sequences = 24, o.tokens = KV_TRY_TOKENS, o.bytes = bytes;
  o.sharing = GAP_KV_SHARING_FAST;
  return o;
}

gap_kv *kv_try_open(gap_heap *heap, const gap_kv_options *options) {
  gap_kv *kv = NULL;
  for (uint32_t g = 0; g < options->group_count; g++) windows_of[g] = options->windows ? options->windows[g] : 0;
  assert_int_equal(gap_kv_create(heap, options, &kv), 0);
  kv_try_check(kv);
  return kv;
}

void kv_try_check(gap_kv *kv) {
  char text[300] = "";
  if (gap_kv_check(kv, text, sizeof text)) fail_msg("%s", text);
}

gap_kv_stats kv_try_stats(gap_kv *kv) {
  gap_kv_stats stats = {.size = sizeof stats};
  assert_int_equal(gap_kv_get_stats(kv, &stats), 0);
  assert_int_equal(stats.bytes_held, stats.bytes_live_tokens + stats.bytes_tail + stats.bytes_window +
                                         stats.bytes_cached + stats.bytes_free + stats.bytes_spare +
                                         stats.bytes_leaving + stats.bytes_bare + stats.bytes_tables);
  return stats;
}

gap_kv_shape kv_try_shape(gap_kv *kv) {
  gap_kv_shape shape = {.size = sizeof shape};
  assert_int_equal(gap_kv_get_shape(kv, &shape), 0);
  return shape;
}

uint64_t kv_try_free(gap_kv *kv) {
  gap_kv_stats stats = kv_try_stats(kv);
  return stats.kv_pages_free + stats.kv_pages_cached;
}

/* ---- tokens ---- */

static uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t z = (a ^ b * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  return z ^ z >> 29;
}

void kv_try_learn(struct kv_try *t, const int32_t *tokens, uint32_t count) {
  for (uint32_t i = 0; i < count; i++, t->count++) {
    t->tokens[t->count] = tokens[i];
    t->chain[t->count] = mix(t->count ? t->chain[t->count - 1] : t->tenant + 1, (uint32_t)tokens[i]);
  }
}

void kv_try_begin(gap_kv *kv, struct kv_try *t, uint64_t tenant, const int32_t *tokens, uint32_t count, uint32_t most) {
  gap_kv_prompt prompt = {
      .size = sizeof prompt, .tenant = tenant, .tokens = tokens, .count = most < count ? most : count};
  uint32_t hit = 77;
  *t = (struct kv_try){.tenant = tenant};
  assert_int_equal(gap_kv_open(kv, &prompt, &t->seq, &hit), 0);
  assert_true(hit <= prompt.count);
  kv_try_learn(t, tokens, hit);
  t->computed = hit;
  if (hit) {
    assert_int_equal(gap_kv_flush(kv), 0);
    kv_try_verify(kv, t);
  }
}

static uint32_t length_of(gap_kv *kv, gap_kv_seq seq) {
  gap_kv_about about = {.size = sizeof about};
  assert_int_equal(gap_kv_get_about(kv, seq, &about), 0);
  return about.tokens;
}

int kv_try_append(gap_kv *kv, struct kv_try *t) {
  uint32_t from = length_of(kv, t->seq);
  gap_kv_request request = {.seq = t->seq, .tokens = t->count - from, .ids = t->tokens + from};
  int rc = gap_kv_append(kv, &request, 1);
  if (!rc) kv_try_step(kv, t);
  return rc;
}

/* ---- bytes ---- */

/* The 8-byte words of K or V of one head at one token; the test knows each. */
static uint64_t *words_at(const gap_kv_shape *s, int32_t id, uint32_t layer, uint32_t token, uint32_t head,
                          bool value) {
  assert_true(id > 0 && id < s->ids_end); /* never the null page */
  gap_addr at = s->first + layer * s->layer_stride + (uint64_t)id * s->page_stride + token * s->token_stride +
                head * s->head_stride + (value ? s->v_offset : 0);
  return (uint64_t *)(uintptr_t)at;
}

typedef void visit_fn(uint64_t *word, uint64_t expected, uint32_t token);
static void visit_token(const gap_kv_shape *s, const struct kv_try *t, int32_t id, uint32_t group, uint32_t token,
                        visit_fn *visit) {
  uint32_t words = s->head_size * s->element_bytes / (uint32_t)sizeof(uint64_t);
  for (uint32_t layer = 0; layer < s->layers_per_group; layer++)
    for (uint32_t part = 0; part < 2 * s->heads; part++) {
      uint64_t *at = words_at(s, id, layer, token % s->page_tokens, part / 2, part % 2);
      for (uint32_t w = 0; w < words; w += words - 1)
        visit(at + w, mix(t->chain[token], ((group * 64 + layer) * 64 + part) * 64 + w), token);
    }
}

static void write_word(uint64_t *word, uint64_t expected, uint32_t token) {
  (void)token;
  *word = expected;
}

static void read_word(uint64_t *word, uint64_t expected, uint32_t token) {
  if (*word != expected)
    fail_msg("token %u reads %llx instead of %llx", token, (unsigned long long)*word, (unsigned long long)expected);
}

/* The device's table, as a kernel reads it; the first column that is there. */
static const int32_t *device_row(gap_kv *kv, const gap_kv_shape *s, gap_kv_seq seq, uint32_t group, uint32_t tokens) {
  gap_kv_about about = {.size = sizeof about};
  assert_int_equal(gap_kv_get_about(kv, seq, &about), 0);
  assert_int_equal(((const int32_t *)(uintptr_t)s->lengths)[about.row], about.swapped ? 0 : about.tokens);
  assert_int_equal(about.tokens, tokens);
  return (const int32_t *)(uintptr_t)s->table + ((size_t)group * s->rows + about.row) * s->columns;
}

void kv_try_step(gap_kv *kv, struct kv_try *t) {
  gap_kv_shape s = kv_try_shape(kv);
  assert_int_equal(gap_kv_flush(kv), 0);
  for (uint32_t g = 0; g < s.group_count; g++) {
    const int32_t *row = device_row(kv, &s, t->seq, g, t->count);
    for (uint32_t i = t->computed; i < t->count; i++) visit_token(&s, t, row[i / s.page_tokens], g, i, write_word);
  }
  t->computed = t->count;
}

void kv_try_verify(gap_kv *kv, const struct kv_try *t) {
  gap_kv_shape s = kv_try_shape(kv);
  for (uint32_t g = 0; g < s.group_count; g++) {
    const int32_t *row = device_row(kv, &s, t->seq, g, t->count);
    bool begun = false;
    for (uint32_t i = 0; i < t->computed; i++) {
      int32_t id = row[i / s.page_tokens];
      begun |= id != 0 || !windows_of[g] || i + windows_of[g] > t->count; /* what the next token sees must be there */
      if (begun) visit_token(&s, t, id, g, i, read_word);
    }
    for (uint32_t c = (t->count + s.page_tokens - 1) / s.page_tokens; c < s.columns; c++) assert_int_equal(row[c], 0);
  }
}
