/* One block of SHA-256, by the processor's own instructions where it has them. */
#ifndef GAP_SHA256_BLOCK_H
#define GAP_SHA256_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

typedef void gap__sha256_compress(uint32_t state[8], const uint8_t block[64]);

extern const uint32_t gap__sha256_constants[64];
gap__sha256_compress gap__sha256_plain;
gap__sha256_compress *gap__sha256_hardware(void); /* NULL: this processor has none */

#endif
