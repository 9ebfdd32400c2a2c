/* Configuration strings seen in the wild: the value that comes out, and what is said about it. */
#include "conf_try.h"

enum { ERROR, WARNING, NOTE, NOTHING };

struct wild {
  int row; /* in the collection the strings come from */
  const char *string;
  int result;
  const char *key, *value; /* in force afterwards */
  int level;               /* of the message; NOTHING: there must be no message at all */
  const char *words;
};

static const struct wild cases[] = {
    {1, "expandable_segments:True", 0, "expandable_segments", "True", NOTHING, ""},
    {2, "expandable_segments:true", 0, "expandable_segments", "True", NOTHING, ""},
    {3, "expandable_segments:1", 0, "expandable_segments", "True", NOTHING, ""},
    {4, "expandable_segments=True", 0, "expandable_segments", "True", NOTE, "key=value is read as key:value"},
    {6, "expandeable_segments:True", 0, "expandable_segments", "False", WARNING, "did you mean 'expandable_segments'?"},
    {6, "expandeable_segments:True", 0, "strategy", "gapless", WARNING, "\"expandeable_segments:True\""},
    {7, "expandable_segments", GAP_EVALUE, "expandable_segments", "False", ERROR, "the key stands without a value"},
    {9, "max_split_size_mb:128", 0, "max_split_size_mb", "128 MiB", NOTHING, ""},
    {10, "max_split_size_mb: 4096", 0, "max_split_size_mb", "4 GiB", NOTHING, ""},
    {11, "max_split_size_mb=512", 0, "max_split_size_mb", "512 MiB", NOTE, "torch itself takes only ':'"},
    {13, "max_split_size_mb:1", GAP_EVALUE, "max_split_size_mb", "unlimited", ERROR,
     "1 MiB is refused, 20 MiB is the least"},
    {14, "max_split_size_mb:10", GAP_EVALUE, "max_split_size_mb", "unlimited", ERROR,
     "10 MiB is refused, 20 MiB is the least"},
    {15, "max_split_size_mb:20", 0, "max_split_size_mb", "20 MiB", NOTE, "refused by torch before 2.9"},
    {16, "max_split_size_mb:16000,garbage_collection_threshold:0.8,max_memory:16G", 0, "max_split_size_mb", "16000 MiB",
     NOTHING, ""},
    {19, "garbage_collection_threshold:0.6,max_split_size_mb:128", 0, "garbage_collection_threshold", "0.6", WARNING,
     "acts only where there is a limit"},
    {20, "garbage_collection_threshold:1.0", GAP_EVALUE, "garbage_collection_threshold", "off", ERROR,
     "above 0 and below 1; leave it out to switch it off"},
    {21, "garbage_collection_threshold:0.72", 0, "max_split_size_mb", "unlimited", WARNING, "max_memory"},
    {22, "backend:cudaMallocAsync,expandable_segments:True", 0, "backend", "cudaMallocAsync", WARNING,
     "ignores expandable_segments: pick one"},
    {25, "max_split_size_mb:512,roundup_power2_divisions:[512:2,1024:4,2048:8,>:16]", 0, "roundup_power2_divisions",
     "[512:2,1024:4,2048:8,>:16]", NOTHING, ""},
    {26, "roundup_power2_divisions:[32:256,64:128,256:64,>:32]", 0, "roundup_power2_divisions",
     "[32:256,64:128,128:0,256:64,>:32]", NOTHING, ""},
    {28, "heuristic:1,nmalloc:3", 0, "nmalloc", "3", NOTE, "no release of torch knows 'heuristic'"},
    {28, "heuristic:1,nmalloc:3", 0, "strategy", "heuristic", NOTE, "heuristic"},
    {28, "heuristic:1,nmalloc:3", 0, "backend", "gapless", NOTE, "heuristic"},
    {28, "caching_allocator:1,pooled:1", 0, "strategy", "pooled", WARNING,
     "'caching_allocator' and 'pooled' both choose the strategy"},
    {28, "caching_allocator:1,pooled:1", 0, "backend", "gapless", WARNING, "the last, 'pooled', wins"},
    {28, "caching_allocator:1,pooled:1", 0, "strategy", "pooled", NOTE,
     "no release of torch knows 'caching_allocator'"},
    {28, "caching_allocator:1,pooled:1", 0, "strategy", "pooled", NOTE, "no release of torch knows 'pooled'"},
    {30, "", 0, "expandable_segments", "False", NOTHING, ""},
    {31, "per_process_memory_fraction:0.5", 0, "per_process_memory_fraction", "0.5", NOTHING, ""},
};

