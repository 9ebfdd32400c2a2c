/* The log of RMM's logging_resource_adaptor, of one device: what its own replay benchmark and its users' scripts read.  A block is free when
 * the program lets go; frees of blocks from before the first event are left out, since a log cannot say that they were there. */
#include "base/map.h"
#include "gapless/gapless.h"
#include "trace/formats.h"

static void put_line(struct gap__writing *writing, const struct gap__hist_event *event, const char *action) {
  int64_t us = (writing->history->time_base_us + event->time_us) % ((int64_t)86400 * 1000000);
  if (us < 0) us = 0;
  int64_t seconds = us / 1000000;
  gap__output_print(writing->out, "0,%02d:%02d:%02d.%06d,%s,0x%llx,%llu,0x%llx\n", (int)(seconds / 3600),
                    (int)(seconds / 60 % 60), (int)(seconds % 60), (int)(us % 1000000), action,
                    event->action == GAP__ACT_OOM ? 0 : (unsigned long long)event->addr,
                    (unsigned long long)event->size, (unsigned long long)event->stream);
}

/* `live`: the addresses that were allocated and not let go. */
static int put_event(struct gap__writing *writing, struct gap__map *live, const struct gap__hist_event *event) {
  switch (event->action) {
    case GAP__ACT_ALLOC: put_line(writing, event, "allocate"); return gap__map_put(live, event->addr, 1);
    case GAP__ACT_FREE_REQUESTED:
    case GAP__ACT_FREE_COMPLETED:
      if (gap__map_remove(live, event->addr, NULL)) put_line(writing, event, "free");
      return 0;
    case GAP__ACT_OOM: put_line(writing, event, "allocate failure"); return 0;
    default: return 0;
  }
}

int gap__write_rmm(struct gap__writing *writing) {
  const struct gap__hist_device *device = &writing->history->devices[writing->device];
  struct gap__map live = {0};
  int rc = 0;
  gap__output_print(writing->out, "Thread,Time,Action,Pointer,Size,Stream\n");
  for (uint64_t i = 0; !rc && i < device->event_count; i++) {
    rc = put_event(writing, &live, &device->events[i]);
    gap__writing_step(writing);
  }
  gap__map_free(&live);
  return rc;
}
