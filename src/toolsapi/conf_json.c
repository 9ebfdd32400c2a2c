/* The answer for a program: one object.  Sizes are bytes, null stands for unlimited and not set. */
#include <jansson.h>

#include "conf/table.h"
#include "gapless/gapless.h"
#include "toolsapi/conf_view.h"
#include "trace/json_text.h"

#define VALUE_BYTES 1280

static json_t *bytes_or_null(uint64_t bytes) {
  return bytes == GAP__CONF_UNLIMITED ? json_null() : json_integer((json_int_t)bytes);
}

static json_t *known_or_null(uint64_t bytes) { return bytes ? json_integer((json_int_t)bytes) : json_null(); }

static json_t *amount(const struct gap__conf_amount *amount) {
  if (amount->fraction > 0) return json_pack("{s:f}", "fraction", amount->fraction);
  return amount->bytes || amount->given ? json_pack("{s:I}", "bytes", (json_int_t)amount->bytes) : json_null();
}

static json_t *divisions(const uint32_t *slots) {
  json_t *list = json_array();
  for (int i = 0; i < GAP__CONF_SLOTS; i++) json_array_append_new(list, json_integer(slots[i]));
  return list;
}

static json_t *sizes(const struct gap__conf *conf) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < conf->pool_size_count; i++)
    json_array_append_new(list, json_integer((json_int_t)conf->pool_sizes[i]));
  return list;
}

static json_t *overflow(const struct gap__conf *conf) {
  return conf->overflow && conf->overflow_bytes ? json_integer((json_int_t)conf->overflow_bytes)
                                                : json_boolean(conf->overflow);
}

static json_t *value_of(const struct gap__conf_entry *entry, const struct gap__conf *conf, const char *text) {
  const void *member = gap__conf_member_const(entry, conf);
  switch (entry->kind) {
    case GAP__CONF_KIND_BOOL: return json_boolean(*(const bool *)member);
    case GAP__CONF_KIND_MIB:
    case GAP__CONF_KIND_SIZE:
    case GAP__CONF_KIND_MILLISECONDS: return bytes_or_null(*(const uint64_t *)member);
    case GAP__CONF_KIND_AMOUNT: return amount(member);
    case GAP__CONF_KIND_REAL: return json_real(*(const double *)member);
    case GAP__CONF_KIND_COUNT: return json_integer(*(const uint32_t *)member);
    case GAP__CONF_KIND_ROUNDUP: return divisions(member);
    case GAP__CONF_KIND_SIZES: return sizes(conf);
    case GAP__CONF_KIND_OVERFLOW: return overflow(conf);
    case GAP__CONF_KIND_TIERS:
    case GAP__CONF_KIND_TEXT: return *(const char *)member ? gap__json_text(member) : json_null();
    case GAP__CONF_KIND_BACKEND:
    case GAP__CONF_KIND_STRATEGY:
    case GAP__CONF_KIND_TORCH:
    case GAP__CONF_KIND_CONVERT:
    case GAP__CONF_KIND_SERVE:
    case GAP__CONF_KIND_LOG: break;
  }
  return gap__json_text(text);
}

static json_t *option(const struct gap__conf_view *view, uint32_t index) {
  char text[VALUE_BYTES];
  const char *variable;
  enum gap__conf_source source = gap__conf_value_source(view->set, index, &variable);
  gap__conf_value_text(view->set, index, text, sizeof text);
  json_t *object = json_object();
  json_object_set_new(object, "value", value_of(&gap__conf_table[index], gap__conf_values(view->set), text));
  json_object_set_new(object, "text", gap__json_text(text));
  json_object_set_new(object, "set_by", gap__json_text(variable));
  json_object_set_new(object, "default", json_boolean(source == GAP__CONF_DEFAULT));
  return object;
}

static json_t *options(const struct gap__conf_view *view) {
  json_t *object = json_object();
  for (uint32_t i = 0; i < gap__conf_option_count(); i++)
    json_object_set_new(object, gap__conf_option_at(i)->key, option(view, i));
  return object;
}

static json_t *messages(const struct gap__conf_report *report) {
  static const char *const levels[] = {"error", "warning", "note"};
  json_t *list = json_array();
  for (uint32_t i = 0; i < report->count; i++)
    json_array_append_new(
        list, json_pack("{s:s,s:s}", "level", levels[report->messages[i].level], "text", report->messages[i].line));
  return list;
}

static json_t *samples(const struct gap__conf *conf) {
  struct gap__conf_sample rows[GAP__CONF_SAMPLES];
  json_t *list = json_array();
  for (int i = 0; gap__conf_samples(conf, rows) && i < GAP__CONF_SAMPLES; i++)
    json_array_append_new(list, json_pack("{s:I,s:I}", "request_bytes", (json_int_t)rows[i].request_bytes,
                                          "rounded_bytes", (json_int_t)rows[i].rounded_bytes));
  return list;
}

int gap__conf_print_json(const struct gap__conf_view *view, FILE *out) {
  const struct gap__conf *conf = gap__conf_values(view->set);
  json_t *object = json_object();
  json_object_set_new(object, "string", gap__json_text(view->string));
  json_object_set_new(object, "ok", json_boolean(!view->refused));
  json_object_set_new(object, "card_bytes", known_or_null(view->card_bytes));
  json_object_set_new(object, "values", options(view));
  json_object_set_new(object, "messages", messages(&view->report));
  json_object_set_new(object, "messages_dropped", json_integer(view->report.dropped));
  json_object_set_new(object, "unknown_keys", json_integer(view->report.unknown));
  json_object_set_new(object, "rounding", samples(conf));
  json_object_set_new(object, "gc_trigger_bytes", known_or_null(gap__conf_collection_start(conf, view->card_bytes)));
  json_object_set_new(object, "no_caching", json_boolean(conf->no_caching));
  int failed = json_dumpf(object, out, JSON_COMPACT);
  fprintf(out, "\n");
  json_decref(object);
  return failed ? GAP_ENOMETA : 0;
}
