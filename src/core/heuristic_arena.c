#include "core/heuristic_arena.h"

#include "core/state.h"

void gap__heuristic_miss(struct gap__heuristic_arena *arena, uint64_t bytes) {
  uint32_t missed = atomic_load_explicit(&arena->missed, memory_order_relaxed) + 1;
  atomic_store_explicit(&arena->sizes[gap__heuristic_place(bytes)], bytes, memory_order_relaxed);
  atomic_store_explicit(&arena->missed, missed, memory_order_relaxed);
  if (missed > GAP__ARENA_MISSES) atomic_store_explicit(&arena->steady, false, memory_order_relaxed);
}

void gap__heuristic_round(struct gap__heuristic_arena *arena) {
  uint32_t missed = atomic_load_explicit(&arena->missed, memory_order_relaxed);
  atomic_store_explicit(&arena->steady, missed <= GAP__ARENA_MISSES, memory_order_relaxed);
  atomic_store_explicit(&arena->missed, 0, memory_order_relaxed);
  atomic_store_explicit(&arena->asked, 0, memory_order_relaxed);
}

static bool is_large(uint64_t bytes) { return bytes > (uint64_t)GAP__TORCH_SMALL_UNITS << GAP__UNIT_SHIFT; }
static gap_stream same_stream(gap_stream stream) { return stream == 1 ? 0 : stream; } /* 0 and 1 are one */

static uint32_t place_of(gap_stream stream, bool large) {
  return (uint32_t)((stream * 2 + large) * 0x9E3779B97F4A7C15u >> 32) & (GAP__ARENA_PLACES - 1);
}

static struct gap__heuristic_arena *near(struct gap__heuristic_arenas *arenas, uint32_t place, uint32_t step) {
  return &arenas->at[(place + step) & (GAP__ARENA_PLACES - 1)];
}

static bool is_used(const struct gap__heuristic_arena *arena) {
  return atomic_load_explicit(&arena->used, memory_order_acquire);
}

struct gap__heuristic_arena *gap__heuristic_find(struct gap__heuristic_arenas *arenas, gap_stream stream,
                                                 uint64_t bytes) {
  bool large = is_large(bytes);
  stream = same_stream(stream);
  const uint32_t place = place_of(stream, large);
  for (uint32_t step = 0; step < GAP__ARENA_NEAR; step++) {
    struct gap__heuristic_arena *arena = near(arenas, place, step);
    if (is_used(arena) && atomic_load_explicit(&arena->stream, memory_order_relaxed) == stream &&
        atomic_load_explicit(&arena->is_large, memory_order_relaxed) == large)
      return arena;
  }
  return NULL;
}

static struct gap__heuristic_arena *free_place(struct gap__heuristic_arenas *arenas, gap_stream stream, bool large) {
  const uint32_t place = place_of(stream, large);
  for (uint32_t step = 0; step < GAP__ARENA_NEAR; step++)
    if (!is_used(near(arenas, place, step))) return near(arenas, place, step);
  return &arenas->others;
}

/* Others look at places meanwhile. */
static void begin(struct gap__heuristic_arena *arena, gap_stream stream, bool large) {
  atomic_store_explicit(&arena->stream, stream, memory_order_relaxed);
  atomic_store_explicit(&arena->is_large, large, memory_order_relaxed);
  atomic_store_explicit(&arena->steady, false, memory_order_relaxed);
  atomic_store_explicit(&arena->asked, 0, memory_order_relaxed);
  atomic_store_explicit(&arena->missed, 0, memory_order_relaxed);
  for (int i = 0; i < GAP__ARENA_SIZES; i++) atomic_store_explicit(&arena->sizes[i], 0, memory_order_relaxed);
  arena->changes = 0;
}

struct gap__heuristic_arena *gap__heuristic_add(struct gap__heuristic_arenas *arenas, gap_stream stream, uint64_t bytes,
                                                bool *is_new) {
  struct gap__heuristic_arena *arena = gap__heuristic_find(arenas, stream, bytes);
  *is_new = false;
  if (arena) return arena;
  arena = free_place(arenas, same_stream(stream), is_large(bytes));
  if (is_used(arena)) return arena; /* `others` */
  *is_new = true;
  begin(arena, same_stream(stream), is_large(bytes));
  return arena; /* `used` is set when it has its choice */
}

void gap__heuristic_forget(struct gap__heuristic_arenas *arenas, gap_stream stream) {
  struct gap__heuristic_arena *of_kind[2] = {gap__heuristic_find(arenas, stream, 1),
                                             gap__heuristic_find(arenas, stream, UINT64_MAX)};
  for (int i = 0; i < 2; i++)
    if (of_kind[i]) atomic_store_explicit(&of_kind[i]->used, false, memory_order_release);
}
