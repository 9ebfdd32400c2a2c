/* The reader of sheets on arbitrary bytes, and what is told of them: as they are, and with a head that is laid out well so that names,
 * figures and texts are what is tried.  What comes out is text that harms no terminal. */
#include <string.h>

#include "base/text.h"
#include "fuzz.h"
#include "toolsapi/sheets_say.h"

enum { DEVICES = 2, FIGURES = 4, NAMES = 96 };

struct made {
  struct gap__sheet_head head;
  char names[NAMES];
  struct {
    uint64_t sequence;
    struct gap__sheet_device device;
    int64_t figures[FIGURES];
  } devices[DEVICES];
};
_Static_assert(sizeof(struct gap__sheet_head) % 8 == 0, "the devices behind it are words");

struct bytes {
  const uint8_t *at;
  size_t count;
};

static bool read_bytes(void *arg, void *out, size_t bytes, uint64_t offset) {
  const struct bytes *from = arg;
  if (offset > from->count || bytes > from->count - offset) return false;
  memcpy(out, from->at + offset, bytes);
  return true;
}

static void check_text(const char *text) {
  for (; *text; text++) FUZZ_CHECK(*text == '\n' || (*text >= ' ' && *text <= '~'));
}

static void tell(struct gap__sheet_view *view) {
  struct gap__sheets sheets = {.views = view, .count = 1};
  struct gap__nvml nvml = {0};
  struct gap__text text = {0};
  gap__sheets_metrics(&sheets, &nvml, &text);
  FUZZ_CHECK(!text.failed);
  check_text(gap__text_str(&text));
  gap__text_free(&text);
  char *json = gap__sheets_json(&sheets, &nvml);
  if (json) check_text(json);
  free(json);
}

static void read_it(const void *bytes, size_t count) {
  struct gap__sheet_view view;
  struct bytes from = {bytes, count};
  if (gap__sheet_parse(read_bytes, &from, &view)) return;
  tell(&view);
  gap__sheet_view_free(&view);
}

static void make_head(struct made *made) {
  struct gap__sheet_head *head = &made->head;
  memcpy(head->magic, GAP__SHEET_MAGIC, sizeof head->magic);
  head->version = GAP__SHEET_VERSION;
  head->names_at = sizeof *head;
  head->names_bytes = NAMES;
  head->figure_count = FIGURES;
  head->devices_at = sizeof *head + NAMES;
  head->device_bytes = sizeof made->devices[0];
  head->device_most = DEVICES;
  atomic_store(&head->device_count, DEVICES);
}

/* An even first byte: the bytes as they are. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const char *const names[FIGURES] = {"allocated_bytes.all.current", "reserved_bytes.all.current", "num_ooms",
                                             "rung.fit.us"};
  if (!bytes || data[0] % 2 == 0) {
    if (bytes) read_it(data + 1, bytes - 1);
    return 0;
  }
  struct made *made = calloc(1, sizeof *made);
  FUZZ_CHECK(made);
  size_t most = bytes - 1 < sizeof *made ? bytes - 1 : sizeof *made;
  memcpy(made, data + 1, most);
  make_head(made);
  char *at = made->names;
  memset(at, 'x', NAMES);
  for (int i = 0; i < FIGURES; i++) at += sprintf(at, "%s", names[i]) + 1;
  if (data[0] & 2) made->names[NAMES - 1] = '\0'; /* a name too many */
  else made->head.names_bytes = (uint32_t)(at - made->names);
  for (int i = 0; i < DEVICES; i++) made->devices[i].sequence &= ~(uint64_t)1;
  read_it(made, sizeof *made);
  free(made);
  return 0;
}
