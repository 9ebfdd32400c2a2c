/* The Prometheus text format: each metric with its help and type, then its samples. */
#include <stdio.h>

#include "api/talk.h"
#include "core/heap.h"
#include "toolsapi/sheets_say.h"

#define ONE 1.0
#define MICRO 1e-6

struct metrics { /* what is said, and of whom */
  const struct gap__sheets *sheets;
  const struct gap__nvml *nvml;
  struct gap__text *out;
  uint64_t now_ns;
};

/* ---- the format ---- */

static void begin(struct metrics *m, const char *name, const char *type, const char *help) {
  gap__text_add(m->out, "# HELP gapless_%s %s\n# TYPE gapless_%s %s\n", name, help, name, type);
}

static void add_label(struct gap__text *out, const char *name, const char *value) {
  gap__text_add(out, "%s=\"", name);
  for (; *value; value++)
    if (*value == '\n') gap__text_add(out, "\\n");
    else if (*value == '"' || *value == '\\') gap__text_add(out, "\\%c", *value);
    else gap__text_add_char(out, *value);
  gap__text_add_char(out, '"');
}

/* Whole numbers as such; a double has all that a sheet counts to 2^53. */
static void add_value(struct gap__text *out, double value) { gap__text_add(out, "} %.16g\n", value); }

static void begin_process(struct metrics *m, const char *name, const struct gap__sheet_view *view) {
  gap__text_add(m->out, "gapless_%s{pid=\"%lld\",", name, (long long)view->process);
  add_label(m->out, "program", view->program);
}

static void begin_sample(struct metrics *m, const char *name, const struct gap__sheet_view *view, uint32_t index) {
  const struct gap__sheet_device *device = gap__sheet_device(view, index);
  char uuid[GAP__TALK_UUID_BYTES];
  gap__talk_uuid(device->uuid, uuid);
  begin_process(m, name, view);
  gap__text_add(m->out, ",heap=\"%u\",device=\"%u\",uuid=\"%s\"", device->heap, device->ordinal, uuid);
}

/* ---- of each device ---- */

typedef void sample_fn(struct metrics *, const char *name, const struct gap__sheet_view *, uint32_t device,
                       const void *arg);

/* Labels tell processes apart by their number alone, and a sample that is there twice spoils the page: of sheets with one number, from
 * several containers or by one who pretends, the first is told. */
static bool is_told(const struct gap__sheets *sheets, uint32_t i) {
  return i == 0 || sheets->views[i].process != sheets->views[i - 1].process;
}

static void each_device(struct metrics *m, const char *name, sample_fn *sample, const void *arg) {
  for (uint32_t i = 0; i < m->sheets->count; i++)
    for (uint32_t d = 0; is_told(m->sheets, i) && d < m->sheets->views[i].device_count; d++)
      sample(m, name, &m->sheets->views[i], d, arg);
}

struct figure {
  const char *name;
  double unit;
};

static void sample_figure(struct metrics *m, const char *name, const struct gap__sheet_view *view, uint32_t device,
                          const void *arg) {
  const struct figure *figure = arg;
  int64_t value;
  if (!gap__sheet_figure(view, device, figure->name, &value)) return; /* an older library */
  begin_sample(m, name, view, device);
  add_value(m->out, (double)value * figure->unit);
}

#define GAP_METRIC_BRIEF(name, type, member, help) \
  static void brief_##name(struct metrics *m, const char *metric, const struct gap__sheet_view *view, uint32_t device, \
                           const void *arg) { \
    (void)arg; \
    begin_sample(m, metric, view, device); \
    add_value(m->out, (double)gap__sheet_brief(view, device, m->now_ns).member); \
  }
#include "toolsapi/metrics.def"

