#include "api/frames.h"

#include <stdlib.h>
#include <string.h>

#include "api/python.h"
#include "base/lock.h"
#include "base/map.h"

enum { DEPTH_MOST = 128, STACKS_MOST = 1 << 20, FIRST_ROOM = 64 };

_Atomic int gap__frames_users;

struct frame {
  void *code;
  struct gap__record_frame told; /* texts are numbered from 1 */
};

struct stack {
  uint32_t first, count; /* in `parts` */
};

/* All of it under the lock, which is held while no Python runs. */
static struct {
  struct gap__lock lock;
  char **texts;
  struct frame *frames;
  struct stack *stacks;
  uint32_t *parts; /* numbers of frames, from 1 */
  uint32_t text_count, text_room, frame_count, frame_room, stack_count, stack_room, part_count, part_room;
  struct gap__map text_at, frame_at, stack_at; /* by a hash; equal hashes of different things lie side by side */
  _Atomic uint32_t stacks_known;
} store;

static _Thread_local uint32_t current;
static _Thread_local bool busy; /* collecting garbage, Python may free memory in the middle of a walk */

/* ---- the store ---- */

static bool grow(void *array, uint32_t *room, uint32_t count, uint32_t more, size_t item_bytes) {
  if (*room - count >= more) return true;
  uint32_t now = *room ? *room : FIRST_ROOM;
  while (now - count < more) now *= 2;
  void *larger = realloc(*(void **)array, now * item_bytes);
  if (!larger) return false;
  *(void **)array = larger;
  *room = now;
  return true;
}

static uint64_t hash_of(const void *bytes, size_t count) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const unsigned char *at = bytes, *end = at + count; at < end; at++) hash = (hash ^ *at) * 0x100000001B3u;
  return hash;
}

typedef bool same_fn(uint64_t index, const void *what);

/* Finds what equals `what`, or says under which key it belongs. */
static bool find(const struct gap__map *map, uint64_t *key, same_fn *same, const void *what, uint64_t *index) {
  for (; gap__map_get(map, *key, index); ++*key)
    if (same(*index, what)) return true;
  return false;
}

static bool same_text(uint64_t index, const void *what) { return strcmp(store.texts[index], what) == 0; }

/* A number from 1; 0: no memory.  Takes the text over. */
static uint32_t number_text(char *text) {
  uint64_t key = hash_of(text, strlen(text)), index;
  bool known = find(&store.text_at, &key, same_text, text, &index);
  bool kept = known || (grow(&store.texts, &store.text_room, store.text_count, 1, sizeof *store.texts) &&
                        !gap__map_put(&store.text_at, key, index = store.text_count));
  if (kept && !known) store.texts[store.text_count++] = text;
  else free(text);
  return kept ? (uint32_t)index + 1 : 0;
}

struct place {
  void *code;
  int line;
};

static bool same_frame(uint64_t index, const void *what) {
  const struct place *place = what;
  return store.frames[index].code == place->code && store.frames[index].told.line == place->line;
}

static uint64_t key_of(const struct place *place) {
  return ((uint64_t)(uintptr_t)place->code + (uint64_t)place->line * 0x9E3779B97F4A7C15u) * 0xC2B2AE3D27D4EB4Fu;
}

static uint32_t find_frame(const struct place *place) {
  uint64_t key = key_of(place), index;
  gap__lock(&store.lock);
  bool known = find(&store.frame_at, &key, same_frame, place, &index);
  gap__unlock(&store.lock);
  return known ? (uint32_t)index + 1 : 0;
}

static uint32_t add_frame(const struct place *place, char *function, char *file) {
  uint64_t key = key_of(place), index = 0;
  gap__lock(&store.lock);
  struct gap__record_frame told = {number_text(function), number_text(file), place->line};
  bool known = find(&store.frame_at, &key, same_frame, place, &index); /* another thread was quicker */
  bool kept = known || (grow(&store.frames, &store.frame_room, store.frame_count, 1, sizeof *store.frames) &&
                        !gap__map_put(&store.frame_at, key, index = store.frame_count));
  if (kept && !known) store.frames[store.frame_count++] = (struct frame){place->code, told};
  gap__unlock(&store.lock);
  return kept ? (uint32_t)index + 1 : 0;
}

