/* The kernels of the KV cache on the processor: what device.cu says for a card, in C.  A block's threads are fibers;
 * one goes on until it must wait for the others of its warp or block, so an exchange that not all lanes take part in is
 * found: the run stops there.
 *
 * Asynchronous copies are done when they are waited for, not when they are queued, so a read that comes too early finds
 * old bytes. */
#ifndef GAP_TESTS_KERNELS_CPU_H
#define GAP_TESTS_KERNELS_CPU_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct quad {
  unsigned x, y, z, w;
} __attribute__((aligned(16)));

struct cpu_index {
  int x, y, z;
};
extern struct cpu_index cpu_block, cpu_blocks;
extern int cpu_thread;

float cpu_exchange(float x, int lane); /* of the same warp */
bool cpu_any(bool);
void cpu_sync_warp(void);
void cpu_sync_block(void);
char *cpu_shared(void);
void cpu_copy_async(void *to, const void *from, int there);
void cpu_close_copies(void);
void cpu_await_copies(int pending);
float cpu_half_to_float(unsigned half);
unsigned cpu_float_to_half(float);

/* Runs a kernel over a grid.  False: threads waited for others that never came, or memory beyond `shared_bytes` was written. */
typedef void cpu_kernel(const void *argument);
bool cpu_run(cpu_kernel *kernel, const void *argument, struct cpu_index blocks, int threads, unsigned shared_bytes);

#ifdef CPU_KERNEL_SOURCE
#define GAP_KV_KERNELS
#define DEVICE static inline
#define UNROLL
#define BLOCK(axis) (cpu_block.axis)
#define BLOCKS(axis) (cpu_blocks.axis)
#define THREAD (cpu_thread)
#define MINUS_INFINITY (-INFINITY)

DEVICE char *shared_memory(void) { return cpu_shared(); }
DEVICE float as_float(unsigned bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
DEVICE unsigned as_bits(float x) {
  unsigned bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
DEVICE float half_to_float(unsigned half) { return cpu_half_to_float(half); }
DEVICE unsigned float_to_half(float x) { return cpu_float_to_half(x); }
DEVICE float power_of_two(float x) { return exp2f(x); }
DEVICE float exchange(float x, int lane) { return cpu_exchange(x, lane); }
DEVICE float exchange_xor(float x, int mask) { return cpu_exchange(x, THREAD % 32 ^ mask); }
DEVICE int any(int x) { return cpu_any(x); }
DEVICE void sync_warp(void) { cpu_sync_warp(); }
DEVICE void sync_block(void) { cpu_sync_block(); }
DEVICE void copy_async(void *to, const void *from, int there) { cpu_copy_async(to, from, there); }
DEVICE void close_copies(void) { cpu_close_copies(); }
#define await_copies(count) cpu_await_copies(count)
#endif

#endif
