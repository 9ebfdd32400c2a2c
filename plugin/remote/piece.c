#include "piece.h"

#include <stdio.h>
#include <string.h>

#include "base/mix.h"
#include "base/sha256.h"
#include "base/sum.h"

enum { SUM_STEP = 32, CHECKED_BYTES = GAP__PIECE_HEADER_BYTES - 8 };

uint64_t gap__piece_digest(const void *bytes, size_t count) {
  struct gap__sha256 sha;
  uint8_t digest[GAP__SHA256_BYTES];
  uint64_t out = 0;
  gap__sha256_begin(&sha);
  gap__sha256_add(&sha, bytes, count);
  gap__sha256_digest(&sha, digest);
  for (int i = 0; i < 8; i++) out = out << 8 | digest[i];
  return out;
}

size_t gap__piece_key(uint64_t tag, const void *key, size_t key_bytes, uint32_t index, char out[GAP__PIECE_KEY_BYTES]) {
  size_t length = (size_t)snprintf(out, GAP__PIECE_KEY_BYTES, "gapless:1:%016llx:", (unsigned long long)tag);
  memcpy(out + length, key, key_bytes);
  length += key_bytes;
  return length + (size_t)snprintf(out + length, GAP__PIECE_KEY_BYTES - length, ":%08x", index);
}

/* The base's sum wants whole steps: the rest is summed behind zeros, and the length is part of it. */
uint64_t gap__piece_sum(const void *data, size_t bytes) {
  size_t rest = bytes % SUM_STEP, whole = bytes - rest;
  uint8_t padded[SUM_STEP] = {0};
  if (rest) memcpy(padded, (const uint8_t *)data + whole, rest);
  uint64_t sum = gap__sum(whole ? data : padded, whole);
  return gap__mix64(sum ^ gap__mix64(gap__sum(padded, SUM_STEP) ^ bytes));
}

uint64_t gap__piece_chain(uint64_t chain, uint64_t sum) { return gap__mix64(chain * 3 + sum); }

uint64_t gap__piece_chain_begin(const struct gap__piece *p) {
  return gap__piece_chain(gap__piece_chain(p->tag, p->key), p->total_bytes);
}

uint32_t gap__piece_count(uint64_t total_bytes, uint32_t piece_bytes) {
  return total_bytes ? (uint32_t)((total_bytes + piece_bytes - 1) / piece_bytes) : 1;
}

uint32_t gap__piece_length(const struct gap__piece *p, uint32_t index) {
  uint64_t before = (uint64_t)index * p->piece_bytes, rest = p->total_bytes - before;
  return rest < p->piece_bytes ? (uint32_t)rest : p->piece_bytes;
}

static uint8_t *put(uint8_t *at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) *at++ = (uint8_t)(value >> (8 * i));
  return at;
}

static uint64_t take(const uint8_t **at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) value |= (uint64_t) * (*at)++ << (8 * i);
  return value;
}

void gap__piece_write(const struct gap__piece *p, uint8_t out[GAP__PIECE_HEADER_BYTES]) {
  uint8_t *at = out;
  at = put(at, GAP__PIECE_MAGIC, 4);
  at = put(at, GAP__PIECE_VERSION, 2);
  at = put(at, GAP__PIECE_HEADER_BYTES, 2);
  at = put(at, p->tag, 8);
  at = put(at, p->key, 8);
  at = put(at, p->total_bytes, 8);
  at = put(at, p->count, 4);
  at = put(at, p->index, 4);
  at = put(at, p->piece_bytes, 4);
  at = put(at, p->bytes, 4);
  at = put(at, p->sum, 8);
  at = put(at, p->chain, 8);
  at = put(at, 0, 8);
  put(at, gap__piece_sum(out, CHECKED_BYTES), 8);
}

static bool adds_up(const struct gap__piece *p, size_t bytes) {
  return p->piece_bytes >= GAP_REMOTE_PIECE_BYTES_MIN && p->piece_bytes <= GAP_REMOTE_PIECE_BYTES_MAX &&
         p->total_bytes <= GAP_REMOTE_VALUE_BYTES_MAX && p->count == gap__piece_count(p->total_bytes, p->piece_bytes) &&
         p->index < p->count && p->bytes == gap__piece_length(p, p->index) &&
         bytes == (size_t)GAP__PIECE_HEADER_BYTES + p->bytes;
}

bool gap__piece_read(const uint8_t *data, size_t bytes, struct gap__piece *out) {
  const uint8_t *at = data;
  if (bytes < GAP__PIECE_HEADER_BYTES) return false;
  if (take(&at, 4) != GAP__PIECE_MAGIC || take(&at, 2) != GAP__PIECE_VERSION || take(&at, 2) != GAP__PIECE_HEADER_BYTES)
    return false;
  struct gap__piece p;
  p.tag = take(&at, 8), p.key = take(&at, 8), p.total_bytes = take(&at, 8);
  p.count = (uint32_t)take(&at, 4), p.index = (uint32_t)take(&at, 4);
  p.piece_bytes = (uint32_t)take(&at, 4), p.bytes = (uint32_t)take(&at, 4);
  p.sum = take(&at, 8), p.chain = take(&at, 8);
  if (take(&at, 8) != 0 || take(&at, 8) != gap__piece_sum(data, CHECKED_BYTES) || !adds_up(&p, bytes)) return false;
  return *out = p, true;
}
