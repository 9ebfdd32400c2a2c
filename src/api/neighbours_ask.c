/* Asking the neighbours on a card: see neighbours.h. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "api/client.h"
#include "api/door.h"
#include "api/neighbours.h"
#include "api/talk.h"

enum {
  ANSWER_MS = 1000,    /* an answer takes 100 ms where the process runs, longer on a busy machine */
  NEIGHBOURS_MAX = 64, /* asked by one request */
  DOUBTS_MAX = 32,
  DOUBT_MS = 1000,
  DOUBT_MS_MOST = 16000,
  BANK_MS = 15000, /* of waiting at once */
  BANK_SHARE = 4,  /* and this part of the time later */
  PAUSE_MS = 250,
  PAUSE_MS_LEAST = 20,
  SLACK_MS = 1000 /* by which a promise may move before it is none */
};

/* ---- what is remembered between requests ---- */

struct doubt { /* of a neighbour that did not answer */
  uint64_t who;
  int64_t until_ms; /* it is left out so long */
  int64_t pause_ms; /* the next time */
};

static struct {
  struct gap__lock lock; /* a last rank; guards: */
  struct doubt doubts[DOUBTS_MAX];
  int64_t spent_ms, spent_at_ms; /* the bank: waiting, less what has been forgiven since */
} memory;

void gap__neighbours_forget_locks(void) { memory.lock = (struct gap__lock){0}; }

static uint64_t hash_of(const char *name) {
  uint64_t hash = 14695981039346656037u;
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 1099511628211u;
  return hash;
}

/* The doubt of a neighbour; else the one that ends first. */
static struct doubt *doubt_of(uint64_t who) {
  struct doubt *found = memory.doubts;
  for (struct doubt *d = memory.doubts; d < memory.doubts + DOUBTS_MAX; d++) {
    if (d->who == who) return d;
    if (d->until_ms < found->until_ms) found = d;
  }
  return found;
}

static bool is_doubted(uint64_t who) {
  gap__lock(&memory.lock);
  const struct doubt *d = doubt_of(who);
  bool doubted = d->who == who && gap__door_now_ms() < d->until_ms;
  gap__unlock(&memory.lock);
  return doubted;
}

static void doubt(uint64_t who) {
  gap__lock(&memory.lock);
  struct doubt *d = doubt_of(who);
  int64_t pause = d->who == who ? d->pause_ms : DOUBT_MS;
  *d = (struct doubt){who, gap__door_now_ms() + pause, pause < DOUBT_MS_MOST ? 2 * pause : pause};
  gap__unlock(&memory.lock);
}

static void trust(uint64_t who) {
  gap__lock(&memory.lock);
  struct doubt *d = doubt_of(who);
  if (d->who == who) *d = (struct doubt){0};
  gap__unlock(&memory.lock);
}

/* What may still be spent with waiting. */
static int64_t bank_ms(int64_t now_ms) {
  gap__lock(&memory.lock);
  int64_t forgiven = (now_ms - memory.spent_at_ms) / BANK_SHARE;
  if (forgiven > 0) {
    memory.spent_ms = memory.spent_ms > forgiven ? memory.spent_ms - forgiven : 0;
    memory.spent_at_ms = now_ms;
  }
  int64_t left = BANK_MS - memory.spent_ms;
  gap__unlock(&memory.lock);
  return left;
}

static void spend(int64_t ms) {
  gap__lock(&memory.lock);
  memory.spent_ms += ms;
  gap__unlock(&memory.lock);
}

/* ---- one neighbour ---- */

struct round {
  gap_heap *heap;
  int device;
  struct gap__neighbour_self self;
  uint64_t bytes, before; /* needed; within reach at first */
  uint64_t in_ms;         /* the soonest that one of them gives more */
  struct gap__asked *asked;
};

enum reply { REPLIED, SILENT, GONE };

/* What the driver has free and what this heap has taken of it: other threads of ours may take what comes at once. */
static uint64_t within_reach(const struct round *r) {
  uint64_t free_bytes = 0, total_bytes;
  int rc = gap__dev_mem_info(r->self.dev, &free_bytes, &total_bytes);
  return rc ? 0 : free_bytes + gap__heap_held(r->heap, r->device);
}

static uint64_t gained(const struct round *r) {
  uint64_t now = within_reach(r);
  return now > r->before ? now - r->before : 0;
}

static bool wait_for_answer(int fd) {
  int64_t until = gap__door_now_ms() + ANSWER_MS, left = ANSWER_MS;
  struct pollfd other = {.fd = fd, .events = POLLIN};
  int ready;
  while ((ready = poll(&other, 1, (int)left)) < 0 && errno == EINTR) {
    left = until - gap__door_now_ms();
    if (left <= 0) return false;
  }
  return ready > 0;
}

