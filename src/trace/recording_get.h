/* Between the parts of the reader of gapless's own trace: what it knows while it reads, and the numbers in a record. */
#ifndef GAP_TRACE_RECORDING_GET_H
#define GAP_TRACE_RECORDING_GET_H

#include "record/format.h"
#include "trace/history.h"
#include "trace/input.h"
#include "trace/vec.h"

enum { GAP__RECORDING_DEVICES = 1024 };

struct gap__recording_device {
  GAP__VEC(struct gap__hist_event) events;
  GAP__VEC(struct gap__hist_segment) segments; /* block_first counts from the device's first block */
  GAP__VEC(struct gap__hist_block) blocks;
  struct gap__hist_facts facts;
  uint64_t state; /* number of the last state + 1 */
  bool has_state; /* it has its end */
  uint32_t since; /* so many events were before it */
  bool is_whole;  /* it has its end, and no event came after it */
};

struct gap__recording {
  struct gap__input *input;
  char **message;
  struct gap__history *history;
  unsigned char *payload; /* room for GAP__RECORD_PARCEL_MOST bytes */
  const unsigned char *at, *end;
  bool is_wrong; /* a number is cut off, or beyond what it may be: looked at after each record */
  uint64_t parcel_at, sequence;
  uint64_t tick_ns; /* 0: no header yet */
  bool is_done;     /* the end was met */
  /* what the next record is told against */
  int64_t tick;
  uint64_t addr, stream;
  uint16_t pool;
  uint32_t device;
  struct { /* the state that is open */
    bool open, has_segment, has_sums;
    uint32_t device;
    uint64_t expected; /* address of the next block */
  } state;
  GAP__VEC(struct gap__recording_device) devices;
  GAP__VEC(struct gap__hist_pool) pools; /* [0] = (0,0) */
  GAP__VEC(char) text;                   /* [0] = the empty one */
  GAP__VEC(uint32_t) texts;              /* offsets, by number */
  GAP__VEC(struct gap__hist_frame) frames;
  GAP__VEC(struct gap__hist_stack) stacks; /* [0] unused */
  GAP__VEC(uint32_t) stack_frames;
  GAP__VEC(struct gap__hist_annotation) annotations;
};

/* Appends an item to an array of the recording, and gives its place; NULL: there is no room. */
#define GAP__RECORDING_ADD(vec) (GAP__VEC_ROOM(vec, 1) ? &(vec).at[(vec).count++] : NULL)

int gap__recording_fail(const struct gap__recording *, const char *what); /* GAP_EFORMAT, with the byte */
int gap__recording_no_room(const struct gap__recording *);                /* GAP_ELIMIT */

/* Each takes what it returns from the parcel; where that cannot be, is_wrong is set and 0 returned. */
uint64_t gap__recording_number(struct gap__recording *);
int64_t gap__recording_signed(struct gap__recording *);
uint64_t gap__recording_size(struct gap__recording *);
uint64_t gap__recording_addr(struct gap__recording *);
unsigned gap__recording_byte(struct gap__recording *);
uint32_t gap__recording_upto(struct gap__recording *, uint32_t most);
double gap__recording_real(struct gap__recording *);
int64_t gap__recording_time(struct gap__recording *, int64_t tick); /* in us */

/* A text as it is, as an offset into the history's.  0 or GAP_ELIMIT. */
int gap__recording_text(struct gap__recording *, uint32_t *offset);
uint32_t gap__recording_stack(struct gap__recording *); /* one that was told before */
int gap__recording_pool(struct gap__recording *);       /* becomes the current one */
/* The device; NULL: there is no room. */
struct gap__recording_device *gap__recording_device(struct gap__recording *, uint32_t device);

/* recording_state.c */
int gap__recording_read_state(struct gap__recording *);
int gap__recording_read_segment(struct gap__recording *, unsigned tag);
int gap__recording_read_block(struct gap__recording *, unsigned tag);
int gap__recording_read_state_end(struct gap__recording *);

void gap__recording_forget_state(struct gap__recording_device *);
void gap__recording_count_block(struct gap__hist_segment *, const struct gap__hist_block *);

/* recording_end.c: the state at the end of a device's events, from the last one that was told and the events since.  0 or GAP_ELIMIT. */
int gap__recording_find_end(struct gap__recording *, struct gap__recording_device *);

/* recording_parts.c: one part, known or not, in [at, end). */
int gap__recording_read_part(struct gap__recording *, uint64_t part);

#endif
