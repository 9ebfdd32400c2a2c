/* The ring of last events, a file that a program maps and writes on as it runs: docs/trace-format.md is the specification.
 *
 *   file  = head, words, state, state, slots
 *   words = the beginning of a trace (format.h): its header, then texts, frames and stacks
 *   state = its own head, then parcels of a trace: what the heap held at some event
 *   slot  = one event, in 8 words of 64 bits; the n-th event since the beginning lies in slot n modulo the number of slots
 *
 * Whoever writes an event first takes its number, by one atomic addition, and then fills the slot: nobody waits for anybody.  The first word
 * is a sum over the others and the number.  So a slot that is half written, or written by two at once, or that still has an event of the
 * lap before, is known for what it is, whenever and however the writing ended.
 * All numbers are little endian. */
#ifndef GAP_RECORD_RING_H
#define GAP_RECORD_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "record/format.h"

#define GAP__RING_MAGIC "\x89GAPRING"
#define GAP__RING_MAGIC_BYTES 8
#define GAP__RING_VERSION 1

enum {
  GAP__RING_SLOT_WORDS = 8,
  GAP__RING_SLOT_BYTES = 64,
  GAP__RING_HEAD_BYTES = 4096,
  GAP__RING_STATES = 2,         /* written in turn: one of them is whole */
  GAP__RING_SLOTS_LEAST = 1024, /* a power of two, as is the most */
  GAP__RING_CLOCK_SLOTS = 4096  /* so many numbers, at most, from one slot of the clock to the next */
};
#define GAP__RING_SLOTS_MOST ((uint64_t)1 << 26)
#define GAP__RING_AREA_MOST ((uint64_t)1 << 32) /* bytes of the words, and of a state */

/* What a slot holds: an event of enum gap__record_kind, or: */
enum {
  GAP__RING_CLOCK = 16, /* ticks, and at `addr` the nanoseconds since the origin */
  GAP__RING_POOL = 17   /* at `addr` the first half of the pool of the event in the next slot */
};
enum { GAP__RING_POOL_SECOND = 1, GAP__RING_POOL_BOTH = 2 }; /* flags: which half of the pool `pool` is; 0 the first */

struct gap__ring_event {
  uint64_t ticks, addr, bytes, requested, stream, pool;
  uint32_t stack; /* as numbered in the words; 0 none */
  uint16_t device;
  uint8_t kind, flags;
};

struct gap__ring_head {
  char magic[GAP__RING_MAGIC_BYTES];
  uint32_t version, crc; /* of what follows up to `given`, as CRC-32 */
  uint64_t slots, words_bytes, state_bytes;
  uint64_t origin_ticks;
  /* changes while the program runs */
  _Alignas(64) _Atomic uint64_t given;      /* numbers of slots that were taken */
  _Alignas(64) _Atomic uint64_t words_used; /* bytes of the words that are whole */
  _Atomic uint64_t stacks_lost;             /* that found no room among the words: their events have no stack */
};

struct gap__ring_state_head {
  uint64_t number;     /* of the next event when the state began to be taken; what follows it tells the rest */
  uint64_t bytes, crc; /* of the parcels behind this head; 0 bytes: none */
};

typedef _Atomic uint64_t gap__ring_word;

static inline uint64_t gap__ring_words_at(void) { return GAP__RING_HEAD_BYTES; }
static inline uint64_t gap__ring_state_at(const struct gap__ring_head *head, unsigned state) {
  return gap__ring_words_at() + head->words_bytes + state * head->state_bytes;
}
static inline uint64_t gap__ring_slots_at(const struct gap__ring_head *head) {
  return gap__ring_state_at(head, GAP__RING_STATES);
}
static inline uint64_t gap__ring_bytes(const struct gap__ring_head *head) {
  return gap__ring_slots_at(head) + head->slots * GAP__RING_SLOT_BYTES;
}

/* The sum: every word times an odd number of its own, so that no mixture of two events has it but by a chance of 2^-64. */
static inline uint64_t gap__ring_sum(uint64_t number, const uint64_t words[GAP__RING_SLOT_WORDS]) {
  uint64_t sum = (number + 1) * 0x9E3779B97F4A7C15u;
  sum += words[1] * 0xC2B2AE3D27D4EB4Fu + words[2] * 0x165667B19E3779F9u + words[3] * 0x85EBCA77C2B2AE63u;
  sum += words[4] * 0x27D4EB2F165667C5u + words[5] * 0xFF51AFD7ED558CCDu + words[6] * 0xC4CEB9FE1A85EC53u;
  sum += words[7] * 0xD6E8FEB86659FD93u;
  return sum ^ sum >> 32;
}

static inline void gap__ring_pack(uint64_t number, const struct gap__ring_event *event,
                                  uint64_t words[GAP__RING_SLOT_WORDS]) {
  words[1] = event->ticks;
  words[2] = event->addr;
  words[3] = event->bytes;
  words[4] = event->requested;
  words[5] = event->stream;
  words[6] = event->pool;
  words[7] = event->kind | (uint64_t)event->flags << 8 | (uint64_t)event->device << 16 | (uint64_t)event->stack << 32;
  words[0] = gap__ring_sum(number, words);
}

static inline void gap__ring_unpack(const uint64_t words[GAP__RING_SLOT_WORDS], struct gap__ring_event *event) {
  *event = (struct gap__ring_event){.ticks = words[1],
                                    .addr = words[2],
                                    .bytes = words[3],
                                    .requested = words[4],
                                    .stream = words[5],
                                    .pool = words[6],
                                    .stack = (uint32_t)(words[7] >> 32),
                                    .device = (uint16_t)(words[7] >> 16),
                                    .flags = (uint8_t)(words[7] >> 8),
                                    .kind = (uint8_t)words[7]};
}

#endif
