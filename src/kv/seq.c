#include "kv/seq.h"

#include <string.h>

#include "kv/leave.h"
#include "kv/pages.h"
#include "kv/prefix.h"
#include "kv/table.h"

/* ---- life ---- */

uint32_t gap__kv_seq_begin(struct gap_kv *kv, uint64_t tenant, uint64_t session) {
  uint32_t index = gap__slab_take(&kv->seqs);
  if (!index) return 0;
  struct kv_seq *s = kv_seq_at(kv, index);
  *s = (struct kv_seq){
      .generation = s->generation + 1, .live = true, .tenant = tenant, .session = session, .age = ++kv->ages};
  s->node = gap__kv_root(kv, tenant, true);
  if (s->node) kv_node_hold(kv, s->node);
  if (index > kv->row_end) kv->row_end = index;
  kv->lengths[index - 1] = 0;
  kv->lengths_dirty = true;
  kv->stats.sequences++;
  if (kv->stats.sequences > kv->stats.sequences_peak) kv->stats.sequences_peak = kv->stats.sequences;
  return index;
}

void gap__kv_seq_end(struct gap_kv *kv, uint32_t seq) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  s->live = s->leaving = false;
  kv->lengths[seq - 1] = 0;
  kv->lengths_dirty = true;
  gap__slab_give(&kv->seqs, seq);
  kv->stats.sequences--;
}

void gap__kv_seq_move(struct gap_kv *kv, uint32_t seq, uint32_t node, uint32_t node_pages) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t old = s->node;
  if (node) kv_node_hold(kv, node);
  s->node = node;
  s->node_pages = node_pages;
  if (old) kv_node_drop(kv, old);
}

static void set_length(struct gap_kv *kv, uint32_t seq, uint32_t tokens) {
  kv_seq_at(kv, seq)->length = tokens;
  kv->lengths[seq - 1] = (int32_t)tokens;
  kv->lengths_dirty = true;
}

/* ---- what others may use ---- */

/* Ours is the first with these tokens, or somebody else's is the same: then ours goes. */
static void offer_page(struct gap_kv *kv, uint32_t seq, uint32_t node, uint32_t group, uint32_t column) {
  uint32_t ours = kv_row(kv, group, seq)[column], theirs = kv_node_pages(kv, node)[group];
  if (!ours || ours == theirs) return;
  if (!theirs) {
    gap__kv_node_attach(kv, node, ours);
    return;
  }
  bool apart = kv->pages[ours].refs > 1 || (kv->pages[ours].node && kv_node_at(kv, kv->pages[ours].node)->hashed);
  if (apart || kv->options.flags & GAP_KV_NO_MERGE) return;
  if (kv->pages[ours].node) gap__kv_node_detach(kv, ours); /* a leaf that these tokens begin with */
  kv_page_share(kv, theirs);
  kv_set(kv, group, seq, column, theirs);
  kv_page_drop(kv, ours);
  kv->stats.merged++;
}

void gap__kv_seq_offer(struct gap_kv *kv, uint32_t seq) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t node = s->node, column = s->node_pages;
  for (; s->pending; s->pending--) {
    column--;
    for (uint32_t g = 0; g < kv->options.group_count; g++) offer_page(kv, seq, node, g, column);
    struct kv_node *n = kv_node_at(kv, node);
    if (s->session) n->session = s->session;
    node = n->parent;
  }
}

void gap__kv_seq_offer_tail(struct gap_kv *kv, uint32_t seq) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t count = s->length & (kv->options.page_tokens - 1), common = 0, column = s->node_pages;
  bool known = s->node && !s->opaque && s->length >> kv->token_shift == s->node_pages;
  if (!count || !known || kv->options.flags & GAP_KV_NO_PARTIAL) return;
  for (uint32_t g = 0; g < kv->options.group_count; g++) {
    uint32_t page = kv_row(kv, g, seq)[column];
    if (!page || kv->pages[page].refs > 1) return; /* others go on with it */
    uint32_t node = kv->pages[page].node;
    if (node && kv_node_at(kv, node)->filled >= count) return; /* it is offered as more than we have of it */
  }
  gap__kv_closest(kv, s->node, kv_tail(kv, seq), count, &common);
  if (common == count) return;
  uint32_t leaf = gap__kv_leaf(kv, s->node, kv_tail(kv, seq), count);
  if (!leaf) return;
  kv_node_at(kv, leaf)->session = s->session;
  for (uint32_t g = 0; g < kv->options.group_count; g++) gap__kv_node_attach(kv, leaf, kv_row(kv, g, seq)[column]);
}

/* ---- append: tokens ---- */

/* The chain goes on by a full KV page.  False: it cannot be known any more. */
static bool extend(struct gap_kv *kv, uint32_t seq, const int32_t *tokens) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t child = gap__kv_child(kv, s->node, tokens, true);
  if (!child) return false;
  gap__kv_seq_move(kv, seq, child, s->node_pages + 1);
  s->pending++;
  return true;
}

