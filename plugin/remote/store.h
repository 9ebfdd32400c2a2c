/* What the plug-in consists of.
 *
 *     callers   begin tickets, wait for them                                  (ticket.c)
 *     I/O thread   takes tickets, turns each item into legs, one a server     (loop.c, job.c)
 *     server    one connection: a queue of legs, a ring of requests           (server.c, greet.c, reply.c)
 *
 * What is marked L is guarded by store.lock, what is marked I belongs to the I/O thread alone; the rest is set before that starts.  The I/O thread
 * never holds the lock while it does I/O, calls the log, or touches a value. */
#ifndef GAP_REMOTE_STORE_H
#define GAP_REMOTE_STORE_H

#include <hiredis/read.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/map.h"
#include "piece.h"
#include "remote/plugin.h"
#include "resolve.h"
#include "url.h"
#include "wire.h"

enum {
  RING = 256,           /* requests that one connection carries at once; a power of two */
  RING_SPARE = 16,      /* of them are kept for looks */
  LOAD_MOST = 8 << 20,  /* bytes of values on one connection, sent or expected */
  PAUSE_FIRST_MS = 100, /* between two tries of a server */
  PAUSE_MOST_MS = 10000,
  REPLY_MOST = GAP_REMOTE_PIECE_BYTES_MAX + GAP__PIECE_HEADER_BYTES + 64, /* no honest one is longer */
  LOOK_PINGS = 5,
  SHELF = 64,        /* buffers kept */
  SHELF_LEAST = 8192 /* below it libc does well */
};

enum kind { KIND_PUT, KIND_GET, KIND_CONTAINS };

/* ---- work ---- */

/* An item on a server. */
struct leg {
  struct job *job;
  struct server *server;
  struct leg *prev, *next; /* in the server's queue */
  bool queued, over;
  bool first_asked;   /* get: piece 0 */
  int64_t next_piece; /* to be asked for or sent; put: -1 when all are.  Pieces go from the last to the first */
  uint32_t unanswered;
  uint64_t chain;          /* up to the piece before */
  struct gap__piece first; /* put: what all headers have in common; get: of piece 0 */
};

/* An item. */
struct job {
  struct ticket *ticket;
  gap_remote_item *item;
  struct leg *legs; /* put: one a replica; else one, which moves from server to server */
  uint64_t key;     /* digest */
  uint16_t order[GAP_REMOTE_REPLICAS_MAX];
  uint8_t tried, legs_open;
  bool stored, over;
};

struct ticket {
  gap_remote *store;
  gap_remote_ticket id;
  enum kind kind;
  uint32_t count, left; /* left: I */
  uint64_t bytes, deadline_ns;
  gap_remote_item *items;
  struct job *jobs;
  struct leg *legs;
  void *copies;               /* of a put that nobody waits for: its items, keys and values */
  bool done;                  /* L; from then on the I/O thread does not know it */
  bool cancelled;             /* L */
  struct ticket *prev, *next; /* L in the inbox, then I */
};

/* Somebody wants to know how a server is. */
struct look {
  struct look *next;
  gap_remote_server *out;
  uint32_t server, pings;
  uint64_t asked_ns, best_ns;
  bool done;      /* L */
  bool abandoned; /* L: nobody waits any more, the I/O thread frees it */
  gap_remote_server found;
};

/* ---- servers ---- */

enum state { STATE_DOWN, STATE_RESOLVING, STATE_CONNECTING, STATE_SHAKING, STATE_GREETING, STATE_UP };
enum request {
  REQUEST_AUTH,
  REQUEST_SELECT,
  REQUEST_HELLO,
  REQUEST_SET,
  REQUEST_GET,
  REQUEST_EXISTS,
  REQUEST_PING,
  REQUEST_INFO
};

struct flight {
  enum request request;
  uint32_t piece;
  struct leg *leg;   /* NULL: nobody wants the answer any more, or it is the connection's own */
  struct look *look; /* of PING and INFO */
  char *command;     /* NULL: all of it is sent */
  size_t length, sent;
  uint32_t weight;
};

enum cause { CAUSE_REFUSED, CAUSE_BROKEN, CAUSE_SLOW, CAUSE_LIE };

/* All I.  head <= sent <= tail: unanswered, then unsent. */
struct server {
  struct gap_remote *store;
  struct gap__remote_url url;
  char name[GAP__REMOTE_NAME_BYTES];
  enum state state;
  bool failed; /* the last try failed: requests do not wait for the next one */
  bool more;   /* to be read at once */
  bool doomed; /* by an answer; ends when the reader has returned */
  enum cause doom;
  char reason[160]; /* why it is down */
  struct gap__wire wire;
  struct gap__resolve *resolve;
  const struct addrinfo *address;
  redisReader *reader;
  struct flight flights[RING];
  uint32_t head, sent, tail;
  uint64_t head_since_ns; /* the answer to the oldest request is waited for */
  uint64_t load;
  struct leg *first, *last; /* the queue */
  struct look *looks;       /* not begun */
  uint64_t retry_ns, pause_ms, deadline_ns, up_since_ns;
  uint64_t full_until_ns, full_pause_ms;
};

