/* What the kernels need of a card: goes before each of them (NVRTC). */
#define GAP_KV_KERNELS
#define GAP_KV_NAME(name) name
#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define DEVICE static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define BLOCK(axis) ((int)blockIdx.axis)
#define BLOCKS(axis) ((int)gridDim.axis)
#define THREAD ((int)threadIdx.x)
#define MINUS_INFINITY __int_as_float(0xff800000)

struct __align__(16) quad {
  unsigned x, y, z, w;
};

extern __shared__ struct quad gap_kv_shared[];
DEVICE char *shared_memory() { return (char *)gap_kv_shared; }

DEVICE float as_float(unsigned bits) { return __uint_as_float(bits); }
DEVICE unsigned as_bits(float x) { return __float_as_uint(x); }
DEVICE float half_to_float(unsigned half) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)half));
  return x;
}
DEVICE unsigned float_to_half(float x) {
  unsigned short half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
  return half;
}
DEVICE float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

DEVICE float exchange_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
DEVICE float exchange(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
DEVICE int any(int x) { return __any_sync(0xffffffffu, x); }
DEVICE void sync_warp() { __syncwarp(); }
DEVICE void sync_block() { __syncthreads(); }

/* 16 bytes, or zeros. */
DEVICE void copy_async(void *to, const void *from, int there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}
DEVICE void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
#define await_copies(count) asm volatile("cp.async.wait_group %0;" ::"n"(count) : "memory")
