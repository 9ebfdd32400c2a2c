/* SHA-256 (FIPS 180-4): names a file, or the tokens of a prompt, by their contents. */
#ifndef GAP_SHA256_H
#define GAP_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define GAP__SHA256_BYTES 32
#define GAP__SHA256_TEXT_BYTES 65 /* 64 hexadecimal digits and the end */

struct gap__sha256 {
  uint32_t state[8];
  uint64_t bytes;
  uint8_t block[64]; /* bytes % 64 of it are filled */
};

void gap__sha256_begin(struct gap__sha256 *);
void gap__sha256_add(struct gap__sha256 *, const void *bytes, size_t count);
void gap__sha256_digest(struct gap__sha256 *, uint8_t out[GAP__SHA256_BYTES]);
void gap__sha256_end(struct gap__sha256 *, char out[GAP__SHA256_TEXT_BYTES]);

/* Of a whole regular file.  0 or GAP_EIO with the reason in `message`. */
int gap__sha256_file(const char *path, char out[GAP__SHA256_TEXT_BYTES], char *message, size_t bytes);

#endif
