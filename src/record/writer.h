/* Writes gapless's own trace (format.h), record by record, a parcel at a time into a sink.
 *
 * Not thread-safe: the owner locks.  Nothing is allocated.  After the sink has failed nothing more is written, and every call
 * answers with its error. */
#ifndef GAP_RECORD_WRITER_H
#define GAP_RECORD_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gapless/gapless.h"
#include "record/format.h"

/* Takes whole parcels.  0, or an error that ends the writing. */
typedef int gap__record_sink(void *arg, const void *bytes, size_t count);

struct gap__record_header {
  uint64_t tick_ns;     /* one tick of the time, 1 or more */
  uint64_t origin_us;   /* tick 0, since 1970; 0 not known */
  uint64_t process;     /* its number; 0 not known */
  const char *program;  /* its name, "" not known */
  const char *version;  /* of gapless */
  const char *settings; /* the configuration in force, in the grammar of PYTORCH_CUDA_ALLOC_CONF */
  bool by_gapless;      /* the events are those of the strategy gapless: no policy of PyTorch's made them */
};

struct gap__record_event {
  enum gap__record_kind kind;
  uint32_t device;
  uint64_t addr, bytes, requested; /* requested: of a block, before rounding; else as bytes */
  uint64_t stream;
  gap_pool_id pool;
  int64_t tick; /* since the origin */
  uint32_t stack;
};

struct gap__record_segment {
  enum gap__segment_kind kind;
  bool is_large;
  uint64_t addr, bytes, stream;
  gap_pool_id pool;
  bool has_sums; /* what the file says differs from what the blocks add up to */
  uint64_t allocated, active, requested;
};

struct gap__record_block {
  uint8_t state; /* 0 idle, 1 live, 2 pending */
  uint64_t addr, bytes, requested;
  uint32_t stack;
};

struct gap__record_frame {
  uint32_t name, filename; /* texts */
  int32_t line;
};

struct gap__record_settings { /* of PyTorch's allocator, and what is known of the card as a whole */
  bool expandable_segments;
  int64_t max_split_size; /* -1 unlimited */
  double garbage_collection_threshold;
  uint64_t roundup_power2_divisions[16];
  double memory_fraction; /* 0 not known */
  uint64_t total_bytes;
  bool present;   /* of the five above, the first four are known */
  bool has_stats; /* and these: */
  uint64_t reserved_peak, reserved_current, alloc_retries, ooms;
};

struct gap__record_writer {
  gap__record_sink *sink;
  void *arg;
  int failed;        /* the sink's error */
  uint64_t sequence; /* of the next parcel */
  uint64_t events;
  size_t used; /* of `payload`; 0: the parcel has not begun */
  int64_t tick;
  /* what the next record is told against */
  uint64_t addr, stream, expected;
  gap_pool_id pool;
  uint32_t device;
  unsigned char head[GAP__RECORD_HEAD_BYTES]; /* lies before the payload: both go out at once */
  unsigned char payload[GAP__RECORD_PARCEL_BYTES];
};

/* The magic and the header.  Every function returns 0 or what the sink has said. */
int gap__record_begin(struct gap__record_writer *, gap__record_sink *, void *arg, const struct gap__record_header *);
int gap__record_event(struct gap__record_writer *, const struct gap__record_event *);

/* Texts, frames and stacks are numbered from 1 in the order of these calls; the caller counts. */
int gap__record_text(struct gap__record_writer *, const char *text);
int gap__record_frame(struct gap__record_writer *, const struct gap__record_frame *);
int gap__record_stack(struct gap__record_writer *, const uint32_t *frames, uint32_t count); /* innermost first */
int gap__record_annotation(struct gap__record_writer *, uint32_t name, uint32_t device, int64_t tick, bool is_start);
int gap__record_settings(struct gap__record_writer *, const struct gap__record_settings *);
int gap__record_lost(struct gap__record_writer *, uint64_t events);

/* The state of a device: its segments in any order, each followed by its blocks in order of address.  States of several heaps that
 * were taken together have the same number; a later state has a higher one and stands for all before it.  `refusal` says in words why the
 * last request failed, "" none did. */
int gap__record_state(struct gap__record_writer *, uint64_t number, uint32_t device);
int gap__record_segment(struct gap__record_writer *, const struct gap__record_segment *);
int gap__record_block(struct gap__record_writer *, const struct gap__record_block *);
int gap__record_state_end(struct gap__record_writer *, const struct gap__record_facts *, const char *refusal);

int gap__record_flush(struct gap__record_writer *); /* the parcel that is being filled goes out as it is */
/* The end, by which a reader knows that nothing is missing. */
int gap__record_end(struct gap__record_writer *);

#endif
