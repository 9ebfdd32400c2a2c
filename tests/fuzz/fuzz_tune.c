/* Results of `gapless tune` with arbitrary bytes after a right first line: refused with a line's number, or read; and what was read can
 * be judged, written and read again. */
#include <string.h>

#include "fuzz.h"
#include "tune/model.h"
#include "tune/store.h"
#include "tune/tuner.h"

static char *with_head(const uint8_t *data, size_t bytes, size_t *length) {
  char *text = malloc(bytes + 256);
  FUZZ_CHECK(text);
  int head = snprintf(text, 256, "{\"gapless_tune\":1,\"model\":\"%s\"}\n", gap__tune_model);
  memcpy(text + head, data, bytes);
  *length = (size_t)head + bytes;
  return text;
}

static int read_text(char *text, size_t length, const struct gap__settings *settings, struct gap__tuned_list *list) {
  char message[1024] = "";
  FILE *file = fmemopen(text, length, "r");
  FUZZ_CHECK(file);
  int rc = gap__store_read(file, settings, list, message, sizeof message);
  fclose(file);
  FUZZ_CHECK(rc == 0 || rc == GAP_ENOMETA || strncmp(message, "line ", 5) == 0);
  return rc;
}

static void write_and_read(const struct gap__settings *settings, const struct gap__tuned_list *list) {
  struct gap__tuned_list again = {0};
  char *text = NULL;
  size_t length = 0;
  FILE *file = open_memstream(&text, &length);
  FUZZ_CHECK(file && gap__store_write(file, list) == 0);
  fclose(file);
  FUZZ_CHECK(read_text(text, length, settings, &again) == 0 && again.count == list->count);
  gap__tuned_list_free(&again);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static struct gap__settings settings;
  struct gap__tuner tuner = {.threads = 0};
  struct gap__tuned_list list = {0};
  size_t length;
  if (settings.count == 0) FUZZ_CHECK(gap__settings_make(&settings) == 0);
  char *text = with_head(data, bytes, &length);
  if (read_text(text, length, &settings, &list) == 0) {
    for (uint32_t i = 0; i < list.count; i++) gap__tuner_run(&tuner, list.at[i]);
    for (uint32_t i = 0; i < list.count; i++) gap__tuner_advised(list.at[i], i % 2 == 0);
    write_and_read(&settings, &list);
  }
  gap__tuned_list_free(&list);
  free(text);
  return 0;
}
