/* `gapless conf`: exit codes, the table, JSON, and that docs/configuration.md is what the table makes. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "conf_try.h"
#include "toolsapi/conf_show.h"

struct answer {
  char *out, *err;
  int code;
};

static struct answer run(int count, const char *const *arguments) {
  struct answer answer = {0};
  char *argv[8] = {(char *)"conf"};
  size_t out_bytes, err_bytes;
  for (int i = 0; i < count; i++) argv[i + 1] = (char *)arguments[i];
  FILE *out = open_memstream(&answer.out, &out_bytes), *err = open_memstream(&answer.err, &err_bytes);
  answer.code = gap__conf_main(count + 1, argv, out, err);
  fclose(out);
  fclose(err);
  return answer;
}
#define RUN(...) run(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[]){__VA_ARGS__})

static void done(struct answer *answer) {
  free(answer->out);
  free(answer->err);
}

/* The line that begins with the key has the words. */
static bool row_has(const char *out, const char *key, const char *words) {
  char start[80];
  snprintf(start, sizeof start, "\n  %s ", key);
  const char *row = strstr(out, start), *end = row ? strchr(row + 1, '\n') : NULL,
             *found = row ? strstr(row, words) : NULL;
  return found && found < end;
}

static void expect_code(struct answer answer, int code) {
  if (answer.code != code) fail_msg("exit code %d, not %d:\n%s%s", answer.code, code, answer.out, answer.err);
  done(&answer);
}

