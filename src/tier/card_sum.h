/* Checksums that the card makes itself, of memory of its own: of what is about to sleep, and of what has come back.
 *
 * Sums by the processors held sleep and wake side by side to 57 of the 100 GB/s of a link; the card reads its memory many times as fast.
 * The sum is of the words of eight bytes, each mixed with its place by a bijection of 64 bits (gap__mix64), modulo 2^64: a change inside
 * one word is always noticed, any other but for one in 2^64.
 *
 * The kernel is PTX, which every driver since CUDA 11 compiles; its blocks leave their parts in pinned memory.  Where a device runs no code of
 * ours the processor makes sums of its own (base/sum.h), and checks these, too. */
#ifndef GAP_TIER_CARD_SUM_H
#define GAP_TIER_CARD_SUM_H

#include "dev/dev.h"

enum { GAP__CARD_SUM_BLOCKS = 128, GAP__CARD_SUM_THREADS = 256 };
#define GAP__CARD_SUM_NAME "gapless_sum"

struct gap__card_sums {
  gap__module module;
  gap__function function; /* 0: the card makes none */
  uint64_t *parts;        /* GAP__CARD_SUM_BLOCKS of each slot, pinned */
  uint32_t slots;
  bool tried;
};

struct gap__card_sum_argument {
  gap_addr addr;
  uint64_t words;
  gap_addr parts;
};

/* Whether the card makes sums; the first call finds out.  As many may be under way as there are slots. */
bool gap__card_sums_ready(struct gap__card_sums *, struct gap__dev *, uint32_t slots);
void gap__card_sums_free(struct gap__card_sums *, struct gap__dev *);
/* Queues the sum of device memory, a multiple of 32 bytes. */
int gap__card_sums_queue(struct gap__card_sums *, struct gap__dev *, uint32_t slot, gap_addr, uint64_t bytes,
                         gap_stream);
/* What was queued for the slot last, and has ended. */
uint64_t gap__card_sums_take(const struct gap__card_sums *, uint32_t slot);
/* The same sum of host memory. */
uint64_t gap__card_sum_here(const void *data, uint64_t bytes);

#endif
