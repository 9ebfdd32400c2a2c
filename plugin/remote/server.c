/* One connection: how it comes to be, what it carries, how it ends and when it is tried again. */
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "secret.h"
#include "store.h"

enum { PARTS = 16, READS = 8, READ_BYTES = 256 << 10, SLICE = 16 << 10, WRITE_MOST = 4 << 20, STEADY_NS = 1000000000 };

bool gap__server_usable(const struct server *s) {
  return s->state == STATE_UP || (s->state != STATE_DOWN && !s->failed) || (s->state == STATE_DOWN && !s->pause_ms);
}

/* ---- the queue ---- */

void gap__server_enqueue(struct server *s, struct leg *leg) {
  if (leg->queued) return;
  leg->queued = true;
  leg->prev = s->last, leg->next = NULL;
  if (s->last) s->last->next = leg;
  else s->first = leg;
  s->last = leg;
}

static void dequeue(struct server *s, struct leg *leg) {
  if (!leg->queued) return;
  leg->queued = false;
  if (leg->prev) leg->prev->next = leg->next;
  else s->first = leg->next;
  if (leg->next) leg->next->prev = leg->prev;
  else s->last = leg->prev;
}

void gap__server_forget(struct server *s, struct leg *leg) {
  dequeue(s, leg);
  for (uint32_t i = s->head; i != s->tail; i++)
    if (s->flights[i % RING].leg == leg) s->flights[i % RING].leg = NULL;
}

/* ---- the ring ---- */

void gap__server_push(struct server *s, struct flight flight) {
  if (s->head == s->tail) s->head_since_ns = s->store->now_ns;
  s->load += flight.weight;
  s->flights[s->tail++ % RING] = flight;
}

static void drop_command(struct server *s, struct flight *f) {
  if (f->command && f->request == REQUEST_AUTH) gap__remote_wipe(f->command, f->length);
  if (f->request == REQUEST_SET) gap__shelf_give(&s->store->shelf, f->command, f->length);
  else free(f->command);
  f->command = NULL;
}

/* One is left over: a look asks again before its answer has left the ring. */
static bool has_place(const struct server *s) { return s->state == STATE_UP && s->tail - s->head < RING - 1; }

static bool may_issue(const struct server *s) {
  return s->state == STATE_UP && s->tail - s->head < RING - RING_SPARE && (s->load < LOAD_MOST || s->head == s->tail);
}

/* Looks first: somebody stands and waits. */
static void pump(struct server *s) {
  while (s->looks && has_place(s)) {
    struct look *look = s->looks;
    s->looks = look->next;
    gap__look_begin(s, look);
  }
  while (s->first && may_issue(s)) {
    struct leg *leg = s->first;
    if (gap__leg_issue(leg) && !gap__leg_wants(leg)) dequeue(s, leg);
  }
}

/* ---- the end of a connection ---- */

static uint64_t dice(gap_remote *store, uint64_t most) {
  store->dice = store->dice * 6364136223846793005u + 1442695040888963407u;
  return (store->dice >> 33) % most;
}

/* Pauses double; those of many programs do not fall together.  A connection that held for a while begins anew. */
static void pause_next(struct server *s, bool was_steady) {
  s->pause_ms = was_steady || !s->pause_ms ? PAUSE_FIRST_MS : s->pause_ms * 2;
  if (s->pause_ms > PAUSE_MOST_MS) s->pause_ms = PAUSE_MOST_MS;
  s->retry_ns = s->store->now_ns + (s->pause_ms * 3 / 4 + dice(s->store, s->pause_ms / 2)) * MS_NS;
}

static void disconnect(struct server *s) {
  gap__wire_close(&s->wire);
  gap__resolve_end(s->resolve);
  if (s->reader) redisReaderFree(s->reader);
  s->resolve = NULL;
  s->reader = NULL;
  s->address = NULL;
  s->more = s->doomed = false;
  s->state = STATE_DOWN;
}

static void drop_leg(struct leg *leg) {
  COUNT(leg->server->store, broken, 1);
  gap__leg_end(leg, false);
}

