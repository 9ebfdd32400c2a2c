/* What queued operations do with the bytes, and what they hold until then. */
#include <string.h>

#include "dev/host/state.h"
#include "dev/soft/pinned.h"

static unsigned char *bytes_at(gap_addr addr) { return (unsigned char *)(uintptr_t)addr; }

/* The next mapping that an operation of `sequence` may use at `at`, or NULL. */
static struct host_mapping *usable(struct host *host, gap_addr at, uint64_t sequence) {
  struct host_mapping *mapping = gap__host_mapping_at(host, at);
  return mapping && mapping->accessible && mapping->born <= sequence ? mapping : NULL;
}

static bool range_usable(struct host *host, gap_addr addr, uint64_t bytes, uint64_t sequence) {
  if (gap__soft_is_pinned(&host->pinned, addr, bytes)) return true;
  if (addr >= GAP__SPACE_END || bytes > GAP__SPACE_END - addr) return false;
  for (gap_addr at = addr; at < addr + bytes;) {
    struct host_mapping *mapping = usable(host, at, sequence);
    if (!mapping) return false;
    at = mapping->addr + mapping->bytes;
  }
  return true;
}

/* Adds `change` to the uses of every mapping in the range that is still the one meant when the operation was queued. */
static void count_uses(struct host *host, gap_addr addr, uint64_t bytes, uint64_t sequence, int change) {
  if (gap__soft_is_pinned(&host->pinned, addr, bytes)) return; /* who unpins it says that it is out of use */
  for (gap_addr at = addr; at < addr + bytes;) {
    struct host_mapping *mapping = usable(host, at, sequence);
    if (mapping) mapping->uses += (uint32_t)change;
    at = mapping ? mapping->addr + mapping->bytes : (at | (GAP__PAGE - 1)) + 1;
  }
}

bool gap__host_hold(struct host *host, const struct host_op *op) {
  if (!range_usable(host, op->addr, op->bytes, op->sequence)) return false;
  if (op->kind == OP_COPY && !range_usable(host, op->src, op->bytes, op->sequence)) return false;
  count_uses(host, op->addr, op->bytes, op->sequence, 1);
  if (op->kind == OP_COPY) count_uses(host, op->src, op->bytes, op->sequence, 1);
  return true;
}

static void let_go(struct host *host, const struct host_op *op) {
  count_uses(host, op->addr, op->bytes, op->sequence, -1);
  if (op->kind == OP_COPY) count_uses(host, op->src, op->bytes, op->sequence, -1);
}

/* In few calls of memcpy and memcmp, each of which a sanitizer looks at once. */
static void fill(gap_addr addr, uint64_t bytes, uint64_t pattern) {
  unsigned char *to = bytes_at(addr);
  uint64_t done = bytes < sizeof pattern ? bytes : sizeof pattern;
  memcpy(to, &pattern, done);
  for (uint64_t more; done < bytes; done += more) {
    more = done < bytes - done ? done : bytes - done;
    memcpy(to + done, to, more);
  }
}

/* The first word is the pattern, and every byte is the one eight before it. */
static bool is_filled(gap_addr addr, uint64_t bytes, uint64_t pattern) {
  const unsigned char *at = bytes_at(addr);
  uint64_t word = sizeof pattern;
  if (memcmp(at, &pattern, bytes < word ? bytes : word) != 0) return false;
  return bytes <= word || memcmp(at, at + word, bytes - word) == 0;
}

static void complete_event(struct host *host, const struct host_op *op) {
  struct host_event *event = gap__slab_at(&host->events, (uint32_t)op->event);
  if (event->generation == op->event >> 32) event->done = op->value; /* else destroyed meanwhile, which is allowed */
}

static void act(struct host *host, const struct host_op *op) {
  switch (op->kind) {
    case OP_FILL: fill(op->addr, op->bytes, op->value); break;
    case OP_EXPECT: host->faults += !is_filled(op->addr, op->bytes, op->value); break;
    case OP_COPY: memmove(bytes_at(op->addr), bytes_at(op->src), op->bytes); break;
    case OP_WRITE: __atomic_store_n((uint32_t *)(uintptr_t)op->addr, (uint32_t)op->value, __ATOMIC_RELEASE); break;
    case OP_EVENT: complete_event(host, op); break;
    case OP_CALL: op->call((void *)(uintptr_t)op->src); break;
    case OP_WAIT:
    case OP_AWAIT: break; /* what it waited for is there */
  }
}

static bool value_there(const struct host_op *op) {
  return __atomic_load_n((const uint32_t *)(uintptr_t)op->addr, __ATOMIC_ACQUIRE) >= (uint32_t)op->value;
}

static bool event_there(struct host *host, const struct host_op *op) {
  const struct host_event *event = gap__slab_at(&host->events, (uint32_t)op->event);
  return event->generation != op->event >> 32 || event->done >= op->value; /* a destroyed event holds nobody up */
}

bool gap__host_execute(struct host *host, const struct host_op *op) {
  uint64_t meant = op->is_gated ? host->sequence : op->sequence;
  bool valid = range_usable(host, op->addr, op->bytes, meant) &&
               (op->kind != OP_COPY || range_usable(host, op->src, op->bytes, meant));
  if (!gap__host_touches_memory(op)) valid = true;
  if (op->kind == OP_AWAIT && !event_there(host, op)) return false;
  if (valid && op->kind == OP_WAIT && !value_there(op)) return false;
  if (valid) act(host, op);
  else host->faults++; /* its memory was unmapped or replaced under it */
  if (gap__host_touches_memory(op) && !op->is_gated) let_go(host, op);
  return true;
}
