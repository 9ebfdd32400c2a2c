/* Every option: its default, good values with what comes out, and bad ones, each refused whole with range and unit named. */
#include <stdio.h>

#include "conf_try.h"

#define GOODS 8
#define BADS 20

struct option_case {
  const char *key, *standard;
  struct {
    const char *value, *text;
  } good[GOODS];
  const char *bad[BADS];
};

#define BOOL_BADS \
  { "2", "-1", "maybe", "1.0", "Truee", "[True]" }
#define BOOL(key, standard) \
  { \
    key, standard, \
        {{"True", "True"}, {"False", "False"}, {"on", "True"}, {"NO", "False"}, {"yes", "True"}, {"0", "False"}}, \
        BOOL_BADS \
  }
/* Numbers that no whole number takes. */
#define NO_NUMBERS "abc", "-1", "nan", "inf", "0x20", "18446744073709551616", "1e3"

static const struct option_case cases[] = {
    {"backend",
     "native",
     {{"native", "native"},
      {"cudaMallocAsync", "cudaMallocAsync"},
      {"hipMallocAsync", "cudaMallocAsync"},
      {"gapless", "gapless"},
      {"pooled", "gapless"},
      {"heuristic", "gapless"}},
     {"Native", "cuda", "1", "async"}},
    {"max_split_size_mb",
     "unlimited",
     {{"20", "20 MiB"},
      {"21", "21 MiB"},
      {"1G", "1 GiB"},
      {"512MB", "512 MiB"},
      {"unlimited", "unlimited"},
      {"20480KiB", "20 MiB"}},
     {"19", "0", "20.5", "1025K", "1099511627777", NO_NUMBERS}},
    {"max_non_split_rounding_mb",
     "20 MiB",
     {{"20", "20 MiB"}, {"64", "64 MiB"}},
     {"19", "unlimited", "1.5", NO_NUMBERS}},
    {"garbage_collection_threshold",
     "off",
     {{"0.6", "0.6"}, {"1e-1", "0.1"}, {".5", "0.5"}, {"0.999", "0.999"}},
     {"0", "0.0", "1", "1.0", "-0.5", "nan", "inf", "abc", "0,5", "80%"}},
    {"roundup_power2_divisions",
     "off",
     {{"1", "1"},
      {"8", "8"},
      {"[256:1,512:2,1024:4,>:8]", "[256:1,512:2,1024:4,>:8]"},
      {"[>:8]", "[1:0,>:8]"},
      {"[]", "off"},
      {"[16:4,]", "[16:4,>:0]"}},
     {"0", "3", "[3:4]", "[4:3]", "[4]", "[4:2", "[4:2]x", "[[4:2]]", "[4:2:1]", "[0:2]"}},
    {"large_segment_size_mb",
     "20 MiB",
     {{"11", "11 MiB"}, {"64", "64 MiB"}, {"1T", "1 TiB"}},
     {"10", "0", "2T", NO_NUMBERS}},
    BOOL("expandable_segments", "False"),
    BOOL("release_lock_on_cudamalloc", "False"),
    {"per_process_memory_fraction",
     "1.0",
     {{"0", "0.0"}, {"1", "1.0"}, {"0.25", "0.25"}},
     {"1.01", "-0.1", "50%", "abc", "nan", "inf"}},
    BOOL("graph_capture_record_stream_reuse", "False"),
    BOOL("pinned_use_cuda_host_register", "False"),
    {"pinned_num_register_threads", "1", {{"1", "1"}, {"8", "8"}, {"128", "128"}}, {"0", "3", "256", NO_NUMBERS}},
    BOOL("pinned_use_background_threads", "False"),
    {"pinned_reserve_segment_size_mb", "off", {{"1", "1 MiB"}, {"2G", "2 GiB"}}, {"0", "1.5", "512K", NO_NUMBERS}},
    {"strategy",
     "gapless",
     {{"gapless", "gapless"},
      {"caching_allocator", "caching_allocator"},
      {"pooled", "pooled"},
      {"heuristic", "heuristic"}},
     {"native", "1", "Pooled"}},
    {"max_memory",
     "not set",
     {{"2M", "2 MiB"},
      {"20G", "20 GiB"},
      {"90%", "90%"},
      {"33.3%", "33.3%"},
      {"1000000000", "1000000000 B"},
      {"100%", "100%"}},
     {"0", "20", "0%", "101%", "-5%", "%", "x%", "nan%", "2E", "0.9"}},
    {"granularity", "512 B", {{"512", "512 B"}, {"4K", "4 KiB"}, {"2MiB", "2 MiB"}}, {"256", "768", "4M", NO_NUMBERS}},
    {"chunk_max", "2 MiB", {{"2M", "2 MiB"}, {"6M", "6 MiB"}, {"1G", "1 GiB"}}, {"1M", "3M", "2G", NO_NUMBERS}},
    {"pool_sizes",
     "not set",
     {{"2M", "[2 MiB]"}, {"[512,1M,20M]", "[512 B,1 MiB,20 MiB]"}, {"[1K, 1.5K]", "[1 KiB,1536 B]"}},
     {"[]", "[2M,1M]", "[1M,1M]", "[100]", "0", "[1M,x]", "[1M", "[1M]2M", "[1M,,2M]", "-1"}},
    {"grow_limit",
     "1.05",
     {{"1", "1.0"}, {"1.5", "1.5"}, {"1000", "1000.0"}},
     {"0.99", "1001", "-1", "abc", "nan", "inf"}},
    {"reserve",
     "not set",
     {{"0", "0 B"}, {"512M", "512 MiB"}, {"5%", "5%"}, {"0%", "0 B"}},
     {"-1", "101%", "abc", "1.5", "2P", "100%"}},
    {"convert",
     "off",
     {{"off", "off"}, {"safe_points", "safe_points"}, {"gated", "gated"}},
     {"on", "1", "True", "Gated"}},
    {"trim_after_ms",
     "0",
     {{"0", "0"}, {"250", "250"}, {"86400000", "86400000"}},
     {"86400001", "1s", "1.5", NO_NUMBERS}},
    {"neighbours", "auto", {{"auto", "auto"}, {"True", "True"}, {"False", "False"}}, {"yes", "1", "on", "Auto"}},
    {"lend_after_ms",
     "10000",
     {{"0", "0"}, {"250", "250"}, {"86400000", "86400000"}},
     {"86400001", "1s", "1.5", NO_NUMBERS}},
    {"nmalloc", "1", {{"1", "1"}, {"3", "3"}, {"100", "100"}}, {"0", "101", "1.5", NO_NUMBERS}},
    {"overflow",
     "False",
     {{"True", "True"}, {"False", "False"}, {"8G", "8 GiB"}, {"1", "True"}},
     {"maybe", "5", "1M", "-1", "nan", "2000P"}},
    {"tiers",
     "not set",
     {{"host", "host"},
      {"[host:8G,disk:/a b]", "[host:8G,disk:/a b]"},
      {"host=64G,disk=/path:500G", "host=64G,disk=/path:500G"},
      {"disk=/x", "disk=/x"},
      {"remote=redis://a", "remote=redis://a"},
      {"host=8G,remote=rediss://u@a.b:6380/1,c.d,redis://e:1,disk=/x",
       "host=8G,remote=rediss://u@a.b:6380/1,c.d,redis://e:1,disk=/x"},
      {"[remote:redis://a,b:6380,host]", "[remote:redis://a,b:6380,host]"},
      {"remote=redis://[::1]:7,[::2]:7", "remote=redis://[::1]:7,[::2]:7"}},
     {"remote", "remote=a", "remote=http://a", "[remote=redis://a,remote=redis://b]", "remote=redis://u:secret@a",
      "[remote=redis://a,u:secret@b]", "[a,remote=redis://b]", "[host", "hostile", "host=", "host=1M", "host=x", "disk",
      "disk=here", "disk=/x:1M", "[host,host]", "[disk=/x,disk=/y]", "tape"}},
    {"plan", "not set", {{"/a/plan file", "/a/plan file"}}, {"[a"}},
    {"trace", "not set", {{"/a/x:y", "/a/x:y"}}, {"[a"}},
    {"trace_max", "16 GiB", {{"1M", "1 MiB"}, {"100G", "100 GiB"}, {"1024G", "1 TiB"}}, {"100K", "2T", NO_NUMBERS}},
    {"trace_ring", "not set", {{"/a/x:y", "/a/x:y"}}, {"[a"}},
    {"trace_ring_events",
     "1048576",
     {{"1024", "1024"}, {"65536", "65536"}, {"67108864", "67108864"}},
     {"512", "1000", "134217728", "1M", NO_NUMBERS}},
    BOOL("trace_frames", "False"),
    {"serve", "auto", {{"auto", "auto"}, {"True", "True"}, {"False", "False"}}, {"yes", "1", "on", "true", "Auto"}},
    BOOL("page_maker", "True"),
    {"torch", "2.11", {{"2.11", "2.11"}, {"2.12", "2.12"}}, {"2.10", "2.1", "2", "2.11.0", "True", "latest"}},
    {"log",
     "warning",
     {{"error", "error"}, {"0", "error"}, {"1", "warning"}, {"2", "info"}, {"3", "debug"}, {"info", "info"}},
     {"4", "-1", "loud", "1.0"}},
    BOOL("strict", "False"),
    BOOL("scrub", "False"),
};
#define CASES (sizeof cases / sizeof *cases)

