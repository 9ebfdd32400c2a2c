/* io_uring by its three system calls: reads, writes and holes of one file, and nothing else.
 *
 * liburing would do the same; it is a library that must be there, and Debian 12's (2.3) has most of its calls in headers only, so it
 * cannot be had by dlopen.  Not thread-safe. */
#ifndef GAP_TIER_URING_H
#define GAP_TIER_URING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct io_uring_sqe;
struct io_uring_cqe;

struct gap__uring {
  int fd;
  void *rings, *completions_map; /* one mapping or two */
  size_t rings_bytes, completions_bytes, entries_bytes;
  struct io_uring_sqe *entries;
  struct io_uring_cqe *completions;
  uint32_t *submit_head, *submit_tail, *submit_array, submit_mask;
  uint32_t *complete_head, *complete_tail, complete_mask;
  uint32_t unsent;
};

/* 0, or an errno: the kernel has none, or does not let us. */
int gap__uring_open(struct gap__uring *, uint32_t depth);
void gap__uring_close(struct gap__uring *);
/* At most `depth` are under way at once: the caller counts. */
void gap__uring_put(struct gap__uring *, bool write, int file, void *memory, uint32_t bytes, uint64_t offset,
                    uint64_t mark);
/* A hole where there was space (FALLOC_FL_PUNCH_HOLE); the file keeps its size.  By a thread of the kernel's. */
void gap__uring_put_hole(struct gap__uring *, int file, uint64_t bytes, uint64_t offset, uint64_t mark);
/* Sends what was put and waits until at least `wait` have completed.  0, or an errno. */
int gap__uring_send(struct gap__uring *, uint32_t wait);
/* Takes back one that was put and could not be sent. */
bool gap__uring_take_back(struct gap__uring *, uint64_t *mark);
/* The next one that has completed: bytes, or a negative errno. */
bool gap__uring_get(struct gap__uring *, uint64_t *mark, int32_t *result);

#endif
