/* Kernels of a cache: compiled when they are first wanted, or taken from disk, and loaded.  Under the cache's lock. */
#ifndef GAP_KV_CODE_H
#define GAP_KV_CODE_H

#include "kv/state.h"

extern const char gap__kv_device_source[];

/* `source` is compiled behind what the card's kernels share, with `defines` ("-DHEAD=128 ...").  The module lives as
 * long as the cache.  GAP_ENOTSUP: the device runs no kernels, there is no compiler, or it refuses:
 * gap__kv_code_why. */
int gap__kv_code_load(struct gap_kv *, const char *source, const char *defines, gap__module *out);
/* Why there are no kernels; "" where nothing has failed. */
const char *gap__kv_code_why(const struct gap_kv *);
void gap__kv_code_free(struct gap_kv *);

/* move.c: prepares what every cache needs; without it copies are the driver's, and one line says so. */
void gap__kv_move_init(struct gap_kv *);
/* Launches copies of `count` pairs, none of which depends on another. GAP_ENOTSUP. */
int gap__kv_move_pages(struct gap_kv *, gap_addr to, gap_addr from, const gap_kv_entry *pairs, uint32_t count,
                       gap_stream);

#endif
