/* What lies on a server under one key: a header and a piece of a value.
 *
 * Pieces are written from the last to the first, and `chain` of a piece runs over the checksums from the end of the value up to and with this one:
 * so that of piece 0 is over the whole, and it is the last that has to be known.  Who reads asks for piece 0 first, which says how
 * many there are, then for the others from the end, and follows the chain: pieces of two values under one key never make one.
 * All numbers are little-endian; `check` is over what stands before it. */
#ifndef GAP_REMOTE_PIECE_H
#define GAP_REMOTE_PIECE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gapless/remote.h"

enum {
  GAP__PIECE_MAGIC = 0x31504147, /* "GAP1" */
  GAP__PIECE_VERSION = 1,
  GAP__PIECE_HEADER_BYTES = 80,
  GAP__PIECE_KEY_BYTES = 112 /* room for a key on the server */
};

struct gap__piece {
  uint64_t tag;         /* of whom the value is */
  uint64_t key;         /* of the key: a server that answers with another one's value is found out */
  uint64_t total_bytes; /* of the value */
  uint32_t count;       /* of pieces */
  uint32_t index;       /* of this one */
  uint32_t piece_bytes; /* of each but the last */
  uint32_t bytes;       /* of this one */
  uint64_t sum;         /* of this one's bytes */
  uint64_t chain;
};

/* The first 64 bits of a SHA-256: names of tags, keys and servers. */
uint64_t gap__piece_digest(const void *bytes, size_t count);
/* "gapless:1:TAG:key:index", tag and index in hexadecimal digits; its length. */
size_t gap__piece_key(uint64_t tag, const void *key, size_t key_bytes, uint32_t index, char out[GAP__PIECE_KEY_BYTES]);

/* Of any number of bytes. */
uint64_t gap__piece_sum(const void *data, size_t bytes);
uint64_t gap__piece_chain_begin(const struct gap__piece *); /* before the last piece */
uint64_t gap__piece_chain(uint64_t chain, uint64_t sum);

uint32_t gap__piece_count(uint64_t total_bytes, uint32_t piece_bytes); /* 1 at least */
uint32_t gap__piece_length(const struct gap__piece *, uint32_t index);

void gap__piece_write(const struct gap__piece *, uint8_t out[GAP__PIECE_HEADER_BYTES]);
/* Reads the header of what has `bytes` in all, header included.  False: there is none, of another version, or it contradicts itself or the length. */
bool gap__piece_read(const uint8_t *data, size_t bytes, struct gap__piece *out);

#endif
