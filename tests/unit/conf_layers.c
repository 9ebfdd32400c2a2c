/* Who wins, who is named, what a later string changes, and that a bad string changes nothing. */
#include <stdio.h>
#include <stdlib.h>

#include "conf_try.h"

static struct gap__conf_set *set;
static struct gap__conf_report report;

static int setup(void **state) {
  (void)state;
  set = gap__conf_new();
  memset(&report, 0, sizeof report);
  return set ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  gap__conf_free(set);
  return 0;
}

static int say(enum gap__conf_source source, const char *string) {
  static const char *const names[] = {"default", "PYTORCH_CUDA_ALLOC_CONF", "GAPLESS_CONF", "setter"};
  return gap__conf_apply(set, source, names[source], string, &report);
}

static const struct gap__conf *values(void) { return gap__conf_values(set); }

static void assert_set_by(const char *key, enum gap__conf_source source, const char *name) {
  const char *variable;
  assert_int_equal(gap__conf_value_source(set, (uint32_t)gap__conf_find(key), &variable), source);
  assert_string_equal(variable, name);
}

static void stronger_sources_win_key_by_key(void **state) {
  (void)state;
  say(GAP__CONF_RUNTIME, "nmalloc:4");
  say(GAP__CONF_GAPLESS_ENV, "nmalloc:3,max_split_size_mb:300,grow_limit:1.2");
  say(GAP__CONF_PYTORCH_ENV, "max_split_size_mb:100,expandable_segments:True,nmalloc:2");
  assert_int_equal(values()->nmalloc, 4);
  assert_int_equal(values()->max_split_size, 300 * MIB);
  assert_true(values()->expandable_segments);
  assert_set_by("nmalloc", GAP__CONF_RUNTIME, "setter");
  assert_set_by("max_split_size_mb", GAP__CONF_GAPLESS_ENV, "GAPLESS_CONF");
  assert_set_by("expandable_segments", GAP__CONF_PYTORCH_ENV, "PYTORCH_CUDA_ALLOC_CONF");
  assert_set_by("scrub", GAP__CONF_DEFAULT, "default");
  assert_int_equal(report.count, 0);
}

static void a_string_replaces_what_its_source_said(void **state) {
  (void)state;
  say(GAP__CONF_PYTORCH_ENV, "max_split_size_mb:100");
  say(GAP__CONF_RUNTIME, "max_split_size_mb:200,nmalloc:5,pool_sizes:[1M,2M],strategy:pooled");
  assert_int_equal(values()->max_split_size, 200 * MIB);
  say(GAP__CONF_RUNTIME, "nmalloc:6");
  assert_int_equal(values()->nmalloc, 6);
  assert_int_equal(values()->max_split_size, 100 * MIB);
  assert_int_equal(values()->pool_size_count, 0);
  assert_int_equal(values()->strategy, GAP__STRATEGY_GAPLESS);
  assert_set_by("max_split_size_mb", GAP__CONF_PYTORCH_ENV, "PYTORCH_CUDA_ALLOC_CONF");
}

static void the_empty_string_resets_its_source(void **state) {
  (void)state;
  struct gap__conf before = *values();
  say(GAP__CONF_GAPLESS_ENV, "pooled,max_memory:20G,tiers:host,overflow:8G,roundup_power2_divisions:8,convert:gated");
  assert_memory_not_equal(&before, values(), sizeof before);
  say(GAP__CONF_RUNTIME, "nmalloc:9");
  say(GAP__CONF_GAPLESS_ENV, "");
  assert_int_equal(values()->nmalloc, 9);
  say(GAP__CONF_RUNTIME, " \t\n");
  assert_memory_equal(&before, values(), sizeof before);
}