/* The server is down already, so nothing comes back to it. */
static void drop_work(struct server *s) {
  while (s->head != s->tail) {
    struct flight f = s->flights[s->head++ % RING];
    drop_command(s, &f);
    if (f.leg) drop_leg(f.leg);
    if (f.look) gap__look_end(s, f.look);
  }
  s->sent = s->head;
  s->load = 0;
  while (s->first) drop_leg(s->first);
  while (s->looks) {
    struct look *look = s->looks;
    s->looks = look->next;
    gap__look_end(s, look);
  }
}

void gap__server_fail(struct server *s, enum cause cause, const char *reason) {
  gap_remote *store = s->store;
  char line[480];
  bool first = !s->failed;
  uint64_t held_ns = s->state == STATE_UP ? store->now_ns - s->up_since_ns : 0;
  if (reason != s->reason) snprintf(s->reason, sizeof s->reason, "%s", reason);
  COUNT(store, failures, 1);
  if (cause == CAUSE_SLOW) COUNT(store, slow, 1);
  if (cause == CAUSE_LIE) COUNT(store, lies, 1);
  s->failed = true;
  disconnect(s);
  pause_next(s, held_ns > STEADY_NS + 2 * s->pause_ms * MS_NS);
  drop_work(s);
  snprintf(line, sizeof line, "remote: %s is down: %s", s->name, s->reason);
  if (first && store->log) store->log(1, line);
}

/* ---- connecting ---- */

static void begin(struct server *s) {
  s->deadline_ns = s->store->now_ns + s->store->connect_ms * MS_NS;
  s->state = STATE_RESOLVING;
  s->resolve = gap__resolve_begin(s->url.host, s->url.port, s->store->wake);
  if (!s->resolve) gap__server_fail(s, CAUSE_BROKEN, "no memory or no thread");
}

static void connect_to(struct server *s, const struct addrinfo *address) {
  while (address) {
    s->address = address;
    s->state = STATE_CONNECTING;
    gap__wire_close(&s->wire);
    if (gap__wire_connect(&s->wire, address) == 0) return;
    address = address->ai_next;
  }
  gap__server_fail(s, CAUSE_REFUSED, s->wire.reason);
}

static void resolved(struct server *s) {
  const char *reason = "the name has no address";
  const struct addrinfo *list = gap__resolve_list(s->resolve, &reason);
  if (list) connect_to(s, list);
  else gap__server_fail(s, CAUSE_REFUSED, reason);
}

static void greet(struct server *s) {
  s->reader = redisReaderCreateWithFunctions(&gap__reply_functions);
  if (!s->reader) {
    gap__server_fail(s, CAUSE_BROKEN, "no memory");
    return;
  }
  s->reader->maxbuf = 0; /* keep the buffer between large answers */
  s->reader->privdata = s;
  gap__greet(s);
}

static void shake(struct server *s) {
  int rc = gap__wire_shake(&s->wire);
  if (rc < 0) gap__server_fail(s, CAUSE_REFUSED, s->wire.reason);
  else if (rc > 0) greet(s);
}

static void connected(struct server *s) {
  if (gap__wire_connected(&s->wire)) {
    connect_to(s, s->address->ai_next);
  } else if (!s->url.tls) {
    greet(s);
  } else if (gap__wire_secure(&s->wire, s->store->tls, s->url.host)) {
    gap__server_fail(s, CAUSE_BROKEN, s->wire.reason);
  } else {
    s->state = STATE_SHAKING;
    shake(s);
  }
}

void gap__server_up(struct server *s) {
  char line[400];
  COUNT(s->store, connections, 1);
  snprintf(line, sizeof line, "remote: %s is up", s->name);
  if (s->store->log) s->store->log(s->failed ? 1 : 2, line);
  s->state = STATE_UP;
  s->failed = false;
  s->up_since_ns = s->store->now_ns;
  s->reason[0] = '\0';
}

/* ---- reading and writing ---- */

static int gather(struct server *s, struct iovec parts[PARTS]) {
  int count = 0;
  for (uint32_t i = s->sent; i != s->tail && count < PARTS; i++) {
    struct flight *f = &s->flights[i % RING];
    parts[count++] = (struct iovec){f->command + f->sent, f->length - f->sent};
  }
  return count;
}

