/* What a heap of the C interface knows beyond the core's: how its devices are opened, its configuration by source, the
 * program's callback. */
#ifndef GAP_CLIENT_H
#define GAP_CLIENT_H

#include "base/lock.h"
#include "core/heap.h"

struct gap__client {
  gap_heap *heap; /* set before a device is opened */
  gap_heap_options options;
  struct gap__lock lock; /* the first rank of all: guards what follows */
  struct gap__conf_set *conf;
  struct gap__trace *trace; /* NULL: none; set while the heap is made */
  struct gap__ring *ring;   /* the same */
  struct gap__tier *tier;   /* the same */
  gap_oom_fn oom;
  void *oom_arg;
};

static inline struct gap__client *gap__client_of(gap_heap *heap) {
  return (struct gap__client *)gap__heap_client(heap);
}

/* backend.c: `options` have been checked. */
int gap__backend_count(const gap_heap_options *, int *out);
int gap__backend_open(void *client, int ordinal, struct gap__dev **out); /* a gap__open_fn */
int gap__backend_current_device(gap_heap *);

/* conf.c: the environment and options.conf, with every message in the log. */
int gap__client_conf_begin(struct gap__client *);

/* stats.c: each figure by its name, until fn returns something else than 0, which is returned. */
int gap__stats_tell(const struct gap__stats *, gap_stat_fn fn, void *arg);

/* Copies a text out as the header promises, and frees it. */
struct gap__text;
int gap__text_out(struct gap__text *, int rc, char *text, size_t bytes, size_t *needed);

#endif
