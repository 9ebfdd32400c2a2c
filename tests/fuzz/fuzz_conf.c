/* Any bytes as a configuration string, on a set that already has values.  Promised: a refused string changes nothing, an
 * accepted one leaves values in their ranges, messages are plain text, every text of a value reads back as the same value,
 * and the empty string undoes it all. */
#include <string.h>

#include "conf/reduce.h"
#include "conf/set.h"
#include "fuzz.h"
#include "gapless/gapless.h"

static char *as_string(const uint8_t *data, size_t bytes) {
  char *string = malloc(bytes + 1);
  if (!string) abort();
  memcpy(string, data, bytes);
  string[bytes] = 0;
  return string;
}

static void check_report(const struct gap__conf_report *report, int result) {
  FUZZ_CHECK((result != 0) == (report->errors != 0));
  FUZZ_CHECK(report->count <= 32);
  for (uint32_t i = 0; i < report->count; i++) {
    const struct gap__conf_message *message = &report->messages[i];
    FUZZ_CHECK(message->level >= 0 && message->level <= 2 && message->line[0]);
    for (const char *c = message->line; *c; c++) FUZZ_CHECK(*c >= 0x20 && *c < 0x7f);
  }
}

static bool is_power(uint64_t number) { return number && !(number & (number - 1)); }

static void check_values(const struct gap__conf *values) {
  FUZZ_CHECK(values->large_segment_size > 10 * GAP__CONF_MIB);
  FUZZ_CHECK(values->max_split_size >= values->large_segment_size);
  FUZZ_CHECK(values->max_non_split_rounding >= values->large_segment_size);
  FUZZ_CHECK(values->garbage_collection_threshold >= 0 && values->garbage_collection_threshold < 1);
  FUZZ_CHECK(values->per_process_memory_fraction >= 0 && values->per_process_memory_fraction <= 1);
  FUZZ_CHECK(is_power(values->pinned_num_register_threads) && values->pinned_num_register_threads <= 128);
  FUZZ_CHECK(is_power(values->granularity) && values->granularity >= 512);
  FUZZ_CHECK(values->chunk_max && values->chunk_max % GAP__CONF_PAGE == 0);
  FUZZ_CHECK(values->nmalloc >= 1 && values->nmalloc <= 100);
  FUZZ_CHECK(values->grow_limit >= 1);
  FUZZ_CHECK(!(values->backend_async && values->backend_gapless));
  FUZZ_CHECK(values->strategy < GAP__STRATEGY_COUNT && values->log_level >= 0 && values->log_level <= 3);
  for (int i = 0; i < GAP__CONF_SLOTS; i++)
    FUZZ_CHECK(!values->roundup_power2_divisions[i] || is_power(values->roundup_power2_divisions[i]));
  for (uint32_t i = 1; i < values->pool_size_count; i++) FUZZ_CHECK(values->pool_sizes[i] > values->pool_sizes[i - 1]);
}

static void check_rounding(const struct gap__conf *values, uint64_t bytes) {
  uint64_t rounded = gap__conf_round(values, bytes);
  FUZZ_CHECK(rounded >= bytes);
  FUZZ_CHECK(rounded == UINT64_MAX || rounded % values->granularity == 0);
  FUZZ_CHECK(rounded == UINT64_MAX || gap__conf_round(values, rounded) == rounded);
}

/* Only what a string set: a default may be shown as a word ("not set") that no string says. */
static void check_text(const struct gap__conf_set *set, uint32_t index) {
  const struct gap__conf_entry *entry = &gap__conf_table[index];
  char text[1280], string[1400];
  if (gap__conf_value_source(set, index, NULL) == GAP__CONF_DEFAULT) return;
  gap__conf_value_text(set, index, text, sizeof text);
  if (!strcmp(text, "off") && entry->kind != GAP__CONF_KIND_CONVERT) return; /* roundup_power2_divisions:[] */
  if (entry->kind == GAP__CONF_KIND_TEXT) return;                            /* a path may end in a quote */
  /* A low limit needs a small large_segment_size_mb beside it. */
  (void)snprintf(string, sizeof string, "%s:%s,%s", entry->about.key, text,
                 entry->kind == GAP__CONF_KIND_MIB && index != GAP__CONF_OPTION_large_segment_size
                     ? "large_segment_size_mb:11"
                     : "");
  struct gap__conf_set *again = gap__conf_new();
  if (!again) abort();
  int result = gap__conf_apply(again, GAP__CONF_RUNTIME, "again", string, NULL);
  bool needs_more = index == GAP__CONF_OPTION_reserve && result == GAP_EVALUE; /* the max_memory that it fitted into */
  FUZZ_CHECK(needs_more || result == 0);
  FUZZ_CHECK(needs_more || gap__conf_same_option(entry, gap__conf_values(again), gap__conf_values(set)));
  gap__conf_free(again);
}

/* What torch is shown says the same to us, and is its own reduction. */
static void check_reduced(const char *string) {
  char once[4096], twice[4096];
  size_t needed = 0, again = 0;
  int rc = gap__conf_reduce(string, once, sizeof once, &needed, NULL);
  FUZZ_CHECK(rc == 0 || once[0] == 0);
  (void)gap__conf_asks_gapless(string);
  if (rc || needed >= sizeof once) return;
  FUZZ_CHECK(strlen(once) == needed && !gap__conf_asks_gapless(once));
  FUZZ_CHECK(gap__conf_reduce(once, twice, sizeof twice, &again, NULL) == 0);
  FUZZ_CHECK(strcmp(once, twice) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  char *string = as_string(data, bytes);
  struct gap__conf_report report = {0};
  struct gap__conf_set *set = gap__conf_new();
  if (!set) abort();
  (void)gap__conf_apply(set, GAP__CONF_PYTORCH_ENV, "weak", "max_split_size_mb:64,nmalloc:2", NULL);
  struct gap__conf before = *gap__conf_values(set);
  int result = gap__conf_apply(set, GAP__CONF_RUNTIME, "fuzz", string, &report);
  check_report(&report, result);
  check_reduced(string);
  check_values(gap__conf_values(set));
  if (result) FUZZ_CHECK(!memcmp(&before, gap__conf_values(set), sizeof before));
  for (uint32_t i = 0; i < gap__conf_option_count(); i++) check_text(set, i);
  for (int shift = 0; shift < 64; shift++) check_rounding(gap__conf_values(set), ((uint64_t)1 << shift) + bytes);
  FUZZ_CHECK(gap__conf_apply(set, GAP__CONF_RUNTIME, "fuzz", "", NULL) == 0);
  FUZZ_CHECK(!memcmp(&before, gap__conf_values(set), sizeof before));
  gap__conf_free(set);
  free(string);
  return 0;
}
