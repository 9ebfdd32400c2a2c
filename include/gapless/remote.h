/* gapless: named values on Redis or Valkey servers, shared between processes and machines.  This header is its manual;
 * the rules of gapless.h apply.  Since 0.1.
 *
 *     gap_remote_options o = GAP_REMOTE_OPTIONS_INIT;
 *     o.servers = "rediss://cache-1.example,cache-2.example:6380", o.tag = "llama-3.1-8b/bf16/16";
 *     gap_remote_open(&o, &remote, message, sizeof message);
 *     gap_remote_contains(remote, items, count, 20, &ticket);     which of them are there; none of these calls blocks
 *     gap_remote_wait(remote, ticket, 20);                        but this one, and drain, look and close
 *     prefix = gap_remote_prefix(items, count);
 *     gap_remote_get(remote, items, prefix, 200, &ticket);
 *     ... gap_remote_poll(remote, ticket) == GAP_EAGAIN ...
 *
 * It is a cache: what is not there, or not whole, or not there in time, is a *miss*, whatever the reason, and a counter
 * says which reason.  Nothing that a server does or says is an error of a call.
 *
 * Words.  An *item* is a key, a value and what became of it.  A *ticket* is a batch of items under way: the items,
 * their keys and values belong to the store from the call until gap_remote_wait or gap_remote_poll has said 0 for the
 * ticket, which is then no more.  A value travels in *pieces* of `piece_bytes`, each with a header of its own and
 * checksums; piece 0 is written when the others are there.
 *
 * Servers.  Each key has an order of the servers (rendezvous hashing), the same for all who name the same servers, in
 * whatever order.  A value is written to the first `replicas` of it and read from the first of these that is up and has
 * it.  One that is dead, slow or says what makes no sense is left alone for growing pauses, from a tenth of a second to
 * ten seconds; one that is full is not written to meanwhile.
 *
 * Passwords come from the URL, from GAPLESS_REMOTE_PASSWORD or from a file, in this order; they are in no message.
 *
 * Threads.  Any thread may call anything but gap_remote_close at any time.  The store has one thread of its own, and a
 * short-lived one while a host name is being resolved.  In a child after fork() every call gives GAP_EFORKED;
 * gap_remote_close does nothing.  Errors.  Besides those named: GAP_EINVAL for NULL, a `size` that is unknown, or a
 * number out of range; GAP_ENOMETA; GAP_EFORKED. */
#ifndef GAPLESS_REMOTE_H
#define GAPLESS_REMOTE_H

#include "gapless/gapless.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gap_remote gap_remote;
typedef uint64_t gap_remote_ticket; /* 0 is none */

enum {
  GAP_REMOTE_KEY_BYTES_MAX = 64,
  GAP_REMOTE_TAG_BYTES_MAX = 256,
  GAP_REMOTE_SERVERS_MAX = 64,
  GAP_REMOTE_REPLICAS_MAX = 4,
  GAP_REMOTE_BATCH_MAX = 65536,
  GAP_REMOTE_PIECE_BYTES_MIN = 4096,
  GAP_REMOTE_PIECE_BYTES_MAX = 4194304
};
#define GAP_REMOTE_VALUE_BYTES_MAX ((uint64_t)64 << 30)
enum { GAP_REMOTE_NO_ENVIRONMENT = 1 }; /* do not look at GAPLESS_REMOTE_PASSWORD */

typedef struct gap_remote_options {
  size_t size; /* sizeof(gap_remote_options) */
  /* redis://[user[:password]@]host[:port][/number of the database] or rediss:// (TLS), separated by commas; from the
   * second on the part up to "//" may be left out and is then that of the one before.  What is special in a user or
   * password is written %XX; an IPv6 address stands in brackets. */
  const char *servers;
  /* whose values these are: version of the model, its shape, ...; others do not see them.  NULL: "" */
  const char *tag;
  /* its first line; the file is a regular one of this user's (or root's) that nobody else may read.  NULL: none */
  const char *password_file;
  const char *ca_file;                     /* PEM, whom to trust; NULL: those of the system */
  const char *certificate_file, *key_file; /* PEM, who we are; NULL: nobody */
  unsigned flags;                          /* GAP_REMOTE_... */
  uint32_t connect_ms;                     /* most for a connection with TLS and password, 1 to 60,000 */
  /* most for an answer while the server has nothing else to do for us, 1 to 60,000 */
  uint32_t request_ms;
  uint32_t replicas; /* 1 to GAP_REMOTE_REPLICAS_MAX */
  /* GAP_REMOTE_PIECE_BYTES_MIN to _MAX; 128 below a power of two costs a server the least memory */
  uint32_t piece_bytes;
  uint32_t queue_items; /* most under way, 1 to 2^20 */
  uint64_t queue_bytes; /* most of values to be put that are under way */
  /* after which a server drops a value, counted from its being put; 0: never */
  uint64_t ttl_ms;
} gap_remote_options;
#define GAP_REMOTE_OPTIONS_INIT \
  { \
    sizeof(gap_remote_options), NULL, NULL, NULL, NULL, NULL, NULL, 0, 1000, 500, 1, 524160, 65536, \
        (uint64_t)256 << 20, 0 \
  }

/* Opens the store and begins to connect; whether a server is there shows later.  `message` (may be NULL) gets a line
 * for people.  GAP_ENOTSUP: the plug-in libgapless-remote.so is not there, or of another version; GAP_EVALUE: a URL;
 * GAP_EIO: a file of the options cannot be used; GAP_ENOMETA: no memory, no thread, no descriptors. */
GAP_API int gap_remote_open(const gap_remote_options *options, gap_remote **out, char *message, size_t bytes);
/* Ends it; what is under way is cancelled (gap_remote_drain waits for it).  Blocks for a moment.  NULL is fine.  No
 * other call may be under way. */
