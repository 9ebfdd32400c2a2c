/* Tuning: the answers are the same whatever was remembered, joined or made up by others, and however many threads found them
 * (pthread_create is in src/replay/workers.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sha256.h"
#include "conf/conf.h"
#include "gapless/tune.h"
#include "tune/model.h"
#include "tune/settings.h"
#include "tune/store.h"

#define TRAINING GAP_TEST_DATA "/made/training.pickle"
#define SMALL GAP_TEST_DATA "/made/small.4.pickle"

enum { MESSAGE_BYTES = 1024 };

/* ---- A folder for each test ---- */

static char folder[64];

static int make_folder(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/gapless-tune-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
  char command[128];
  (void)state;
  snprintf(command, sizeof command, "rm -rf -- '%s'", folder);
  return system(command);
}

static const char *in_folder(const char *name, char out[128]) {
  snprintf(out, 128, "%s/%s", folder, name);
  return out;
}

/* ---- Sessions ---- */

static uint32_t threads = 2;

static gap_tune *open_with(const char *cache) {
  gap_tune_options options;
  char message[MESSAGE_BYTES];
  gap_tune *tune;
  gap_tune_defaults(&options);
  options.threads = threads;
  options.cache = cache;
  assert_int_equal(gap_tune_open(&options, &tune, message, sizeof message), 0);
  return tune;
}

static void add_file(gap_tune *tune, const char *path) {
  char message[MESSAGE_BYTES];
  assert_int_equal(gap_tune_file(tune, path, NULL, NULL, message, sizeof message), 0);
  assert_string_equal(message, "");
}

static gap_tune *tuned(const char *path, const char *cache) {
  gap_tune *tune = open_with(cache);
  add_file(tune, path);
  gap_tune_conclude(tune);
  return tune;
}

static void write_result(const gap_tune *tune, const char *path) {
  char message[MESSAGE_BYTES];
  assert_int_equal(gap_tune_write(tune, path, message, sizeof message), 0);
}

static char *contents(const char *path) {
  FILE *file = fopen(path, "re");
  assert_non_null(file);
  char *text = NULL;
  size_t bytes = 0;
  ssize_t count = getdelim(&text, &bytes, '\0', file);
  fclose(file);
  assert_true(count >= 0);
  return text;
}

