#include "gpu/kernels.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dev/cuda/state.h"

#define REGISTERS ".reg .pred %p<3>;\n.reg .b32 %r<5>;\n.reg .b64 %d<9>;\n"
#define WORDS_PARAMETERS ".param .u64 addr, .param .u64 words, .param .u64 pattern"
/* %d1 address, %d2 words, %d3 pattern; %d4 this thread's first word, %d5 how many threads there are. */
#define WORDS_BEGIN \
  "ld.param.u64 %d1, [addr];\ncvta.to.global.u64 %d1, %d1;\nld.param.u64 %d2, [words];\nld.param.u64 %d3, " \
  "[pattern];\n" \
  "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\nmov.u32 %r4, %nctaid.x;\n" \
  "mul.wide.u32 %d4, %r1, %r2;\ncvt.u64.u32 %d5, %r3;\nadd.u64 %d4, %d4, %d5;\nmul.wide.u32 %d5, %r4, %r2;\n"
/* %d6: the address of the word at hand. */
#define WORDS_LOOP "next:\nsetp.ge.u64 %p1, %d4, %d2;\n@%p1 bra done;\nshl.b64 %d6, %d4, 3;\nadd.u64 %d6, %d6, %d1;\n"
#define WORDS_END "add.u64 %d4, %d4, %d5;\nbra next;\ndone:\n"

static const char ptx[] =
    ".version 6.3\n.target sm_70\n.address_size 64\n"
    ".visible .entry fill(" WORDS_PARAMETERS ") {\n" REGISTERS WORDS_BEGIN WORDS_LOOP
    "st.global.u64 [%d6], %d3;\n" WORDS_END "ret;\n}\n"
    /* Each thread counts for itself (%d7) and adds to the counter once. */
    ".visible .entry expect(" WORDS_PARAMETERS ", .param .u64 counter) {\n" REGISTERS WORDS_BEGIN
    "mov.u64 %d7, 0;\n" WORDS_LOOP
    "ld.global.u64 %d8, [%d6];\nsetp.ne.u64 %p2, %d8, %d3;\n@%p2 add.u64 %d7, %d7, 1;\n" WORDS_END
    "setp.eq.u64 %p2, %d7, 0;\n@%p2 bra good;\nld.param.u64 %d6, [counter];\ncvta.to.global.u64 %d6, %d6;\n"
    "red.global.add.u64 [%d6], %d7;\ngood:\nret;\n}\n"
    ".visible .entry delay(.param .u64 ns) {\n" REGISTERS
    "ld.param.u64 %d1, [ns];\nmov.u64 %d2, %globaltimer;\nmore:\nnanosleep.u32 2000;\nmov.u64 %d3, %globaltimer;\n"
    "sub.u64 %d4, %d3, %d2;\nsetp.lt.u64 %p1, %d4, %d1;\n@%p1 bra more;\nret;\n}\n";

/* What the backend does not need; declared like its own. */
#define ENTRIES(X) \
  X(cuModuleLoadDataEx, 2010, (void **out, const void *image, unsigned count, unsigned *options, void **values)) \
  X(cuModuleGetFunction, 2000, (void **out, void *module, const char *name)) \
  X(cuLaunchKernel, 4000, \
    (void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, \
     gap__cuda_stream, void **parameters, void **extra)) \
  X(cuCtxSynchronize, 2000, (void)) \
  X(cuStreamQuery, 2000, (gap__cuda_stream)) \
  X(cuMemsetD8, 3020, (gap__cuda_addr, unsigned char, size_t bytes)) \
  X(cuMemcpyDtoH, 3020, (void *to, gap__cuda_addr, size_t bytes)) \
  X(cuStreamBeginCapture, 10010, (gap__cuda_stream, unsigned mode)) \
  X(cuStreamEndCapture, 10000, (gap__cuda_stream, void **graph)) \
  X(cuGraphDestroy, 10000, (void *graph)) \
  X(cuGraphInstantiateWithFlags, 11040, (void **out, void *graph, unsigned long long flags)) \
  X(cuGraphLaunch, 10000, (void *graph, gap__cuda_stream)) \
  X(cuGraphExecDestroy, 10000, (void *graph))

enum { STREAMS_MAX = 64, THREADS = 256, BLOCKS_MAX = 1024, JIT_ERROR_BUFFER = 5, JIT_ERROR_BUFFER_BYTES = 6 };

struct kernels {
  struct cuda *cuda;
#define X(name, version, parameters) gap__cuda_result(*name) parameters;
  ENTRIES(X)
#undef X
  void *fill, *expect, *delay; /* functions */
  gap_addr counter;
  pthread_mutex_t lock; /* guards the streams */
  gap_stream streams[STREAMS_MAX];
  int stream_count;
};

static bool bind(struct kernels *k) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL, *at = NULL;
  gap__cuda_get_proc_address *find;
  unsigned status;
  memcpy(&find, &symbol, sizeof find);
  if (!find) return false;
