#include "tier/far.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { PATIENCE_MS = 60000, WAIT_MS = 1000, FAREWELL_MS = 2000, EMPTY_MS = 5000 };

int gap__far_open(struct gap__far *f, const char *servers) {
  gap_remote_options o = GAP_REMOTE_OPTIONS_INIT;
  if (f->remote) return 0;
  o.servers = servers;
  o.tag = "sleep 1";
  o.piece_bytes =
      GAP_REMOTE_PIECE_BYTES_MAX; /* a piece of ours is one of the store's: an empty value replaces all of it */
  if (getrandom(f->run, sizeof f->run, 0) != sizeof f->run) return GAP_ENOMETA;
  return gap_remote_open(&o, &f->remote, f->refusal, sizeof f->refusal);
}

/* What was given back a moment ago is on its way still. */
void gap__far_close(struct gap__far *f) {
  if (f->remote) (void)gap_remote_drain(f->remote, FAREWELL_MS);
  gap_remote_close(f->remote);
  free(f->unused);
  *f = (struct gap__far){.remote = NULL};
}

/* ---- names ---- */

static void write_key(const struct gap__far *f, uint32_t name, unsigned char key[GAP__FAR_KEY_BYTES]) {
  memset(key, 0, GAP__FAR_KEY_BYTES);
  memcpy(key, f->run, sizeof f->run);
  memcpy(key + sizeof f->run, &name, sizeof name);
}

/* Room for all names to be unused is made when one is taken: giving one back cannot fail. */
int gap__far_take(struct gap__far *f, uint32_t *name) {
  if (f->unused_count) {
    *name = f->unused[--f->unused_count];
    return 0;
  }
  if (f->names == f->unused_room) {
    uint32_t room = f->unused_room ? 2 * f->unused_room : 64;
    uint32_t *grown = realloc(f->unused, room * sizeof *grown);
    if (!grown) return GAP_ENOMETA;
    f->unused = grown;
    f->unused_room = room;
  }
  *name = ++f->names;
  return 0;
}

void gap__far_give(struct gap__far *f, uint32_t name) {
  unsigned char key[GAP__FAR_KEY_BYTES];
  gap_remote_item empty = {.key = key, .key_bytes = sizeof key};
  write_key(f, name, key);
  f->unused[f->unused_count++] = name;
  (void)gap_remote_put(f->remote, &empty, 1, EMPTY_MS, NULL); /* or its bytes stay there until the name serves again */
}

/* ---- data ---- */

static int begin(struct gap__far *f, struct gap__far_transfer *t) {
  return t->write ? gap_remote_put(f->remote, &t->item, 1, PATIENCE_MS, &t->ticket)
                  : gap_remote_get(f->remote, &t->item, 1, PATIENCE_MS, &t->ticket);
}

void gap__far_begin(struct gap__far *f, unsigned transfer, bool write, void *memory, uint64_t bytes, uint32_t name) {
  struct gap__far_transfer *t = &f->transfers[transfer];
  write_key(f, name, t->key);
  t->item = (gap_remote_item){.key = t->key, .key_bytes = sizeof t->key, .value = memory, .bytes = bytes};
  t->bytes = bytes;
  t->write = write;
  t->rc = begin(f, t);
  if (t->rc == GAP_EAGAIN) { /* the store's queue is full of what was given back */
    (void)gap_remote_drain(f->remote, PATIENCE_MS);
    t->rc = begin(f, t);
  }
  if (t->rc) t->ticket = 0;
}

static int refuse(struct gap__far *f, const struct gap__far_transfer *t) {
  static const char *const why[] = {[GAP_REMOTE_MISS] = "no server has them any more",
                                    [GAP_REMOTE_FAILED] = "no server took them",
                                    [GAP_REMOTE_LATE] = "no server answered in time",
                                    [GAP_REMOTE_CANCELLED] = "the store was closed"};
  int outcome = t->item.outcome;
  const char *words = outcome > GAP_REMOTE_DONE && outcome <= GAP_REMOTE_CANCELLED ? why[outcome] : "they are others";
  snprintf(f->refusal, sizeof f->refusal, "%llu bytes on servers: %s", (unsigned long long)t->bytes,
           t->rc ? gap_strerror(t->rc) : words);
  return GAP_EIO;
}

int gap__far_wait(struct gap__far *f, unsigned transfer) {
  struct gap__far_transfer *t = &f->transfers[transfer];
  int failed = t->rc;
  if (t->ticket)
    while (gap_remote_wait(f->remote, t->ticket, WAIT_MS) == GAP_EAGAIN) continue;
  bool done = !t->ticket || (t->item.outcome == GAP_REMOTE_DONE && t->item.bytes == t->bytes);
  t->ticket = 0;
  int rc = failed || !done ? refuse(f, t) : 0;
  t->rc = 0;
  return rc;
}