static void put(const char *path, const char *text) {
  FILE *file = fopen(path, "we");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

/* Everything but what this run had to do for it. */
static void assert_same_answers(const gap_tune *left, const gap_tune *right) {
  assert_int_equal(gap_tune_count(left), gap_tune_count(right));
  for (uint32_t i = 0; i < gap_tune_count(left); i++) {
    gap_tune_history a, b;
    gap_tune_at(left, i, &a);
    gap_tune_at(right, i, &b);
    assert_string_equal(a.hash, b.hash);
    assert_int_equal(a.known, b.known);
    assert_int_equal(a.best, b.best);
    assert_int_equal(a.advised, b.advised);
    assert_int_equal(a.best_gapless, b.best_gapless);
    assert_int_equal(a.advised_gapless, b.advised_gapless);
    for (uint32_t s = 0; s < a.count; s++) {
      gap_tune_setting one, other;
      memset(&one, 0, sizeof one);
      memset(&other, 0, sizeof other);
      gap_tune_setting_at(left, i, s, &one);
      gap_tune_setting_at(right, i, s, &other);
      one.conf = other.conf;
      assert_memory_equal(&one, &other, sizeof one);
    }
  }
}

/* ---- Parts ---- */

static void hashes_are_those_of_the_standard(void **state) {
  static const struct {
    const char *text;
    unsigned times;
    const char *hash;
  } cases[] = {
      {"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"aaaaaaaaaa", 100000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct gap__sha256 sha;
    char got[GAP__SHA256_TEXT_BYTES];
    gap__sha256_begin(&sha);
    for (unsigned t = 0; t < cases[i].times; t++) gap__sha256_add(&sha, cases[i].text, strlen(cases[i].text));
    gap__sha256_end(&sha, got);
    assert_string_equal(got, cases[i].hash);
  }
}

static void every_setting_is_valid_and_there_once(void **state) {
  struct gap__settings settings;
  (void)state;
  assert_int_equal(gap__settings_make(&settings), 0);
  assert_true(settings.count >= 200);
  for (uint32_t i = 0; i < settings.count; i++) {
    const struct gap__setting *one = &settings.at[i];
    struct gap__conf_set *set = gap__conf_new();
    struct gap__conf_report *report = calloc(1, sizeof *report);
    assert_true(set && report);
    assert_int_equal(gap__conf_apply(set, GAP__CONF_RUNTIME, "test", one->conf, report), 0);
    assert_int_equal(report->errors + report->unknown, 0);
    assert_int_equal(gap__settings_find(&settings, one->policy, one->conf), i);
    assert_int_equal(gap__conf_values(set)->expandable_segments, one->policy == GAP_POLICY_EXPANDABLE);
    gap__conf_free(set);
    free(report);
  }
  gap__settings_free(&settings);
}

static void threads_change_nothing(void **state) {
  (void)state;
  threads = 1;
  gap_tune *alone = tuned(TRAINING, NULL);
  threads = 5;
  gap_tune *together = tuned(TRAINING, NULL);
  threads = 2;
  assert_same_answers(alone, together);
  gap_tune_close(alone);
  gap_tune_close(together);
}

/* ---- The cache ---- */

static void what_is_remembered_changes_nothing(void **state) {
  char cache[128];
  gap_tune_history facts;
  (void)state;
  in_folder("cache", cache);
  gap_tune *without = tuned(TRAINING, NULL), *first = tuned(TRAINING, cache), *second = tuned(TRAINING, cache);
  assert_same_answers(without, first);
  assert_same_answers(without, second);
  gap_tune_at(first, 0, &facts);
  assert_true(facts.replays >= facts.count);
  gap_tune_at(second, 0, &facts);
  assert_int_equal(facts.replays, 0);
  gap_tune_close(without);
  gap_tune_close(first);
  gap_tune_close(second);
}

static void cache_file(const char *cache, char out[256]) {
  char hash[GAP__SHA256_TEXT_BYTES], message[MESSAGE_BYTES];
  assert_int_equal(gap__sha256_file(TRAINING, hash, message, sizeof message), 0);
  snprintf(out, 256, "%s/%s.jsonl", cache, hash);
}

static void half_a_cache_is_completed(void **state) {
  char cache[128], path[256];
  gap_tune_history facts;
  (void)state;
  in_folder("cache", cache);
  gap_tune *whole = tuned(TRAINING, cache);
  cache_file(cache, path);
  char *text = contents(path), *cut = text + strlen(text) / 2;
  cut[strcspn(cut, "\n") + 1] = '\0';
  put(path, text);
  gap_tune *half = tuned(TRAINING, cache);
  gap_tune_at(half, 0, &facts);
  assert_true(facts.replays > 0);
  assert_same_answers(whole, half);
  char *again = contents(path);
  assert_true(strlen(again) > strlen(text));
  free(text);
  free(again);
  gap_tune_close(whole);
  gap_tune_close(half);
}

static void a_bad_cache_is_passed_over(void **state) {
  char cache[128], path[256], message[MESSAGE_BYTES];
  (void)state;
  in_folder("cache", cache);
  gap_tune *right = tuned(TRAINING, cache);
  cache_file(cache, path);
  static const char *const bad[] = {"no JSON\n", "{\"gapless_tune\":1,\"model\":\"other\"}\n"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    put(path, bad[i]);
    gap_tune *tune = open_with(cache);
    assert_int_equal(gap_tune_file(tune, TRAINING, NULL, NULL, message, sizeof message), 0);
    assert_non_null(strstr(message, "line ")); /* a warning that names the file */
    assert_non_null(strstr(message, path));
    gap_tune_conclude(tune);
    assert_same_answers(right, tune);
    gap_tune_close(tune);
  }
  gap_tune_close(right);
}

static void a_link_in_the_cache_is_not_followed(void **state) {
  char cache[128], path[256], other[128], message[MESSAGE_BYTES];
  (void)state;
  in_folder("cache", cache);
  gap_tune *right = tuned(TRAINING, cache);
  cache_file(cache, path);
  put(in_folder("other", other), "not to be touched");
  assert_int_equal(unlink(path), 0);
  assert_int_equal(symlink(other, path), 0);
  gap_tune *tune = open_with(cache);
  assert_int_equal(gap_tune_file(tune, TRAINING, NULL, NULL, message, sizeof message), 0);
  assert_true(message[0] != '\0');
  char *text = contents(other);
  assert_string_equal(text, "not to be touched");
  free(text);
  gap_tune_close(tune);
  gap_tune_close(right);
}

static void a_cache_that_others_may_write_is_refused(void **state) {
  gap_tune_options options;
  char cache[128], message[MESSAGE_BYTES];
  struct stat status;
  gap_tune *tune;
  (void)state;
  in_folder("new/cache", cache);
  gap_tune_defaults(&options);
  options.cache = cache;
  assert_int_equal(gap_tune_open(&options, &tune, message, sizeof message), 0);
  gap_tune_close(tune);
  assert_int_equal(stat(cache, &status), 0);
  assert_int_equal(status.st_mode & 0777, 0700);
  assert_int_equal(chmod(cache, 0777), 0);
  assert_int_equal(gap_tune_open(&options, &tune, message, sizeof message), GAP_EIO);
  assert_null(tune);
  assert_non_null(strstr(message, "others may write"));
}

/* ---- Joining ---- */

static gap_tune *merged(const char *first, const char *second) {
  gap_tune *tune = open_with(NULL);
  char message[MESSAGE_BYTES];
  assert_int_equal(gap_tune_merge(tune, first, message, sizeof message), 0);
  assert_int_equal(gap_tune_merge(tune, second, message, sizeof message), 0);
  gap_tune_conclude(tune);
  return tune;
}

static void the_order_of_joining_does_not_matter(void **state) {
  char a[128], b[128], ab[128], ba[128], cache[128];
  (void)state;
  in_folder("cache", cache);
  gap_tune *ring = tuned(TRAINING, cache), *graphs = tuned(SMALL, cache), *both = open_with(cache);
  add_file(both, TRAINING);
  add_file(both, SMALL);
  gap_tune_conclude(both);
  write_result(ring, in_folder("a", a));
  write_result(graphs, in_folder("b", b));
  gap_tune *forward = merged(a, b), *backward = merged(b, a);
  assert_same_answers(both, forward);
  write_result(forward, in_folder("ab", ab));
  write_result(backward, in_folder("ba", ba));
  gap_tune *again = merged(ab, a); /* what is known already changes nothing */
  assert_same_answers(both, again);
  char *left = contents(ab), *right = contents(ba), *first = gap_tune_json(forward), *second = gap_tune_json(backward);
  assert_string_equal(left, right);
  assert_string_equal(first, second);
  free(left);
  free(right);
  free(first);
  free(second);
  gap_tune *all[] = {ring, graphs, both, forward, backward, again};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) gap_tune_close(all[i]);
}

static int merge_text(const char *text, char message[MESSAGE_BYTES]) {
  char path[128];
  gap_tune *tune = open_with(NULL);
  put(in_folder("hostile", path), text);
  int rc = gap_tune_merge(tune, path, message, MESSAGE_BYTES);
  gap_tune_conclude(tune);
  char *json = gap_tune_json(tune);
  assert_true(json || gap_tune_count(tune) == 0);
  free(json);
  gap_tune_close(tune);
  return rc;
}

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define HISTORY \
  "{\"history\":\"" HASH \
  "\",\"file\":\"f\",\"device\":0,\"busy_devices\":1,\"lag_us\":0,\"events\":1,\"peak_live_bytes\":4194304," \
  "\"recorded_us\":0,\"wrapped\":0,\"recorded_policy\":\"native\",\"recorded_conf\":\"\",\"in_table\":true," \
  "\"table_conf\":\"\"}\n"
#define SETTING(conf, trials) "{\"policy\":\"native\",\"conf\":\"" conf "\",\"trials\":[" trials "]}\n"
#define TRIAL(cap, fitted) "[" cap "," fitted ",0,0,0,0,0,0,0,0]"

static void hostile_results_are_told_apart(void **state) {
  static const struct {
    const char *text; /* after a right first line */
    int rc;
    const char *says;
  } cases[] = {
      {HISTORY, 0, ""},
      {HISTORY SETTING("", TRIAL("0", "1")), 0, ""},
      {SETTING("", TRIAL("0", "1")), GAP_EFORMAT, "line 2: a setting before any history"},
      {HISTORY "{}\n", GAP_EFORMAT, "line 3: \"policy\" is not a string"},
      {HISTORY "{\n", GAP_EFORMAT, "line 3: no JSON"},
      {HISTORY "[[[[\n", GAP_EFORMAT, "line 3: no JSON"},
      {HISTORY "7\n", GAP_EFORMAT, "line 3: no JSON"},
      {HISTORY SETTING("made_up:1", ""), GAP_EFORMAT, "is no setting that is tried"},
      {HISTORY SETTING("", "[1]"), GAP_EFORMAT, "a trial is not an array of 10 numbers"},
      {HISTORY SETTING("", "7"), GAP_EFORMAT, "a trial is not an array"},
      {HISTORY SETTING("", TRIAL("-1", "1")), GAP_EFORMAT, "numbers from 0 on"},
      {HISTORY SETTING("", TRIAL("9223372036854775807", "1")), GAP_EFORMAT, "numbers from 0 on"},
      {HISTORY SETTING("", TRIAL("\"0\"", "1")), GAP_EFORMAT, "numbers from 0 on"},
      {HISTORY SETTING("", TRIAL("4194304", "2")), GAP_EFORMAT, "neither 0 nor 1"},
      {HISTORY SETTING("", TRIAL("2097152", "1")), GAP_EFORMAT, "under less than is live"},
      {HISTORY SETTING("", TRIAL("4194304", "1") "," TRIAL("4194304", "0")), GAP_EMISMATCH, "contradict"},
      {HISTORY SETTING("", TRIAL("4194304", "1")) HISTORY SETTING("", TRIAL("4194304", "0")), GAP_EMISMATCH,
       "contradicts other results"},
      {HISTORY "{\"policy\":\"ideal\",\"conf\":\"\",\"trials\":[]}\n", GAP_EFORMAT, "names no policy"},
      {HISTORY "{\"policy\":\"native\",\"policy\":\"native\",\"conf\":\"\",\"trials\":[]}\n", GAP_EFORMAT, "no JSON"},
      {"{\"history\":\"../../etc/passwd\"}\n", GAP_EFORMAT, "64 hexadecimal digits"},
      {"{\"history\":\"" HASH "\",\"file\":7}\n", GAP_EFORMAT, "\"file\" is not a string"},
      {"{\"history\":\"" HASH "\",\"file\":\"f\",\"device\":1e99}\n", GAP_EFORMAT, "\"device\" is not a whole number"},
  };
  char text[8192], message[MESSAGE_BYTES];
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    message[0] = '\0';
    snprintf(text, sizeof text, "{\"gapless_tune\":1,\"model\":\"%s\"}\n%s", gap__tune_model, cases[i].text);
    assert_int_equal(merge_text(text, message), cases[i].rc);
    if (!strstr(message, cases[i].says)) fail_msg("\"%s\" does not say \"%s\"", message, cases[i].says);
  }
}

