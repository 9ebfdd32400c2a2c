/* What servers say.  hiredis hands each answer over while it still lies in its buffer, so a piece is copied once, to where it belongs.
 *
 * Nothing said is believed: an answer that nobody asked for, or of another kind than was asked for, ends the connection; a piece that does not fit
 * is a miss.  Arrays are never asked for, so nothing is allocated for any. */
#include <hiredis/hiredis.h>
#include <string.h>

#include "store.h"

static char taken; /* what hiredis gets for every answer: something that is not NULL */

static void lie(struct server *s, const char *what) {
  if (s->doomed) return;
  s->doomed = true;
  s->doom = CAUSE_LIE;
  memset(s->reason, 0, sizeof s->reason);
  strncpy(s->reason, what, sizeof s->reason - 1);
}

/* ---- put ---- */

static void refuse_put(struct leg *leg, const char *text, size_t length) {
  struct server *s = leg->server;
  gap_remote *store = s->store;
  bool full = length >= 3 && memcmp(text, "OOM", 3) == 0;
  if (full) COUNT(store, refused_full, 1);
  else COUNT(store, refused, 1);
  if (full && store->now_ns >= s->full_until_ns) {
    s->full_pause_ms = s->full_pause_ms ? s->full_pause_ms * 2 : PAUSE_FIRST_MS;
    if (s->full_pause_ms > PAUSE_MOST_MS) s->full_pause_ms = PAUSE_MOST_MS;
    s->full_until_ns = store->now_ns + s->full_pause_ms * MS_NS;
  }
  gap__leg_end(leg, false);
}

void gap__leg_stored(struct leg *leg) {
  leg->unanswered--;
  if (leg->unanswered || leg->next_piece > 0) return;
  if (leg->next_piece == 0) gap__server_enqueue(leg->server, leg);
  else gap__leg_end(leg, true);
}

static void take_set(struct server *s, struct leg *leg, int type, const char *text, size_t length) {
  if (type == REDIS_REPLY_ERROR) {
    if (leg) refuse_put(leg, text, length);
  } else if (type != REDIS_REPLY_STATUS) {
    lie(s, "its answer to SET makes no sense");
  } else {
    s->full_pause_ms = 0;
    if (leg) gap__leg_stored(leg);
  }
}

/* ---- get ---- */

static void corrupt(struct leg *leg) {
  COUNT(leg->server->store, corrupt, 1);
  gap__leg_end(leg, false);
}

static bool fits_first(const struct leg *leg, const struct gap__piece *p) {
  return p->tag == leg->server->store->tag && p->key == leg->job->key && p->index == 0;
}

static bool fits_rest(const struct leg *leg, const struct gap__piece *p, uint32_t index) {
  const struct gap__piece *first = &leg->first;
  return p->tag == first->tag && p->key == first->key && p->total_bytes == first->total_bytes &&
         p->piece_bytes == first->piece_bytes && p->index == index;
}

static void whole(struct leg *leg) {
  gap_remote_item *item = leg->job->item;
  if (gap__piece_chain(leg->chain, leg->first.sum) != leg->first.chain) {
    corrupt(leg);
    return;
  }
  item->bytes = leg->first.total_bytes;
  COUNT(leg->server->store, bytes_got, item->bytes);
  gap__leg_end(leg, true);
}

static bool take_first(struct leg *leg, const struct gap__piece *p) {
  if (p->total_bytes > leg->job->item->bytes) {
    COUNT(leg->server->store, too_large, 1);
    return gap__leg_end(leg, false), false;
  }
  leg->first = *p;
  leg->chain = gap__piece_chain_begin(p);
  leg->next_piece = p->count - 1;
  return true;
}

