/* What `gapless top --json` says: every figure of every process, and the cards where NVML knows them. */
#include <jansson.h>
#include <string.h>
#include <time.h>

#include "api/talk.h"
#include "core/heap.h"
#include "toolsapi/sheets.h"
#include "toolsapi/sheets_say.h"

static json_t *count(uint64_t number) { return json_integer((json_int_t)number); }

static json_t *usage_json(const struct gap__sheet_usage *usage) {
  return json_pack("{s:o s:[o,o] s:s s:o s:o s:o s:o}", "stream", count(usage->stream), "pool",
                   count(usage->pool_first), count(usage->pool_second), "tag", usage->tag, "live_blocks",
                   count(usage->live_blocks), "live_bytes", count(usage->live_bytes), "pending_bytes",
                   count(usage->pending_bytes), "idle_bytes", count(usage->idle_bytes));
}

static json_t *figures_json(const struct gap__sheet_view *view, uint32_t device) {
  const int64_t *figures = (const void *)(gap__sheet_device(view, device) + 1);
  const char *name = view->names;
  json_t *all = json_object();
  for (uint32_t i = 0; i < view->figure_count; i++, name += strlen(name) + 1)
    json_object_set_new(all, name, json_integer(figures[i]));
  return all;
}

static json_t *device_json(const struct gap__sheet_view *view, uint32_t index, uint64_t now_ns) {
  const struct gap__sheet_device *device = gap__sheet_device(view, index);
  struct gap__sheet_brief brief = gap__sheet_brief(view, index, now_ns);
  json_t *streams = json_array();
  char uuid[GAP__TALK_UUID_BYTES];
  gap__talk_uuid(device->uuid, uuid);
  for (uint32_t i = 0; i < device->usage_count; i++) json_array_append_new(streams, usage_json(&device->usage[i]));
  return json_pack("{s:i s:i s:s s:s s:s s:f s:b s:o s:o s:o s:o s:o s:o s:o s:o s:o s:o s:o s:s s:o s:i s:o}", "heap",
                   (int)device->heap, "device", (int)device->ordinal, "uuid", uuid, "backend", device->backend,
                   "strategy", device->strategy, "age_seconds", brief.age_s, "busy", (int)device->is_busy, "live_bytes",
                   count(brief.live), "pending_bytes", count(brief.pending), "idle_bytes", count(brief.idle),
                   "idle_returnable_bytes", count(brief.returnable), "idle_stuck_bytes", count(brief.stuck),
                   "held_bytes", count(brief.held), "cap_bytes", count(brief.cap), "largest_servable_bytes",
                   count(brief.servable), "refused", count(brief.refused), "card_free_bytes",
                   count(device->card_free_bytes), "card_bytes", count(device->card_bytes), "refusal", device->refusal,
                   "streams", streams, "streams_missed", (int)device->usage_missed, "figures",
                   figures_json(view, index));
}

static json_t *process_json(const struct gap__sheet_view *view, uint64_t now_ns) {
  json_t *devices = json_array();
  for (uint32_t i = 0; i < view->device_count; i++) json_array_append_new(devices, device_json(view, i, now_ns));
  return json_pack("{s:I s:I s:s s:s s:f s:o}", "process", (json_int_t)view->process, "user", (json_int_t)view->user,
                   "program", view->program, "library", view->release, "age_seconds",
                   gap__sheet_age_s(view->looked_ns, now_ns), "devices", devices);
}

static json_t *card_json(const struct gap__nvml_card *card) {
  json_t *processes = json_array();
  char uuid[GAP__TALK_UUID_BYTES];
  gap__talk_uuid(card->uuid, uuid);
  for (uint32_t i = 0; i < card->process_count; i++) {
    bool told = card->processes[i].bytes != UINT64_MAX;
    json_array_append_new(processes, json_pack("{s:I s:o}", "process", (json_int_t)card->processes[i].process, "bytes",
                                               told ? count(card->processes[i].bytes) : json_null()));
  }
  return json_pack("{s:s s:s s:o s:o s:o s:o}", "name", card->name, "uuid", uuid, "total_bytes",
                   count(card->total_bytes), "used_bytes", count(card->used_bytes), "free_bytes",
                   count(card->free_bytes), "processes", processes);
}

char *gap__sheets_json(const struct gap__sheets *sheets, const struct gap__nvml *nvml) {
  json_t *processes = json_array(), *cards = json_array();
  uint64_t now_ns = gap__sheet_now_ns();
  for (uint32_t i = 0; i < sheets->count; i++)
    json_array_append_new(processes, process_json(&sheets->views[i], now_ns));
  for (uint32_t i = 0; i < nvml->count; i++) json_array_append_new(cards, card_json(&nvml->cards[i]));
  json_t *all = json_pack("{s:I s:o s:o s:i}", "time", (json_int_t)time(NULL), "cards", cards, "processes", processes,
                          "unknown", (int)sheets->unknown);
  char *text = all ? json_dumps(all, JSON_COMPACT) : NULL;
  json_decref(all);
  return text;
}
