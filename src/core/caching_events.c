/* Blocks that other streams still use: a freed block waits for one event on each stream that record_stream named.  Events
 * of a stream complete in order, so a poll looks at the oldest of each queue and stops at the first that is not ready. */
#include "core/caching.h"

static struct caching_pending *pending_at(const struct caching *c, uint32_t index) {
  return gap__slab_at(&c->pending, index);
}
static struct caching_use *use_at(const struct caching *c, uint32_t index) { return gap__slab_at(&c->uses, index); }

int gap__caching_use(struct caching *c, uint32_t index, gap_stream stream) {
  struct caching_block *block = caching_block_at(c, index);
  if (caching_bin_at(c, block->node.tag)->stream == stream) return 0;
  for (uint32_t use = block->uses; use; use = use_at(c, use)->next) {
    if (use_at(c, use)->stream == stream) return 0;
  }
  uint32_t use = gap__slab_take(&c->uses);
  if (!use) return GAP_ENOMETA;
  *use_at(c, use) = (struct caching_use){.next = block->uses, .stream = stream};
  block->uses = use;
  return 0;
}

static void destroy_events(struct caching *c, uint32_t head) {
  for (uint32_t next; head; head = next) {
    next = pending_at(c, head)->next;
    gap__dev_event_destroy(c->dev->dev, pending_at(c, head)->event);
    gap__slab_give(&c->pending, head);
  }
}

/* A queue for a new stream; when the table is full, that of a stream nobody waits for. */
static struct caching_queue *new_queue(struct caching *c) {
  if (c->queue_count < CACHING_QUEUE_MAX) return &c->queues[c->queue_count++];
  for (uint32_t i = 0; i < c->queue_count; i++) {
    if (c->queues[i].head) continue;
    destroy_events(c, c->queues[i].spare);
    return &c->queues[i];
  }
  return NULL;
}

static struct caching_queue *queue_of(struct caching *c, gap_stream stream) {
  for (uint32_t i = 0; i < c->queue_count; i++) {
    if (c->queues[i].stream == stream) return &c->queues[i];
  }
  struct caching_queue *queue = new_queue(c);
  if (queue) *queue = (struct caching_queue){.stream = stream};
  return queue;
}

/* A pending record with an event to record on the queue's stream. */
static int take_pending(struct caching *c, struct caching_queue *queue, uint32_t *out) {
  if (queue->spare) {
    *out = queue->spare;
    queue->spare = pending_at(c, *out)->next;
    return 0;
  }
  uint32_t index = gap__slab_take(&c->pending);
  if (!index) return GAP_ENOMETA;
  int rc = gap__dev_event_create(c->dev->dev, queue->stream, &pending_at(c, index)->event);
  if (rc) gap__slab_give(&c->pending, index);
  else *out = index;
  return rc;
}

static void keep_spare(struct caching *c, struct caching_queue *queue, uint32_t index) {
  pending_at(c, index)->next = queue->spare;
  queue->spare = index;
}

static int queue_event(struct caching *c, uint32_t block, gap_stream stream) {
  struct caching_queue *queue = queue_of(c, stream);
  if (!queue) return GAP_ELIMIT;
  if (!gap__dev_recordable(c->dev->dev, stream)) return GAP_EAGAIN;
  uint32_t index = 0;
  int rc = take_pending(c, queue, &index);
  if (rc) return rc;
  rc = gap__dev_event_record(c->dev->dev, pending_at(c, index)->event, stream);
  if (rc) {
    keep_spare(c, queue, index);
    return rc;
  }
  pending_at(c, index)->block = block;
  pending_at(c, index)->next = 0;
  if (queue->tail) pending_at(c, queue->tail)->next = index;
  else queue->head = index;
  queue->tail = index;
  c->pending_count++;
  return 0;
}

/* An event that cannot be recorded now (capture, or the driver refuses) is tried again at the next poll: the block waits
 * rather than being reused too early. */
void gap__caching_defer(struct caching *c, uint32_t index) {
  struct caching_block *block = caching_block_at(c, index);
  block->state = GAP__BLOCK_PENDING;
  while (block->uses) {
    uint32_t use = block->uses;
    if (queue_event(c, index, use_at(c, use)->stream)) {
      block->link = c->deferred;
      c->deferred = index;
      return;
    }
    block->uses = use_at(c, use)->next;
    gap__slab_give(&c->uses, use);
    block->events++;
  }
}

static void retry_deferred(struct caching *c) {
  uint32_t at = c->deferred;
  c->deferred = 0;
  while (at) {
    uint32_t next = caching_block_at(c, at)->link;
    gap__caching_defer(c, at);
    at = next;
  }
}

/* The oldest event of the queue has completed. */
static void pop(struct caching *c, struct caching_queue *queue) {
  uint32_t index = queue->head, block_index = pending_at(c, index)->block;
  queue->head = pending_at(c, index)->next;
  if (!queue->head) queue->tail = 0;
  keep_spare(c, queue, index);
  c->pending_count--;
  struct caching_block *block = caching_block_at(c, block_index);
  if (--block->events == 0 && !block->uses) gap__caching_complete(c, block_index);
}

void gap__caching_poll(struct caching *c) {
  if (c->deferred) retry_deferred(c);
  for (uint32_t i = 0; c->pending_count && i < c->queue_count; i++) {
    struct caching_queue *queue = &c->queues[i];
    while (queue->head && gap__dev_event_query(c->dev->dev, pending_at(c, queue->head)->event) == GAP_OK) pop(c, queue);
  }
}

/* Waits for every queued event.  An event the driver cannot wait for keeps its block, and those behind it, pending. */
void gap__caching_synchronize(struct caching *c) {
  c->stats.num_sync_all_streams++;
  if (c->deferred) retry_deferred(c);
  for (uint32_t i = 0; c->pending_count && i < c->queue_count; i++) {
    struct caching_queue *queue = &c->queues[i];
    while (queue->head && gap__dev_event_wait(c->dev->dev, pending_at(c, queue->head)->event) == GAP_OK) pop(c, queue);
  }
}

void gap__caching_events_destroy(struct caching *c) {
  for (uint32_t i = 0; i < c->queue_count; i++) {
    destroy_events(c, c->queues[i].head);
    destroy_events(c, c->queues[i].spare);
  }
}