void gap__leg_piece(struct leg *leg, uint32_t index, const uint8_t *data, size_t bytes) {
  struct gap__piece p;
  leg->unanswered--;
  const uint8_t *content = data + GAP__PIECE_HEADER_BYTES;
  bool fits = gap__piece_read(data, bytes, &p) && (index ? fits_rest(leg, &p, index) : fits_first(leg, &p)) &&
              gap__piece_sum(content, p.bytes) == p.sum;
  if (fits && index) {
    leg->chain = gap__piece_chain(leg->chain, p.sum);
    fits = leg->chain == p.chain;
  }
  if (!fits) {
    corrupt(leg);
    return;
  }
  if (index == 0 && !take_first(leg, &p)) return;
  if (p.bytes) memcpy((char *)leg->job->item->value + (size_t)index * p.piece_bytes, content, p.bytes);
  if (index > 1) return;
  if (index == 1 || p.count == 1) whole(leg);
  else gap__server_enqueue(leg->server, leg);
}

static void absent(struct leg *leg) {
  COUNT(leg->server->store, absent, 1);
  gap__leg_end(leg, false);
}

static void refuse(struct leg *leg) {
  COUNT(leg->server->store, refused, 1);
  gap__leg_end(leg, false);
}

static void take_get(struct server *s, const struct flight *f, int type, const char *text, size_t length) {
  bool known = type == REDIS_REPLY_STRING || type == REDIS_REPLY_NIL || type == REDIS_REPLY_ERROR;
  if (!known) lie(s, "its answer to GET makes no sense");
  else if (!f->leg) return;
  else if (type == REDIS_REPLY_STRING) gap__leg_piece(f->leg, f->piece, (const uint8_t *)text, length);
  else if (type == REDIS_REPLY_NIL) absent(f->leg);
  else refuse(f->leg);
}

static void take_exists(struct server *s, struct leg *leg, int type, long long number) {
  bool known = (type == REDIS_REPLY_INTEGER && (number == 0 || number == 1)) || type == REDIS_REPLY_ERROR;
  if (!known) lie(s, "its answer to EXISTS makes no sense");
  else if (!leg) return;
  else if (type == REDIS_REPLY_ERROR) refuse(leg);
  else if (number == 0) absent(leg);
  else gap__leg_end(leg, true);
}

/* ---- all of them ---- */

struct answer {
  int type;
  const char *text;
  size_t length;
  long long number;
};

static void dispatch(struct server *s, const struct flight *f, const struct answer *a) {
  switch (f->request) {
    case REQUEST_SET: take_set(s, f->leg, a->type, a->text, a->length); break;
    case REQUEST_GET: take_get(s, f, a->type, a->text, a->length); break;
    case REQUEST_EXISTS: take_exists(s, f->leg, a->type, a->number); break;
    case REQUEST_PING:
    case REQUEST_INFO: gap__look_reply(s, f->look, f->request, a->type, a->text, a->length); break;
    default: gap__greet_reply(s, f->request, a->type, a->text, a->length);
  }
}

static void take(struct server *s, const struct answer *a) {
  if (s->doomed) return;
  if (s->head == s->sent) { /* for instance "too many clients", before anything was asked */
    if (a->type == REDIS_REPLY_ERROR) {
      lie(s, gap__reply_words(a->text, a->length));
      s->doom = CAUSE_REFUSED;
    } else {
      lie(s, "it answered what nobody had asked");
    }
    return;
  }
  struct flight f = s->flights[s->head % RING];
  dispatch(s, &f, a);
  if (s->doomed) return; /* what was asked is among the work that the connection leaves behind */
  s->head++;
  s->load -= f.weight;
  s->head_since_ns = s->store->now_ns;
}

static void *on_string(const redisReadTask *task, char *text, size_t length) {
  if (task->parent) return NULL;
  take(task->privdata, &(struct answer){task->type, text, length, 0});
  return &taken;
}

static void *on_integer(const redisReadTask *task, long long number) {
  if (task->parent) return NULL;
  take(task->privdata, &(struct answer){task->type, "", 0, number});
  return &taken;
}

static void *on_nil(const redisReadTask *task) {
  if (task->parent) return NULL;
  take(task->privdata, &(struct answer){REDIS_REPLY_NIL, "", 0, 0});
  return &taken;
}

static void *on_array(const redisReadTask *task, int elements) {
  (void)task, (void)elements;
  return NULL; /* the reader gives up, and so do we */
}

static void on_free(void *object) { (void)object; }

redisReplyObjectFunctions gap__reply_functions = {on_string, on_array, on_integer, on_nil, on_free};
