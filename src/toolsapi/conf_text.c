/* The answer for a person. */
#include <string.h>

#include "base/text.h"
#include "conf/table.h"
#include "toolsapi/conf_view.h"

#define VALUE_BYTES 1280 /* 64 pool sizes */

static int widest_key(void) {
  size_t widest = 0;
  for (uint32_t i = 0; i < gap__conf_option_count(); i++) {
    size_t length = strlen(gap__conf_option_at(i)->key);
    if (length > widest) widest = length;
  }
  return (int)widest;
}

static void print_row(const struct gap__conf_view *view, uint32_t index, FILE *out) {
  char value[VALUE_BYTES];
  const char *variable;
  (void)gap__conf_value_source(view->set, index, &variable);
  gap__conf_value_text(view->set, index, value, sizeof value);
  fprintf(out, "  %-*s  %-24s  %s\n", widest_key(), gap__conf_option_at(index)->key, value, variable);
}

static void print_group(const struct gap__conf_view *view, bool torch, FILE *out) {
  fprintf(out, "%s\n", torch ? "torch 2.11" : "gapless");
  for (uint32_t i = 0; i < gap__conf_option_count(); i++)
    if (gap__conf_option_at(i)->torch == torch) print_row(view, i, out);
}

static void print_messages(const struct gap__conf_report *report, FILE *out) {
  static const char *const levels[] = {"error", "warning", "note"};
  if (report->count) fprintf(out, "\n");
  for (uint32_t i = 0; i < report->count; i++)
    fprintf(out, "%s: %s\n", levels[report->messages[i].level], report->messages[i].line);
  if (report->dropped) fprintf(out, "and %u more\n", report->dropped);
}

static void print_meanings(const struct gap__conf_view *view, FILE *out) {
  bool begun = false;
  for (uint32_t i = 0; i < gap__conf_option_count(); i++) {
    if (gap__conf_value_source(view->set, i, NULL) == GAP__CONF_DEFAULT) continue;
    if (!begun) fprintf(out, "\nwhat the keys that are set mean\n");
    begun = true;
    fprintf(out, "  %s: %s\n", gap__conf_option_at(i)->key, gap__conf_option_at(i)->help);
  }
}

static void print_samples(const struct gap__conf *conf, FILE *out) {
  struct gap__conf_sample samples[GAP__CONF_SAMPLES];
  if (!gap__conf_samples(conf, samples)) return;
  fprintf(out, "\nrounding\n");
  for (int i = 0; i < GAP__CONF_SAMPLES; i++) {
    char request[GAP__TEXT_BYTES], rounded[GAP__TEXT_BYTES];
    gap__text_thousands(samples[i].request_bytes, request);
    gap__text_thousands(samples[i].rounded_bytes, rounded);
    fprintf(out, "  %16s bytes asked become %16s\n", request, rounded);
  }
}

static void print_collection(const struct gap__conf_view *view, FILE *out) {
  const struct gap__conf *conf = gap__conf_values(view->set);
  uint64_t start = gap__conf_collection_start(conf, view->card_bytes);
  char bytes[GAP__TEXT_BYTES], size[GAP__TEXT_BYTES];
  if (!start) return;
  fprintf(out, "\ngarbage collection begins at %s bytes held (%s)\n", gap__text_thousands(start, bytes),
          gap__text_size(start, size));
}

/* Strategies of gapless's own split any block; PyTorch's does when its segments grow. */
static const char *why_split_limit_is_useless(const struct gap__conf_view *view) {
  const struct gap__conf *conf = gap__conf_values(view->set);
  bool own = conf->strategy == GAP__STRATEGY_GAPLESS || conf->strategy == GAP__STRATEGY_POOLED;
  if (conf->max_split_size == GAP__CONF_UNLIMITED) return NULL;
  if (conf->backend_gapless && own)
    return "belongs to strategy:caching_allocator: with the one in force it has no effect";
  if (conf->expandable_segments) return "cannot help now: with expandable_segments:True blocks of any size are split";
  if (view->card_bytes && conf->max_split_size >= view->card_bytes)
    return "is larger than any block on this card: it has no effect";
  return NULL;
}

static void print_useless_split(const struct gap__conf_view *view, FILE *out) {
  const char *why = why_split_limit_is_useless(view);
  if (why) fprintf(out, "\nmax_split_size_mb %s\n", why);
}

void gap__conf_print_text(const struct gap__conf_view *view, FILE *out) {
  const struct gap__conf *conf = gap__conf_values(view->set);
  print_group(view, true, out);
  print_group(view, false, out);
  print_messages(&view->report, out);
  print_meanings(view, out);
  print_samples(conf, out);
  print_collection(view, out);
  print_useless_split(view, out);
  if (conf->no_caching) fprintf(out, "\ncaching is asked to be off: PYTORCH_NO_CUDA_MEMORY_CACHING is set\n");
}