static void written(struct server *s, size_t bytes) {
  while (bytes) {
    struct flight *f = &s->flights[s->sent % RING];
    size_t rest = f->length - f->sent, part = bytes < rest ? bytes : rest;
    f->sent += part;
    bytes -= part;
    if (f->sent < f->length) return;
    drop_command(s, f);
    s->sent++;
  }
}

static void write_out(struct server *s) {
  struct iovec parts[PARTS];
  for (size_t total = 0; s->sent != s->tail && total < WRITE_MOST;) {
    ssize_t bytes = gap__wire_write(&s->wire, parts, gather(s, parts));
    if (bytes < 0) gap__server_fail(s, CAUSE_BROKEN, s->wire.reason);
    if (bytes <= 0) return;
    written(s, (size_t)bytes);
    total += (size_t)bytes;
  }
}

/* Answers go to gap__reply_functions while the reader is at it. */
static bool understand_slice(struct server *s, const char *bytes, size_t count) {
  void *reply = NULL;
  redisReader *reader = s->reader;
  if (redisReaderFeed(reader, bytes, count) != REDIS_OK) return false;
  do reply = NULL;
  while (redisReaderGetReply(reader, &reply) == REDIS_OK && reply && !s->doomed);
  return !reader->err && reader->len - reader->pos <= REPLY_MOST + SLICE;
}

/* In slices, since the reader moves all that is behind an answer to the front of its buffer. */
static bool understand(struct server *s, size_t bytes) {
  bool sense = true;
  for (size_t at = 0; at < bytes && sense && !s->doomed; at += SLICE)
    sense = understand_slice(s, s->store->buffer + at, bytes - at < SLICE ? bytes - at : SLICE);
  return sense;
}

static void read_in(struct server *s) {
  s->more = false;
  for (int i = 0; i < READS; i++) {
    ssize_t bytes = gap__wire_read(&s->wire, s->store->buffer, READ_BYTES);
    if (bytes < 0) gap__server_fail(s, CAUSE_BROKEN, s->wire.reason);
    if (bytes <= 0) return;
    bool sense = understand(s, (size_t)bytes);
    if (s->doomed) gap__server_fail(s, s->doom, s->reason);
    else if (!sense) gap__server_fail(s, CAUSE_LIE, "its answer is no answer of a Redis server, or has no end");
    if (s->state < STATE_GREETING) return;
    if (!s->wire.ssl && bytes < READ_BYTES) return;
  }
  s->more = gap__wire_pending(&s->wire);
}

/* ---- what the loop calls ---- */

short gap__server_events(const struct server *s) {
  switch (s->state) {
    case STATE_CONNECTING: return POLLOUT;
    case STATE_SHAKING: return s->wire.wanted;
    case STATE_GREETING:
    case STATE_UP: return (short)(POLLIN | (s->sent != s->tail ? POLLOUT : 0) | s->wire.wanted);
    default: return 0;
  }
}

void gap__server_handle(struct server *s, short events) {
  if (s->state == STATE_CONNECTING && events) connected(s);
  else if (s->state == STATE_SHAKING && events) shake(s);
  else if (s->state >= STATE_GREETING && (events & (POLLIN | POLLERR | POLLHUP) || s->more)) read_in(s);
}

void gap__server_flush(struct server *s) {
  pump(s);
  if (s->state >= STATE_GREETING && s->sent != s->tail) write_out(s);
}

static uint64_t patience_ends(const struct server *s) {
  if (s->state != STATE_UP) return s->deadline_ns;
  return s->head == s->tail ? UINT64_MAX : s->head_since_ns + s->store->request_ms * MS_NS;
}

uint64_t gap__server_alarm(const struct server *s) {
  if (s->more || (s->looks && has_place(s)) || (s->first && may_issue(s))) return 0;
  return s->state == STATE_DOWN ? s->retry_ns : patience_ends(s);
}

void gap__server_step(struct server *s) {
  uint64_t now = s->store->now_ns;
  if (s->state == STATE_DOWN) {
    if (now >= s->retry_ns) begin(s);
  } else if (now >= patience_ends(s)) {
    gap__server_fail(s, CAUSE_SLOW, s->state == STATE_UP ? "no answer in time" : "no connection in time");
  }
  if (s->state == STATE_RESOLVING && gap__resolve_done(s->resolve)) resolved(s);
}
