#include "tier/uring.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int setup(uint32_t depth, struct io_uring_params *params) {
  return (int)syscall(__NR_io_uring_setup, depth, params);
}

static void *map(int fd, size_t bytes, uint64_t at) {
  void *got = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (off_t)at);
  return got == MAP_FAILED ? NULL : got;
}

/* Where things are inside the mappings. */
static void find(struct gap__uring *r, const struct io_uring_params *p) {
  unsigned char *submit = r->rings, *complete = r->completions_map ? r->completions_map : r->rings;
  r->submit_head = (uint32_t *)(void *)(submit + p->sq_off.head);
  r->submit_tail = (uint32_t *)(void *)(submit + p->sq_off.tail);
  r->submit_array = (uint32_t *)(void *)(submit + p->sq_off.array);
  r->submit_mask = *(uint32_t *)(void *)(submit + p->sq_off.ring_mask);
  r->complete_head = (uint32_t *)(void *)(complete + p->cq_off.head);
  r->complete_tail = (uint32_t *)(void *)(complete + p->cq_off.tail);
  r->complete_mask = *(uint32_t *)(void *)(complete + p->cq_off.ring_mask);
  r->completions = (struct io_uring_cqe *)(void *)(complete + p->cq_off.cqes);
}

static bool map_all(struct gap__uring *r, const struct io_uring_params *p) {
  bool one = p->features & IORING_FEAT_SINGLE_MMAP;
  size_t submit = p->sq_off.array + p->sq_entries * sizeof(uint32_t);
  r->completions_bytes = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
  r->rings_bytes = one && r->completions_bytes > submit ? r->completions_bytes : submit;
  r->entries_bytes = p->sq_entries * sizeof(struct io_uring_sqe);
  r->rings = map(r->fd, r->rings_bytes, IORING_OFF_SQ_RING);
  if (!one) r->completions_map = map(r->fd, r->completions_bytes, IORING_OFF_CQ_RING);
  r->entries = map(r->fd, r->entries_bytes, IORING_OFF_SQES);
  return r->rings && r->entries && (one || r->completions_map);
}

int gap__uring_open(struct gap__uring *r, uint32_t depth) {
  struct io_uring_params params;
  memset(&params, 0, sizeof params);
  *r = (struct gap__uring){.fd = setup(depth, &params)};
  if (r->fd < 0) return errno;
  if (!map_all(r, &params)) {
    int why = errno;
    gap__uring_close(r);
    return why ? why : ENOMEM;
  }
  find(r, &params);
  return 0;
}

void gap__uring_close(struct gap__uring *r) {
  if (r->entries) munmap(r->entries, r->entries_bytes);
  if (r->completions_map) munmap(r->completions_map, r->completions_bytes);
  if (r->rings) munmap(r->rings, r->rings_bytes);
  close(r->fd);
  *r = (struct gap__uring){.fd = -1};
}

static void put(struct gap__uring *r, const struct io_uring_sqe *entry) {
  uint32_t tail = *r->submit_tail, at = tail & r->submit_mask;
  r->entries[at] = *entry;
  r->submit_array[at] = at;
  __atomic_store_n(r->submit_tail, tail + 1, __ATOMIC_RELEASE);
  r->unsent++;
}

void gap__uring_put(struct gap__uring *r, bool write, int file, void *memory, uint32_t bytes, uint64_t offset,
                    uint64_t mark) {
  put(r, &(struct io_uring_sqe){.opcode = write ? IORING_OP_WRITE : IORING_OP_READ,
                                .fd = file,
                                .addr = (uintptr_t)memory,
                                .len = bytes,
                                .off = offset,
                                .user_data = mark});
}

/* The kernel takes the length where it takes other operations' addresses. */
void gap__uring_put_hole(struct gap__uring *r, int file, uint64_t bytes, uint64_t offset, uint64_t mark) {
  put(r, &(struct io_uring_sqe){.opcode = IORING_OP_FALLOCATE,
                                .fd = file,
                                .addr = bytes,
                                .len = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                .off = offset,
                                .user_data = mark});
}

static int enter(struct gap__uring *r, uint32_t wait) {
  return (int)syscall(__NR_io_uring_enter, r->fd, r->unsent, wait, wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
}

int gap__uring_send(struct gap__uring *r, uint32_t wait) {
  do {
    int sent = enter(r, wait);
    if (sent < 0 && errno != EINTR && errno != EAGAIN && errno != EBUSY) return errno;
    if (sent > 0) r->unsent -= (uint32_t)sent;
  } while (r->unsent);
  return 0;
}

bool gap__uring_take_back(struct gap__uring *r, uint64_t *mark) {
  if (!r->unsent) return false;
  uint32_t tail = *r->submit_tail - 1;
  *mark = r->entries[tail & r->submit_mask].user_data;
  __atomic_store_n(r->submit_tail, tail, __ATOMIC_RELEASE);
  r->unsent--;
  return true;
}

bool gap__uring_get(struct gap__uring *r, uint64_t *mark, int32_t *result) {
  uint32_t head = *r->complete_head;
  if (head == __atomic_load_n(r->complete_tail, __ATOMIC_ACQUIRE)) return false;
  const struct io_uring_cqe *entry = &r->completions[head & r->complete_mask];
  *mark = entry->user_data;
  *result = entry->res;
  __atomic_store_n(r->complete_head, head + 1, __ATOMIC_RELEASE);
  return true;
}
