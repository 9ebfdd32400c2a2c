/* gapless's own trace: what it is made of.  docs/trace-format.md is the specification; this header has its numbers.
 *
 *   file    = magic, parcel...
 *   parcel  = bytes of the payload (4 bytes), CRC-32 of the payload (4 bytes), payload; both numbers little endian
 *   payload = sequence number, tick of the parcel, record...
 *   record  = tag (1 byte), then what its kind says
 *
 * Every other number is a varint: 7 bits a byte, low ones first, the top bit says that more follow.  A signed one is folded
 * first (zigzag: 0 -1 1 -2 ...), an address or a size is first turned right by 9 bits, so that a multiple of 512 is short and
 * nothing is lost.  Addresses, times, streams and pools are told against the record before; a parcel begins with all of them
 * at 0 (the time: at its own tick), so that it can be read alone.  Parcels are numbered 0, 1, 2, ...: where one is torn, missing or
 * altered, what comes before it is still good. */
#ifndef GAP_RECORD_FORMAT_H
#define GAP_RECORD_FORMAT_H

#include <stdint.h>

#define GAP__RECORD_MAGIC "\x89GAPLESS" /* no text, no pickle, nothing that a compressor writes */
#define GAP__RECORD_MAGIC_BYTES 8
#define GAP__RECORD_VERSION 1

enum {
  GAP__RECORD_HEAD_BYTES = 8,          /* of a parcel */
  GAP__RECORD_PARCEL_BYTES = 64 << 10, /* of a payload, as written */
  GAP__RECORD_PARCEL_MOST = 1 << 20,   /* of a payload, as read */
  GAP__RECORD_TEXT_MOST = 4096,        /* bytes of a text; longer ones are cut */
  GAP__RECORD_STACK_MOST = 1024        /* frames of a stack; further ones are left out */
};

/* The low four bits of a tag.  0 to 8 are events, in the order of enum gap__action and of PyTorch's names. */
enum gap__record_kind {
  GAP__RECORD_ALLOC,
  GAP__RECORD_FREE_REQUESTED,
  GAP__RECORD_FREE_COMPLETED,
  GAP__RECORD_SEGMENT_ALLOC,
  GAP__RECORD_SEGMENT_FREE,
  GAP__RECORD_SEGMENT_MAP,
  GAP__RECORD_SEGMENT_UNMAP,
  GAP__RECORD_MARK, /* a snapshot was taken */
  GAP__RECORD_OOM,
  GAP__RECORD_EVENT_KINDS,
  GAP__RECORD_SEGMENT = GAP__RECORD_EVENT_KINDS, /* of a state */
  GAP__RECORD_BLOCK,                             /* of the segment before */
  GAP__RECORD_LONG = 15                          /* a part, its bytes, and so many bytes */
};

/* The high four bits of an event's tag: what follows the time, the address and the size, in this order. */
enum { GAP__EVENT_STREAM = 0x10, GAP__EVENT_SLACK = 0x20, GAP__EVENT_STACK = 0x40, GAP__EVENT_MORE = 0x80 };
/* A second byte of flags, right behind the tag. */
enum { GAP__EVENT_POOL = 1, GAP__EVENT_DEVICE = 2 };

/* Of a segment's tag, and of the byte behind it. */
enum { GAP__SEGMENT_STREAM = 0x10, GAP__SEGMENT_POOL = 0x20, GAP__SEGMENT_SUMS = 0x40 };
enum gap__segment_kind {
  GAP__SEGMENT_NATIVE,     /* one driver allocation */
  GAP__SEGMENT_EXPANDABLE, /* mapped pages of one of PyTorch's expandable segments */
  GAP__SEGMENT_PAGES,      /* mapped pages of the strategy gapless */
  GAP__SEGMENT_HOLE,       /* reserved addresses without memory */
  GAP__SEGMENT_KINDS
};
enum { GAP__SEGMENT_LARGE = 0x10 }; /* of the byte */

/* Of a block's tag: its state in bits 4 and 5 (0 idle, 1 live, 2 pending). */
enum { GAP__BLOCK_STATE_SHIFT = 4, GAP__BLOCK_SLACK = 0x40, GAP__BLOCK_MORE = 0x80 };
enum { GAP__BLOCK_STACK = 1, GAP__BLOCK_ADDR = 2 };

/* Parts of a GAP__RECORD_LONG; a reader passes over those that it does not know. */
enum gap__record_part {
  GAP__PART_HEADER = 1,
  GAP__PART_TEXT, /* texts, frames and stacks are numbered from 1 in the order met; 0 is none */
  GAP__PART_FRAME,
  GAP__PART_STACK,
  GAP__PART_ANNOTATION,
  GAP__PART_SETTINGS,
  GAP__PART_STATE, /* segments and blocks of one device follow */
  GAP__PART_STATE_END,
  GAP__PART_LOST, /* events that were not written */
  GAP__PART_END
};

/* Flags of the header. */
enum { GAP__HEADER_BY_GAPLESS = 1 };

/* What is said of a device at the end of its state, in this order, each a varint; a newer writer may add more.  0: not known. */
#define GAP__RECORD_FACTS(X) \
  X(card_bytes)             /* of the whole card */ \
  X(free_bytes)             /* that the driver has left, for everybody */ \
  X(cap_bytes)              /* on what may be held; 0 none */ \
  X(returnable_bytes)       /* idle, could be given back */ \
  X(largest_servable_bytes) /* without waiting */ \
  X(peak_live_bytes) \
  X(peak_held_bytes) \
  X(refusals)   /* requests that failed */ \
  X(retries)    /* requests that needed memory given back, or a wait */ \
  X(stalls)     /* waits inside an allocation */ \
  X(page_bytes) /* what the strategy gapless takes and gives back */

struct gap__record_facts {
#define X(name) uint64_t name;
  GAP__RECORD_FACTS(X)
#undef X
};

/* Turned right by 9 bits, and back: 512 bytes is 1. */
static inline uint64_t gap__record_turn(uint64_t bytes) { return bytes >> 9 | bytes << 55; }
static inline uint64_t gap__record_turn_back(uint64_t turned) { return turned << 9 | turned >> 55; }
static inline uint64_t gap__record_fold(int64_t number) { return (uint64_t)number << 1 ^ (uint64_t)(number >> 63); }
static inline int64_t gap__record_unfold(uint64_t folded) { return (int64_t)(folded >> 1 ^ (0 - (folded & 1))); }

#endif
