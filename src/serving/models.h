/* Models by name: what a KV cache must know of them. */
#ifndef GAP_SERVING_MODELS_H
#define GAP_SERVING_MODELS_H

#include <stdint.h>

struct gap__model {
  const char *name;
  uint32_t layers, heads, head_size;
  uint64_t parameters; /* 0: not known */
};

/* GAP_EVALUE: neither a name nor LAYERSxHEADSxSIZE. */
int gap__model_find(const char *name, struct gap__model *out);

#endif