static void other_versions_are_named(void **state) {
  char message[MESSAGE_BYTES];
  (void)state;
  assert_int_equal(merge_text("", message), GAP_EFORMAT);
  assert_non_null(strstr(message, "empty"));
  assert_int_equal(merge_text("{}\n", message), GAP_EFORMAT);
  assert_non_null(strstr(message, "no result of gapless tune"));
  assert_int_equal(merge_text("{\"gapless_tune\":2,\"model\":\"x\"}\n", message), GAP_EMISMATCH);
  assert_non_null(strstr(message, "version 2"));
  assert_int_equal(merge_text("{\"gapless_tune\":1,\"model\":\"x\"}\n", message), GAP_EMISMATCH);
  assert_non_null(strstr(message, "another version of gapless"));
}

/* A digit altered is a number all the same. */
static void an_altered_digit_is_noticed(void **state) {
  enum { STRIDE = 499 };
  char cache[128], path[256], message[MESSAGE_BYTES];
  uint32_t altered = 0;
  (void)state;
  in_folder("cache", cache);
  gap_tune_close(tuned(TRAINING, cache));
  cache_file(cache, path);
  char *text = contents(path);
  assert_int_equal(merge_text(text, message), 0);
  for (size_t i = 0; text[i]; i++) {
    if (text[i] < '1' || text[i] > '8' || i % STRIDE != 0) continue;
    text[i]++;
    if (merge_text(text, message) == 0) fail_msg("byte %zu: %.40s", i, text + i);
    text[i]--;
    altered++;
  }
  assert_true(altered > 20);
  free(text);
}

