/* Compiled kernels on disk.  They are loaded into the program, so the folder must be nobody else's: a real one of this
 * user's that nobody else can write. */
#ifndef GAP_KV_CUBINS_H
#define GAP_KV_CUBINS_H

#include <stddef.h>

#include "base/sha256.h"

/* `key` is a digest as text of all that the code depends on.  What is damaged counts as absent.  Free the image.
 * GAP_ENOTMINE: not there; GAP_ENOMETA. */
int gap__kv_cubins_get(const char key[GAP__SHA256_TEXT_BYTES], char **image, size_t *bytes);
/* In one step: others see all of it or nothing.  Where no folder can be had nothing happens. */
void gap__kv_cubins_put(const char key[GAP__SHA256_TEXT_BYTES], const char *image, size_t bytes);

#endif
