/* Stands in for CUDA's header of this name, which pip installs with the compiler's package only, while torch brings
 * cuda_runtime_api.h, which includes it.  For a host compiler on Linux the words that it defines mean nothing but these. */
#ifndef GAPLESS_CRT_HOST_DEFINES_H
#define GAPLESS_CRT_HOST_DEFINES_H

#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_surface_type__
#define __device_builtin_texture_type__
#define __specialization_static static
#define __no_return__ __attribute__((noreturn))
#define __noinline__ __attribute__((noinline))
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__

#endif