static void learn(struct gap_kv *kv, uint32_t seq, const int32_t *ids, uint32_t count) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t full = kv->options.page_tokens, at = s->length & (full - 1);
  int32_t *tail = kv_tail(kv, seq);
  if (!s->node || !ids) s->opaque = true;
  while (count && !s->opaque) {
    uint32_t take = full - at < count ? full - at : count;
    if (take < full) memcpy(tail + at, ids, take * sizeof *ids);
    if (at + take == full) s->opaque = !extend(kv, seq, take < full ? tail : ids);
    at = (at + take) & (full - 1);
    ids += take;
    count -= take;
  }
}

/* ---- append: KV pages ---- */

/* Would new tokens from `at` on overwrite what others use, or were offered? */
static bool must_copy(const struct gap_kv *kv, uint32_t page, uint32_t at) {
  const struct kv_page *p = &kv->pages[page];
  return p->refs > 1 || (p->node && kv_node_at(kv, p->node)->filled > at);
}

int gap__kv_append_need(struct gap_kv *kv, uint32_t seq, uint32_t tokens, uint32_t *pages) {
  const struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t at = s->length & (kv->options.page_tokens - 1), groups = kv->options.group_count;
  if (s->swapped || s->leaving) return GAP_ESTATE;
  if (tokens > kv->options.tokens - s->length) return GAP_ELIMIT;
  *pages = (kv_columns(kv, s->length + tokens) - s->columns) * groups;
  for (uint32_t g = 0; at && tokens && g < groups; g++) *pages += must_copy(kv, kv_row(kv, g, seq)[s->columns - 1], at);
  return 0;
}

/* KV pages that no token from the next on can see. */
static void leave_behind(struct gap_kv *kv, uint32_t seq) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  for (uint32_t g = 0; g < kv->options.group_count; g++) {
    if (!kv->windows[g] || s->length + 1 <= kv->windows[g]) continue;
    uint32_t end = (s->length + 1 - kv->windows[g]) >> kv->token_shift;
    for (; s->first[g] < end; s->first[g]++) {
      uint32_t page = kv_row(kv, g, seq)[s->first[g]];
      kv_set(kv, g, seq, s->first[g], 0);
      kv_page_drop(kv, page);
    }
  }
}

static void write_apart(struct gap_kv *kv, uint32_t seq) {
  const struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t at = s->length & (kv->options.page_tokens - 1);
  for (uint32_t g = 0; g < kv->options.group_count; g++) {
    uint32_t old = kv_row(kv, g, seq)[s->columns - 1];
    if (!must_copy(kv, old, at)) continue;
    uint32_t page = kv_page_take_for(kv, g);
    kv_copy_note(kv, old, page);
    kv_set(kv, g, seq, s->columns - 1, page);
    kv_page_drop(kv, old);
  }
}

static void add_columns(struct gap_kv *kv, uint32_t seq, uint32_t columns) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  for (uint32_t g = 0; g < kv->options.group_count; g++) {
    uint32_t *row = kv_row(kv, g, seq);
    for (uint32_t c = s->columns; c < columns; c++) row[c] = kv_page_take_for(kv, g);
    kv_mark(kv, g, seq, s->columns, columns);
  }
  s->columns = columns;
}

void gap__kv_append_do(struct gap_kv *kv, uint32_t seq, uint32_t tokens, const int32_t *ids) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  if (!tokens) return;
  uint32_t columns = kv_columns(kv, s->length + tokens);
  if (s->length & (kv->options.page_tokens - 1)) write_apart(kv, seq);
  if (columns > s->columns) add_columns(kv, seq, columns);
  if (kv_shares(kv)) learn(kv, seq, ids, tokens);
  set_length(kv, seq, s->length + tokens);
}

/* What stands before the places are reckoned: it only makes room. */
static int name_all(struct gap_kv *kv, const gap_kv_request *requests, uint32_t count, uint64_t *need) {
  uint32_t batch = ++kv->batch, seq, pages;
  *need = 0;
  for (uint32_t i = 0; i < count; i++) {
    int rc = kv_find(kv, requests[i].seq, &seq);
    if (rc) return rc;
    struct kv_seq *s = kv_seq_at(kv, seq);
    if (s->batch == batch) return GAP_EINVAL;
    s->batch = batch;
    rc = gap__kv_append_need(kv, seq, requests[i].tokens, &pages);
    if (rc) return rc;
    *need += pages;
  }
  return 0;
}

static void prepare(struct gap_kv *kv, uint32_t seq) {
  const struct kv_seq *s = kv_seq_at(kv, seq);
  if (s->pending) gap__kv_seq_offer(kv, seq);
  leave_behind(kv, seq);
}

int gap__kv_append(struct gap_kv *kv, const gap_kv_request *requests, uint32_t count) {
  uint64_t need;
  int rc = name_all(kv, requests, count, &need);
  if (!rc && need > kv_capacity(kv)) rc = GAP_ENOMEM;
  if (!rc) rc = gap__kv_copies_room(kv, count * kv->options.group_count);
  if (!rc) rc = kv_pages_ensure(kv, (uint32_t)need);
  if (rc) {
    kv->stats.requests_refused += rc == GAP_ENOMEM || rc == GAP_EAGAIN;
    return rc;
  }
  for (uint32_t i = 0; i < count; i++) {
    uint32_t seq = (uint32_t)requests[i].seq;
    prepare(kv, seq);
    gap__kv_append_do(kv, seq, requests[i].tokens, requests[i].ids);
  }
  return 0;
}

