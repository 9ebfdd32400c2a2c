#include "tier/io.h"

#include <errno.h>
#include <unistd.h>

int gap__io_open(struct gap__io *io, int file, bool plain) {
  *io = (struct gap__io){.file = file};
  int why = plain ? 0 : gap__uring_open(&io->ring, GAP__IO_DEPTH);
  io->ringed = !plain && !why;
  return why;
}

void gap__io_close(struct gap__io *io) {
  if (io->ringed) gap__uring_close(&io->ring);
}

static void note(struct gap__io_transfer *transfer, int why, uint64_t at) {
  if (transfer->why) return;
  transfer->why = why;
  transfer->at = at;
}

/* What remains after `done` bytes: 0 nothing; a part of a block cannot be gone on with. */
static uint32_t remains(struct gap__io_op *op, uint32_t done) {
  op->memory += done;
  op->offset += done;
  return op->bytes -= done;
}

/* ---- plain ---- */

static void do_plainly(struct gap__io *io, struct gap__io_op op) {
  do {
    ssize_t done = op.write ? pwrite(io->file, op.memory, op.bytes, (off_t)op.offset)
                            : pread(io->file, op.memory, op.bytes, (off_t)op.offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      note(&io->transfers[op.transfer], done < 0 ? errno : ENODATA, op.offset);
      return;
    }
    remains(&op, (uint32_t)done);
  } while (op.bytes);
}

/* ---- through the ring ---- */

static void put(struct gap__io *io, uint32_t slot) {
  const struct gap__io_op *op = &io->ops[slot];
  gap__uring_put(&io->ring, op->write, io->file, op->memory, op->bytes, op->offset, slot);
}

static void finish(struct gap__io *io, uint32_t slot) {
  io->transfers[io->ops[slot].transfer].left--;
  io->ops[slot].bytes = 0;
  io->under_way--;
}

static void complete(struct gap__io *io, uint32_t slot, int32_t result) {
  struct gap__io_op *op = &io->ops[slot];
  uint32_t done = result > 0 ? (uint32_t)result : 0;
  bool again = result == -EINTR || result == -EAGAIN; /* of an operation, never of sending it */
  if (done < op->bytes) done -= done % GAP__IO_BLOCK;
  if (again || (done && remains(op, done))) {
    put(io, slot);
    return;
  }
  if (!done) note(&io->transfers[op->transfer], result < 0 ? -result : ENODATA, op->offset);
  finish(io, slot);
}

/* Where the ring is denied after all, what was not sent fails; what was sent is waited for, since the kernel writes to its memory. */
static void reap(struct gap__io *io) {
  uint64_t slot;
  int32_t result;
  int why = gap__uring_send(&io->ring, 1);
  while (why && gap__uring_take_back(&io->ring, &slot)) complete(io, (uint32_t)slot, -why);
  while (gap__uring_get(&io->ring, &slot, &result)) complete(io, (uint32_t)slot, result);
  if (why) usleep(1000);
}

static uint32_t free_slot(struct gap__io *io) {
  while (io->under_way == GAP__IO_DEPTH) reap(io);
  for (uint32_t slot = 0;; slot++)
    if (!io->ops[slot].bytes) return slot;
}

static void queue(struct gap__io *io, const struct gap__io_op *op) {
  uint32_t slot = free_slot(io);
  io->ops[slot] = *op;
  io->transfers[op->transfer].left++;
  io->under_way++;
  put(io, slot);
}

/* ---- both ---- */

void gap__io_begin(struct gap__io *io, unsigned transfer, bool write, void *memory, uint64_t bytes, uint64_t offset) {
  for (uint64_t done = 0; done < bytes; done += GAP__IO_STEP) {
    uint64_t left = bytes - done;
    struct gap__io_op op = {.memory = (unsigned char *)memory + done,
                            .offset = offset + done,
                            .bytes = (uint32_t)(left < GAP__IO_STEP ? left : GAP__IO_STEP),
                            .transfer = (uint8_t)transfer,
                            .write = write};
    if (io->ringed) queue(io, &op);
    else do_plainly(io, op);
  }
  if (io->ringed) gap__uring_send(&io->ring, 0); /* or it is sent when it is waited for */
}

int gap__io_wait(struct gap__io *io, unsigned transfer, uint64_t *at) {
  struct gap__io_transfer *t = &io->transfers[transfer];
  while (t->left) reap(io);
  int why = t->why;
  *at = t->at;
  t->why = 0;
  return why;
}
