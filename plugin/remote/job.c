/* An item: to which servers it goes, piece by piece, and what becomes of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store.h"

static void count_outcome(gap_remote *store, const struct job *job, gap_remote_outcome outcome) {
  enum kind kind = job->ticket->kind;
  if (outcome == GAP_REMOTE_LATE) COUNT(store, late, 1);
  else if (outcome == GAP_REMOTE_CANCELLED) COUNT(store, cancelled, 1);
  if (outcome == GAP_REMOTE_DONE && kind == KIND_PUT) COUNT(store, puts_done, 1);
  else if (outcome == GAP_REMOTE_DONE && kind == KIND_GET) COUNT(store, hits, 1);
  else if (outcome == GAP_REMOTE_DONE) COUNT(store, found, 1);
  else if (kind != KIND_PUT) COUNT(store, misses, 1);
}

static void unlink_live(gap_remote *store, struct ticket *t) {
  if (t->prev) t->prev->next = t->next;
  else store->live = t->next;
  if (t->next) t->next->prev = t->prev;
}

static void finish(gap_remote *store, struct job *job, gap_remote_outcome outcome) {
  struct ticket *t = job->ticket;
  job->over = true;
  job->item->outcome = outcome;
  count_outcome(store, job, outcome);
  if (--t->left) return;
  unlink_live(store, t);
  gap__ticket_done(store, t);
}

/* ---- beginning ---- */

static void begin_leg(struct job *job, struct leg *leg, struct server *server) {
  gap_remote *store = server->store;
  *leg = (struct leg){.job = job, .server = server};
  if (job->ticket->kind == KIND_PUT) {
    struct gap__piece *p = &leg->first;
    p->tag = store->tag, p->key = job->key, p->total_bytes = job->item->bytes, p->piece_bytes = store->piece_bytes;
    p->count = gap__piece_count(p->total_bytes, p->piece_bytes);
    leg->chain = gap__piece_chain_begin(p);
    leg->next_piece = p->count - 1;
  }
  gap__server_enqueue(server, leg);
}

static bool passes_over(gap_remote *store, const struct server *server, enum kind kind) {
  if (!gap__server_usable(server)) return COUNT(store, unreachable, 1), true;
  if (kind != KIND_PUT || store->now_ns >= server->full_until_ns) return false;
  return COUNT(store, refused_full, 1), true;
}

static void start_put(gap_remote *store, struct job *job) {
  for (uint32_t i = 0; i < store->replicas; i++) {
    struct server *server = &store->servers[job->order[i]];
    struct leg *leg = &job->legs[i];
    leg->job = job, leg->server = server, leg->over = true;
    if (passes_over(store, server, KIND_PUT)) continue;
    job->legs_open++;
    begin_leg(job, leg, server);
  }
  if (!job->legs_open) finish(store, job, GAP_REMOTE_FAILED);
}

static void try_next(gap_remote *store, struct job *job) {
  while (job->tried < store->replicas) {
    struct server *server = &store->servers[job->order[job->tried++]];
    if (passes_over(store, server, job->ticket->kind)) continue;
    begin_leg(job, &job->legs[0], server);
    return;
  }
  finish(store, job, GAP_REMOTE_MISS);
}

void gap__job_start(struct job *job) {
  gap_remote *store = job->ticket->store;
  if (job->ticket->kind == KIND_PUT) start_put(store, job);
  else try_next(store, job);
}

/* ---- ending ---- */

void gap__leg_end(struct leg *leg, bool good) {
  struct job *job = leg->job;
  gap_remote *store = leg->server->store;
  if (leg->over) return;
  leg->over = true;
  gap__server_forget(leg->server, leg);
  if (job->ticket->kind == KIND_PUT) {
    job->stored |= good;
    if (--job->legs_open == 0) finish(store, job, job->stored ? GAP_REMOTE_DONE : GAP_REMOTE_FAILED);
  } else if (good) {
    finish(store, job, GAP_REMOTE_DONE);
  } else {
    try_next(store, job);
  }
}

void gap__job_abandon(struct job *job, gap_remote_outcome outcome) {
  gap_remote *store = job->ticket->store;
  uint32_t legs = job->ticket->kind == KIND_PUT ? store->replicas : 1;
  for (uint32_t i = 0; i < legs; i++) {
    if (!job->legs[i].job || job->legs[i].over) continue;
    job->legs[i].over = true;
    gap__server_forget(job->legs[i].server, &job->legs[i]);
  }
  finish(store, job, job->stored ? GAP_REMOTE_DONE : outcome);
}

/* ---- requests ---- */

bool gap__leg_wants(const struct leg *leg) {
  switch (leg->job->ticket->kind) {
    case KIND_PUT: return leg->next_piece > 0 || (leg->next_piece == 0 && leg->unanswered == 0);
    case KIND_GET: return !leg->first_asked || leg->next_piece > 0;
    default: return !leg->first_asked;
  }
}

static bool is_shelved(const struct shelf *shelf, size_t bytes) { return bytes > SHELF_LEAST && bytes <= shelf->bytes; }

char *gap__shelf_take(struct shelf *shelf, size_t bytes) {
  if (!is_shelved(shelf, bytes)) return malloc(bytes);
  return shelf->count ? shelf->buffers[--shelf->count] : malloc(shelf->bytes);
}