int gap_kv_append(gap_kv *kv, const gap_kv_request *requests, uint32_t count) {
  if (!kv || (!requests && count)) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = gap__kv_append(kv, requests, count);
  kv_settle(kv);
  gap__unlock(&kv->lock);
  return rc;
}

/* ---- fork, truncate, close ---- */

static void share_row(struct gap_kv *kv, uint32_t from, uint32_t to) {
  const struct kv_seq *f = kv_seq_at(kv, from);
  struct kv_seq *t = kv_seq_at(kv, to);
  for (uint32_t g = 0; g < kv->options.group_count; g++) {
    uint32_t *row = kv_row(kv, g, to);
    memcpy(row, kv_row(kv, g, from), f->columns * sizeof *row);
    for (uint32_t c = f->first[g]; c < f->columns; c++) kv->pages[row[c]].refs++;
    kv_mark(kv, g, to, f->first[g], f->columns);
    t->first[g] = f->first[g];
  }
  t->columns = f->columns;
}

static int fork_seq(struct gap_kv *kv, uint32_t from, uint32_t *out) {
  if (kv_seq_at(kv, from)->swapped) return GAP_ESTATE;
  const struct kv_seq *f = kv_seq_at(kv, from);
  uint32_t to = gap__kv_seq_begin(kv, f->tenant, f->session);
  if (!to) return kv_no_row(kv);
  gap__kv_seq_offer(kv, from);
  struct kv_seq *t = kv_seq_at(kv, to);
  share_row(kv, from, to);
  if (f->node) gap__kv_seq_move(kv, to, f->node, f->node_pages);
  t->opaque = f->opaque;
  memcpy(kv_tail(kv, to), kv_tail(kv, from), kv->options.page_tokens * sizeof(int32_t));
  set_length(kv, to, f->length);
  kv->stats.forks++;
  *out = to;
  return 0;
}

int gap_kv_fork(gap_kv *kv, gap_kv_seq seq, gap_kv_seq *out) {
  uint32_t index, made = 0;
  if (!kv || !out) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = kv_find(kv, seq, &index);
  if (!rc) rc = fork_seq(kv, index, &made);
  if (!rc) *out = kv_handle(kv, made);
  gap__unlock(&kv->lock);
  return rc;
}

/* Is what the next token sees still there? */
static bool window_allows(const struct gap_kv *kv, const struct kv_seq *s, uint32_t tokens) {
  for (uint32_t g = 0; g < kv->options.group_count; g++) {
    uint32_t sees = kv->windows[g] && tokens + 1 > kv->windows[g] ? tokens + 1 - kv->windows[g] : 0;
    if (tokens && sees >> kv->token_shift < s->first[g]) return false;
  }
  return true;
}

/* The chain ends earlier; what its next KV page begins with is the tail. */
static void shorten_chain(struct gap_kv *kv, uint32_t seq, uint32_t tokens) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t keep = tokens >> kv->token_shift, rest = tokens & (kv->options.page_tokens - 1), node = s->node,
           pages = s->node_pages;
  if (!node || tokens > pages << kv->token_shift) return;
  s->opaque = false;
  if (pages == keep) return;
  for (; pages > keep; pages--) {
    if (pages == keep + 1) memcpy(kv_tail(kv, seq), kv_node_tokens(kv, node), rest * sizeof(int32_t));
    if (s->pending) s->pending--;
    node = kv_node_at(kv, node)->parent;
  }
  gap__kv_seq_move(kv, seq, node, pages);
}

int gap__kv_truncate(struct gap_kv *kv, uint32_t seq, uint32_t tokens) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  uint32_t columns = kv_columns(kv, tokens);
  struct kv_leaving gone;
  if (tokens > s->length) return GAP_EINVAL;
  if (s->swapped || !window_allows(kv, s, tokens)) return GAP_ESTATE;
  int rc = gap__kv_leave_prepare(kv, (s->columns - columns) * kv->options.group_count, kv->options.stream, &gone);
  if (rc) return rc;
  shorten_chain(kv, seq, tokens);
  gap__kv_seq_offer(kv, seq);
  for (uint32_t c = s->columns; c-- > columns;)
    for (uint32_t g = 0; g < kv->options.group_count; g++)
      if (kv_row(kv, g, seq)[c]) gone.pages[gone.count++] = kv_row(kv, g, seq)[c];
  gap__kv_row_clear(kv, seq, columns);
  gap__kv_leave(kv, &gone);
  set_length(kv, seq, tokens);
  return 0;
}

int gap_kv_truncate(gap_kv *kv, gap_kv_seq seq, uint32_t tokens) {
  uint32_t index;
  if (!kv) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = kv_find(kv, seq, &index);
  if (!rc) rc = gap__kv_truncate(kv, index, tokens);
  kv_settle(kv);
  gap__unlock(&kv->lock);
  return rc;
}