/* Each of these has good keys on both sides of what is wrong. */
static void a_bad_string_changes_nothing(void **state) {
  (void)state;
  static const char *const strings[] = {
      "nmalloc:7,max_split_size_mb:5,scrub:True",
      "nmalloc:7,expandable_segments:maybe,scrub:True",
      "nmalloc:7,expandable_segments,scrub:True",
      "nmalloc:7,roundup_power2_divisions:[1:2,scrub:True",
      "nmalloc:7,reserve:20G,max_memory:10G,scrub:True",
      "nmalloc:7,large_segment_size_mb:40,max_split_size_mb:30",
      "strict:True,nmalloc:7,no_such_key:1",
      "no_such_key:1,nmalloc:7,strict:True",
  };
  say(GAP__CONF_RUNTIME, "nmalloc:2,max_split_size_mb:64");
  struct gap__conf before = *values();
  for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
    uint32_t errors = report.errors;
    assert_true(say(GAP__CONF_RUNTIME, strings[i]) < 0);
    assert_true(report.errors > errors);
    assert_memory_equal(&before, values(), sizeof before);
    assert_set_by("scrub", GAP__CONF_DEFAULT, "default");
  }
}

static void unknown_keys_and_strict(void **state) {
  (void)state;
  assert_int_equal(say(GAP__CONF_RUNTIME, "nmaloc:2,nmalloc:3"), 0);
  assert_int_equal(report.warnings, 1);
  assert_int_equal(report.unknown, 1);
  assert_true(try_said(&report, 1, "did you mean 'nmalloc'? It is ignored."));
  assert_int_equal(values()->nmalloc, 3);
  assert_int_equal(say(GAP__CONF_GAPLESS_ENV, "strict:True"), 0);
  assert_int_equal(say(GAP__CONF_RUNTIME, "nmaloc:2,nmalloc:4"), GAP_EKEY); /* strict from another source */
  assert_int_equal(values()->nmalloc, 3);
  assert_int_equal(say(GAP__CONF_RUNTIME, "nmaloc:2,nmalloc:4,strict:False"), 0);
  assert_int_equal(values()->nmalloc, 4);
  assert_int_equal(say(GAP__CONF_GAPLESS_ENV, "strict:True,nmaloc:2,scrub:perhaps"),
                   GAP_EVALUE); /* the worse of the two */
}

static void words_choose_strategy_and_backend(void **state) {
  (void)state;
  static const char *const strings[] = {"pooled",           "pooled:1",
                                        "pooled:True",      "backend:pooled",
                                        "heuristic,pooled", "backend:native,pooled",
                                        " po oled ",        "strategy:heuristic,pooled=1"};
  for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
    assert_int_equal(say(GAP__CONF_PYTORCH_ENV, strings[i]), 0);
    assert_true(values()->backend_gapless);
    assert_false(values()->backend_async);
    assert_int_equal(values()->strategy, GAP__STRATEGY_POOLED);
    assert_set_by("strategy", GAP__CONF_PYTORCH_ENV, "PYTORCH_CUDA_ALLOC_CONF");
  }
  say(GAP__CONF_PYTORCH_ENV, "pooled:0");
  assert_false(values()->backend_gapless);
  assert_int_equal(values()->strategy, GAP__STRATEGY_GAPLESS);
  say(GAP__CONF_PYTORCH_ENV, "strategy:pooled");
  assert_false(values()->backend_gapless);
  assert_int_equal(say(GAP__CONF_PYTORCH_ENV, "pooled:7"), GAP_EVALUE);
}

static void backend_gapless_leaves_the_strategy_alone(void **state) {
  (void)state;
  say(GAP__CONF_PYTORCH_ENV, "backend:gapless");
  say(GAP__CONF_GAPLESS_ENV, "strategy:pooled,backend:gapless");
  assert_int_equal(values()->strategy, GAP__STRATEGY_POOLED);
  assert_int_equal(report.count, 0);
}

static void a_backend_after_a_word_is_warned_of(void **state) {
  (void)state;
  say(GAP__CONF_PYTORCH_ENV, "pooled,backend:native");
  assert_false(values()->backend_gapless);
  assert_true(try_said(&report, 1, "the strategy 'pooled' is not used"));
  memset(&report, 0, sizeof report);
  say(GAP__CONF_PYTORCH_ENV, "backend:native,pooled");
  assert_true(try_said(&report, 1, "overrules the backend"));
}

static void a_repeated_key_is_warned_of(void **state) {
  (void)state;
  say(GAP__CONF_RUNTIME, "nmalloc:2,nmalloc:3");
  assert_int_equal(values()->nmalloc, 3);
  assert_true(try_said(&report, 1, "nmalloc is given more than once"));
}

