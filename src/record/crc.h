/* CRC-32 as in zlib, PNG and Ethernet: the library may not depend on zlib. */
#ifndef GAP_RECORD_CRC_H
#define GAP_RECORD_CRC_H

#include <stddef.h>
#include <stdint.h>

uint32_t gap__crc32(const void *bytes, size_t count);

#endif
