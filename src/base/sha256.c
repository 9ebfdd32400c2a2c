#include "base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256_block.h"
#include "gapless/gapless.h"

enum { BLOCK = 64, LENGTH_BYTES = 8, READ_BYTES = 1 << 16 };

const uint32_t gap__sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t word, int by) { return word >> by | word << (32 - by); }

static uint32_t big_endian(const uint8_t *bytes) {
  return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void schedule(const uint8_t *block, uint32_t words[64]) {
  for (int i = 0; i < 16; i++) words[i] = big_endian(block + 4 * i);
  for (int i = 16; i < 64; i++) {
    uint32_t early = words[i - 15], late = words[i - 2];
    uint32_t low = turn(early, 7) ^ turn(early, 18) ^ early >> 3;
    uint32_t high = turn(late, 17) ^ turn(late, 19) ^ late >> 10;
    words[i] = words[i - 16] + low + words[i - 7] + high;
  }
}

void gap__sha256_plain(uint32_t state[8], const uint8_t block[64]) {
  uint32_t words[64], s[8];
  schedule(block, words);
  memcpy(s, state, sizeof s);
  for (int i = 0; i < 64; i++) {
    uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]), majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
    uint32_t first =
        s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) + choice + gap__sha256_constants[i] + words[i];
    uint32_t second = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) + majority;
    memmove(s + 1, s, 7 * sizeof s[0]);
    s[4] += first;
    s[0] = first + second;
  }
  for (int i = 0; i < 8; i++) state[i] += s[i];
}

static void compress(uint32_t state[8], const uint8_t *block) {
  static gap__sha256_compress *_Atomic chosen;
  gap__sha256_compress *fn = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (!fn) {
    fn = gap__sha256_hardware();
    if (!fn) fn = gap__sha256_plain;
    atomic_store_explicit(&chosen, fn, memory_order_relaxed);
  }
  fn(state, block);
}

void gap__sha256_begin(struct gap__sha256 *sha) {
  static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(sha->state, start, sizeof start);
  sha->bytes = 0;
}

void gap__sha256_add(struct gap__sha256 *sha, const void *bytes, size_t count) {
  const uint8_t *from = bytes;
  while (count > 0) {
    size_t filled = sha->bytes % BLOCK, room = BLOCK - filled, take = count < room ? count : room;
    memcpy(sha->block + filled, from, take);
    sha->bytes += take;
    from += take;
    count -= take;
    if (filled + take == BLOCK) compress(sha->state, sha->block);
  }
}

/* The padding, and the last block or two. */
static void finish(struct gap__sha256 *sha) {
  static const uint8_t padding[BLOCK] = {0x80};
  uint8_t length[LENGTH_BYTES];
  uint64_t bits = sha->bytes * 8;
  for (int i = 0; i < LENGTH_BYTES; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
  size_t filled = sha->bytes % BLOCK;
  gap__sha256_add(sha, padding, (filled < BLOCK - LENGTH_BYTES ? BLOCK : 2 * BLOCK) - LENGTH_BYTES - filled);
  gap__sha256_add(sha, length, sizeof length);
}

void gap__sha256_digest(struct gap__sha256 *sha, uint8_t out[GAP__SHA256_BYTES]) {
  finish(sha);
  for (int i = 0; i < GAP__SHA256_BYTES; i++) out[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

void gap__sha256_end(struct gap__sha256 *sha, char out[GAP__SHA256_TEXT_BYTES]) {
  finish(sha);
  for (int i = 0; i < 8; i++) snprintf(out + 8 * i, 9, "%08x", sha->state[i]);
}

static int add_file(struct gap__sha256 *sha, int file) {
  uint8_t bytes[READ_BYTES];
  for (;;) {
    ssize_t count = read(file, bytes, sizeof bytes);
    if (count == 0) return 0;
    if (count > 0) gap__sha256_add(sha, bytes, (size_t)count);
    else if (errno != EINTR) return GAP_EIO;
  }
}

int gap__sha256_file(const char *path, char out[GAP__SHA256_TEXT_BYTES], char *message, size_t bytes) {
  struct gap__sha256 sha;
  struct stat status;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  int rc = file < 0 || fstat(file, &status) != 0 ? GAP_EIO : 0;
  if (rc != 0) snprintf(message, bytes, "%s", strerror(errno));
  if (rc == 0 && !S_ISREG(status.st_mode)) {
    rc = GAP_EIO;
    snprintf(message, bytes, "not a regular file");
  }
  gap__sha256_begin(&sha);
  if (rc == 0 && (rc = add_file(&sha, file)) != 0) snprintf(message, bytes, "%s", strerror(errno));
  if (file >= 0) close(file);
  gap__sha256_end(&sha, out);
  return rc;
}