struct walked {
  uint32_t count, frames[DEPTH_MOST];
};

static bool same_stack(uint64_t index, const void *what) {
  const struct walked *walked = what;
  const struct stack *stack = &store.stacks[index];
  return stack->count == walked->count &&
         memcmp(store.parts + stack->first, walked->frames, walked->count * sizeof *store.parts) == 0;
}

static bool add_stack(uint64_t key, const struct walked *walked) {
  if (store.stack_count == STACKS_MOST ||
      !grow(&store.stacks, &store.stack_room, store.stack_count, 1, sizeof *store.stacks) ||
      !grow(&store.parts, &store.part_room, store.part_count, walked->count, sizeof *store.parts) ||
      gap__map_put(&store.stack_at, key, store.stack_count))
    return false;
  memcpy(store.parts + store.part_count, walked->frames, walked->count * sizeof *store.parts);
  store.stacks[store.stack_count++] = (struct stack){store.part_count, walked->count};
  store.part_count += walked->count;
  atomic_store_explicit(&store.stacks_known, store.stack_count, memory_order_release);
  return true;
}

static uint32_t number_stack(const struct walked *walked) {
  uint64_t key = hash_of(walked->frames, walked->count * sizeof *walked->frames), index = 0;
  gap__lock(&store.lock);
  bool kept = find(&store.stack_at, &key, same_stack, walked, &index);
  if (!kept) {
    index = store.stack_count;
    kept = add_stack(key, walked);
  }
  gap__unlock(&store.lock);
  return kept ? (uint32_t)index + 1 : 0;
}

/* ---- a call ---- */

static bool visit(void *arg, void *code, int line) {
  struct walked *walked = arg;
  struct place place = {code, line};
  char *function, *file;
  uint32_t frame = find_frame(&place);
  if (!frame && gap__python_names(code, &function, &file)) frame = add_frame(&place, function, file);
  if (frame) walked->frames[walked->count++] = frame;
  return walked->count < DEPTH_MOST;
}

uint32_t gap__frames_begin(void) {
  uint32_t before = current;
  struct walked walked;
  current = 0;
  if (busy) return before;
  busy = true;
  walked.count = 0;
  gap__python_walk(visit, &walked);
  busy = false;
  if (walked.count) current = number_stack(&walked);
  return before;
}

void gap__frames_end(uint32_t before) { current = before; }
uint32_t gap__frames_current(void) { return current; }

/* ---- recorders ---- */

uint32_t gap__frames_stacks(void) { return atomic_load_explicit(&store.stacks_known, memory_order_acquire); }

static int tell(struct gap__frames_told *told, struct gap__record_writer *writer) {
  int rc = 0;
  for (; !rc && told->texts < store.text_count; told->texts++) rc = gap__record_text(writer, store.texts[told->texts]);
  for (; !rc && told->frames < store.frame_count; told->frames++)
    rc = gap__record_frame(writer, &store.frames[told->frames].told);
  for (; !rc && told->stacks < store.stack_count; told->stacks++) {
    const struct stack *stack = &store.stacks[told->stacks];
    rc = gap__record_stack(writer, store.parts + stack->first, stack->count);
  }
  return rc;
}

int gap__frames_tell(struct gap__frames_told *told, struct gap__record_writer *writer) {
  struct gap__frames_told now = *told;
  gap__lock(&store.lock);
  int rc = tell(&now, writer);
  gap__unlock(&store.lock);
  if (!rc) *told = now;
  return rc;
}

void gap__frames_before_fork(void) { gap__lock(&store.lock); }
void gap__frames_after_fork(void) { gap__unlock(&store.lock); }