static const struct option_case *find_case(const char *key) {
  for (size_t i = 0; i < CASES; i++)
    if (!strcmp(cases[i].key, key)) return &cases[i];
  return NULL;
}

static void every_option_has_a_case(void **state) {
  (void)state;
  assert_int_equal(CASES, gap__conf_option_count());
  for (uint32_t i = 0; i < gap__conf_option_count(); i++) {
    const struct gap__conf_option *about = gap__conf_option_at(i);
    if (!find_case(about->key)) fail_msg("no case for %s", about->key);
    assert_true(*about->help && *about->range && *about->type && *about->default_text);
  }
  assert_null(gap__conf_option_at(gap__conf_option_count()));
}

static void defaults(void **state) {
  (void)state;
  struct gap__conf_set *set = gap__conf_new();
  char text[1280];
  for (size_t i = 0; i < CASES; i++) {
    if (strcmp(try_text(set, cases[i].key, text), cases[i].standard) != 0)
      fail_msg("%s is %s by default, not %s", cases[i].key, text, cases[i].standard);
    assert_int_equal(gap__conf_value_source(set, (uint32_t)gap__conf_find(cases[i].key), NULL), GAP__CONF_DEFAULT);
  }
  gap__conf_free(set);
}

/* The table's default text is what the value in force reads, where the table does not say it in words. */
static void defaults_read_as_the_table_says(void **state) {
  (void)state;
  struct gap__conf_set *set = gap__conf_new();
  char text[1280];
  for (uint32_t i = 0; i < gap__conf_option_count(); i++) {
    const char *standard = gap__conf_option_at(i)->default_text;
    gap__conf_value_text(set, i, text, sizeof text);
    if (strncmp(standard, "as ", 3) != 0) assert_string_equal(text, standard);
  }
  gap__conf_free(set);
}

