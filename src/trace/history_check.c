/* A history against itself.  Live blocks are kept in an ordered tree, so an alloc meets its neighbours by address. */
#include "base/map.h"
#include "base/tree.h"
#include "gapless/gapless.h"
#include "trace/history.h"
#include "trace/message.h"

#define SIZE_MAX_SANE ((uint64_t)1 << 60) /* bytes; nothing larger could ever be served */

struct live_block {
  struct gap__tree_node node; /* major: the address; tag: 1 once the free was requested */
  uint64_t size;
};

struct checker {
  const struct gap__hist_device *device;
  struct gap__slab slab;
  struct gap__tree tree;
  struct gap__map met; /* addresses allocated so far; kept only where early frees are tolerated */
  char **message;
};

static struct live_block *block_at(const struct checker *checker, uint32_t index) {
  return index ? gap__slab_at(&checker->slab, index) : NULL;
}

static uint64_t end_of(const struct live_block *block) { return block->node.major + (block->size ? block->size : 1); }

static struct live_block *find(const struct checker *checker, uint64_t addr, uint32_t *index) {
  *index = gap__tree_at_least(&checker->tree, &checker->slab, addr, 0);
  struct live_block *block = block_at(checker, *index);
  return block && block->node.major == addr ? block : NULL;
}

static int overlaps(struct checker *checker, const struct gap__hist_event *event, const struct live_block *block) {
  return gap__message_set(checker->message, GAP_EFORMAT,
                          "alloc of %llu bytes at %#llx lies over a live block of %llu bytes at %#llx",
                          (unsigned long long)event->size, (unsigned long long)event->addr,
                          (unsigned long long)block->size, (unsigned long long)block->node.major);
}

static int check_alloc(struct checker *checker, const struct gap__hist_event *event) {
  uint32_t next;
  if (event->size >= SIZE_MAX_SANE || event->addr + event->size < event->addr)
    return gap__message_set(checker->message, GAP_EFORMAT, "alloc of %llu bytes at %#llx: no device has that much",
                            (unsigned long long)event->size, (unsigned long long)event->addr);
  find(checker, event->addr, &next);
  uint64_t end = event->addr + (event->size ? event->size : 1);
  const struct live_block *after = block_at(checker, next);
  const struct live_block *before = block_at(checker, gap__tree_below(&checker->tree, &checker->slab, event->addr, 0));
  if (after && after->node.major < end) return overlaps(checker, event, after);
  if (before && end_of(before) > event->addr) return overlaps(checker, event, before);
  uint32_t index = gap__slab_take(&checker->slab);
  if (!index) return gap__message_set(checker->message, GAP_ENOMETA, "out of host memory");
  struct live_block *block = block_at(checker, index);
  *block = (struct live_block){.node = {.major = event->addr}, .size = event->size};
  gap__tree_insert(&checker->tree, &checker->slab, index);
  if (!checker->device->wrapped || !gap__map_put(&checker->met, event->addr, 1)) return 0;
  return gap__message_set(checker->message, GAP_ENOMETA, "out of host memory");
}

static int check_free(struct checker *checker, const struct gap__hist_event *event) {
  const char *name = gap__action_name((enum gap__action)event->action);
  uint32_t index;
  struct live_block *block = find(checker, event->addr, &index);
  if (!block) {
    if (checker->device->wrapped && !gap__map_get(&checker->met, event->addr, NULL)) return 0;
    return gap__message_set(checker->message, GAP_EFORMAT, "%s of %#llx: no live block begins there", name,
                            (unsigned long long)event->addr);
  }
  if (block->size != event->size)
    return gap__message_set(checker->message, GAP_EFORMAT, "%s of %#llx: %llu bytes, but %llu were allocated", name,
                            (unsigned long long)event->addr, (unsigned long long)event->size,
                            (unsigned long long)block->size);
  if (event->action == GAP__ACT_FREE_COMPLETED) {
    gap__tree_erase(&checker->tree, &checker->slab, index);
    gap__slab_give(&checker->slab, index);
    return 0;
  }
  if (block->node.tag)
    return gap__message_set(checker->message, GAP_EFORMAT, "%s of %#llx: it was requested already", name,
                            (unsigned long long)event->addr);
  block->node.tag = 1;
  return 0;
}

static int check_event(struct checker *checker, const struct gap__hist_event *event) {
  if (event->time_us < 0)
    return gap__message_set(checker->message, GAP_EFORMAT, "%s at a time before the first event (%lld us)",
                            gap__action_name((enum gap__action)event->action), (long long)event->time_us);
  switch (event->action) {
    case GAP__ACT_ALLOC: return check_alloc(checker, event);
    case GAP__ACT_FREE_REQUESTED:
    case GAP__ACT_FREE_COMPLETED: return check_free(checker, event);
    default: return 0;
  }
}

int gap__history_check(const struct gap__history *history, uint32_t device, uint64_t *event, char **message) {
  struct checker checker = {.device = &history->devices[device], .message = message};
  uint64_t records = checker.device->event_count + 2;
  *message = NULL;
  *event = 0;
  int rc =
      gap__slab_init(&checker.slab, sizeof(struct live_block), records < UINT32_MAX ? (uint32_t)records : UINT32_MAX);
  if (rc) return gap__message_settle(message, rc);
  for (uint64_t i = 0; !rc && i < checker.device->event_count; i++) {
    rc = check_event(&checker, &checker.device->events[i]);
    if (rc) *event = i;
  }
  gap__slab_destroy(&checker.slab);
  gap__map_free(&checker.met);
  return rc ? gap__message_settle(message, rc) : 0;
}
