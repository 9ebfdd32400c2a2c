/* Fetches: where the KV pages of a prompt are, and which are worth bringing up.
 *
 * NEW: the prefix on the device is held. ASKING: the servers say what they have of that which is in no local place.
 * RUNNING: cargoes come up, in the order of the chain.  DONE: nothing is held any more, the ticket waits to be asked
 * for. */
#include <stdlib.h>
#include <string.h>

#include "kv/below_fetch.h"
#include "kv/hold.h"
#include "kv/pages.h"
#include "kv/prefix.h"
#include "kv/seq.h"

enum { DOUBTS = 64 };

static const unsigned char *digest_of(const struct kv_fetch *f, uint32_t column) {
  return f->digests + (size_t)column * KV_DIGEST_BYTES;
}
static const int32_t *tokens_of(const struct gap_kv *kv, const struct kv_fetch *f, uint32_t column) {
  return f->tokens + ((size_t)column << kv->token_shift);
}

/* Without these KV pages a column is of no use; where all groups have windows, the first one's. */
bool gap__kv_fetch_needs(const struct gap_kv *kv, uint32_t group) {
  bool full = false;
  for (uint32_t g = 0; g < kv->options.group_count; g++) full |= !kv->windows[g];
  return full ? !kv->windows[group] : group == 0;
}

bool gap__kv_fetch_wants(const struct gap_kv *kv, const struct kv_fetch *f, uint32_t group, uint32_t column) {
  uint32_t window = kv->windows[group], tokens = f->to << kv->token_shift;
  return !window || tokens + 1 <= window || column >= (tokens + 1 - window) >> kv->token_shift;
}

uint32_t gap__kv_fetch_node(struct gap_kv *kv, const struct kv_fetch *f, uint32_t parent, uint32_t column, bool make) {
  return gap__kv_child_by_digest(kv, parent, tokens_of(kv, f, column), digest_of(f, column), make);
}

/* ---- on the device ---- */

static bool is_there(const struct gap_kv *kv, uint32_t node) {
  for (uint32_t g = 0; g < kv->options.group_count; g++)
    if (gap__kv_fetch_needs(kv, g) && !kv_node_pages(kv, node)[g]) return false;
  return true;
}

/* How many KV pages of the prompt are there, their nodes in kv->path; *node: the last one's. */
static uint32_t prefix_of(struct gap_kv *kv, const struct kv_fetch *f, uint32_t *node) {
  uint32_t n = 0, next;
  *node = gap__kv_root(kv, f->tenant, true);
  for (; *node && n < f->count; n++, *node = next) {
    next = gap__kv_fetch_node(kv, f, *node, n, false);
    if (!next || !is_there(kv, next)) break;
    kv->path[n] = next;
  }
  return n;
}

void gap__kv_fetch_keep(struct gap_kv *kv, struct kv_fetch *f, uint32_t page) {
  kv_page_share(kv, page);
  f->path.pages[f->path.count++] = page;
  kv->leaving_pages++;
}

/* What is needed of it must not be evicted for its own end. */
static void keep_prefix(struct gap_kv *kv, struct kv_fetch *f) {
  for (uint32_t n = 0; n < f->from; n++)
    for (uint32_t g = 0; g < kv->options.group_count; g++)
      if (kv_node_pages(kv, kv->path[n])[g]) gap__kv_fetch_keep(kv, f, kv_node_pages(kv, kv->path[n])[g]);
}

void gap__kv_fetch_step(struct gap_kv *kv, struct kv_fetch *f, uint32_t node) {
  uint32_t old = f->path.node;
  kv_node_hold(kv, node);
  f->path.node = node;
  if (old) kv_node_drop(kv, old);
}

/* ---- below ---- */

static enum kv_place local_place(const struct kv_below *b, const struct kv_fetch *f, uint32_t column) {
  enum kv_place place = KV_PLACE_HOST;
  for (uint32_t g = 0; g < b->kv->options.group_count; g++) {
    struct kv_name name = gap__kv_name(digest_of(f, column), g);
    if (!gap__kv_fetch_needs(b->kv, g)) continue;
    uint32_t found = gap__kv_shelf_find(&b->shelf, &name);
    if (!found) return KV_PLACE_NONE;
    enum kv_place at = (enum kv_place)kv_crate_at(&b->shelf, kv_found_crate(&b->shelf, found))->place;
    if (at > place) place = at;
  }
  return place;
}

static bool simulated_has(struct kv_below *b, const struct kv_fetch *f, uint32_t column) {
  for (uint32_t g = 0; g < b->kv->options.group_count; g++) {
    struct kv_name name = gap__kv_name(digest_of(f, column), g);
    if (gap__kv_fetch_needs(b->kv, g) && !gap__kv_shelf_find(&b->servers, &name)) return false;
  }
  return true;
}

