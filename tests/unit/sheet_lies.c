/* Sheets that say what no library writes: what is told of them is still a page that Prometheus reads, so that one user does not spoil that
 * of all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/api_try.h"
#include "toolsapi/sheets_say.h"

enum { DEVICES = 3 };

static const char names[64] = "cap_bytes\0reserved_bytes.all.current";
struct lie { /* laid out as a sheet */
  struct gap__sheet_head head;
  char names[64];
  struct {
    uint64_t sequence;
    struct gap__sheet_device device;
    int64_t figures[2];
  } devices[DEVICES];
};

static void lie_of(struct lie *out, int64_t process) {
  *out = (struct lie){.head = {.version = GAP__SHEET_VERSION,
                               .names_at = offsetof(struct lie, names),
                               .names_bytes = 10 + 27,
                               .figure_count = 2,
                               .devices_at = offsetof(struct lie, devices),
                               .device_bytes = sizeof out->devices[0],
                               .device_most = DEVICES,
                               .process = process,
                               .device_count = DEVICES}};
  memcpy(out->head.magic, GAP__SHEET_MAGIC, sizeof out->head.magic);
  memcpy(out->names, names, sizeof names);
  snprintf(out->head.program, sizeof out->head.program, "a \"program\"\n\\");
  for (int i = 0; i < DEVICES; i++) {
    snprintf(out->devices[i].device.strategy, sizeof out->devices[i].device.strategy, "x\",evil=\"1");
    snprintf(out->devices[i].device.backend, sizeof out->devices[i].device.backend, "a\"} 1\n\\");
    out->devices[i].figures[1] = i % 2 ? INT64_MAX : INT64_MIN;
  }
}

static bool read_lie(void *arg, void *out, size_t bytes, uint64_t offset) {
  if (offset > sizeof(struct lie) || bytes > sizeof(struct lie) - offset) return false;
  memcpy(out, (char *)arg + offset, bytes);
  return true;
}

/* The page of two sheets, to be freed. */
static char *page_of(struct lie lies[2]) {
  struct gap__sheet_view views[2];
  struct gap__text text = {0};
  for (int i = 0; i < 2; i++) assert_int_equal(gap__sheet_parse(read_lie, &lies[i], &views[i]), 0);
  struct gap__sheets sheets = {.views = views, .count = 2};
  gap__sheets_metrics(&sheets, &(struct gap__nvml){0}, &text);
  assert_false(text.failed);
  for (int i = 0; i < 2; i++) gap__sheet_view_free(&views[i]);
  return text.bytes;
}

static uint32_t count(const char *text, const char *words) {
  uint32_t found = 0;
  for (; (text = strstr(text, words)); text += strlen(words)) found++;
  return found;
}

/* Behind labels stands a space, a number and the end: a quote inside one does not end it. */
static void check_sample(const char *line) {
  bool quoted = false;
  const char *at = strchr(line, '{');
  for (; at && (quoted || *at != '}'); at++) {
    assert_true(*at && *at != '\n');
    if (quoted && *at == '\\') at++;
    else if (*at == '"') quoted = !quoted;
  }
  char *end;
  if (!at) at = strchr(line, ' ') - 1;
  (void)strtod(at + 2, &end);
  assert_int_equal(at[1], ' ');
  assert_int_equal(*end, '\n');
}

static void labels_hold_what_they_are_given(void **state) {
  (void)state;
  static struct lie lies[2];
  for (int i = 0; i < 2; i++) lie_of(&lies[i], 7 + i);
  char *page = page_of(lies);
  for (const char *line = page; *line; line = strchr(line, '\n') + 1)
    if (*line != '#') check_sample(line);
  assert_int_equal(count(page, ",strategy=\"x\\\",evil=\\\"1\","), 2);
  assert_int_equal(count(page, ",backend=\"a\\\"} 1?\\\\\","), 2);
  free(page);
}

/* The same device twice, the same stream twice, the same process twice. */
static void no_sample_is_told_twice(void **state) {
  (void)state;
  static struct lie lies[2];
  for (int i = 0; i < 2; i++) lie_of(&lies[i], 7);
  struct gap__sheet_device *first = &lies[0].devices[0].device;
  first->usage_count = 4;
  first->usage[1] = first->usage[3] = (struct gap__sheet_usage){.stream = 5, .live_bytes = 10};
  first->usage[0] = first->usage[2] = (struct gap__sheet_usage){.stream = 5, .pool_second = 1, .live_bytes = 20};
  lies[0].devices[2].device.ordinal = 1;
  char *page = page_of(lies);
  assert_int_equal(count(page, "\ngapless_held_bytes{"), 2);
  assert_int_equal(count(page, "\ngapless_stream_live_bytes{"), 2);
  assert_int_equal(count(page, "pool=\"0,1\",tag=\"\"} 20\n"), 1);
  assert_int_equal(count(page, "\ngapless_device_info{"), 2);
  free(page);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(labels_hold_what_they_are_given),
      cmocka_unit_test(no_sample_is_told_twice),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