static void long_lines_are_refused(void **state) {
  enum { LENGTH = 5 << 20 };
  char message[MESSAGE_BYTES], *text = malloc(LENGTH + 1);
  (void)state;
  assert_non_null(text);
  memset(text, ' ', LENGTH);
  text[LENGTH] = '\0';
  assert_int_equal(merge_text(text, message), GAP_ELIMIT);
  assert_non_null(strstr(message, "line 1: longer than"));
  free(text);
}

/* Any single byte may be wrong: then it is refused with a line, or it still is a result. */
static void altered_bytes_do_no_harm(void **state) {
  char path[128], message[MESSAGE_BYTES];
  uint32_t seed = 1;
  (void)state;
  gap_tune *tune = tuned(SMALL, NULL);
  write_result(tune, in_folder("result", path));
  gap_tune_close(tune);
  char *text = contents(path);
  size_t length = strlen(text), refused = 0;
  for (int i = 0; i < 60; i++) {
    seed = seed * 1664525 + 1013904223;
    size_t at = seed % length;
    char was = text[at];
    text[at] = (char)('!' + (seed >> 16) % 90);
    int rc = merge_text(text, message);
    assert_true(rc == 0 || strncmp(message, "line ", 5) == 0);
    refused += rc != 0;
    text[at] = was;
  }
  assert_true(refused > 0);
  free(text);
}

