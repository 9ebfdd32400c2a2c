#include "tune/settings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(list) (sizeof(list) / sizeof *(list))

static struct gap__setting *add(struct gap__settings *list) {
  if (list->count == list->max) {
    uint32_t max = list->max ? list->max * 2 : 256;
    struct gap__setting *at = realloc(list->at, max * sizeof *at);
    if (!at) {
      list->failed = true;
      return NULL;
    }
    list->at = at;
    list->max = max;
  }
  struct gap__setting *setting = &list->at[list->count++];
  *setting = (struct gap__setting){.row = list->row_count - 1};
  return setting;
}

static void begin_row(struct gap__settings *list) { list->row_count++; }

static void put(struct gap__settings *list, enum gap_policy policy, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void put(struct gap__settings *list, enum gap_policy policy, const char *format, ...) {
  static const char grows[] = "expandable_segments:True";
  struct gap__setting *setting = add(list);
  size_t used = 0;
  va_list args;
  if (!setting) return;
  setting->policy = policy;
  if (policy == GAP_POLICY_EXPANDABLE) used = (size_t)snprintf(setting->conf, sizeof setting->conf, "%s,", grows);
  va_start(args, format);
  int length = vsnprintf(setting->conf + used, sizeof setting->conf - used, format, args);
  va_end(args);
  if (used > 0 && length == 0) setting->conf[used - 1] = '\0'; /* nothing follows the comma */
}

/* ---- PyTorch's, each with and without expandable segments ---- */

static const int splits[] = {1024, 512, 256, 128, 64, 32}; /* MiB; large to small, so that neighbours lie close */
static const char *const steps[] = {"16", "8", "4", "2"};
static const double thresholds[] = {0.9, 0.8, 0.6};
static const int pages[] = {12, 32, 64};

static void alone(struct gap__settings *list, enum gap_policy policy) {
  static const int finer[] = {2048, 1536, 1024, 768, 512, 384, 256, 192, 160, 128, 96, 64, 48, 32, 24, 20};
  static const double shares[] = {0.95, 0.9, 0.8, 0.7, 0.6, 0.5};
  static const char *const roundups[] = {"32", "16", "8", "4", "2", "[256:1,512:2,1024:4,>:8]", "[64:0,256:4,>:8]"};
  static const int segments[] = {12, 16, 32, 48, 64, 96, 128, 256};
  begin_row(list);
  put(list, policy, "%s", "");
  for (size_t i = 0; i < LENGTH(finer); i++) put(list, policy, "max_split_size_mb:%d", finer[i]);
  begin_row(list);
  for (size_t i = 0; i < LENGTH(shares); i++) put(list, policy, "garbage_collection_threshold:%g", shares[i]);
  begin_row(list);
  for (size_t i = 0; i < LENGTH(roundups); i++) put(list, policy, "roundup_power2_divisions:%s", roundups[i]);
  begin_row(list);
  for (size_t i = 0; i < LENGTH(segments); i++) put(list, policy, "large_segment_size_mb:%d", segments[i]);
}

static void split_and_rounding(struct gap__settings *list, enum gap_policy policy) {
  static const int few[] = {512, 256, 128, 64}, roundings[] = {40, 128, 512};
  for (size_t r = 0; r < LENGTH(roundings); r++) {
    begin_row(list);
    for (size_t i = 0; i < LENGTH(few); i++)
      put(list, policy, "max_split_size_mb:%d,max_non_split_rounding_mb:%d", few[i], roundings[r]);
  }
}

static void split_and_threshold(struct gap__settings *list, enum gap_policy policy) {
  for (size_t t = 0; t < LENGTH(thresholds); t++) {
    begin_row(list);
    for (size_t i = 0; i < LENGTH(splits); i++)
      put(list, policy, "max_split_size_mb:%d,garbage_collection_threshold:%g", splits[i], thresholds[t]);
  }
}

static void split_and_roundup(struct gap__settings *list, enum gap_policy policy) {
  for (size_t s = 0; s < LENGTH(steps); s++) {
    begin_row(list);
    for (size_t i = 0; i < LENGTH(splits); i++)
      put(list, policy, "max_split_size_mb:%d,roundup_power2_divisions:%s", splits[i], steps[s]);
  }
}

static void split_and_segment(struct gap__settings *list, enum gap_policy policy) {
  for (size_t p = 0; p < LENGTH(pages); p++) {
    begin_row(list);
    for (size_t i = 0; i < LENGTH(splits); i++)
      if (splits[i] >= pages[p])
        put(list, policy, "max_split_size_mb:%d,large_segment_size_mb:%d", splits[i], pages[p]);
  }
}

static void roundup_and_rest(struct gap__settings *list, enum gap_policy policy) {
  for (size_t t = 0; t + 1 < LENGTH(thresholds); t++) {
    begin_row(list);
    for (size_t s = 0; s < LENGTH(steps); s++)
      put(list, policy, "garbage_collection_threshold:%g,roundup_power2_divisions:%s", thresholds[t], steps[s]);
  }
  for (size_t p = 0; p < LENGTH(pages); p++) {
    begin_row(list);
    for (size_t s = 0; s + 1 < LENGTH(steps); s++)
      put(list, policy, "large_segment_size_mb:%d,roundup_power2_divisions:%s", pages[p], steps[s]);
  }
}

/* Expandable segments hardly mind the others: fewer of the combinations. */
static void few_with_expandable(struct gap__settings *list) {
  static const int few[] = {512, 128, 32};
  for (size_t i = 0; i < LENGTH(few); i++) {
    begin_row(list);
    put(list, GAP_POLICY_EXPANDABLE, "max_split_size_mb:%d,garbage_collection_threshold:0.8", few[i]);
    put(list, GAP_POLICY_EXPANDABLE, "max_split_size_mb:%d,roundup_power2_divisions:8", few[i]);
  }
}

/* ---- ours ---- */

static void ours(struct gap__settings *list) {
  static const char *const growths[] = {"1",   "1.005", "1.01", "1.02", "1.03", "1.08",
                                        "1.1", "1.15",  "1.25", "1.5",  "2"};
  static const int chunks[] = {4, 8, 16, 32, 64, 128};
  static const char *const grains[] = {"1KiB", "4KiB", "16KiB", "64KiB"};
  begin_row(list);
  put(list, GAP_POLICY_GAPLESS, "%s", "");
  for (size_t i = 0; i < LENGTH(growths); i++) put(list, GAP_POLICY_GAPLESS, "grow_limit:%s", growths[i]);
  begin_row(list);
  for (size_t i = 0; i < LENGTH(chunks); i++) put(list, GAP_POLICY_GAPLESS, "chunk_max:%dMiB", chunks[i]);
  begin_row(list);
  for (size_t i = 0; i < LENGTH(grains); i++) put(list, GAP_POLICY_GAPLESS, "granularity:%s", grains[i]);
  begin_row(list);
  put(list, GAP_POLICY_GAPLESS, "page_maker:False");
  put(list, GAP_POLICY_GAPLESS, "nmalloc:2");
  put(list, GAP_POLICY_GAPLESS, "trim_after_ms:1000");
  for (size_t s = 0; s < LENGTH(steps); s++) put(list, GAP_POLICY_GAPLESS, "roundup_power2_divisions:%s", steps[s]);
  for (size_t i = 1; i < LENGTH(chunks); i += 2) {
    begin_row(list);
    put(list, GAP_POLICY_GAPLESS, "chunk_max:%dMiB,grow_limit:1.02", chunks[i]);
    put(list, GAP_POLICY_GAPLESS, "chunk_max:%dMiB,grow_limit:1.1", chunks[i]);
    put(list, GAP_POLICY_GAPLESS, "chunk_max:%dMiB,convert:gated", chunks[i]);
    put(list, GAP_POLICY_GAPLESS, "chunk_max:%dMiB,convert:safe_points", chunks[i]);
  }
}

int gap__settings_make(struct gap__settings *out) {
  *out = (struct gap__settings){0};
  alone(out, GAP_POLICY_NATIVE);
  split_and_rounding(out, GAP_POLICY_NATIVE);
  split_and_threshold(out, GAP_POLICY_NATIVE);
  split_and_roundup(out, GAP_POLICY_NATIVE);
  split_and_segment(out, GAP_POLICY_NATIVE);
  roundup_and_rest(out, GAP_POLICY_NATIVE);
  alone(out, GAP_POLICY_EXPANDABLE);
  few_with_expandable(out);
  ours(out);
  if (!out->failed) return 0;
  gap__settings_free(out);
  return GAP_ENOMETA;
}

void gap__settings_free(struct gap__settings *list) {
  free(list->at);
  *list = (struct gap__settings){0};
}

uint32_t gap__settings_find(const struct gap__settings *list, enum gap_policy policy, const char *conf) {
  for (uint32_t i = 0; i < list->count; i++)
    if (list->at[i].policy == policy && strcmp(list->at[i].conf, conf) == 0) return i;
  return UINT32_MAX;
}

bool gap__setting_collects(const struct gap__setting *setting) {
  return strstr(setting->conf, "garbage_collection_threshold") != NULL;
}
