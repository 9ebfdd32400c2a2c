#include "tier/io.h"

#include <errno.h>
#include <fcntl.h>
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
static uint64_t remains(struct gap__io_op *op, uint64_t done) {
  if (op->memory) op->memory += done;
  op->offset += done;
  return op->bytes -= done;
}

/* ---- plain ---- */

/* Bytes, or -1 and errno. */
static ssize_t do_once(int file, const struct gap__io_op *op) {
  off_t offset = (off_t)op->offset, bytes = (off_t)op->bytes;
  if (!op->memory) return fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes) ? -1 : bytes;
  return op->write ? pwrite(file, op->memory, op->bytes, offset) : pread(file, op->memory, op->bytes, offset);
}

static void do_plainly(struct gap__io *io, struct gap__io_op op) {
  do {
    ssize_t done = do_once(io->file, &op);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      note(&io->transfers[op.transfer], done < 0 ? errno : ENODATA, op.offset);
      return;
    }
    remains(&op, (uint64_t)done);
  } while (op.bytes);
}

/* ---- through the ring ---- */

static void put(struct gap__io *io, uint32_t slot) {
  const struct gap__io_op *op = &io->ops[slot];
  if (op->memory) gap__uring_put(&io->ring, op->write, io->file, op->memory, (uint32_t)op->bytes, op->offset, slot);
  else gap__uring_put_hole(&io->ring, io->file, op->bytes, op->offset, slot);
}

static void finish(struct gap__io *io, uint32_t slot) {
  io->transfers[io->ops[slot].transfer].left--;
  io->ops[slot].bytes = 0;
  io->under_way--;
}

static void complete(struct gap__io *io, uint32_t slot, int32_t result) {
  struct gap__io_op *op = &io->ops[slot];
  uint64_t done = result > 0 ? (uint64_t)result : 0;
  if (!op->memory && !result) done = op->bytes;       /* a hole is made whole */
  bool again = result == -EINTR || result == -EAGAIN; /* of an operation, never of sending it */
  if (done < op->bytes) done -= done % GAP__IO_BLOCK;
  if (again || (done && remains(op, done))) {
    put(io, slot);
    return;
  }
  if (!done) note(&io->transfers[op->transfer], result < 0 ? -result : ENODATA, op->offset);
  finish(io, slot);
}

/* Where the ring is denied after all (a sandbox that the process enters), what was not sent is done plainly: else nobody could read what is
 * there.  What was sent is waited for, since the kernel writes to its memory. */
static void reap(struct gap__io *io) {
  uint64_t slot;
  int32_t result;
  int why = gap__uring_send(&io->ring, 1);
  while (why && gap__uring_take_back(&io->ring, &slot)) {
    do_plainly(io, io->ops[slot]);
    finish(io, (uint32_t)slot);
  }
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

static void begin(struct gap__io *io, const struct gap__io_op *op) {
  if (io->ringed) queue(io, op);
  else do_plainly(io, *op);
}

/* Sends what was queued; or it is sent when it is waited for. */
static void send_all(struct gap__io *io) {
  if (io->ringed) gap__uring_send(&io->ring, 0);
}

void gap__io_begin(struct gap__io *io, unsigned transfer, bool write, void *memory, uint64_t bytes, uint64_t offset) {
  for (uint64_t done = 0; done < bytes; done += GAP__IO_STEP) {
    uint64_t left = bytes - done;
    struct gap__io_op op = {.memory = (unsigned char *)memory + done,
                            .offset = offset + done,
                            .bytes = left < GAP__IO_STEP ? left : GAP__IO_STEP,
                            .transfer = (uint8_t)transfer,
                            .write = write};
    begin(io, &op);
  }
  send_all(io);
}

void gap__io_begin_hole(struct gap__io *io, unsigned transfer, uint64_t bytes, uint64_t offset) {
  begin(io, &(struct gap__io_op){.offset = offset, .bytes = bytes, .transfer = (uint8_t)transfer});
  send_all(io);
}

int gap__io_wait(struct gap__io *io, unsigned transfer, uint64_t *at) {
  struct gap__io_transfer *t = &io->transfers[transfer];
  while (t->left) reap(io);
  int why = t->why;
  *at = t->at;
  t->why = 0;
  return why;
}
