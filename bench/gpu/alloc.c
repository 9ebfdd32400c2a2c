/* Allocation and free in stream order on a GPU, wall time: gapless beside cuMemAllocAsync and cuMemAlloc, in turns.
 *
 *   pair      allocate and free one size while others stay live
 *   churn     free a random one of 2,000 live blocks (512 B to 16 MiB, log-uniform) and allocate a fresh size
 *   threads   pairs of 64 KiB by 1 to 16 threads, each on its own stream, against a loop that shares nothing; and all on one */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "gpu.h"

enum { REPEAT = 9, LIVE = 2000, THREADS = 16, THREAD_PAIRS = 400000 };

struct subject {
  const char *name;
  CUdeviceptr (*alloc)(CUstream, size_t);
  void (*free)(CUdeviceptr, CUstream);
  unsigned pairs; /* of one measurement */
};

static gap_heap *heap;

static CUdeviceptr gapless_alloc(CUstream stream, size_t bytes) {
  gap_addr addr;
  GAP(gap_alloc(heap, 0, (gap_stream)(uintptr_t)stream, bytes, &addr));
  return addr;
}
static void gapless_free(CUdeviceptr addr, CUstream stream) {
  (void)stream;
  GAP(gap_free(heap, addr));
}
static CUdeviceptr async_alloc(CUstream stream, size_t bytes) {
  CUdeviceptr addr;
  CU(cuMemAllocAsync(&addr, bytes, stream));
  return addr;
}
static void async_free(CUdeviceptr addr, CUstream stream) { CU(cuMemFreeAsync(addr, stream)); }
static CUdeviceptr plain_alloc(CUstream stream, size_t bytes) {
  CUdeviceptr addr;
  (void)stream;
  CU(cuMemAlloc(&addr, bytes));
  return addr;
}
static void plain_free(CUdeviceptr addr, CUstream stream) {
  (void)stream;
  CU(cuMemFree(addr));
}

static const struct subject subjects[] = {
    {"gapless", gapless_alloc, gapless_free, 200000},
    {"cuMemAllocAsync", async_alloc, async_free, 20000},
    {"cuMemAlloc", plain_alloc, plain_free, 50},
};
enum { SUBJECTS = sizeof subjects / sizeof subjects[0] };

/* The driver's pool keeps what is freed: its best case. */
static void let_pool_keep(void) {
  CUmemoryPool pool;
  uint64_t keep = UINT64_MAX;
  CU(cuDeviceGetDefaultMemPool(&pool, 0));
  CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
}

static double pair_ns(const struct subject *subject, CUstream stream, size_t bytes) {
  uint64_t start = gpu_wall_ns();
  for (unsigned i = 0; i < subject->pairs; i++) subject->free(subject->alloc(stream, bytes), stream);
  return (double)(gpu_wall_ns() - start) / subject->pairs;
}

static int measure_pairs(CUstream stream) {
  static const size_t sizes[] = {512, 64 << 10, 1 << 20, 32 << 20};
  double ns[SUBJECTS][REPEAT];
  int missed = 0;
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    char what[80];
    double median[SUBJECTS];
    for (int r = 0; r < REPEAT; r++)
      for (int i = 0; i < SUBJECTS; i++) ns[i][r] = pair_ns(&subjects[i], stream, sizes[s]);
    for (int i = 0; i < SUBJECTS; i++) {
      struct gpu_spread spread = gpu_spread(ns[i], REPEAT);
      median[i] = spread.median;
      snprintf(what, sizeof what, "pair of %zu B, %s", sizes[s], subjects[i].name);
      gpu_print(what, "ns", spread);
    }
    snprintf(what, sizeof what, "pair of %zu B against cuMemAllocAsync + cuMemFreeAsync", sizes[s]);
    missed += gpu_figure(what, "times faster", 20, median[1] / median[0], 1);
  }
  return missed;
}

static uint64_t next_random(uint64_t *state) { /* xorshift64*, Vigna 2016 */
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * 0x2545F4914F6CDD1Dull;
}

static size_t next_size(uint64_t *state) {
  return (size_t)exp2(9 + 15 * (double)(next_random(state) >> 11) / (double)(1ull << 53));
}

static double churn_ns(const struct subject *subject, CUstream stream, CUdeviceptr *live, uint64_t *state) {
  unsigned count = subject->pairs;
  uint64_t start = gpu_wall_ns();
  for (unsigned i = 0; i < count; i++) {
    CUdeviceptr *at = &live[next_random(state) % LIVE];
    subject->free(*at, stream);
    *at = subject->alloc(stream, next_size(state));
  }
  return (double)(gpu_wall_ns() - start) / count;
}

