#include "api/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/client.h"
#include "record/writer.h"

#define TICK_NS 1000
#define VALUE_BYTES 600

static int into_text(void *arg, const void *bytes, size_t count) {
  struct gap__text *text = arg;
  gap__text_add_bytes(text, bytes, count);
  return text->failed ? GAP_ENOMETA : 0;
}

/* ---- settings ---- */

/* What somebody has set, in the grammar of the variables. */
static void add_settings(gap_heap *heap, struct gap__text *text) {
  struct gap__client *client = gap__client_of(heap);
  gap__lock(&client->lock);
  for (uint32_t i = 0; i < gap__conf_option_count(); i++) {
    const char *variable;
    char value[VALUE_BYTES];
    if (gap__conf_value_source(client->conf, i, &variable) == GAP__CONF_DEFAULT) continue;
    gap__conf_value_text(client->conf, i, value, sizeof value);
    gap__text_add(text, "%s%s:%s", text->length ? "," : "", gap__conf_option_at(i)->key, value);
  }
  gap__unlock(&client->lock);
}

static bool is_gapless(gap_heap *heap) {
  struct gap__client *client = gap__client_of(heap);
  gap__lock(&client->lock);
  bool answer = gap__conf_values(client->conf)->strategy != GAP__STRATEGY_CACHING;
  gap__unlock(&client->lock);
  return answer;
}

/* ---- blocks ---- */

struct walker {
  struct gap__record_writer *writer;
  gap_addr segment, end; /* the one that blocks are in */
};

static enum gap__segment_kind kind_of(const struct gap__block_info *info) {
  if (info->state == GAP__BLOCK_HOLE) return GAP__SEGMENT_HOLE;
  if (info->strategy == GAP__STRATEGY_GAPLESS) return GAP__SEGMENT_PAGES;
  return info->is_mapped ? GAP__SEGMENT_EXPANDABLE : GAP__SEGMENT_NATIVE;
}

static int begin_segment(struct walker *walker, const struct gap__block_info *info) {
  walker->segment = info->segment;
  walker->end = info->segment + info->segment_bytes;
  return gap__record_segment(walker->writer, &(struct gap__record_segment){.kind = kind_of(info),
                                                                           .is_large = info->is_large,
                                                                           .addr = info->segment,
                                                                           .bytes = info->segment_bytes,
                                                                           .stream = info->stream,
                                                                           .pool = info->pool});
}

/* Under the heap's locks: the writer takes host memory, and asks nobody. */
static int visit(void *arg, const struct gap__block_info *info) {
  static const uint8_t states[] = {[GAP__BLOCK_IDLE] = 0, [GAP__BLOCK_LIVE] = 1, [GAP__BLOCK_PENDING] = 2};
  struct walker *walker = arg;
  int rc = 0;
  if (info->segment != walker->segment || info->addr >= walker->end) rc = begin_segment(walker, info);
  if (rc || info->state == GAP__BLOCK_HOLE) return rc;
  return gap__record_block(
      walker->writer,
      &(struct gap__record_block){
          .state = states[info->state], .addr = info->addr, .bytes = info->bytes, .requested = info->requested});
}

/* ---- devices ---- */

static int write_facts(gap_heap *heap, int device, struct gap__record_writer *writer) {
  const int all = GAP__KIND_ALL;
  struct gap__stats stats;
  struct gap__record_facts facts = {.page_bytes = GAP__PAGE};
  char refusal[GAP__RECORD_TEXT_MOST] = "";
  int rc = gap__heap_stats(heap, device, &stats);
  if (!rc) rc = gap__heap_diagnosis(heap, device, refusal, sizeof refusal);
  if (rc) return rc;
  gap__dev_mem_info(gap__heap_dev(heap, device), &facts.free_bytes, &facts.card_bytes); /* 0 where it cannot tell */
  facts.cap_bytes = (uint64_t)stats.cap_bytes;
  facts.returnable_bytes = (uint64_t)stats.idle_returnable_bytes;
  facts.largest_servable_bytes = (uint64_t)stats.largest_servable_bytes;
  facts.peak_live_bytes = (uint64_t)stats.live_bytes_peak;
  facts.peak_held_bytes = (uint64_t)stats.reserved_bytes[all].peak;
  facts.refusals = (uint64_t)stats.num_ooms;
  facts.retries = (uint64_t)stats.num_alloc_retries;
  facts.stalls = (uint64_t)stats.stalls;
  return gap__record_state_end(writer, &facts, refusal);
}

int gap__state_heap(gap_heap *heap, uint64_t number, struct gap__record_writer *writer) {
  int rc = 0;
  for (int device = 0; !rc && device < gap__heap_device_count(heap); device++) {
    struct walker walker = {.writer = writer};
    if (!gap__heap_dev(heap, device)) continue; /* never used */
    rc = gap__record_state(writer, number, (uint32_t)device);
    if (!rc) rc = gap__heap_walk(heap, device, visit, &walker);
    if (!rc) rc = write_facts(heap, device, writer);
  }
  return rc;
}

/* ---- the whole ---- */

static uint64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

int gap__state_begin(gap_heap *const *heaps, int count, struct gap__record_writer *writer, gap__record_sink *sink,
                     void *arg) {
  struct gap__text settings = {0};
  for (int i = 0; i < count; i++) add_settings(heaps[i], &settings);
  struct gap__record_header header = {.tick_ns = TICK_NS,
                                      .origin_us = now_us(),
                                      .process = (uint64_t)getpid(),
                                      .program = program_invocation_short_name,
                                      .version = gap_version(),
                                      .settings = gap__text_str(&settings),
                                      .by_gapless = count > 0 && is_gapless(heaps[0])};
  int rc = settings.failed ? GAP_ENOMETA : gap__record_begin(writer, sink, arg, &header);
  gap__text_free(&settings);
  return rc;
}

int gap__state_parcels(gap_heap *heap, struct gap__text *out) {
  struct gap__record_writer *writer = calloc(1, sizeof *writer);
  if (!writer) return GAP_ENOMETA;
  writer->sink = into_text;
  writer->arg = out;
  int rc = gap__state_heap(heap, 0, writer);
  if (!rc) rc = gap__record_flush(writer);
  free(writer);
  return rc;
}

static int write_all(gap_heap *const *heaps, int count, struct gap__record_writer *writer, struct gap__text *out) {
  int rc = gap__state_begin(heaps, count, writer, into_text, out);
  for (int i = 0; !rc && i < count; i++) rc = gap__state_heap(heaps[i], 0, writer);
  return rc ? rc : gap__record_end(writer);
}

int gap__state_write(gap_heap *const *heaps, int count, struct gap__text *out) {
  struct gap__record_writer *writer = malloc(sizeof *writer);
  int rc = writer ? write_all(heaps, count, writer, out) : GAP_ENOMETA;
  free(writer);
  return rc;
}
