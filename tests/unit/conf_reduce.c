/* What is left of a string for torch's own parsers, and whether it asks for gapless. */
#include "conf/reduce.h"

#include "conf_try.h"

struct reduced {
  const char *string, *text;
  int result, asks;
};

static const struct reduced cases[] = {
    {"", "", 0, 0},
    {"backend:gapless", "", 0, 1},
    {"caching_allocator", "", 0, 1},
    {"heuristic:1,nmalloc:3", "", 0, 1},
    {"heuristic:0", "", 0, 0},
    {"strategy:pooled", "", 0, 0},
    {"backend:pooled,backend:native", "", 0, 0},
    {"backend:native,pooled", "", 0, 1},
    {"backend:cudaMallocAsync", "", 0, 0},
    {"gapless,expandable_segments:true", "expandable_segments:True", 0, 1},
    {"expandable_segments=1", "expandable_segments:True", 0, 0},
    {"max_split_size_mb: 128 , max_memory:90%", "max_split_size_mb:128", 0, 0},
    {"max_split_size_mb:unlimited", "", 0, 0},
    {"garbage_collection_threshold:0.6,max_memory:4G", "garbage_collection_threshold:0.6", 0, 0},
    {"pinned_num_register_threads:8,pinned_use_background_threads:yes",
     "pinned_num_register_threads:8,pinned_use_background_threads:True", 0, 0},
    {"release_lock_on_hipmalloc:True", "release_lock_on_cudamalloc:True", 0, 0},
    {"roundup_power2_divisions:[256:1, 512:2,1024:4,>:8]", "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", 0, 0},
    {"roundup_power2_divisions:4", "roundup_power2_divisions:4", 0, 0},
    {"expandeable_segments:True,expandable_segments:True", "expandable_segments:True", 0, 0},
    {"pooled,max_split_size_mb:1", "", GAP_EVALUE, 1}, /* refused whole, and still a wish */
    {"strict:True,nobody_knows:1", "", GAP_EKEY, 0},
};

static void reduces(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[512] = "?";
    size_t needed = 0;
    int result = gap__conf_reduce(cases[i].string, text, sizeof text, &needed, NULL);
    if (result != cases[i].result || strcmp(text, cases[i].text) != 0 || needed != strlen(text))
      fail_msg("\"%s\": result %d, \"%s\"", cases[i].string, result, text);
    if (gap__conf_asks_gapless(cases[i].string) != cases[i].asks) fail_msg("\"%s\": asks", cases[i].string);
  }
}

/* What a valid string asks for by a look at its items is what the parser makes of it. */
static void asks_as_the_parser(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct try try = try_string(cases[i].string);
    if (!try.result && gap__conf_values(try.set)->backend_gapless != cases[i].asks) fail_msg("\"%s\"", cases[i].string);
    try_end(&try);
  }
}

/* The reduced string is read back as the same values, and reduces to itself. */
static void reduced_reads_back(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[512], again[512];
    size_t needed;
    if (gap__conf_reduce(cases[i].string, text, sizeof text, &needed, NULL)) continue;
    assert_int_equal(gap__conf_reduce(text, again, sizeof again, &needed, NULL), 0);
    assert_string_equal(text, again);
  }
}

static void cut_text_is_closed(void **state) {
  char text[8] = "xxxxxxx";
  size_t needed = 0;
  (void)state;
  assert_int_equal(gap__conf_reduce("max_split_size_mb:128", text, sizeof text, &needed, NULL), 0);
  assert_string_equal(text, "max_spl");
  assert_int_equal(needed, strlen("max_split_size_mb:128"));
  assert_int_equal(gap__conf_reduce("max_split_size_mb:128", NULL, 0, &needed, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reduces),
      cmocka_unit_test(asks_as_the_parser),
      cmocka_unit_test(reduced_reads_back),
      cmocka_unit_test(cut_text_is_closed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