static void look_below(struct kv_below *b, struct kv_fetch *f) {
  uint32_t node = f->path.node;
  for (uint32_t c = f->from; c < f->count; c++) {
    enum kv_place place = b->shelf.slots ? local_place(b, f, c) : KV_PLACE_NONE;
    if (node) node = gap__kv_fetch_node(b->kv, f, node, c, false);
    if (node && is_there(b->kv, node)) place = KV_PLACE_HERE;
    if (place == KV_PLACE_NONE && b->servers.slots && simulated_has(b, f, c)) place = KV_PLACE_REMOTE;
    f->places[c - f->from] = (uint8_t)place;
  }
}

/* What the servers are asked for: a key of each group that is needed, of each KV page that is in no local place. */
static uint32_t list_names(struct kv_below *b, struct kv_fetch *f) {
  struct gap_kv *kv = b->kv;
  uint32_t n = 0;
  for (uint32_t c = f->from; c < f->count; c++)
    for (uint32_t g = 0; g < kv->options.group_count; g++) {
      if (f->places[c - f->from] != KV_PLACE_NONE || !gap__kv_fetch_needs(kv, g) || n == GAP_REMOTE_BATCH_MAX) continue;
      f->names[n] = gap__kv_name(digest_of(f, c), g);
      f->asked[n] = (gap_remote_item){.key = f->names[n].bytes, .key_bytes = KV_NAME_BYTES};
      n++;
    }
  return n;
}

static bool ask_servers(struct kv_below *b, struct kv_fetch *f) {
  size_t most = (size_t)(f->count - f->from) * b->kv->options.group_count;
  if (!b->remote || !most) return false;
  f->names = malloc(most * sizeof *f->names);
  f->asked = malloc(most * sizeof *f->asked);
  f->asked_count = f->names && f->asked ? list_names(b, f) : 0;
  if (!f->asked_count) return false;
  return gap_remote_contains(b->remote, f->asked, f->asked_count, b->fetch_ms, &f->ticket) == 0;
}

static void hear_servers(struct kv_below *b, struct kv_fetch *f) {
  uint32_t n = 0;
  for (uint32_t c = f->from; c < f->count && n < f->asked_count; c++) {
    bool there = true;
    if (f->places[c - f->from] != KV_PLACE_NONE) continue;
    for (uint32_t g = 0; g < b->kv->options.group_count && n < f->asked_count; g++)
      if (gap__kv_fetch_needs(b->kv, g)) there &= f->asked[n++].outcome == GAP_REMOTE_DONE;
    if (there) f->places[c - f->from] = KV_PLACE_REMOTE;
  }
}

/* ---- choosing ---- */

static void count_refused(struct kv_below *b, const uint8_t *places, uint32_t count) {
  uint64_t *const counters[] = {&b->stats.host_refused, &b->stats.disk_refused, &b->stats.remote_refused};
  for (uint32_t i = 0; i < count; i++)
    if (places[i] < KV_PLACES) *counters[places[i]] += b->kv->options.group_count;
}

/* An estimate that refuses is not corrected by what it refuses: it rises a little each time, until something is tried again. */
static void doubt(struct kv_below *b, const uint8_t *places, uint32_t count) {
  if (!count || places[0] >= KV_PLACES || !b->learns) return;
  gap_kv_rate *rate = gap__kv_worth_rate(&b->rates, (enum kv_place)places[0]);
  rate->bytes_s += rate->bytes_s / DOUBTS + 1;
}

/* So much may be held at once, that others get on. */
static uint32_t most_columns(const struct gap_kv *kv, const struct kv_fetch *f) {
  uint32_t most = kv_capacity(kv) / 2 / kv->options.group_count;
  return most > f->from ? most - f->from : 0;
}

/* Servers that were away when they were to be measured: a guess, until something has come from them. */
static const gap_kv_rate unknown = {.latency_ns = 1000000, .bytes_s = 100000000};
static bool run_has_servers(const struct kv_fetch *f) {
  return memchr(f->places, KV_PLACE_REMOTE, f->count - f->from) != NULL;
}

static void choose(struct kv_below *b, struct kv_fetch *f) {
  struct gap_kv *kv = b->kv;
  uint32_t run = 0, groups = kv->options.group_count, most = most_columns(kv, f);
  if (b->learns && run_has_servers(f) && !b->rates.remote.bytes_s) b->rates.remote = unknown;
  while (f->from + run < f->count && f->places[run] != KV_PLACE_NONE) run++;
  b->stats.missed += (uint64_t)(f->count - f->from - run) * groups;
  if (run > most) b->stats.no_room += (uint64_t)(run - most) * groups, run = most;
  uint32_t best = gap__kv_worth(&b->rates, f->places, run, b->page_bytes * groups, kv->options.page_tokens);
  count_refused(b, f->places + best, run - best);
  doubt(b, f->places + best, run - best);
  f->at = f->from;
  f->to = f->from + best;
  f->state = KV_FETCH_RUNNING;
}

/* ---- the life of one ---- */