static void add_figures(struct metrics *m) {
#define GAP_METRIC(name, type, figure_name, unit, help) \
  begin(m, #name, #type, help); \
  each_device(m, #name, sample_figure, &(struct figure){figure_name, unit});
#define GAP_METRIC_BRIEF(name, type, member, help) \
  begin(m, #name, #type, help); \
  each_device(m, #name, brief_##name, NULL);
#include "toolsapi/metrics.def"
}

/* ---- by rung, by driver call ---- */

struct part {
  const char *prefix, *label, *figure; /* of the figure PREFIX.WORD.FIGURE */
  const char *(*word)(unsigned);       /* "": there are no more */
  double unit;
};

static const char *rung_word(unsigned i) { return i < GAP__RUNG_COUNT ? gap__rung_name((enum gap__rung)i) : ""; }
static const char *call_word(unsigned i) {
  return i < GAP__CALL_COUNT ? gap__dev_call_name((enum gap__dev_call)i) : "";
}

/* What has never happened is left out. */
static void sample_parts(struct metrics *m, const char *name, const struct gap__sheet_view *view, uint32_t device,
                         const void *arg) {
  const struct part *part = arg;
  for (unsigned i = 0; *part->word(i); i++) {
    char figure[96];
    int64_t value;
    snprintf(figure, sizeof figure, "%s.%s.%s", part->prefix, part->word(i), part->figure);
    if (!gap__sheet_figure(view, device, figure, &value) || !value) continue;
    begin_sample(m, name, view, device);
    gap__text_add(m->out, ",%s=\"%s\"", part->label, part->word(i));
    add_value(m->out, (double)value * part->unit);
  }
}

static void add_parts(struct metrics *m) {
  begin(m, "rung_served_total", "counter", "requests that a rung of the reclaim ladder served");
  each_device(m, "rung_served_total", sample_parts, &(struct part){"rung", "rung", "count", rung_word, ONE});
  begin(m, "rung_seconds_total", "counter", "time in a rung of the reclaim ladder, whether it served or not");
  each_device(m, "rung_seconds_total", sample_parts, &(struct part){"rung", "rung", "us", rung_word, MICRO});
  begin(m, "driver_call_seconds_total", "counter", "time of allocating threads in one kind of driver call");
  each_device(m, "driver_call_seconds_total", sample_parts, &(struct part){"driver", "call", "us", call_word, MICRO});
}

/* ---- by stream and pool ---- */

static uint64_t live_of(const struct gap__sheet_usage *usage) { return usage->live_bytes; }
static uint64_t idle_of(const struct gap__sheet_usage *usage) { return usage->idle_bytes; }

struct of_usage {
  uint64_t (*value)(const struct gap__sheet_usage *);
};

static void sample_usages(struct metrics *m, const char *name, const struct gap__sheet_view *view, uint32_t index,
                          const void *arg) {
  const struct gap__sheet_device *device = gap__sheet_device(view, index);
  for (uint32_t i = 0; i < device->usage_count; i++) {
    const struct gap__sheet_usage *usage = &device->usage[i];
    begin_sample(m, name, view, index);
    gap__text_add(m->out, ",stream=\"%#llx\",pool=\"%llu,%llu\",", (unsigned long long)usage->stream,
                  (unsigned long long)usage->pool_first, (unsigned long long)usage->pool_second);
    add_label(m->out, "tag", usage->tag);
    add_value(m->out, (double)((const struct of_usage *)arg)->value(usage));
  }
}

static void add_usages(struct metrics *m) {
  begin(m, "stream_live_bytes", "gauge", "live bytes of a stream in a pool; the first 32 of a device");
  each_device(m, "stream_live_bytes", sample_usages, &(struct of_usage){live_of});
  begin(m, "stream_idle_bytes", "gauge", "idle bytes of a stream in a pool; the first 32 of a device");
  each_device(m, "stream_idle_bytes", sample_usages, &(struct of_usage){idle_of});
}

/* ---- who and where ---- */

static void sample_info(struct metrics *m, const char *name, const struct gap__sheet_view *view, uint32_t index,
                        const void *arg) {
  const struct gap__sheet_device *device = gap__sheet_device(view, index);
  (void)arg;
  begin_sample(m, name, view, index);
  gap__text_add(m->out, ",user=\"%u\",", view->user);
  add_label(m->out, "strategy", device->strategy);
  gap__text_add_char(m->out, ',');
  add_label(m->out, "backend", device->backend);
  gap__text_add_char(m->out, ',');
  add_label(m->out, "version", view->release);
  add_value(m->out, 1);
}

static void add_info(struct metrics *m) {
  begin(m, "processes", "gauge", "processes that publish their figures");
  gap__text_add(m->out, "gapless_processes %u\n", m->sheets->count);
  begin(m, "device_info", "gauge", "1; the labels say what serves the memory of a device");
  each_device(m, "device_info", sample_info, NULL);
}

/* ---- cards, as NVML sees them ---- */

static void card_sample(struct metrics *m, const char *name, const struct gap__nvml_card *card) {
  char uuid[GAP__TALK_UUID_BYTES];
  gap__talk_uuid(card->uuid, uuid);
  gap__text_add(m->out, "gapless_%s{uuid=\"%s\",", name, uuid);
  add_label(m->out, "card", card->name);
}

static void add_cards(struct metrics *m) {
  begin(m, "card_total_bytes", "gauge", "memory of a card (NVML)");
  for (uint32_t i = 0; i < m->nvml->count; i++)
    card_sample(m, "card_total_bytes", &m->nvml->cards[i]), add_value(m->out, (double)m->nvml->cards[i].total_bytes);
  begin(m, "card_used_bytes", "gauge", "of it in use, by whomever (NVML)");
  for (uint32_t i = 0; i < m->nvml->count; i++)
    card_sample(m, "card_used_bytes", &m->nvml->cards[i]), add_value(m->out, (double)m->nvml->cards[i].used_bytes);
}

void gap__sheets_metrics(const struct gap__sheets *sheets, const struct gap__nvml *nvml, struct gap__text *out) {
  struct metrics m = {sheets, nvml, out, gap__sheet_now_ns()};
  add_info(&m);
  add_figures(&m);
  add_parts(&m);
  add_usages(&m);
  add_cards(&m);
}