/* Buffers of one size for pieces on their way out: memory that libc would give back to the system and take again, page by page, for each. */
struct shelf {
  size_t bytes; /* of each */
  uint32_t count;
  void *buffers[SHELF];
};

struct gap_remote {
  pid_t process;
  gap__remote_log *log;
  uint64_t tag;
  uint32_t connect_ms, request_ms, replicas, piece_bytes, queue_items;
  uint64_t queue_bytes, ttl_ms;
  struct ssl_ctx_st *tls;
  int wake; /* eventfd */
  pthread_t thread;

  pthread_mutex_t lock;
  pthread_cond_t changed;              /* a ticket or a look is done */
  struct gap__map tickets;             /* L: number -> struct ticket */
  uint64_t last_ticket;                /* L */
  struct ticket *inbox, *inbox_last;   /* L */
  struct look *looks;                  /* L: new ones */
  bool closing, cancels;               /* L */
  bool asleep;                         /* L: the I/O thread waits, or is about to, and has to be woken */
  uint64_t under_way, under_way_bytes; /* L */

  gap_remote_stats stats;                  /* by COUNT */
  struct ticket *live;                     /* I */
  uint64_t now_ns, next_deadline_ns, dice; /* I */
  char *buffer;                            /* I: what is read goes through it */
  struct shelf shelf;                      /* I */
  uint32_t count;
  uint64_t digests[GAP_REMOTE_SERVERS_MAX];
  struct server servers[]; /* of count */
};

#define COUNT(store, counter, n) __atomic_fetch_add(&(store)->stats.counter, (n), __ATOMIC_RELAXED)
#define MS_NS 1000000ull

uint64_t gap__remote_now_ns(void);

/* ticket.c: for callers, and what the I/O thread gives back to them */
int gap__ticket_put(gap_remote *, gap_remote_item *, uint32_t count, uint32_t timeout_ms, gap_remote_ticket *);
int gap__ticket_get(gap_remote *, gap_remote_item *, uint32_t count, uint32_t timeout_ms, gap_remote_ticket *);
int gap__ticket_contains(gap_remote *, gap_remote_item *, uint32_t count, uint32_t timeout_ms, gap_remote_ticket *);
int gap__ticket_poll(gap_remote *, gap_remote_ticket);
int gap__ticket_wait(gap_remote *, gap_remote_ticket, uint32_t timeout_ms);
int gap__ticket_cancel(gap_remote *, gap_remote_ticket);
int gap__ticket_drain(gap_remote *, uint32_t timeout_ms);
void gap__ticket_done(gap_remote *, struct ticket *);
void gap__ticket_free(struct ticket *);
/* The lock is held on entry, and released: what was left for the I/O thread is there. */
void gap__remote_wake(gap_remote *);
/* Until `changed`, or the time: false.  The lock is held. */
bool gap__remote_sleep(gap_remote *, uint64_t until_ns);

/* job.c: what becomes of an item */
void gap__job_start(struct job *);
/* Its legs end without a word to their servers. */
void gap__job_abandon(struct job *, gap_remote_outcome);
/* The leg's next request goes into the ring; false when it has none for now. */
bool gap__leg_wants(const struct leg *);
/* False: it was the end of the leg, which may be gone. */
bool gap__leg_issue(struct leg *);
void gap__leg_end(struct leg *, bool good);

char *gap__shelf_take(struct shelf *, size_t bytes);
void gap__shelf_give(struct shelf *, void *buffer, size_t bytes); /* of gap__shelf_take; NULL is fine */

/* reply.c: what the servers say */
extern redisReplyObjectFunctions gap__reply_functions;
void gap__leg_stored(struct leg *);
void gap__leg_piece(struct leg *, uint32_t index, const uint8_t *data, size_t bytes);

/* server.c: one connection */
void gap__server_step(struct server *);          /* what time demands */
short gap__server_events(const struct server *); /* for poll */
void gap__server_handle(struct server *, short events);
void gap__server_flush(struct server *);           /* requests of its queue go out */
uint64_t gap__server_alarm(const struct server *); /* when it wants to be stepped, at the latest */
bool gap__server_usable(const struct server *);
void gap__server_fail(struct server *, enum cause, const char *reason);
void gap__server_enqueue(struct server *, struct leg *);
void gap__server_forget(struct server *, struct leg *);
/* Takes the command over.  There is room: pump sees to it. */
void gap__server_push(struct server *, struct flight);
void gap__server_up(struct server *);

/* greet.c: user, password, database */
void gap__greet(struct server *);
void gap__greet_reply(struct server *, enum request, int type, const char *text, size_t length);
/* A command in the protocol; malloc'ed; NULL: no memory. */
char *gap__command(int count, const char *const *words, const size_t *lengths, size_t *length);
/* In words what an error of a server is; never its own words, which may repeat what it was sent. */
const char *gap__reply_words(const char *text, size_t length);

/* look.c: how a server is */
int gap__look(gap_remote *, uint32_t index, uint32_t timeout_ms, gap_remote_server *out);
void gap__look_begin(struct server *, struct look *); /* the server is up, the ring has room */
void gap__look_reply(struct server *, struct look *, enum request, int type, const char *text, size_t length);
void gap__look_end(struct server *, struct look *);

/* loop.c */
void *gap__remote_loop(void *store);

#endif