static void check_case(const struct wild *wild) {
  struct try try = try_string(wild->string);
  char text[1280];
  const char *value = try_text(try.set, wild->key, text);
  int said = wild->level == NOTHING ? try.report.count == 0 : try_said(&try.report, wild->level, wild->words);
  if (try.result != wild->result || strcmp(value, wild->value) != 0 || !said) {
    print_error("row %d \"%s\": result %d, %s is %s\n", wild->row, wild->string, try.result, wild->key, value);
    try_print(&try.report);
    fail();
  }
  try_end(&try);
}

static void strings_in_the_wild(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(&cases[i]);
}

/* The rows that are about variables, not about one string. */
static const char *variables[8][2];
static const char *fake_get(const char *name) {
  for (int i = 0; i < 8 && variables[i][0]; i++)
    if (!strcmp(variables[i][0], name)) return variables[i][1];
  return NULL;
}

static struct try try_environment(void) {
  struct try try = {.set = gap__conf_new()};
  try.result = gap__conf_apply_env(try.set, fake_get, &try.report);
  return try;
}

static void row_8_the_generic_variable_counts(void **state) {
  (void)state;
  memset(variables, 0, sizeof variables);
  variables[0][0] = "PYTORCH_ALLOC_CONF", variables[0][1] = "expandable_segments:True";
  struct try try = try_environment();
  const char *variable;
  assert_true(gap__conf_values(try.set)->expandable_segments);
  assert_int_equal(gap__conf_value_source(try.set, GAP__CONF_OPTION_expandable_segments, &variable),
                   GAP__CONF_PYTORCH_ENV);
  assert_string_equal(variable, "PYTORCH_ALLOC_CONF");
  try_end(&try);
}

static void row_8_the_one_that_won_is_named(void **state) {
  (void)state;
  memset(variables, 0, sizeof variables);
  variables[0][0] = "PYTORCH_ALLOC_CONF", variables[0][1] = "max_split_size_mb:200";
  variables[1][0] = "PYTORCH_CUDA_ALLOC_CONF", variables[1][1] = "max_split_size_mb:100";
  struct try try = try_environment();
  assert_int_equal(gap__conf_values(try.set)->max_split_size, 100 * MIB);
  assert_true(try_said(&try.report, WARNING,
                       "PYTORCH_ALLOC_CONF is set too, and not read: PYTORCH_CUDA_ALLOC_CONF wins whole"));
  try_end(&try);
}

static void row_23_a_backend_that_comes_too_late(void **state) {
  (void)state;
  struct try try = try_string("");
  gap__conf_freeze(try.set);
  int result = gap__conf_apply(try.set, GAP__CONF_RUNTIME, "setter", "backend:cudaMallocAsync", &try.report);
  assert_int_equal(result, 0);
  assert_false(gap__conf_values(try.set)->backend_async);
  assert_true(try_said(&try.report, WARNING, "too late for backend"));
  try_end(&try);
}

static void check_no_caching(const char *value, bool off) {
  memset(variables, 0, sizeof variables);
  variables[0][0] = "PYTORCH_NO_CUDA_MEMORY_CACHING", variables[0][1] = value;
  struct try try = try_environment();
  assert_int_equal(gap__conf_values(try.set)->no_caching, off);
  assert_true(try_said(&try.report, NOTE, off ? "caching is asked to be off" : "caching stays on"));
  try_end(&try);
}

static void row_32_no_caching_0_means_caching(void **state) {
  (void)state;
  check_no_caching("0", false);
  check_no_caching("False", false);
  check_no_caching("", false);
  check_no_caching("1", true);
  check_no_caching("True", true);
  check_no_caching("please", true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(strings_in_the_wild),
      cmocka_unit_test(row_8_the_generic_variable_counts),
      cmocka_unit_test(row_8_the_one_that_won_is_named),
      cmocka_unit_test(row_23_a_backend_that_comes_too_late),
      cmocka_unit_test(row_32_no_caching_0_means_caching),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
