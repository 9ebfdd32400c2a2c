#include "kernels/find.h"

#include <stdio.h>
#include <string.h>

#include "kernels/cpu.h"
#include "kv/attend.cu"
#include "kv/move.cu"

#define VARIANT(head, group, bf16, small) \
  cpu_kernel cpu_gap_kv_attend_##head##_##group##_##bf16##_##small, cpu_gap_kv_join_##head##_##group##_##bf16##_##small;
#include "kernels/variants.def"
#undef VARIANT
cpu_kernel cpu_gap_kv_move, cpu_gap_kv_copy;

static int broken;
int kernels_broken(void) { return broken; }

static void run(cpu_kernel *kernel, const void *argument, const struct fake_cuda_grid *grid) {
  struct cpu_index blocks = {(int)grid->blocks[0], (int)grid->blocks[1], (int)grid->blocks[2]};
  broken += !cpu_run(kernel, argument, blocks, (int)grid->threads, grid->shared_bytes);
}

#define RUNNER(kernel) \
  static void run_##kernel(const void *argument, const struct fake_cuda_grid *grid) { \
    run(cpu_##kernel, argument, grid); \
  }
#define VARIANT(head, group, bf16, small) \
  RUNNER(gap_kv_attend_##head##_##group##_##bf16##_##small) RUNNER(gap_kv_join_##head##_##group##_##bf16##_##small)
#include "kernels/variants.def"
#undef VARIANT
RUNNER(gap_kv_move)
RUNNER(gap_kv_copy)

static const struct known {
  const char *name, *defines;
  struct fake_cuda_kernel kernel;
} all[] = {
#define VARIANT(head, group, bf16, small) \
  {"gap_kv_attend", \
   "-DHEAD=" #head " -DGROUP=" #group " -DBF16=" #bf16 " -DSMALL_PAGES=" #small " ", \
   {run_gap_kv_attend_##head##_##group##_##bf16##_##small, sizeof(struct gap_kv_attend_args)}}, \
      {"gap_kv_join", \
       "-DHEAD=" #head " -DGROUP=" #group " -DBF16=" #bf16 " -DSMALL_PAGES=" #small " ", \
       {run_gap_kv_join_##head##_##group##_##bf16##_##small, sizeof(struct gap_kv_attend_args)}},
#include "kernels/variants.def"
#undef VARIANT
    {"gap_kv_move", "-arch=sm_90", {run_gap_kv_move, sizeof(struct gap_kv_move_args)}},
    {"gap_kv_copy", "-arch=sm_90", {run_gap_kv_copy, sizeof(struct gap_kv_copy_args)}},
};

bool kernels_find(const char *image, const char *name, struct fake_cuda_kernel *out) {
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (strcmp(all[i].name, name) == 0 && strstr(image, all[i].defines) && strstr(image, "-arch=sm_90")) {
      *out = all[i].kernel;
      return true;
    }
  return false;
}
