/* NVIDIA's compiler for kernels, loaded with dlopen: it lies in the wheels that PyTorch and CuPy bring along, or in a toolkit. */
#ifndef GAP_KV_NVRTC_H
#define GAP_KV_NVRTC_H

#include "base/text.h"

struct kv_nvrtc {
  int major, minor;
  int (*create)(void **out, const char *source, const char *name, int headers, const char *const *texts,
                const char *const *names);
  int (*compile)(void *program, int options, const char *const *list);
  int (*cubin_size)(void *program, size_t *out);
  int (*cubin)(void *program, char *out);
  int (*log_size)(void *program, size_t *out);
  int (*log)(void *program, char *out);
  int (*destroy)(void **program);
};

/* The first that is found and no newer than `major_most`: the file that GAPLESS_NVRTC names; beside the Python packages
 * that are loaded; CUDA_HOME, CUDA_PATH, /usr/local/cuda; where the loader looks.  It stays loaded.  GAP_ENOTSUP: none;
 * `why` says what was found. */
int gap__kv_nvrtc_open(unsigned major_most, struct kv_nvrtc *out, struct gap__text *why);
/* Code for compute capability `arch` (90); free it.  GAP_ENOTSUP with the compiler's words in `why`; GAP_ENOMETA. */
int gap__kv_nvrtc_compile(const struct kv_nvrtc *, const char *source, const char *defines, unsigned arch,
                          struct gap__text *why, char **image, size_t *bytes);

#endif
