/* What the driver charges: each call by chunk size, events, and whether two threads that make pages gain by it.
 *
 * The simulated card's prices (src/dev/sim/price.c) come from here, and from the calls that a history on a real card counts. */
#include <pthread.h>

#include "gpu.h"

enum { REPEAT = 9, CHUNKS = 256, EVENTS = 2000, THREADS_MAX = 2 };
#define PAGE ((size_t)2 << 20)

static CUmemAllocationProp on_card(void) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return prop;
}

enum call { CREATE, MAP, ACCESS, UNMAP, RELEASE, CALLS };
static const char *const call_names[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"};

struct round {
  CUdeviceptr at;
  CUmemGenericAllocationHandle handles[CHUNKS];
  double us[CALLS]; /* a chunk */
};

/* Times `statement` for each chunk. */
#define EACH(call, statement) \
  do { \
    uint64_t begun_ns = gpu_wall_ns(); \
    for (unsigned i = 0; i < count; i++) CU(statement); \
    round->us[call] = (double)(gpu_wall_ns() - begun_ns) / 1e3 / count; \
  } while (0)

static void make_and_give(struct round *round, size_t bytes, unsigned count) {
  CUmemAllocationProp prop = on_card();
  CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EACH(CREATE, cuMemCreate(&round->handles[i], bytes, &prop, 0));
  EACH(MAP, cuMemMap(round->at + i * bytes, bytes, 0, round->handles[i], 0));
  EACH(ACCESS, cuMemSetAccess(round->at + i * bytes, bytes, &access, 1));
  EACH(UNMAP, cuMemUnmap(round->at + i * bytes, bytes));
  EACH(RELEASE, cuMemRelease(round->handles[i]));
}

static void print_sizes(void) {
  static const unsigned mib[] = {2, 20, 64, 256, 1024};
  static struct round round;
  CU(cuMemAddressReserve(&round.at, (size_t)16 << 30, 0, 0, 0));
  for (unsigned s = 0; s < sizeof mib / sizeof *mib; s++) {
    size_t bytes = (size_t)mib[s] << 20;
    unsigned count = mib[s] > 64 ? 8 : CHUNKS / mib[s] + 1;
    double us[CALLS][REPEAT];
    make_and_give(&round, bytes, count);
    for (int r = 0; r < REPEAT; r++) {
      make_and_give(&round, bytes, count);
      for (int c = 0; c < CALLS; c++) us[c][r] = round.us[c];
    }
    for (int c = 0; c < CALLS; c++) {
      char what[64];
      snprintf(what, sizeof what, "%s of %u MiB", call_names[c], mib[s]);
      gpu_print(what, "us", gpu_spread(us[c], REPEAT));
    }
  }
  CU(cuMemAddressFree(round.at, (size_t)16 << 30));
}

/* ---- events ---- */

/* A mean over many, once a repetition. */
#define PRINT_EVENTS(what, statement) \
  do { \
    double us[REPEAT]; \
    for (int r = 0; r < REPEAT; r++) { \
      uint64_t begun_ns = gpu_wall_ns(); \
      for (int i = 0; i < EVENTS; i++) (void)(statement); \
      us[r] = (double)(gpu_wall_ns() - begun_ns) / 1e3 / EVENTS; \
      CU(cuStreamSynchronize(stream)); \
    } \
    gpu_print(what, "us", gpu_spread(us, REPEAT)); \
  } while (0)

static void print_events(void) {
  CUstream stream = gpu_stream();
  CUevent event;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  PRINT_EVENTS("cuEventRecord", cuEventRecord(event, stream));
  PRINT_EVENTS("cuEventQuery", cuEventQuery(event));
  CU(cuEventDestroy(event));
  CU(cuStreamDestroy(stream));
}

/* ---- two at once ---- */

struct maker {
  CUcontext context;
  struct round round;
  pthread_barrier_t *begin;
};

/* CHUNKS pages made accessible, each by itself as one thread does it, then given back untimed. */
static void *make_pages(void *arg) {
  struct maker *maker = arg;
  struct round *round = &maker->round;
  CUmemAllocationProp prop = on_card();
  CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CU(cuCtxSetCurrent(maker->context));
  pthread_barrier_wait(maker->begin);
  for (unsigned i = 0; i < CHUNKS; i++) {
    CU(cuMemCreate(&round->handles[i], PAGE, &prop, 0));
    CU(cuMemMap(round->at + i * PAGE, PAGE, 0, round->handles[i], 0));
  }
  CU(cuMemSetAccess(round->at, CHUNKS * PAGE, &access, 1));
  pthread_barrier_wait(maker->begin);
  for (unsigned i = 0; i < CHUNKS; i++) {
    CU(cuMemUnmap(round->at + i * PAGE, PAGE));
    CU(cuMemRelease(round->handles[i]));
  }
  return NULL;
}

/* Microseconds a page, wall over all pages. */
static double make_with(unsigned threads) {
  static struct maker makers[THREADS_MAX];
  pthread_t ids[THREADS_MAX];
  pthread_barrier_t begin;
  pthread_barrier_init(&begin, NULL, threads + 1);
  for (unsigned t = 0; t < threads; t++) {
    makers[t].begin = &begin;
    CU(cuCtxGetCurrent(&makers[t].context));
    CU(cuMemAddressReserve(&makers[t].round.at, CHUNKS * PAGE, 0, 0, 0));
    pthread_create(&ids[t], NULL, make_pages, &makers[t]);
  }
  pthread_barrier_wait(&begin);
  uint64_t begun_ns = gpu_wall_ns();
  pthread_barrier_wait(&begin);
  double us = (double)(gpu_wall_ns() - begun_ns) / 1e3 / (threads * CHUNKS);
  for (unsigned t = 0; t < threads; t++) {
    pthread_join(ids[t], NULL);
    CU(cuMemAddressFree(makers[t].round.at, CHUNKS * PAGE));
  }
  pthread_barrier_destroy(&begin);
  return us;
}

static void print_threads(void) {
  double us[THREADS_MAX][REPEAT];
  for (int r = 0; r < REPEAT; r++)
    for (unsigned t = 1; t <= THREADS_MAX; t++) us[t - 1][r] = make_with(t);
  gpu_print("a page made, one thread", "us", gpu_spread(us[0], REPEAT));
  gpu_print("a page made, two threads at once", "us", gpu_spread(us[1], REPEAT));
}

int main(void) {
  gpu_open();
  gpu_where();
  print_sizes();
  print_events();
  print_threads();
  return 0;
}
