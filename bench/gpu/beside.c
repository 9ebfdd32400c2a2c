/* What a running program feels of an allocator at work beside it, and what the work costs: a loop of matrix products and single
 * kernel launches, alone and beside
 *
 *   stealing    two streams take the same pages from each other without a pause (map, set access, unmap)
 *   growing     pages are created and given back
 *   cuMemAlloc  256 MiB taken and freed without a pause: what allocators of whole segments do */
#include <cublas_v2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "gpu.h"

enum { N = 8192, GEMMS = 150, LAUNCHES = 20000, REPEAT = 7, BLOCKS = 3 };
#define BLOCK_BYTES ((uint64_t)1 << 30)

static const char ptx[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry nothing()\n{\nret;\n}\n";

/* ---- the work beside ---- */

struct beside {
  const char *name;
  void (*round)(struct beside *);
  CUstream streams[2];
  gap_heap *heap;
  pthread_t thread;
  atomic_int stop;
  uint64_t rounds, pages, ns;
};

static void take_and_free(struct beside *beside, CUstream stream) {
  gap_addr addr[BLOCKS];
  for (int i = 0; i < BLOCKS; i++)
    GAP(gap_alloc(beside->heap, 0, (gap_stream)(uintptr_t)stream, BLOCK_BYTES, &addr[i]));
  for (int i = 0; i < BLOCKS; i++) GAP(gap_free(beside->heap, addr[i]));
}

static void steal(struct beside *beside) {
  for (int i = 0; i < 2; i++) take_and_free(beside, beside->streams[i]);
}

static void grow(struct beside *beside) {
  take_and_free(beside, beside->streams[0]);
  GAP(gap_trim(beside->heap, 0, (gap_pool_id){0, 0}, NULL));
}

static void alloc_plain(struct beside *beside) {
  CUdeviceptr addr;
  (void)beside;
  CU(cuMemAlloc(&addr, 256 << 20));
  CU(cuMemFree(addr));
}

static int64_t pages_moved(const struct beside *beside) {
  if (!beside->heap) return 0;
  return gpu_stat(beside->heap, beside->round == steal ? "pages_stolen" : "pages_grown");
}

static void *work(void *arg) {
  struct beside *beside = arg;
  CUcontext context;
  CU(cuDevicePrimaryCtxRetain(&context, 0));
  CU(cuCtxSetCurrent(context));
  uint64_t start = gpu_wall_ns();
  int64_t before = pages_moved(beside);
  while (!atomic_load(&beside->stop)) {
    beside->round(beside);
    beside->rounds++;
  }
  beside->ns += gpu_wall_ns() - start;
  beside->pages += (uint64_t)(pages_moved(beside) - before);
  return NULL;
}

static void start(struct beside *beside) {
  atomic_store(&beside->stop, 0);
  if (beside->round) pthread_create(&beside->thread, NULL, work, beside);
}

static void stop(struct beside *beside) {
  atomic_store(&beside->stop, 1);
  if (beside->round) pthread_join(beside->thread, NULL);
}

/* ---- the program ---- */

struct program {
  cublasHandle_t blas;
  CUstream stream;
  CUdeviceptr a, b, c;
  CUfunction nothing;
};

static void fill_random(CUdeviceptr at, size_t count) {
  uint16_t *values = malloc(count * sizeof *values);
  uint32_t state = 12345;
  for (size_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    values[i] = (uint16_t)(0x3C00 + (state >> 22) + ((state >> 3 & 1) << 15)); /* bf16 around +-0.01 */
  }
  CU(cuMemcpyHtoD(at, values, count * sizeof *values));
  free(values);
}

static void open_program(struct program *program) {
  size_t bytes = (size_t)N * N * 2;
  program->stream = gpu_stream();
  program->nothing = gpu_kernel(ptx, "nothing");
  CU(cuMemAlloc(&program->a, bytes));
  CU(cuMemAlloc(&program->b, bytes));
  CU(cuMemAlloc(&program->c, bytes));
  fill_random(program->a, (size_t)N * N);
  fill_random(program->b, (size_t)N * N);
  if (cublasCreate(&program->blas) || cublasSetStream(program->blas, (cudaStream_t)program->stream)) exit(1);
}

static double gemms_ms(struct program *program) {
  float one = 1, zero = 0;
  CU(cuStreamSynchronize(program->stream));
  uint64_t start_ns = gpu_wall_ns();
  for (int i = 0; i < GEMMS; i++)
    if (cublasGemmEx(program->blas, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, (void *)program->a, CUDA_R_16BF, N,
                     (void *)program->b, CUDA_R_16BF, N, &zero, (void *)program->c, CUDA_R_16BF, N, CUBLAS_COMPUTE_32F,
                     CUBLAS_GEMM_DEFAULT))
      exit(1);
  CU(cuStreamSynchronize(program->stream));
  return (double)(gpu_wall_ns() - start_ns) / 1e6 / GEMMS;
}

/* p50 and p99 of the launch call, in microseconds. */
static void launches_us(struct program *program, double *p50, double *p99) {
  static double us[LAUNCHES];
  for (int i = 0; i < LAUNCHES; i++) {
    if (i % 256 == 0) CU(cuStreamSynchronize(program->stream));
    uint64_t start_ns = gpu_wall_ns();
    CU(cuLaunchKernel(program->nothing, 1, 1, 1, 32, 1, 1, 0, program->stream, NULL, NULL));
    us[i] = (double)(gpu_wall_ns() - start_ns) / 1e3;
  }
  gpu_spread(us, LAUNCHES);
  *p50 = gpu_percentile(us, LAUNCHES, 50);
  *p99 = gpu_percentile(us, LAUNCHES, 99);
}

enum { ALONE, STEALING, GROWING, PLAIN, KINDS };

struct samples {
  double gemm[REPEAT], p50[REPEAT], p99[REPEAT];
};

static void report(struct beside *beside, struct samples *samples, struct gpu_spread *gemm, struct gpu_spread *p99) {
  char what[80];
  snprintf(what, sizeof what, "matrix product of 8192 in bf16, %s", beside->name);
  gpu_print(what, "ms", *gemm = gpu_spread(samples->gemm, REPEAT));
  snprintf(what, sizeof what, "kernel launch p50, %s", beside->name);
  gpu_print(what, "us", gpu_spread(samples->p50, REPEAT));
  snprintf(what, sizeof what, "kernel launch p99, %s", beside->name);
  gpu_print(what, "us", *p99 = gpu_spread(samples->p99, REPEAT));
  if (!beside->pages) return;
  double us = (double)beside->ns / 1e3 / (double)beside->pages;
  snprintf(what, sizeof what, "a page of 2 MiB, %s", beside->name);
  gpu_print(what, "us", (struct gpu_spread){us, us, us});
}

/* The same without the program beside it. */
static void report_quiet(struct beside *beside, uint64_t run_ns) {
  char what[80];
  beside->pages = beside->ns = 0;
  start(beside);
  for (uint64_t begun = gpu_wall_ns(); gpu_wall_ns() - begun < run_ns;) continue;
  stop(beside);
  double us = (double)beside->ns / 1e3 / (double)beside->pages;
  snprintf(what, sizeof what, "a page of 2 MiB, %s on an idle card", beside->name);
  gpu_print(what, "us", (struct gpu_spread){us, us, us});
}

int main(void) {
  struct program program;
  struct beside beside[KINDS] = {{.name = "alone"},
                                 {.name = "beside stealing", .round = steal},
                                 {.name = "beside growing and trimming", .round = grow},
                                 {.name = "beside cuMemAlloc and cuMemFree", .round = alloc_plain}};
  static struct samples samples[KINDS];
  struct gpu_spread gemm[KINDS], p99[KINDS];
  gpu_open();
  gpu_where();
  open_program(&program);
  beside[STEALING].heap = gpu_heap("max_memory:3GiB,page_maker:False");
  beside[GROWING].heap = gpu_heap("page_maker:False");
  for (int k = STEALING; k <= GROWING; k++)
    for (int i = 0; i < 2; i++) beside[k].streams[i] = gpu_stream();
  gemms_ms(&program);
  for (int r = 0; r < REPEAT; r++)
    for (int k = 0; k < KINDS; k++) {
      start(&beside[k]);
      samples[k].gemm[r] = gemms_ms(&program);
      launches_us(&program, &samples[k].p50[r], &samples[k].p99[r]);
      stop(&beside[k]);
    }
  for (int k = 0; k < KINDS; k++) report(&beside[k], &samples[k], &gemm[k], &p99[k]);
  report_quiet(&beside[STEALING], 1000000000u);
  report_quiet(&beside[GROWING], 1000000000u);
  int missed =
      gpu_figure("matrix products beside stealing", "x alone", 0.90, gemm[ALONE].median / gemm[STEALING].median, 1);
  missed += gpu_figure("launch p99 beside stealing", "x alone", 1.2, p99[STEALING].median / p99[ALONE].median, 0);
  gap_heap_destroy(beside[STEALING].heap);
  gap_heap_destroy(beside[GROWING].heap);
  return missed > 0;
}