static void freezing_keeps_what_is_read_at_the_start(void **state) {
  (void)state;
  say(GAP__CONF_GAPLESS_ENV, "granularity:4K,nmalloc:2,backend:gapless");
  gap__conf_freeze(set);
  assert_int_equal(say(GAP__CONF_RUNTIME, "granularity:8K,nmalloc:3,backend:gapless"), 0);
  assert_int_equal(values()->granularity, 4096);
  assert_int_equal(values()->nmalloc, 3);
  assert_int_equal(report.warnings, 1);
  assert_true(try_said(&report, 1, "too late for granularity"));
  assert_set_by("granularity", GAP__CONF_GAPLESS_ENV, "GAPLESS_CONF");
  say(GAP__CONF_GAPLESS_ENV, "");
  assert_int_equal(values()->granularity, 4096);
  assert_true(values()->backend_gapless);
}

static void rounding_limit_follows_the_segment_size(void **state) {
  (void)state;
  say(GAP__CONF_PYTORCH_ENV, "max_split_size_mb:100,large_segment_size_mb:30"); /* whatever its position */
  assert_int_equal(values()->max_non_split_rounding, 30 * MIB);
  say(GAP__CONF_PYTORCH_ENV, "max_split_size_mb:15,large_segment_size_mb:12");
  assert_int_equal(values()->max_split_size, 15 * MIB);
  say(GAP__CONF_GAPLESS_ENV, "large_segment_size_mb:64");
  assert_int_equal(values()->max_split_size, 64 * MIB);
  assert_true(try_said(&report, 1, "PYTORCH_CUDA_ALLOC_CONF: max_split_size_mb is raised from 15 MiB to 64 MiB"));
  say(GAP__CONF_GAPLESS_ENV, "");
  assert_int_equal(values()->max_split_size, 15 * MIB);
}