static void clean_environment(void) {
  static const char *const names[] = {
      "PYTORCH_CUDA_ALLOC_CONF",        "PYTORCH_HIP_ALLOC_CONF",       "PYTORCH_ALLOC_CONF", "GAPLESS_CONF",
      "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

static void exit_codes(void **state) {
  (void)state;
  expect_code(RUN("nmalloc:3"), 0);
  expect_code(RUN("nmalloc:0"), 1);
  expect_code(RUN("nmaloc:3"), 0);
  expect_code(RUN("nmaloc:3", "--strict"), 1);
  expect_code(RUN("--strict", "nmalloc:3"), 0);
  expect_code(RUN("nmalloc:3,strict:True,nmaloc:2"), 1);
  expect_code(RUN("--json", "nmalloc:0"), 1);
  expect_code(RUN("a", "b"), 2);
  expect_code(RUN("--wat"), 2);
  expect_code(RUN("--card"), 2);
  expect_code(RUN("--card", "many"), 2);
  expect_code(RUN("--card=0"), 2);
  expect_code(RUN("--help"), 0);
}

static void the_table(void **state) {
  (void)state;
  struct answer answer =
      RUN("max_split_size_mb:128,heuristic:1,garbage_collection_threshold:0.6,max_memory:50%", "--card", "80G");
  assert_int_equal(answer.code, 0);
  assert_true(row_has(answer.out, "max_split_size_mb", "128 MiB"));
  assert_true(row_has(answer.out, "max_split_size_mb", "command line"));
  assert_true(row_has(answer.out, "strategy", "heuristic"));
  assert_true(row_has(answer.out, "nmalloc", "default"));
  assert_non_null(strstr(answer.out, "garbage collection begins at 25,769,803,776 bytes held (24 GiB)"));
  assert_null(strstr(answer.out, "\nrounding\n"));
  assert_string_equal(answer.err, "");
  done(&answer);
}

static void rounding_shows_three_sizes(void **state) {
  (void)state;
  struct answer answer = RUN("roundup_power2_divisions:[512:2,1024:4,2048:8,>:16]");
  assert_non_null(strstr(answer.out, "1,153,433 bytes asked become        1,572,864\n"));
  int rows = 0;
  for (const char *at = answer.out; (at = strstr(at, "bytes asked become")); at++) rows++;
  assert_int_equal(rows, 3);
  done(&answer);
}

static void a_split_limit_above_the_card_has_no_effect(void **state) {
  (void)state;
  struct answer answer = RUN("max_split_size_mb:16000", "--card=12G");
  assert_non_null(strstr(answer.out, "larger than any block on this card"));
  done(&answer);
  answer = RUN("max_split_size_mb:16000", "--card=24G");
  assert_null(strstr(answer.out, "larger than any block on this card"));
  done(&answer);
}

static void a_split_limit_that_cannot_help(void **state) {
  (void)state;
  struct answer answer = RUN("max_split_size_mb:128,expandable_segments:True", "--card=80G");
  assert_non_null(strstr(answer.out, "cannot help now: with expandable_segments:True blocks of any size are split"));
  done(&answer);
  answer = RUN("max_split_size_mb:128,backend:gapless", "--card=80G");
  assert_non_null(strstr(answer.out, "belongs to strategy:caching_allocator"));
  done(&answer);
  answer = RUN("max_split_size_mb:128,caching_allocator:1", "--card=80G");
  assert_null(strstr(answer.out, "belongs to"));
  assert_null(strstr(answer.out, "cannot help"));
  done(&answer);
}

static void the_environment(void **state) {
  (void)state;
  clean_environment();
  setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True,nmalloc:2", 1);
  setenv("GAPLESS_CONF", "nmalloc:3", 1);
  struct answer answer = run(0, NULL);
  assert_int_equal(answer.code, 0);
  assert_true(row_has(answer.out, "expandable_segments", "PYTORCH_ALLOC_CONF"));
  assert_true(row_has(answer.out, "nmalloc", "GAPLESS_CONF"));
  done(&answer);
  setenv("GAPLESS_CONF", "nmalloc:many", 1);
  expect_code(run(0, NULL), 1);
  setenv("GAPLESS_CONF", "nmaloc:2", 1);
  expect_code(RUN("--strict"), 1);
  clean_environment();
}

/* Strings seen in the wild (conf_cases.c has what the parser says about each): what the command tells beyond that. */
static void strings_in_the_wild_are_explained(void **state) {
  static const struct {
    int row;
    const char *string, *words;
  } cases[] = {
      {1, "expandable_segments:True", "gapless does this and more"},
      {9, "max_split_size_mb:128", "A cached block larger than this is never split"},
      {16, "max_split_size_mb:160000", "larger than any block on this card: it has no effect"},
      {19, "garbage_collection_threshold:0.6,max_memory:8G", "begins at 5,153,960,755 bytes held (4.80 GiB)"},
      {26, "roundup_power2_divisions:[32:256,64:128,256:64,>:32]", "348,966,092 bytes asked become      352,321,536"},
      {31, "per_process_memory_fraction:0.5", "it counts what is held, used or idle"},
      {31, "per_process_memory_fraction:0.5", "Known to torch from late 2025 on"}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct answer answer = RUN(cases[i].string, "--card=80G");
    if (!strstr(answer.out, cases[i].words)) fail_msg("row %d: %s", cases[i].row, answer.out);
    done(&answer);
  }
}

static void all_are_defaults(void) {
  struct answer answer = run(0, NULL);
  int rows = 0;
  for (const char *at = answer.out; (at = strstr(at, "  default\n")); at++) rows++;
  assert_int_equal(answer.code, 0);
  assert_int_equal(rows, gap__conf_option_count());
  done(&answer);
}

/* Rows 5, 17 and 30: a variable that was never set, or under another name, cannot be seen; the settings in force can. */
static void what_did_not_arrive_shows_as_defaults(void **state) {
  (void)state;
  clean_environment();
  all_are_defaults();
  setenv("'PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:25'", 1);
  all_are_defaults();
  unsetenv("'PYTORCH_CUDA_ALLOC_CONF");
  setenv("PYTORCH_CUDA_ALLOC_CONF", "", 1);
  all_are_defaults();
  clean_environment();
}

static json_t *run_json(const char *string) {
  struct answer answer = RUN(string, "--json", "--card=80G");
  json_error_t error;
  json_t *object = json_loads(answer.out, JSON_REJECT_DUPLICATES, &error);
  if (!object) fail_msg("%s: %s", error.text, answer.out);
  done(&answer);
  return object;
}

static void json(void **state) {
  (void)state;
  json_t *object = run_json(
      "max_memory:40G,garbage_collection_threshold:0.5,roundup_power2_divisions:8,pool_sizes:[1M,2M],x:1,plan:/p\xff");
  const char *text, *set_by, *level;
  json_int_t bytes, trigger, first, rounded, unknown;
  int ok, standard;
  json_t *unlimited, *plan;
  int wrong = json_unpack(
      object, "{s:b,s:I,s:I,s:{s:{s:{s:I},s:s,s:s,s:b},s:{s:[I,I!]},s:{s:o},s:{s:o}},s:[{s:s,s:s},{}]}", "ok", &ok,
      "gc_trigger_bytes", &trigger, "unknown_keys", &unknown, "values", "max_memory", "value", "bytes", &bytes, "text",
      &text, "set_by", &set_by, "default", &standard, "pool_sizes", "value", &first, &rounded, "max_split_size_mb",
      "value", &unlimited, "plan", "value", &plan, "messages", "level", &level, "text", &text);
  assert_int_equal(wrong, 0);
  assert_true(ok && !standard);
  assert_int_equal(bytes, 40 * GIB);
  assert_int_equal(trigger, 20 * GIB);
  assert_int_equal(unknown, 1);
  assert_int_equal(rounded, 2 * MIB);
  assert_true(json_is_null(unlimited));
  assert_string_equal(json_string_value(plan), "/p\xef\xbf\xbd"); /* a path that is no UTF-8 */
  assert_string_equal(set_by, "command line");
  assert_string_equal(level, "warning");
  assert_int_equal(json_array_size(json_object_get(object, "rounding")), 3);
  assert_int_equal(json_object_size(json_object_get(object, "values")), gap__conf_option_count());
  json_decref(object);
  object = run_json("nmalloc:0");
  assert_true(json_is_false(json_object_get(object, "ok")));
  json_decref(object);
}

static char *read_whole(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  char *text = calloc(1, 1 << 20);
  size_t bytes = fread(text, 1, (1 << 20) - 1, file);
  fclose(file);
  text[bytes] = 0;
  return text;
}

static void the_docs_are_what_the_table_makes(void **state) {
  (void)state;
  struct answer answer = RUN("--markdown");
  char *docs = read_whole(GAP_TEST_DATA "/../../docs/configuration.md");
  if (!docs || strcmp(docs, answer.out) != 0)
    fail_msg("docs/configuration.md is out of date: gapless conf --markdown > docs/configuration.md");
  free(docs);
  done(&answer);
}

static void the_docs_name_every_key(void **state) {
  (void)state;
  struct answer answer = RUN("--markdown");
  for (uint32_t i = 0; i < gap__conf_option_count(); i++) {
    char cell[100];
    snprintf(cell, sizeof cell, "\n| `%s`", gap__conf_option_at(i)->key);
    if (!strstr(answer.out, cell)) fail_msg("%s is missing", gap__conf_option_at(i)->key);
  }
  assert_non_null(strstr(answer.out, "`throw_on_cudamalloc_oom`, `pinned_free_catch_all`."));
  done(&answer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exit_codes),
      cmocka_unit_test(the_table),
      cmocka_unit_test(rounding_shows_three_sizes),
      cmocka_unit_test(a_split_limit_above_the_card_has_no_effect),
      cmocka_unit_test(a_split_limit_that_cannot_help),
      cmocka_unit_test(the_environment),
      cmocka_unit_test(strings_in_the_wild_are_explained),
      cmocka_unit_test(what_did_not_arrive_shows_as_defaults),
      cmocka_unit_test(json),
      cmocka_unit_test(the_docs_are_what_the_table_makes),
      cmocka_unit_test(the_docs_name_every_key),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