#define X(name, version, parameters) \
  if (find(#name, &at, version, GAP__CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status) != 0 || !at) return false; \
  memcpy(&k->name, &at, sizeof at);
  ENTRIES(X)
#undef X
  return true;
}

/* One driver call; a failure is explained by gap__dev_last_error. */
#define DO(k, call) gap__cuda_check((k)->cuda, #call, call)

static int load(struct kernels *k) {
  char message[2048] = "";
  unsigned options[] = {JIT_ERROR_BUFFER, JIT_ERROR_BUFFER_BYTES};
  void *values[] = {message, (void *)(uintptr_t)sizeof message}, *module = NULL;
  int rc = DO(k, k->cuModuleLoadDataEx(&module, ptx, 2, options, values));
  if (rc != 0) fprintf(stderr, "kernels: %s\n", message);
  if (rc == 0) rc = DO(k, k->cuModuleGetFunction(&k->fill, module, "fill"));
  if (rc == 0) rc = DO(k, k->cuModuleGetFunction(&k->expect, module, "expect"));
  if (rc == 0) rc = DO(k, k->cuModuleGetFunction(&k->delay, module, "delay"));
  if (rc == 0) rc = DO(k, k->cuda->driver.cuMemAlloc(&k->counter, sizeof(uint64_t)));
  if (rc == 0) rc = DO(k, k->cuMemsetD8(k->counter, 0, sizeof(uint64_t)));
  return rc;
}

/* Once each before anything is measured: the driver makes room at the first launch. */
static int warm_up(struct kernels *k) {
  int rc = kernels_delay(k, 1, 0);
  if (rc == 0) rc = kernels_fill(k, k->counter, 8, 0, 0);
  if (rc == 0) rc = kernels_expect(k, k->counter, 8, 0, 0);
  return rc ? rc : kernels_wait(k);
}

int kernels_open(struct gap__dev *dev, struct kernels **out) {
  struct kernels *k = calloc(1, sizeof *k);
  struct gap__cuda_scope scope;
  if (!k) return GAP_ENOMETA;
  k->cuda = cuda_of(dev);
  pthread_mutex_init(&k->lock, NULL);
  int rc = bind(k) ? gap__cuda_enter(k->cuda, k->cuda->context, &scope) : GAP_ENOTSUP;
  if (rc == 0) {
    rc = load(k);
    gap__cuda_leave(k->cuda, &scope);
  }
  if (rc == 0) rc = warm_up(k);
  char why[256];
  gap__dev_last_error(dev, why, sizeof why);
  if (rc != 0) fprintf(stderr, "kernels: %s\n", why);
  if (rc == 0) *out = k;
  else free(k);
  return rc;
}

void kernels_close(struct kernels *k) {
  if (!k) return;
  (void)kernels_wait(k);
  (void)gap__cuda_segment_free(&k->cuda->dev, k->counter);
  pthread_mutex_destroy(&k->lock);
  free(k);
}

static void note_stream(struct kernels *k, gap_stream stream) {
  pthread_mutex_lock(&k->lock);
  int i = 0;
  while (i < k->stream_count && k->streams[i] != stream) i++;
  if (i == k->stream_count && i < STREAMS_MAX) k->streams[k->stream_count++] = stream;
  pthread_mutex_unlock(&k->lock);
}

static int launch(struct kernels *k, void *function, uint64_t threads, void **parameters, gap_stream stream) {
  struct gap__cuda_scope scope;
  uint64_t blocks = (threads + THREADS - 1) / THREADS;
  if (blocks > BLOCKS_MAX) blocks = BLOCKS_MAX;
  unsigned width = threads == 1 ? 1 : THREADS;
  int rc = gap__cuda_enter(k->cuda, k->cuda->context, &scope);
  if (rc != 0) return rc;
  note_stream(k, stream);
  rc = DO(k, k->cuLaunchKernel(function, (unsigned)blocks, 1, 1, width, 1, 1, 0, stream_of(stream), parameters, NULL));
  gap__cuda_leave(k->cuda, &scope);
  return rc;
}

int kernels_fill(struct kernels *k, gap_addr addr, uint64_t bytes, uint64_t pattern, gap_stream stream) {
  uint64_t words = bytes / 8;
  return launch(k, k->fill, words, (void *[]){&addr, &words, &pattern}, stream);
}

int kernels_expect(struct kernels *k, gap_addr addr, uint64_t bytes, uint64_t pattern, gap_stream stream) {
  uint64_t words = bytes / 8;
  return launch(k, k->expect, words, (void *[]){&addr, &words, &pattern, &k->counter}, stream);
}

int kernels_delay(struct kernels *k, uint64_t ns, gap_stream stream) {
  return launch(k, k->delay, 1, (void *[]){&ns}, stream);
}

int kernels_wait(struct kernels *k) {
  struct gap__cuda_scope scope;
  int rc = gap__cuda_enter(k->cuda, k->cuda->context, &scope);
  if (rc != 0) return rc;
  rc = DO(k, k->cuCtxSynchronize());
  gap__cuda_leave(k->cuda, &scope);
  return rc;
}

uint64_t kernels_wrong(struct kernels *k) {
  struct gap__cuda_scope scope;
  uint64_t count = UINT64_MAX; /* a lost device has no right words */
  if (gap__cuda_enter(k->cuda, k->cuda->context, &scope) != 0) return count;
  if (DO(k, k->cuCtxSynchronize()) == 0) (void)DO(k, k->cuMemcpyDtoH(&count, k->counter, sizeof count));
  gap__cuda_leave(k->cuda, &scope);
  return count;
}

static bool all_idle(struct kernels *k) {
  struct gap__cuda_scope scope;
  bool idle = true;
  if (gap__cuda_enter(k->cuda, k->cuda->context, &scope) != 0) return true;
  pthread_mutex_lock(&k->lock);
  for (int i = 0; i < k->stream_count; i++)
    idle &= k->cuStreamQuery(stream_of(k->streams[i])) != GAP__CUDA_ERROR_NOT_READY;
  pthread_mutex_unlock(&k->lock);
  gap__cuda_leave(k->cuda, &scope);
  return idle;
}

void kernels_settle(struct kernels *k, unsigned ms) {
  for (unsigned i = 0; i < ms && !all_idle(k); i++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static int begin_capture(struct kernels *k, gap_stream stream) {
  return DO(k, k->cuStreamBeginCapture(stream_of(stream), GAP__CU_STREAM_CAPTURE_MODE_GLOBAL));
}

/* A capture that was spoilt ends with an error and without a graph: that is how it ends, all the same. */
static int end_capture(struct kernels *k, gap_stream stream) {
  void *graph = NULL;
  (void)k->cuStreamEndCapture(stream_of(stream), &graph);
  return graph ? DO(k, k->cuGraphDestroy(graph)) : 0;
}

int kernels_capture(struct kernels *k, gap_stream stream, bool on) {
  struct gap__cuda_scope scope;
  int rc = gap__cuda_enter(k->cuda, k->cuda->context, &scope);
  if (rc != 0) return rc;
  rc = on ? begin_capture(k, stream) : end_capture(k, stream);
  gap__cuda_leave(k->cuda, &scope);
  return rc;
}

/* ---- graphs ---- */

static int take(struct kernels *k, gap_stream stream, void **out) {
  void *graph = NULL;
  int rc = DO(k, k->cuStreamEndCapture(stream_of(stream), &graph));
  if (rc != 0) return rc;
  rc = DO(k, k->cuGraphInstantiateWithFlags(out, graph, 0));
  (void)DO(k, k->cuGraphDestroy(graph));
  return rc;
}

int kernels_graph_take(struct kernels *k, gap_stream stream, void **graph) {
  struct gap__cuda_scope scope;
  int rc = gap__cuda_enter(k->cuda, k->cuda->context, &scope);
  if (rc != 0) return rc;
  rc = take(k, stream, graph);
  gap__cuda_leave(k->cuda, &scope);
  return rc;
}

int kernels_graph_launch(struct kernels *k, void *graph, gap_stream stream) {
  struct gap__cuda_scope scope;
  int rc = gap__cuda_enter(k->cuda, k->cuda->context, &scope);
  if (rc != 0) return rc;
  rc = DO(k, k->cuGraphLaunch(graph, stream_of(stream)));
  gap__cuda_leave(k->cuda, &scope);
  return rc;
}

void kernels_graph_drop(struct kernels *k, void *graph) {
  struct gap__cuda_scope scope;
  if (gap__cuda_enter(k->cuda, k->cuda->context, &scope) != 0) return;
  (void)DO(k, k->cuGraphExecDestroy(graph));
  gap__cuda_leave(k->cuda, &scope);
}

bool kernels_capture_is_whole(struct kernels *k, gap_stream stream) {
  struct gap__cuda_scope scope;
  unsigned status = GAP__CU_STREAM_CAPTURE_STATUS_NONE;
  if (gap__cuda_enter(k->cuda, k->cuda->context, &scope) != 0) return false;
  int rc = DO(k, k->cuda->driver.cuStreamIsCapturing(stream_of(stream), &status));
  gap__cuda_leave(k->cuda, &scope);
  return rc == 0 && status == GAP__CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

gap_stream kernels_blocking_stream(struct kernels *k) {
  struct gap__cuda_scope scope;
  gap__cuda_stream stream = NULL;
  if (gap__cuda_enter(k->cuda, k->cuda->context, &scope) != 0) return 0;
  (void)DO(k, k->cuda->driver.cuStreamCreate(&stream, 0));
  gap__cuda_leave(k->cuda, &scope);
  return (uintptr_t)stream;
}