static void check_good(const struct option_case *option, const char *value, const char *expected) {
  char string[2048], text[1280];
  snprintf(string, sizeof string, "%s:%s", option->key, value);
  struct try try = try_string(string);
  if (try.result || strcmp(try_text(try.set, option->key, text), expected) != 0) {
    print_error("%s: result %d, value %s, expected %s\n", string, try.result, text, expected);
    try_print(&try.report);
    fail();
  }
  assert_int_equal(gap__conf_value_source(try.set, (uint32_t)gap__conf_find(option->key), NULL), GAP__CONF_GAPLESS_ENV);
  try_end(&try);
}

static void good_values(void **state) {
  (void)state;
  for (size_t i = 0; i < CASES; i++)
    for (int g = 0; g < GOODS && cases[i].good[g].value; g++)
      check_good(&cases[i], cases[i].good[g].value, cases[i].good[g].text);
}

static void check_bad(const struct option_case *option, const char *value) {
  char string[2048], text[1280];
  snprintf(string, sizeof string, "scrub:%s,%s:%s", !strcmp(option->key, "scrub") ? "False" : "True", option->key,
           value);
  struct try try = try_string(string);
  int named = try_said(&try.report, 0, option->key) || try_said(&try.report, 0, "reserve");
  if (try.result != GAP_EVALUE || !named || strcmp(try_text(try.set, option->key, text), option->standard) != 0 ||
      gap__conf_values(try.set)->scrub) {
    print_error("%s: result %d, value %s\n", string, try.result, text);
    try_print(&try.report);
    fail();
  }
  try_end(&try);
}

