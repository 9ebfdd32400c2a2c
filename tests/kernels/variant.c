/* One shape of a kernel, compiled for the processor: HEAD, GROUP, BF16, SMALL_PAGES and VARIANT come from the build. */
#define CPU_KERNEL_SOURCE
#include "kernels/cpu.h"

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define GAP_KV_NAME(name) JOIN(kernel_##name, VARIANT)
#define KERNEL(threads, blocks) static void
#ifdef HEAD
#include "kv/attend.cu"
#define ENTRY(name) \
  void JOIN(cpu_##name, VARIANT)(const void *argument); \
  void JOIN(cpu_##name, VARIANT)(const void *argument) { \
    GAP_KV_NAME(name)(*(const struct gap_kv_attend_args *)argument); \
  }
ENTRY(gap_kv_attend)
ENTRY(gap_kv_join)
#else
#include "kv/move.cu"
void cpu_gap_kv_move(const void *argument);
void cpu_gap_kv_copy(const void *argument);
void cpu_gap_kv_move(const void *argument) { GAP_KV_NAME(gap_kv_move)(*(const struct gap_kv_move_args *)argument); }
void cpu_gap_kv_copy(const void *argument) { GAP_KV_NAME(gap_kv_copy)(*(const struct gap_kv_copy_args *)argument); }
#endif
