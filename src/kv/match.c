/* gap_kv_open: the longest prefix that is cached. */
#include <string.h>

#include "kv/ceiling.h"
#include "kv/hash.h"
#include "kv/leave.h"
#include "kv/pages.h"
#include "kv/prefix.h"
#include "kv/seq.h"
#include "kv/table.h"

struct match {
  uint32_t full; /* whole KV pages */
  uint32_t node; /* at their end */
  uint32_t leaf; /* whose first `common` tokens follow; 0: none */
  uint32_t common;
};

/* ---- the walk ---- */

static bool in_every_full_group(const struct gap_kv *kv, uint32_t node) {
  for (uint32_t g = 0; g < kv->options.group_count; g++)
    if (!kv->windows[g] && !kv_node_pages(kv, node)[g]) return false;
  return true;
}

/* The nodes of the prompt, as far as groups without a window have all their KV pages. */
static uint32_t walk(struct gap_kv *kv, uint32_t root, const int32_t *tokens, uint32_t pages) {
  uint32_t node = root, n = 0;
  for (; n < pages; n++) {
    node = gap__kv_child(kv, node, tokens + ((size_t)n << kv->token_shift), false);
    if (!node || !in_every_full_group(kv, node)) break;
    kv->path[n] = node;
  }
  return n;
}

/* The longest part of it after which the next token finds all that its windows show. */
static uint32_t longest_seen(const struct gap_kv *kv, uint32_t length) {
  uint32_t run[GAP_KV_GROUPS_MAX] = {0}, best = 0;
  for (uint32_t n = 1; n <= length; n++) {
    bool seen = true;
    for (uint32_t g = 0; g < kv->options.group_count; g++) {
      uint32_t tokens = n << kv->token_shift, window = kv->windows[g];
      uint32_t from = window && tokens + 1 > window ? (tokens + 1 - window) >> kv->token_shift : 0;
      run[g] = kv_node_pages(kv, kv->path[n - 1])[g] ? run[g] + 1 : 0;
      seen &= run[g] >= n - from;
    }
    if (seen) best = n;
  }
  return best;
}

static bool has_windows(const struct gap_kv *kv) {
  for (uint32_t g = 0; g < kv->options.group_count; g++)
    if (kv->windows[g]) return true;
  return false;
}

static struct match find(struct gap_kv *kv, uint32_t root, const gap_kv_prompt *prompt) {
  struct match m = {.node = root};
  if (!root) return m;
  m.full = walk(kv, root, prompt->tokens, prompt->count >> kv->token_shift);
  if (has_windows(kv)) m.full = longest_seen(kv, m.full);
  if (m.full) m.node = kv->path[m.full - 1];
  uint32_t done = m.full << kv->token_shift;
  if (!(kv->options.flags & GAP_KV_NO_PARTIAL) && prompt->count > done)
    m.leaf = gap__kv_closest(kv, m.node, prompt->tokens + done, prompt->count - done, &m.common);
  return m;
}

/* ---- counting ---- */

static void note_pages(struct gap_kv *kv, const gap_kv_prompt *prompt) {
  uint32_t pages = prompt->count >> kv->token_shift;
  uint64_t chain = kv_hash_chain(kv->keys, kv->keys[2], prompt->tenant);
  kv->stats.kv_pages_asked += pages;
  if (kv->options.flags & GAP_KV_NO_CEILING) return;
  for (uint32_t i = 0; i < pages; i++) {
    const int32_t *tokens = prompt->tokens + ((size_t)i << kv->token_shift);
    chain = kv_hash_chain(kv->keys, chain, kv_hash_tokens(kv->keys, tokens, kv->options.page_tokens));
    kv_ceiling_note(kv->ceiling, chain);
  }
}

/* ---- taking it ---- */

static uint32_t seen_from(const struct gap_kv *kv, uint32_t group, uint32_t tokens) {
  uint32_t window = kv->windows[group];
  return window && tokens + 1 > window ? (tokens + 1 - window) >> kv->token_shift : 0;
}

static void take_group(struct gap_kv *kv, uint32_t seq, uint32_t group, const struct match *m) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t *row = kv_row(kv, group, seq), columns = m->full + (m->leaf != 0);
  s->first[group] = seen_from(kv, group, s->length);
  for (uint32_t c = s->first[group]; c < columns; c++) {
    uint32_t node = c < m->full ? kv->path[c] : m->leaf;
    row[c] = kv_node_pages(kv, node)[group];
    kv_page_share(kv, row[c]);
  }
  kv_mark(kv, group, seq, s->first[group], columns);
}

static void take(struct gap_kv *kv, uint32_t seq, const struct match *m) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  s->length = (m->full << kv->token_shift) + m->common;
  kv->lengths[seq - 1] = (int32_t)s->length;
  for (uint32_t g = 0; g < kv->options.group_count; g++) take_group(kv, seq, g, m);
  s->columns = m->full + (m->leaf != 0);
  gap__kv_seq_move(kv, seq, m->node, m->full);
  if (m->leaf) memcpy(kv_tail(kv, seq), kv_node_tokens(kv, m->leaf), m->common * sizeof(int32_t));
}

static int open_seq(struct gap_kv *kv, const gap_kv_prompt *prompt, uint32_t *out, uint32_t *hit) {
  static const gap_kv_prompt nothing = {.size = sizeof nothing};
  const gap_kv_prompt *p = prompt ? prompt : &nothing;
  uint32_t count = p->tokens ? p->count : 0;
  if (count > kv->options.tokens) return GAP_ELIMIT;
  gap__kv_leaving_poll(kv);
  uint32_t seq = gap__kv_seq_begin(kv, p->tenant, p->session);
  if (!seq) return kv_no_row(kv);
  *out = seq;
  *hit = 0;
  if (!count || !kv_shares(kv)) return 0;
  struct match m = find(kv, kv_seq_at(kv, seq)->node, p);
  note_pages(kv, p);
  if (m.full || m.leaf) take(kv, seq, &m);
  *hit = kv_seq_at(kv, seq)->length;
  kv->stats.tokens_asked += count;
  kv->stats.tokens_hit += *hit;
  kv->stats.tokens_hit_partial += m.common;
  return 0;
}

int gap_kv_open(gap_kv *kv, const gap_kv_prompt *prompt, gap_kv_seq *out, uint32_t *hit) {
  uint32_t seq, tokens;
  if (!kv || !out || (prompt && prompt->size != sizeof *prompt)) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = open_seq(kv, prompt, &seq, &tokens);
  if (!rc) *out = kv_handle(kv, seq);
  if (!rc && hit) *hit = tokens;
  gap__unlock(&kv->lock);
  return rc;
}