static void bad_values(void **state) {
  (void)state;
  for (size_t i = 0; i < CASES; i++)
    for (int b = 0; b < BADS && cases[i].bad[b]; b++) check_bad(&cases[i], cases[i].bad[b]);
}

static void bad_values_name_range_and_unit(void **state) {
  (void)state;
  struct try try = try_string("nmalloc:0");
  assert_true(try_said(&try.report, 0, "bad value '0' for nmalloc: it is too small; it takes 1 to 100 (tries)"));
  assert_true(try_said(&try.report, 0, "Nothing of \"nmalloc:0\" is applied."));
  try_end(&try);
  try = try_string("large_segment_size_mb:10");
  assert_true(try_said(&try.report, 0, "it takes more than 10 (MiB)"));
  try_end(&try);
  try = try_string("trim_after_ms:-1");
  assert_true(try_said(&try.report, 0, "it is negative"));
  try_end(&try);
  try = try_string("max_split_size_mb:18446744073709551615");
  assert_true(try_said(&try.report, 0, "more than 2^60 bytes"));
  try_end(&try);
  try = try_string("nmalloc:18446744073709551616");
  assert_true(try_said(&try.report, 0, "does not fit into 64 bits"));
  try_end(&try);
}

static void hip_names(void **state) {
  (void)state;
  struct try try = try_string("release_lock_on_hipmalloc:True,pinned_use_hip_host_register:True");
  assert_int_equal(try.result, 0);
  assert_int_equal(try.report.count, 0);
  assert_true(gap__conf_values(try.set)->release_lock_on_cudamalloc);
  assert_true(gap__conf_values(try.set)->pinned_use_cuda_host_register);
  try_end(&try);
}

static void torch_marks_its_own(void **state) {
  (void)state;
  uint32_t torch = 0;
  for (uint32_t i = 0; i < gap__conf_option_count(); i++) torch += gap__conf_option_at(i)->torch;
  assert_int_equal(torch, 14);
}

static void newer_keys_are_known_by_name(void **state) {
  (void)state;
  for (uint32_t i = 0; gap__conf_newer_at(i); i++) {
    char string[128];
    snprintf(string, sizeof string, "%s:True", gap__conf_newer_at(i));
    struct try try = try_string(string);
    assert_int_equal(try.result, 0);
    assert_true(try_said(&try.report, 1, "newer than torch 2.11"));
    assert_int_equal(try.report.unknown, 1);
    try_end(&try);
  }
}

/* Every good value's text, put into a string again, means the same. */
static void texts_can_be_read_back(void **state) {
  (void)state;
  for (size_t i = 0; i < CASES; i++)
    for (int g = 0; g < GOODS && cases[i].good[g].value; g++) {
      const char *text = cases[i].good[g].text;
      bool word = !strcmp(text, "off") && strcmp(cases[i].key, "convert") != 0;
      if (!word) check_good(&cases[i], text, text);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_option_has_a_case),
      cmocka_unit_test(defaults),
      cmocka_unit_test(defaults_read_as_the_table_says),
      cmocka_unit_test(good_values),
      cmocka_unit_test(bad_values),
      cmocka_unit_test(bad_values_name_range_and_unit),
      cmocka_unit_test(hip_names),
      cmocka_unit_test(torch_marks_its_own),
      cmocka_unit_test(newer_keys_are_known_by_name),
      cmocka_unit_test(texts_can_be_read_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
