#include "trace/builder.h"

#include <stdlib.h>

#include "gapless/gapless.h"

int gap__history_begin(struct gap__history *history) {
  history->devices = calloc(1, sizeof *history->devices);
  history->stacks = calloc(1, sizeof *history->stacks);
  history->text = calloc(1, 1);
  if (!history->devices || !history->stacks || !history->text) return GAP_ENOMETA;
  history->device_count = history->stack_count = 1;
  history->text_bytes = 1;
  return 0;
}

int gap__builder_add(struct gap__builder *builder, struct gap__hist_event event) {
  if (!GAP__VEC_ROOM(builder->events, 1)) return GAP_ELIMIT;
  builder->events.at[builder->events.count++] = event;
  return 0;
}

int gap__builder_free_block(struct gap__builder *builder, struct gap__hist_event event) {
  event.action = GAP__ACT_FREE_REQUESTED;
  int rc = gap__builder_add(builder, event);
  event.action = GAP__ACT_FREE_COMPLETED;
  return rc ? rc : gap__builder_add(builder, event);
}

int gap__builder_finish(struct gap__builder *builder, struct gap__history **out) {
  struct gap__history *history = calloc(1, sizeof *history);
  int rc = history ? gap__history_begin(history) : GAP_ENOMETA;
  if (!rc && !(history->pools = calloc(1, sizeof *history->pools))) rc = GAP_ENOMETA;
  if (rc) {
    gap__history_free(history);
    gap__builder_drop(builder);
    return rc;
  }
  history->pool_count = 1;
  history->devices[0].event_count = builder->events.count;
  history->event_storage = gap__vec_trim(builder->events.at, builder->events.count, sizeof *builder->events.at);
  history->devices[0].events = history->event_storage;
  *builder = (struct gap__builder){0};
  *out = history;
  return 0;
}

void gap__builder_drop(struct gap__builder *builder) {
  free(builder->events.at);
  *builder = (struct gap__builder){0};
}