static void measure_churn(CUstream stream) {
  for (int i = 0; i < SUBJECTS - 1; i++) { /* cuMemAlloc would take minutes */
    static CUdeviceptr live[LIVE];
    double ns[REPEAT];
    uint64_t state = 88172645463325252ull;
    char what[80];
    for (int l = 0; l < LIVE; l++) live[l] = subjects[i].alloc(stream, next_size(&state));
    churn_ns(&subjects[i], stream, live, &state);
    for (int r = 0; r < REPEAT; r++) ns[r] = churn_ns(&subjects[i], stream, live, &state);
    for (int l = 0; l < LIVE; l++) subjects[i].free(live[l], stream);
    snprintf(what, sizeof what, "churn of 2,000 live, %s", subjects[i].name);
    gpu_print(what, "ns", gpu_spread(ns, REPEAT));
  }
}

/* ---- threads ---- */

struct worker {
  pthread_t thread;
  pthread_barrier_t *start;
  CUstream stream;
  int shares; /* 1: gapless; 0: a loop that shares nothing */
  double ns;
};

/* About as long as a pair. */
static uint64_t spin(uint64_t count) {
  volatile uint64_t sum = 0;
  for (uint64_t i = 0; i < count * 16; i++) sum += i;
  return sum;
}

static void *work(void *arg) {
  struct worker *me = arg;
  pthread_barrier_wait(me->start);
  uint64_t start = gpu_wall_ns();
  if (me->shares)
    for (int i = 0; i < THREAD_PAIRS; i++) gapless_free(gapless_alloc(me->stream, 64 << 10), me->stream);
  else spin(THREAD_PAIRS);
  me->ns = (double)(gpu_wall_ns() - start);
  return NULL;
}

/* Wall time of the slowest of `count` threads. */
static double threads_ns(int count, int shares, CUstream *streams) {
  struct worker workers[THREADS];
  pthread_barrier_t start;
  double most = 0;
  pthread_barrier_init(&start, NULL, (unsigned)count);
  for (int i = 0; i < count; i++) {
    workers[i] = (struct worker){.start = &start, .stream = streams[i], .shares = shares};
    pthread_create(&workers[i].thread, NULL, work, &workers[i]);
  }
  for (int i = 0; i < count; i++) {
    pthread_join(workers[i].thread, NULL);
    if (workers[i].ns > most) most = workers[i].ns;
  }
  pthread_barrier_destroy(&start);
  return most;
}

static int measure_threads(void) {
  CUstream streams[THREADS];
  double ratio[REPEAT], each[REPEAT];
  for (int i = 0; i < THREADS; i++) streams[i] = gpu_stream();
  threads_ns(THREADS, 1, streams);
  for (int count = 2; count <= THREADS; count *= 2) {
    char what[80];
    for (int r = 0; r < REPEAT; r++) {
      double one = threads_ns(1, 1, streams), many = threads_ns(count, 1, streams);
      double loop_one = threads_ns(1, 0, streams), loop_many = threads_ns(count, 0, streams);
      ratio[r] = one / many / (loop_one / loop_many);
      each[r] = many / THREAD_PAIRS;
    }
    snprintf(what, sizeof what, "%d threads on own streams, a pair", count);
    gpu_print(what, "ns", gpu_spread(each, REPEAT));
    snprintf(what, sizeof what, "%d threads on own streams, scaling against an unshared loop's", count);
    gpu_print(what, "x", gpu_spread(ratio, REPEAT));
  }
  return gpu_figure("16 threads on own streams", "x unshared loop's scaling", 0.85, gpu_spread(ratio, REPEAT).median,
                    1);
}

/* Wall time over all pairs, of all threads. */
static void measure_shared(void) {
  CUstream streams[THREADS];
  double ns[REPEAT];
  streams[0] = gpu_stream();
  for (int i = 1; i < THREADS; i++) streams[i] = streams[0];
  for (int count = 1; count <= THREADS; count *= 4) {
    char what[80];
    for (int r = 0; r < REPEAT; r++) ns[r] = threads_ns(count, 1, streams) / THREAD_PAIRS / count;
    snprintf(what, sizeof what, "%d threads on one stream, a pair", count);
    gpu_print(what, "ns", gpu_spread(ns, REPEAT));
  }
}

int main(void) {
  gpu_open();
  gpu_where();
  let_pool_keep();
  heap = gpu_heap(NULL);
  CUstream stream = gpu_stream();
  int missed = measure_pairs(stream);
  measure_churn(stream);
  missed += measure_threads();
  measure_shared();
  gap_heap_destroy(heap);
  return missed > 0;
}