static void begin(struct kv_below *b, struct kv_fetch *f) {
  struct gap_kv *kv = b->kv;
  uint32_t node;
  gap__kv_leaving_poll(kv);
  f->from = prefix_of(kv, f, &node);
  f->path.node = 0;
  gap__kv_hold(kv, &f->path);
  if (node) gap__kv_fetch_step(kv, f, node);
  keep_prefix(kv, f);
  look_below(b, f);
  f->state = KV_FETCH_ASKING;
  if (!node) f->count = f->from; /* no memory for a root */
  if (!ask_servers(b, f)) choose(b, f);
}

static void hear(struct kv_below *b, struct kv_fetch *f) {
  if (gap_remote_poll(b->remote, f->ticket) == GAP_EAGAIN) return;
  hear_servers(b, f);
  choose(b, f);
}

static void end(struct kv_below *b, struct kv_fetch *f) {
  uint32_t node;
  gap__kv_unhold(b->kv, &f->path);
  f->result = prefix_of(b->kv, f, &node);
  if (node) gap__kv_node_settle(b->kv, node); /* a root that nobody needs */
  b->stats.tokens_fetched += (uint64_t)(f->result > f->from ? f->result - f->from : 0) << b->kv->token_shift;
  f->state = KV_FETCH_DONE;
}

void gap__kv_fetch_advance(struct kv_below *b, struct kv_fetch *f) {
  if (f->state == KV_FETCH_NEW) begin(b, f);
  else if (f->state == KV_FETCH_ASKING) hear(b, f);
  if (f->state == KV_FETCH_RUNNING && f->at == f->to && !f->cargoes) end(b, f);
}

void gap__kv_fetch_free(struct kv_fetch *f) {
  free(f->tokens);
  free(f->digests);
  free(f->places);
  free(f->path.pages);
  free(f->names);
  free(f->asked);
  free(f);
}

/* ---- public calls ---- */

static struct kv_fetch *make(struct gap_kv *kv, const gap_kv_prompt *prompt) {
  struct kv_fetch *f = calloc(1, sizeof *f);
  if (!f) return NULL;
  f->tenant = prompt->tenant;
  f->count = prompt->count >> kv->token_shift;
  size_t tokens = (size_t)f->count << kv->token_shift;
  f->tokens = malloc((tokens + 1) * sizeof *f->tokens);
  f->digests = malloc(((size_t)f->count + 1) * KV_DIGEST_BYTES);
  f->places = malloc((size_t)f->count + 1);
  f->path.pages = malloc(((size_t)f->count * kv->options.group_count + 1) * sizeof *f->path.pages);
  if (!f->tokens || !f->digests || !f->places || !f->path.pages) {
    gap__kv_fetch_free(f);
    return NULL;
  }
  memcpy(f->tokens, prompt->tokens, tokens * sizeof *f->tokens);
  gap__kv_digests(kv, f->tenant, f->tokens, f->count, f->digests);
  return f;
}

int gap_kv_fetch(gap_kv *kv, const gap_kv_prompt *prompt, gap_kv_ticket *ticket) {
  if (!kv || !prompt || prompt->size != sizeof *prompt || !prompt->tokens || !ticket) return GAP_EINVAL;
  if (prompt->count > kv->options.tokens) return GAP_ELIMIT;
  struct kv_below *b = kv->below;
  if (!b) return GAP_ESTATE;
  struct kv_fetch *f = make(kv, prompt);
  if (!f) return GAP_ENOMETA;
  gap__lock(&kv->lock);
  f->id = *ticket = ++b->tickets;
  f->next = b->fetches;
  b->fetches = f;
  b->stats.fetches++;
  gap__unlock(&kv->lock);
  gap__kv_below_call(b);
  return 0;
}

static int poll_fetch(struct kv_below *b, gap_kv_ticket ticket, uint32_t *tokens) {
  struct kv_fetch **at = &b->fetches;
  while (*at && (*at)->id != ticket) at = &(*at)->next;
  struct kv_fetch *f = *at;
  if (!f) return GAP_EINVAL;
  if (f->state != KV_FETCH_DONE) return GAP_EAGAIN;
  if (tokens) *tokens = f->result << b->kv->token_shift;
  *at = f->next;
  gap__kv_fetch_free(f);
  return 0;
}

int gap_kv_fetch_poll(gap_kv *kv, gap_kv_ticket ticket, uint32_t *tokens) {
  if (!kv || !kv->below || !ticket) return GAP_EINVAL;
  gap__lock(&kv->lock);
  int rc = poll_fetch(kv->below, ticket, tokens);
  gap__unlock(&kv->lock);
  return rc;
}

int gap_kv_fetch_wait(gap_kv *kv, gap_kv_ticket ticket, uint32_t timeout_ms, uint32_t *tokens) {
  uint64_t until = gap__kv_below_now() + timeout_ms * 1000000ull;
  int rc = gap_kv_fetch_poll(kv, ticket, tokens);
  while (rc == GAP_EAGAIN && gap__kv_below_now() < until) {
    gap__kv_below_rest(kv->below, until - gap__kv_below_now());
    rc = gap_kv_fetch_poll(kv, ticket, tokens);
  }
  return rc;
}
