/* The table of formats: what `gapless` reads histories from and what `gapless convert` writes.  A new format is a row. */
#ifndef GAP_TRACE_FORMATS_H
#define GAP_TRACE_FORMATS_H

#include "base/text.h"
#include "trace/history.h"
#include "trace/input.h"
#include "trace/output.h"

/* What a history may hold beyond allocations and frees in their order.  A format says which of it it carries. */
enum gap__content {
  GAP__HAS_STACKS = 1,
  GAP__HAS_TIMES = 2,
  GAP__HAS_STREAMS = 4,  /* other than the default one */
  GAP__HAS_SEGMENTS = 8, /* segments, or events about them */
  GAP__HAS_POOLS = 16,   /* private ones */
  GAP__HAS_REFUSALS = 32,
  GAP__HAS_WAITS = 64,     /* blocks that other streams used on after the program let go */
  GAP__HAS_MARKS = 128,    /* of the program */
  GAP__HAS_SETTINGS = 256, /* of the allocator */
  GAP__HAS_LIMIT = 512,    /* and the recorder's statistics */
  GAP__HAS_DEVICES = 1024, /* more than one */
  GAP__HAS_EARLIER = 2048, /* blocks from before the first event */
  GAP__HAS_ADDRESSES = 4096,
  GAP__HAS_SIZES = 8192,  /* that are no multiple of 512 */
  GAP__HAS_FACTS = 16384, /* what gapless, as the allocator, told of itself and of the process */
};

struct gap__writing {
  const struct gap__history *history;
  uint32_t device; /* the one that a format without GAP__HAS_DEVICES writes */
  /* perfetto: blocks of fewer bytes are only counted, and the others' lives are drawn; 0: no such limit */
  uint64_t blocks_from;
  struct gap__output *out;
  gap__progress *progress; /* may be NULL; events written */
  void *progress_arg;
  uint64_t done, total;
};

struct gap__format {
  const char *name, *words;
  const char *endings; /* of names, each followed by a blank */
  uint32_t carries;    /* enum gap__content */
  bool tells_pools;    /* of each event; else they follow from the segments */
  /* By the first bytes; NULL: anything.  The rows are tried in their order. */
  bool (*is)(const struct gap__input *);
  int (*read)(struct gap__input *, struct gap__history **out, char **message); /* NULL: it is only written */
  int (*write)(struct gap__writing *);                                         /* NULL: it is only read */
};

const struct gap__format *gap__format_at(uint32_t index); /* NULL at the end */
const struct gap__format *gap__format_named(const char *name);
/* By the longest ending of a name, without that of a packing; NULL. */
const struct gap__format *gap__format_of_name(const char *name);
/* The row, by the first bytes; there is always one. */
uint32_t gap__format_of_input(const struct gap__input *);

/* What a history holds, of one device or (-1) all: bits of enum gap__content. */
uint32_t gap__history_contents(const struct gap__history *, int64_t device);
/* "call stacks, times": what of it a format cannot carry; nothing when it carries all. */
void gap__format_losses(const struct gap__format *, const struct gap__history *, int64_t device, struct gap__text *);

/* ---- for the writers ---- */

/* One more event is written. */
static inline void gap__writing_step(struct gap__writing *writing) {
  if ((++writing->done & 4095) == 0 && writing->progress)
    writing->progress(writing->progress_arg, writing->done, writing->total);
}

bool gap__is_json(const struct gap__input *);
bool gap__is_rmm(const struct gap__input *);
bool gap__is_ring(const struct gap__input *);
bool gap__is_minimalloc(const struct gap__input *);
int gap__ring_read(struct gap__input *, struct gap__history **out, char **message);
int gap__rmm_read(struct gap__input *, struct gap__history **out, char **message);
int gap__minimalloc_read(struct gap__input *, struct gap__history **out, char **message);
int gap__write_pickle(struct gap__writing *);
int gap__write_trace(struct gap__writing *);
int gap__write_json(struct gap__writing *);
int gap__write_rmm(struct gap__writing *);
int gap__write_minimalloc(struct gap__writing *);
int gap__write_perfetto(struct gap__writing *);

#endif