void gap__shelf_give(struct shelf *shelf, void *buffer, size_t bytes) {
  if (buffer && is_shelved(shelf, bytes) && shelf->count < SHELF) shelf->buffers[shelf->count++] = buffer;
  else free(buffer);
}

static size_t name_of(const struct leg *leg, uint32_t index, char out[GAP__PIECE_KEY_BYTES]) {
  const gap_remote_item *item = leg->job->item;
  return gap__piece_key(leg->server->store->tag, item->key, item->key_bytes, index, out);
}

enum { HEAD_BYTES = GAP__PIECE_KEY_BYTES + 96, TAIL_BYTES = 64 };

/* What stands before the value of SET, and behind it; their lengths. */
static size_t head_of_set(const struct leg *leg, const struct gap__piece *piece, char out[HEAD_BYTES]) {
  char name[GAP__PIECE_KEY_BYTES];
  size_t name_bytes = name_of(leg, piece->index, name);
  int words = leg->server->store->ttl_ms ? 5 : 3;
  size_t length = (size_t)snprintf(out, HEAD_BYTES, "*%d\r\n$3\r\nSET\r\n$%zu\r\n", words, name_bytes);
  memcpy(out + length, name, name_bytes);
  length += name_bytes;
  return length + (size_t)snprintf(out + length, HEAD_BYTES - length, "\r\n$%zu\r\n",
                                   (size_t)GAP__PIECE_HEADER_BYTES + piece->bytes);
}

static size_t tail_of_set(const gap_remote *store, char out[TAIL_BYTES]) {
  char ttl[24];
  int digits = snprintf(ttl, sizeof ttl, "%llu", (unsigned long long)store->ttl_ms);
  if (store->ttl_ms) return (size_t)snprintf(out, TAIL_BYTES, "\r\n$2\r\nPX\r\n$%d\r\n%s\r\n", digits, ttl);
  return (size_t)snprintf(out, TAIL_BYTES, "\r\n");
}

/* SET is put together here and not by hiredis: the value is copied once, from the caller's memory, while its checksum is made. */
static char *set_command(struct leg *leg, struct gap__piece *piece, size_t *length) {
  gap_remote *store = leg->server->store;
  char head[HEAD_BYTES], tail[TAIL_BYTES];
  size_t head_bytes = head_of_set(leg, piece, head), tail_bytes = tail_of_set(store, tail);
  *length = head_bytes + GAP__PIECE_HEADER_BYTES + piece->bytes + tail_bytes;
  char *command = gap__shelf_take(&store->shelf, *length);
  if (!command) return NULL;
  char *value = command + head_bytes, *content = value + GAP__PIECE_HEADER_BYTES;
  const char *from = (const char *)leg->job->item->value + (size_t)piece->index * piece->piece_bytes;
  if (piece->bytes) memcpy(content, from, piece->bytes);
  piece->sum = gap__piece_sum(content, piece->bytes);
  piece->chain = leg->chain = gap__piece_chain(leg->chain, piece->sum);
  memcpy(command, head, head_bytes);
  gap__piece_write(piece, (uint8_t *)value);
  memcpy(content + piece->bytes, tail, tail_bytes);
  return command;
}

static struct flight make_set(struct leg *leg) {
  struct gap__piece piece = leg->first;
  struct flight out = {.request = REQUEST_SET, .leg = leg};
  piece.index = out.piece = (uint32_t)leg->next_piece--;
  piece.bytes = gap__piece_length(&piece, piece.index);
  out.weight = piece.bytes;
  out.command = set_command(leg, &piece, &out.length);
  if (out.command) COUNT(leg->server->store, bytes_put, piece.bytes);
  return out;
}

/* How long the answer may be, as far as one knows. */
static uint32_t weight_of(const struct leg *leg, uint32_t index) {
  uint64_t room = leg->job->item->bytes, most = leg->server->store->piece_bytes;
  if (index) return gap__piece_length(&leg->first, index);
  return (uint32_t)(room < most ? room : most);
}

static struct flight make_ask(struct leg *leg, enum request request, const char *verb) {
  char name[GAP__PIECE_KEY_BYTES];
  struct flight out = {.request = request, .leg = leg};
  out.piece = leg->first_asked ? (uint32_t)leg->next_piece-- : 0;
  leg->first_asked = true;
  if (request == REQUEST_GET) out.weight = weight_of(leg, out.piece);
  size_t lengths[2] = {strlen(verb), name_of(leg, out.piece, name)};
  out.command = gap__command(2, (const char *const[]){verb, name}, lengths, &out.length);
  return out;
}

bool gap__leg_issue(struct leg *leg) {
  struct flight flight;
  switch (leg->job->ticket->kind) {
    case KIND_PUT: flight = make_set(leg); break;
    case KIND_GET: flight = make_ask(leg, REQUEST_GET, "GET"); break;
    default: flight = make_ask(leg, REQUEST_EXISTS, "EXISTS");
  }
  if (!flight.command) return gap__leg_end(leg, false), false;
  leg->unanswered++;
  gap__server_push(leg->server, flight);
  return true;
}
