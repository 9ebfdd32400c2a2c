/* What every fuzz target defines: one input, run to its end; a broken promise aborts. Returns 0. */
#ifndef GAP_TESTS_FUZZ_H
#define GAP_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* assert() that also holds in a release build. */
#define FUZZ_CHECK(condition) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition); \
      abort(); \
    } \
  } while (0)

#endif