/* ---- Bad histories ---- */

static void bad_files_are_refused(void **state) {
  char path[128], message[MESSAGE_BYTES];
  (void)state;
  gap_tune *tune = open_with(NULL);
  assert_int_equal(gap_tune_file(tune, in_folder("none", path), NULL, NULL, message, sizeof message), GAP_EIO);
  assert_true(message[0] != '\0');
  assert_int_equal(gap_tune_file(tune, folder, NULL, NULL, message, sizeof message), GAP_EIO);
  put(in_folder("text", path), "not a history");
  assert_int_equal(gap_tune_file(tune, path, NULL, NULL, message, sizeof message), GAP_EFORMAT);
  assert_int_equal(gap_tune_count(tune), 0);
  gap_tune_close(tune);
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hashes_are_those_of_the_standard),
      cmocka_unit_test(every_setting_is_valid_and_there_once),
      cmocka_unit_test(threads_change_nothing),
      IN_FOLDER(what_is_remembered_changes_nothing),
      IN_FOLDER(half_a_cache_is_completed),
      IN_FOLDER(a_bad_cache_is_passed_over),
      IN_FOLDER(a_link_in_the_cache_is_not_followed),
      IN_FOLDER(a_cache_that_others_may_write_is_refused),
      IN_FOLDER(the_order_of_joining_does_not_matter),
      IN_FOLDER(hostile_results_are_told_apart),
      IN_FOLDER(other_versions_are_named),
      IN_FOLDER(an_altered_digit_is_noticed),
      IN_FOLDER(long_lines_are_refused),
      IN_FOLDER(altered_bytes_do_no_harm),
      IN_FOLDER(bad_files_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
