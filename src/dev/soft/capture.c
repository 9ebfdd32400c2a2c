#include "dev/soft/capture.h"

#include <stdlib.h>

/* Room for `count` records of a growing array. */
static bool make_room(void *array, uint32_t count, uint32_t *max, size_t record_bytes) {
  void **at = array;
  if (count <= *max) return true;
  uint32_t wanted = *max ? *max * 2 : 16;
  while (wanted < count) wanted *= 2;
  void *more = realloc(*at, wanted * record_bytes);
  if (!more) return false;
  *at = more;
  *max = wanted;
  return true;
}

void gap__soft_capture_begin(struct gap__soft_graphs *graphs, struct gap__soft_front *front) {
  if (!front->capture) front->capture = ++graphs->captures;
}

static int put(struct gap__soft_front *front, gap__node node) {
  if (!make_room(&front->nodes, front->count + 1, &front->capacity, sizeof node)) return GAP_ENOMETA;
  front->nodes[front->count++] = node;
  return 0;
}

int gap__soft_capture_add(struct gap__soft_graphs *graphs, struct gap__soft_front *front) {
  if (!front->capture) return 0;
  if (!make_room(&graphs->first, graphs->node_count + 2, &graphs->node_max, sizeof *graphs->first) ||
      !make_room(&graphs->before, graphs->before_count + front->count, &graphs->before_max, sizeof *graphs->before))
    return GAP_ENOMETA;
  graphs->first[graphs->node_count] = graphs->before_count;
  for (uint32_t i = 0; i < front->count; i++) graphs->before[graphs->before_count++] = front->nodes[i];
  graphs->first[++graphs->node_count] = graphs->before_count;
  front->count = 0;
  return put(front, graphs->node_count);
}

static bool has(const struct gap__soft_front *front, gap__node node) {
  for (uint32_t i = 0; i < front->count; i++)
    if (front->nodes[i] == node) return true;
  return false;
}

int gap__soft_capture_join(struct gap__soft_front *front, const struct gap__soft_front *other) {
  if (front->capture && front->capture != other->capture) return GAP_EDEVICE;
  front->capture = other->capture;
  for (uint32_t i = 0; i < other->count; i++) {
    int rc = has(front, other->nodes[i]) ? 0 : put(front, other->nodes[i]);
    if (rc) return rc;
  }
  return 0;
}

void gap__soft_front_clear(struct gap__soft_front *front) {
  free(front->nodes);
  *front = (struct gap__soft_front){0};
}

static uint32_t tell(const gap__node *from, uint32_t have, gap__node *to, uint32_t room) {
  uint32_t told = have < room ? have : room;
  for (uint32_t i = 0; i < told; i++) to[i] = from[i];
  return told;
}

int gap__soft_stream_front(const struct gap__soft_front *front, uint64_t *capture, gap__node *nodes, uint32_t *count) {
  (void)tell(front->nodes, front->count, nodes, *count);
  *capture = front->capture;
  *count = front->count;
  return 0;
}

int gap__soft_node_before(const struct gap__soft_graphs *graphs, gap__node node, gap__node *nodes, uint32_t *count) {
  if (!node || node > graphs->node_count) return GAP_EINVAL;
  const uint32_t *first = &graphs->first[node - 1];
  *count = tell(graphs->before + first[0], first[1] - first[0], nodes, *count);
  return 0;
}

void gap__soft_graphs_free(struct gap__soft_graphs *graphs) {
  free(graphs->first);
  free(graphs->before);
}
