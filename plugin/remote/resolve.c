#include "resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/worker.h"

/* Of who asks and of the thread: the last one frees it. */
struct gap__resolve {
  atomic_int holders;
  atomic_bool done;
  int wake; /* a descriptor of its own: the store may be gone when the answer comes */
  int error;
  struct addrinfo *list;
  char host[256], port[8];
};

static void let_go(struct gap__resolve *r) {
  if (atomic_fetch_sub(&r->holders, 1) > 1) return;
  if (r->list) freeaddrinfo(r->list);
  close(r->wake);
  free(r);
}

static int ask(struct gap__resolve *r, int flags) {
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
  return getaddrinfo(r->host, r->port, &hints, &r->list);
}

static void *work(void *arg) {
  struct gap__resolve *r = arg;
  const uint64_t one = 1;
  r->error = ask(r, AI_ADDRCONFIG);
  atomic_store(&r->done, true);
  while (write(r->wake, &one, sizeof one) < 0 && errno == EINTR) continue; /* full: it is awake */
  let_go(r);
  return NULL;
}

static bool start(struct gap__resolve *r) {
  pthread_t thread;
  r->error = ask(r, AI_NUMERICHOST);
  if (r->error == 0) return atomic_store(&r->done, true), true; /* an address needs no resolver */
  atomic_store(&r->holders, 2);
  if (!gap__worker_start(&thread, work, r)) return atomic_store(&r->holders, 1), false;
  pthread_detach(thread);
  return true;
}

struct gap__resolve *gap__resolve_begin(const char *host, uint16_t port, int wake) {
  struct gap__resolve *r = calloc(1, sizeof *r);
  if (!r) return NULL;
  r->wake = fcntl(wake, F_DUPFD_CLOEXEC, 3);
  snprintf(r->host, sizeof r->host, "%s", host);
  snprintf(r->port, sizeof r->port, "%u", port);
  atomic_store(&r->holders, 1);
  if (r->wake >= 0 && start(r)) return r;
  let_go(r);
  return NULL;
}

bool gap__resolve_done(const struct gap__resolve *r) { return atomic_load(&r->done); }

const struct addrinfo *gap__resolve_list(const struct gap__resolve *r, const char **reason) {
  if (r->error) *reason = gai_strerror(r->error);
  return r->error ? NULL : r->list;
}

void gap__resolve_end(struct gap__resolve *r) {
  if (r) let_go(r);
}
