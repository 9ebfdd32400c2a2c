#include "kernels/cpu.h"

#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

enum {
  THREADS_MOST = 256,
  LANES = 32,
  WARPS_MOST = THREADS_MOST / LANES,
  STACK = 256 << 10,
  COPIES = 64,
  GUARD = 256,
  GUARD_BYTE = 0xA5
};

struct cpu_index cpu_block, cpu_blocks;
int cpu_thread;

struct copy {
  void *to;
  const void *from;
  bool there;
};
/* Queued copies in order, cut into groups. */
struct fiber {
  ucontext_t context;
  bool over;
  struct copy copies[COPIES];
  int copy_count, groups[COPIES], group_count, open; /* copies of each closed group; of the open one */
};
/* Who waits at a barrier: of a warp, or of the block. */
struct barrier {
  int arrived;
  unsigned turn;
};

static struct {
  cpu_kernel *kernel;
  const void *argument;
  int threads, live;
  ucontext_t scheduler;
  struct fiber fibers[THREADS_MOST];
  char *stacks;
  struct barrier warp[WARPS_MOST], block;
  float values[2][THREADS_MOST]; /* of exchanges, taken in turn */
  char *shared;
  bool moved; /* a fiber has got on since the last round */
} run;

static void yield(void) { swapcontext(&run.fibers[cpu_thread].context, &run.scheduler); }

static void wait_at(struct barrier *b, int count) {
  unsigned turn = b->turn;
  run.moved = true;
  if (++b->arrived == count) b->arrived = 0, b->turn++;
  while (b->turn == turn) yield();
  run.moved = true;
}

static struct barrier *own_warp(void) { return &run.warp[cpu_thread / LANES]; }
void cpu_sync_warp(void) { wait_at(own_warp(), LANES); }
void cpu_sync_block(void) { wait_at(&run.block, run.threads); }
char *cpu_shared(void) { return run.shared; }

/* The next exchange writes to the other half, so nobody overwrites what others have still to read. */
float cpu_exchange(float x, int lane) {
  unsigned half = own_warp()->turn % 2;
  run.values[half][cpu_thread] = x;
  cpu_sync_warp();
  return run.values[half][cpu_thread / LANES * LANES + lane];
}

bool cpu_any(bool x) {
  bool found = false;
  unsigned half = own_warp()->turn % 2;
  run.values[half][cpu_thread] = x;
  cpu_sync_warp();
  for (int i = 0; i < LANES; i++) found |= run.values[half][cpu_thread / LANES * LANES + i] != 0;
  return found;
}

/* ---- asynchronous copies ---- */

void cpu_copy_async(void *to, const void *from, int there) {
  struct fiber *f = &run.fibers[cpu_thread];
  if (f->copy_count == COPIES) abort();
  f->copies[f->copy_count++] = (struct copy){to, from, there};
  f->open++;
}

void cpu_close_copies(void) {
  struct fiber *f = &run.fibers[cpu_thread];
  if (f->group_count == COPIES) abort();
  f->groups[f->group_count++] = f->open;
  f->open = 0;
}

static void do_oldest(struct fiber *f) {
  int count = f->groups[0];
  for (int i = 0; i < count; i++) {
    memset(f->copies[i].to, 0, 16);
    if (f->copies[i].there) memcpy(f->copies[i].to, f->copies[i].from, 16);
  }
  f->copy_count -= count;
  memmove(f->copies, f->copies + count, (size_t)f->copy_count * sizeof *f->copies);
  memmove(f->groups, f->groups + 1, (size_t)--f->group_count * sizeof *f->groups);
}

void cpu_await_copies(int pending) {
  struct fiber *f = &run.fibers[cpu_thread];
  while (f->group_count > pending) do_oldest(f);
}

/* ---- blocks ---- */

static void thread_main(void) {
  run.kernel(run.argument);
  run.fibers[cpu_thread].over = true;
  run.live--;
  run.moved = true;
  yield();
}

/* Apart, since getcontext() may return twice: no local variable of the loop lives across it. */
static __attribute__((noinline)) void start_fiber(struct fiber *f, char *stack) {
  f->over = false;
  f->copy_count = f->group_count = f->open = 0;
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = stack;
  f->context.uc_stack.ss_size = STACK;
  f->context.uc_link = &run.scheduler;
  makecontext(&f->context, thread_main, 0);
}

static void start_block(void) {
  run.live = run.threads;
  memset(run.warp, 0, sizeof run.warp);
  run.block = (struct barrier){0};
  for (int t = 0; t < run.threads; t++) start_fiber(&run.fibers[t], run.stacks + (size_t)t * STACK);
}

/* In a different order each round: what rests on the order of threads does not pass. */
static bool run_block(void) {
  start_block();
  for (unsigned round = 0; run.live; round++) {
    run.moved = false;
    for (int i = 0; i < run.threads; i++) {
      cpu_thread = (i * 37 + (int)round * 11) % run.threads; /* 37 has no factor of a power of two */
      if (!run.fibers[cpu_thread].over) swapcontext(&run.scheduler, &run.fibers[cpu_thread].context);
    }
    if (!run.moved) return false;
  }
  return true;
}

static bool guard_is_whole(unsigned shared_bytes) {
  for (unsigned i = 0; i < GUARD; i++)
    if ((unsigned char)run.shared[shared_bytes + i] != GUARD_BYTE) return false;
  return true;
}

bool cpu_run(cpu_kernel *kernel, const void *argument, struct cpu_index blocks, int threads, unsigned shared_bytes) {
  bool good = threads <= THREADS_MOST && threads % LANES == 0;
  run.kernel = kernel, run.argument = argument, run.threads = threads;
  cpu_blocks = blocks;
  run.stacks = malloc((size_t)threads * STACK);
  run.shared = aligned_alloc(16, (shared_bytes + GUARD + 15) / 16 * 16);
  memset(run.shared, GUARD_BYTE, shared_bytes + GUARD);
  for (int n = 0; good && n < blocks.x * blocks.y * blocks.z; n++) {
    cpu_block = (struct cpu_index){n % blocks.x, n / blocks.x % blocks.y, n / blocks.x / blocks.y};
    good = run_block();
  }
  good = good && guard_is_whole(shared_bytes);
  free(run.stacks);
  free(run.shared);
  return good;
}

/* ---- float16, to nearest even ---- */

float cpu_half_to_float(unsigned half) {
  int sign = half >> 15 ? -1 : 1, exponent = (int)(half >> 10 & 31), fraction = (int)(half & 1023);
  if (exponent == 31) return fraction ? NAN : (float)sign * INFINITY;
  if (exponent == 0) return (float)sign * ldexpf((float)fraction, -24);
  return (float)sign * ldexpf((float)(fraction + 1024), exponent - 25);
}

unsigned cpu_float_to_half(float x) {
  unsigned sign = signbit(x) ? 0x8000u : 0;
  float size = fabsf(x);
  if (isnan(x)) return 0x7fffu;
  if (size >= 65520.0f) return sign | 0x7c00u;
  if (size == 0.0f) return sign;
  int exponent;
  (void)frexpf(size, &exponent); /* size < 2^exponent */
  int step = exponent - 11 > -24 ? exponent - 11 : -24;
  unsigned units = (unsigned)lrintf(ldexpf(size, -step)); /* of 2^step */
  return sign | (step == -24 ? units : (unsigned)(step + 24) * 1024 + units);
}
