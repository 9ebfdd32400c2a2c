/* Kernels compiled for the processor, for the fake driver. */
#ifndef GAP_TESTS_KERNELS_FIND_H
#define GAP_TESTS_KERNELS_FIND_H

#include "support/fake_cuda.h"

fake_cuda_find_kernel kernels_find;
/* Runs that went wrong: a barrier that not all came to, shared memory overrun. */
int kernels_broken(void);

#endif