/* Who hangs up gives nothing. */
static enum reply talk(const struct round *r, int fd, uint64_t bytes, struct gap__given *given) {
  char text[GAP__TALK_MOST + 1];
  size_t length = gap__talk_write_request(text, r->self.uuid, bytes);
  if (!gap__door_knows(fd)) return GONE;
  if (send(fd, text, length, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)length) return SILENT;
  if (!wait_for_answer(fd)) return SILENT;
  ssize_t got = recv(fd, text, sizeof text, MSG_DONTWAIT);
  if (got <= 0 || !gap__talk_read_answer(text, (size_t)got, given)) *given = (struct gap__given){0};
  return REPLIED;
}

/* Where as many as can wait are waiting already the kernel says "again". */
static enum reply call(const struct round *r, int folder, const char *name, uint64_t bytes, struct gap__given *given) {
  struct sockaddr_un address;
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return SILENT;
  gap__door_address(folder, name, &address);
  bool open = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0;
  enum reply reply = open ? talk(r, fd, bytes, given) : errno == EAGAIN ? SILENT : GONE;
  close(fd);
  return reply;
}

static void note_answer(struct round *r, const struct gap__given *given) {
  r->asked->held += given->held;
  r->asked->kept += given->kept;
  if (given->kept && given->in_ms < r->in_ms) r->in_ms = given->in_ms;
}

static void ask_one(struct round *r, int folder, const char *name) {
  uint64_t who = hash_of(name), got = gained(r);
  struct gap__given given = {0};
  struct gap__asked *asked = r->asked;
  if (got >= r->bytes) return;
  asked->neighbours++;
  if (is_doubted(who)) {
    asked->silent++;
    return;
  }
  switch (call(r, folder, name, r->bytes + asked->welcome - got, &given)) {
    case REPLIED:
      trust(who);
      note_answer(r, &given);
      break;
    case SILENT:
      doubt(who);
      asked->silent++;
      asked->missed++;
      break;
    case GONE:
      asked->neighbours--;
      if (gap__door_is_deaf(folder, name, SOCK_SEQPACKET)) unlinkat(folder, name, 0);
      break;
  }
}

/* ---- all of them ---- */

static void ask_folder(struct round *r, const char *path) {
  char prefix[GAP__NEIGHBOUR_PREFIX_BYTES];
  int folder = gap__door_open_folder(path, geteuid(), false), copy = folder >= 0 ? dup(folder) : -1;
  DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
  gap__neighbours_prefix(r->self.uuid, prefix);
  for (const struct dirent *entry; list && r->asked->neighbours < NEIGHBOURS_MAX && (entry = readdir(list));)
    if (!strncmp(entry->d_name, prefix, strlen(prefix)) && strlen(entry->d_name) < GAP__DOOR_NAME_BYTES &&
        strcmp(entry->d_name, r->self.name) != 0)
      ask_one(r, folder, entry->d_name);
  if (list) closedir(list);
  else if (copy >= 0) close(copy);
  if (folder >= 0) close(folder);
}

/* Processes of different sessions may have different folders. */
static void ask_all(struct round *r) {
  char paths[GAP__DOOR_FOLDERS][GAP__DOOR_PATH_BYTES];
  gap__door_folders(geteuid(), paths);
  for (int i = 0; i < GAP__DOOR_FOLDERS; i++) {
    bool seen = false;
    for (int j = 0; j < i; j++) seen |= !strcmp(paths[i], paths[j]);
    if (paths[i][0] && !seen) ask_folder(r, paths[i]);
  }
}

/* ---- waiting ---- */

/* Enough is idle there, and the time at which it may be had comes nearer: whoever goes on using it puts that off. */
static bool is_worth_waiting(struct round *r, int64_t now_ms) {
  struct gap__asked *asked = r->asked;
  int64_t most = bank_ms(now_ms), in_ms = r->in_ms < INT32_MAX ? (int64_t)r->in_ms : INT32_MAX;
  if (asked->kept < r->bytes - asked->got || in_ms > most) return false;
  if (!asked->due_ms) asked->due_ms = now_ms + in_ms;
  return now_ms + in_ms <= asked->due_ms + SLACK_MS;
}

static void pause_a_while(uint64_t in_ms) {
  int64_t ms = in_ms > 4 * PAUSE_MS ? PAUSE_MS : (int64_t)in_ms / 4;
  if (ms < PAUSE_MS_LEAST) ms = PAUSE_MS_LEAST;
  nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

void gap__neighbours_ask(void *client, int ordinal, uint64_t bytes, struct gap__asked *asked) {
  struct round r = {.heap = ((const struct gap__client *)client)->heap,
                    .device = ordinal,
                    .bytes = bytes,
                    .in_ms = UINT64_MAX,
                    .asked = asked};
  int64_t began_ms = gap__door_now_ms();
  asked->got = asked->held = asked->kept = 0;
  asked->neighbours = asked->silent = asked->missed = 0;
  asked->hope = false;
  if (!gap__neighbours_self(r.heap, ordinal, &r.self)) return;
  r.before = within_reach(&r);
  ask_all(&r);
  asked->got = gained(&r);
  asked->hope = asked->got < bytes && is_worth_waiting(&r, gap__door_now_ms());
  if (asked->hope && !asked->got) pause_a_while(r.in_ms);
  spend(gap__door_now_ms() - began_ms);
}
