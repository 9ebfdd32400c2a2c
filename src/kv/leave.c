#include "kv/leave.h"

#include <stdlib.h>
#include <string.h>

#include "kv/pages.h"
#include "kv/seq.h"
#include "kv/table.h"

int gap__kv_order(struct gap_kv *kv, gap_stream earlier, gap_stream later) {
  gap__event event;
  if (earlier == later) return 0;
  int rc = gap__dev_event_create(kv->dev, earlier, &event);
  if (rc) return rc;
  rc = gap__dev_event_record(kv->dev, event, earlier);
  if (!rc) rc = gap__dev_stream_wait(kv->dev, later, event);
  gap__dev_event_destroy(kv->dev, event); /* what waits for it goes on to do so */
  return rc;
}

static int make_room(struct gap_kv *kv) {
  if (kv->leaving_count < kv->leaving_room) return 0;
  uint32_t room = kv->leaving_room ? 2 * kv->leaving_room : 16;
  struct kv_leaving *grown = realloc(kv->leaving, room * sizeof *grown);
  if (!grown) return GAP_ENOMETA;
  kv->leaving = grown;
  kv->leaving_room = room;
  return 0;
}

static int record(struct gap_kv *kv, gap_stream stream, gap__event *out) {
  int rc = gap__dev_event_create(kv->dev, stream, out);
  return rc ? rc : gap__dev_event_record(kv->dev, *out, stream);
}

int gap__kv_leave_prepare(struct gap_kv *kv, uint32_t count, gap_stream stream, struct kv_leaving *out) {
  *out = (struct kv_leaving){.pages = malloc((count + 1) * sizeof(uint32_t))};
  int rc = out->pages ? make_room(kv) : GAP_ENOMETA;
  if (!rc && stream != kv->options.stream) rc = record(kv, stream, &out->event);
  if (rc) gap__kv_leave_cancel(kv, out);
  return rc;
}

void gap__kv_leave_cancel(struct gap_kv *kv, struct kv_leaving *leaving) {
  if (leaving->event) gap__dev_event_destroy(kv->dev, leaving->event);
  free(leaving->pages);
  *leaving = (struct kv_leaving){0};
}

void gap__kv_leave_collect(struct gap_kv *kv, uint32_t seq, struct kv_leaving *leaving) {
  struct kv_seq *s = kv_seq_at(kv, seq);
  for (uint32_t c = s->columns; c-- > 0;)
    for (uint32_t g = 0; g < kv->options.group_count; g++) {
      uint32_t page = kv_row(kv, g, seq)[c];
      if (page) leaving->pages[leaving->count++] = page;
    }
}

static void go(struct gap_kv *kv, struct kv_leaving *leaving) {
  for (uint32_t i = 0; i < leaving->count; i++) kv_page_drop(kv, leaving->pages[i]);
  if (leaving->seq) {
    gap__kv_row_clear(kv, leaving->seq, 0);
    gap__kv_seq_end(kv, leaving->seq);
  }
  leaving->count = leaving->seq = 0;
  gap__kv_leave_cancel(kv, leaving);
}

void gap__kv_leave(struct gap_kv *kv, struct kv_leaving *leaving) {
  if (!leaving->event) {
    go(kv, leaving);
    return;
  }
  kv->leaving_pages += leaving->count;
  kv->leaving[kv->leaving_count++] = *leaving;
  *leaving = (struct kv_leaving){0};
}

/* The i-th one is over. */
static void end(struct gap_kv *kv, uint32_t i) {
  struct kv_leaving gone = kv->leaving[i];
  memmove(kv->leaving + i, kv->leaving + i + 1, (--kv->leaving_count - i) * sizeof *kv->leaving);
  kv->leaving_pages -= gone.count;
  go(kv, &gone);
}

void gap__kv_leaving_poll(struct gap_kv *kv) {
  for (uint32_t i = 0; i < kv->leaving_count;)
    if (gap__dev_event_query(kv->dev, kv->leaving[i].event) == 0) end(kv, i);
    else i++;
}

void gap__kv_leaving_finish(struct gap_kv *kv) {
  while (kv->leaving_count) {
    gap__dev_event_wait(kv->dev, kv->leaving[0].event);
    end(kv, 0);
  }
}