GAP_API void gap_remote_close(gap_remote *remote);

typedef enum gap_remote_outcome {
  GAP_REMOTE_PENDING,
  GAP_REMOTE_DONE,     /* stored on one server at least; read whole; there */
  GAP_REMOTE_MISS,     /* get, contains: not to be had */
  GAP_REMOTE_FAILED,   /* put: no server took it */
  GAP_REMOTE_LATE,     /* not in time */
  GAP_REMOTE_CANCELLED /* by gap_remote_cancel or gap_remote_close */
} gap_remote_outcome;

typedef struct gap_remote_item {
  const void *key;
  uint32_t key_bytes; /* 1 to GAP_REMOTE_KEY_BYTES_MAX, any */
  int outcome;        /* gap_remote_outcome; valid when the ticket is done */
  void *value;        /* put: is read; get: is written, and holds anything after a miss; contains: not used */
  /* put: of the value, up to GAP_REMOTE_VALUE_BYTES_MAX; get: room, then the length.  A value that is larger than the
   * room is a miss */
  uint64_t bytes;
} gap_remote_item;

/* Each begins with `count` items, 1 to GAP_REMOTE_BATCH_MAX, and never blocks: after `timeout_ms` (1 to 3,600,000) what
 * is not done is LATE.  gap_remote_put with ticket NULL copies keys and values first, and nobody waits for it.
 * GAP_EAGAIN: more than the queue's limits would be under way; nothing has happened but for a counter. */
GAP_API int gap_remote_put(gap_remote *remote, gap_remote_item *items, uint32_t count, uint32_t timeout_ms,
                           gap_remote_ticket *ticket);
GAP_API int gap_remote_get(gap_remote *remote, gap_remote_item *items, uint32_t count, uint32_t timeout_ms,
                           gap_remote_ticket *ticket);
GAP_API int gap_remote_contains(gap_remote *remote, gap_remote_item *items, uint32_t count, uint32_t timeout_ms,
                                gap_remote_ticket *ticket);
/* How many items in a row, from the first, are DONE. */
GAP_API uint32_t gap_remote_prefix(const gap_remote_item *items, uint32_t count);

/* 0: the ticket is done and no more; GAP_EAGAIN: not yet.  GAP_EINVAL: there is no such ticket. */
GAP_API int gap_remote_poll(gap_remote *remote, gap_remote_ticket ticket);
GAP_API int gap_remote_wait(gap_remote *remote, gap_remote_ticket ticket, uint32_t timeout_ms);
/* What is not done will not be; the ticket is done in a moment, and must be waited for as ever.  GAP_EINVAL: there is
 * no such ticket. */
GAP_API int gap_remote_cancel(gap_remote *remote, gap_remote_ticket ticket);
/* Waits until nothing is under way.  GAP_EAGAIN: something still is. */
GAP_API int gap_remote_drain(gap_remote *remote, uint32_t timeout_ms);

/* Counters since the store was opened, of items unless they say otherwise. */
#define GAP_REMOTE_STATS(X) \
  X(puts) /* taken on */ \
  X(puts_done) \
  X(puts_dropped) /* no room in the queue */ \
  X(gets) \
  X(hits) \
  X(misses)       /* get, contains */ \
  X(gets_dropped) /* get, contains: no room in the queue */ \
  X(asked)        /* contains */ \
  X(found) \
  X(late) \
  X(cancelled) \
  X(unreachable)  /* a server that is down was passed over, for an item */ \
  X(absent)       /* a server does not have it */ \
  X(refused_full) /* a server had no room, or was passed over because it had none a moment ago */ \
  X(refused)      /* a server answered with another error */ \
  X(corrupt)      /* a checksum, a header, a length does not fit */ \
  X(too_large)    /* the value is larger than the room for it */ \
  X(broken)       /* a connection broke off, with this item on it */ \
  X(bytes_put)    /* of values, once a replica */ \
  X(bytes_got) \
  X(connections)     /* made */ \
  X(failures)        /* of connections: refused, broken, slow, lying */ \
  X(slow)            /* of them: no answer in time */ \
  X(lies)            /* of them: an answer that makes no sense */ \
  X(under_way)       /* now */ \
  X(under_way_bytes) /* now, of values to be put */

typedef struct gap_remote_stats {
  size_t size; /* sizeof(gap_remote_stats) */
#define X(name) uint64_t name;
  GAP_REMOTE_STATS(X)
#undef X
} gap_remote_stats;
GAP_API int gap_remote_get_stats(gap_remote *remote, gap_remote_stats *out);

/* A server as it is now. */
typedef struct gap_remote_server {
  size_t size;                      /* sizeof(gap_remote_server) */
  char name[280];                   /* "redis://host:port/0", without user and password */
  int up;                           /* connected, and it has answered; what follows but `reason` holds then only */
  char reason[160];                 /* why not, in words */
  char version[32];                 /* "Redis 7.0.15" */
  char policy[32];                  /* what it does when it is full: "allkeys-lru"; "" where it does not say */
  uint64_t used_bytes, limit_bytes; /* limit 0: none */
  uint64_t evicted, expired;        /* keys, since it was started */
  uint64_t round_trip_ns;           /* the quickest of a few */
} gap_remote_server;
GAP_API int gap_remote_server_count(gap_remote *remote, uint32_t *out);
/* Asks server 0 .. count - 1, in the order of the options, and waits for up to `timeout_ms`. */
GAP_API int gap_remote_look(gap_remote *remote, uint32_t index, uint32_t timeout_ms, gap_remote_server *out);

#ifdef __cplusplus
}
#endif

#endif