static void contradictions(void **state) {
  (void)state;
  static const struct {
    const char *string;
    int result, level;
    const char *words;
  } cases[] = {
      {"backend:cudaMallocAsync,max_split_size_mb:100,roundup_power2_divisions:4", 0, 1,
       "ignores max_split_size_mb roundup_power2_divisions: pick one"},
      {"max_memory:10G,per_process_memory_fraction:0.5", 0, 1, "both limit the memory held"},
      {"garbage_collection_threshold:0.5", 0, 1, "acts only where there is a limit"},
      {"reserve:10G,max_memory:10G", GAP_EVALUE, 0, "as large as all that may be held (max_memory)"},
      {"reserve:60%,max_memory:50%", GAP_EVALUE, 0, "nothing would be left"},
      {"reserve:100%", GAP_EVALUE, 0, "(the card)"},
      {"overflow:True,tiers:disk=/d:1G", 0, 1, "needs host memory, which tiers does not name"},
      {"tiers:[host=30M,disk=/d:1G]", 0, 1, "less than 32 MiB of host memory, through which all passes"},
      {"tiers:host=", GAP_EVALUE, 0, "ends where a value should stand"},
      {"tiers:disk=/a:b", GAP_EVALUE, 0, "no number of bytes, such as 64G"},
      {"pool_sizes:[1M,2M]", 0, 2, "the strategy is gapless"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    memset(&report, 0, sizeof report);
    assert_int_equal(say(GAP__CONF_GAPLESS_ENV, cases[i].string), cases[i].result);
    if (!try_said(&report, cases[i].level, cases[i].words)) {
      try_print(&report);
      fail_msg("%s: nothing is said", cases[i].string);
    }
  }
}

static void no_contradiction_no_message(void **state) {
  (void)state;
  assert_int_equal(
      say(GAP__CONF_GAPLESS_ENV,
          "max_memory:10G,reserve:9G,garbage_collection_threshold:0.5,tiers:host,overflow:True,strategy:pooled,"
          "pool_sizes:[1M,2M],per_process_memory_fraction:1"),
      0);
  assert_int_equal(report.count, 0);
  assert_int_equal(say(GAP__CONF_GAPLESS_ENV, "tiers:[host=32M,disk=/d:1G]"), 0);
  assert_int_equal(say(GAP__CONF_GAPLESS_ENV, "tiers:[host=2M]"), 0);
  assert_int_equal(report.count, 0);
  assert_int_equal(say(GAP__CONF_GAPLESS_ENV, "overflow:True"), 0); /* host memory alone needs no tiers to be named */
  assert_int_equal(report.count, 0);
}

static void a_contradiction_left_by_a_reset_is_no_error(void **state) {
  (void)state;
  assert_int_equal(say(GAP__CONF_PYTORCH_ENV, "max_memory:10G"), 0);
  assert_int_equal(say(GAP__CONF_RUNTIME, "max_memory:40G"), 0);
  assert_int_equal(say(GAP__CONF_GAPLESS_ENV, "reserve:20G"), 0);
  assert_int_equal(say(GAP__CONF_RUNTIME, ""), 0);
  assert_int_equal(values()->max_memory.bytes, 10 * GIB);
}

static void reserve_zero_is_not_no_reserve(void **state) {
  (void)state;
  assert_false(values()->reserve.given);
  say(GAP__CONF_RUNTIME, "reserve:0");
  assert_true(values()->reserve.given);
  assert_int_equal(values()->reserve.bytes, 0);
}

static const char *torch_string, *own_string;
static const char *fake_get(const char *name) {
  if (!strcmp(name, "PYTORCH_CUDA_ALLOC_CONF")) return torch_string;
  return strcmp(name, "GAPLESS_CONF") ? NULL : own_string;
}

static void the_environment_as_a_whole(void **state) {
  (void)state;
  torch_string = "garbage_collection_threshold:0.5,nmalloc:2";
  own_string = "max_memory:10G,nmalloc:3";
  assert_int_equal(gap__conf_apply_env(set, fake_get, &report), 0);
  assert_int_equal(report.count, 0); /* the threshold's limit comes from the other variable */
  assert_int_equal(values()->nmalloc, 3);
  own_string = "nmalloc:4";
  assert_int_equal(gap__conf_apply_env(set, fake_get, &report), 0);
  assert_true(try_said(&report, 1, "PYTORCH_CUDA_ALLOC_CONF: garbage_collection_threshold acts only"));
  torch_string = own_string = NULL;
  assert_int_equal(gap__conf_apply_env(set, fake_get, &report), 0);
  assert_int_equal(values()->nmalloc, 1);
}

static void each_variable_stands_for_itself(void **state) {
  (void)state;
  torch_string = "nmalloc:0";
  own_string = "grow_limit:1.5";
  assert_int_equal(gap__conf_apply_env(set, fake_get, &report), GAP_EVALUE);
  assert_true(values()->grow_limit == 1.5);
  assert_int_equal(values()->nmalloc, 1);
}

static void wrong_arguments(void **state) {
  (void)state;
  assert_int_equal(say(GAP__CONF_DEFAULT, "nmalloc:2"), GAP_EINVAL);
  assert_int_equal(gap__conf_apply(set, GAP__CONF_RUNTIME, "setter", NULL, NULL), GAP_EINVAL);
  assert_int_equal(gap__conf_apply(set, GAP__CONF_RUNTIME, "setter", "nmalloc:2,x:1", NULL), 0); /* no report wanted */
  assert_int_equal(values()->nmalloc, 2);
  char text[8] = "untouch";
  gap__conf_value_text(set, 9999, text, sizeof text);
  assert_string_equal(text, "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(stronger_sources_win_key_by_key),
      TEST(a_string_replaces_what_its_source_said),
      TEST(the_empty_string_resets_its_source),
      TEST(a_bad_string_changes_nothing),
      TEST(unknown_keys_and_strict),
      TEST(words_choose_strategy_and_backend),
      TEST(backend_gapless_leaves_the_strategy_alone),
      TEST(a_backend_after_a_word_is_warned_of),
      TEST(a_repeated_key_is_warned_of),
      TEST(freezing_keeps_what_is_read_at_the_start),
      TEST(rounding_limit_follows_the_segment_size),
      TEST(contradictions),
      TEST(no_contradiction_no_message),
      TEST(a_contradiction_left_by_a_reset_is_no_error),
      TEST(reserve_zero_is_not_no_reserve),
      TEST(the_environment_as_a_whole),
      TEST(each_variable_stands_for_itself),
      TEST(wrong_arguments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
