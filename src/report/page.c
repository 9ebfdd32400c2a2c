#include "report/page.h"

#include <string.h>

#include "gapless/gapless.h"
#include "trace/message.h"
#include "trace/output.h"

static const char place[] = "<script type=\"application/json\" id=\"gapless-data\">", place_end[] = "</script>";

struct cut { /* the page before and behind the data */
  const char *before, *behind;
  size_t before_bytes, behind_bytes;
};

static int cut_page(struct gap__page page, struct cut *cut, char **message) {
  if (!page.html)
    return gap__message_set(message, GAP_ENOTSUP, "this build has no page (web/dist/report.html was not there)");
  const char *at = memmem(page.html, page.bytes, place, sizeof place - 1), *end = page.html + page.bytes;
  if (at) at += sizeof place - 1;
  const char *behind = at ? memmem(at, (size_t)(end - at), place_end, sizeof place_end - 1) : NULL;
  if (!behind) return gap__message_set(message, GAP_ENOTSUP, "the page of this build has no place for the data");
  *cut = (struct cut){page.html, behind, (size_t)(at - page.html), (size_t)(end - behind)};
  return 0;
}

/* A "<" stands in strings only; written so it cannot end the script, and means the same. */
static void put_json(struct gap__output *output, const char *json) {
  while (*json) {
    size_t plain = strcspn(json, "<");
    gap__output_put(output, json, plain);
    json += plain;
    if (*json) gap__output_put(output, "\\u003c", 6);
    json += *json != 0;
  }
}

int gap__page_write(struct gap__page page, const char *json, const char *path, char **message) {
  struct gap__output output;
  struct cut cut = {0};
  uint64_t written;
  int rc = cut_page(page, &cut, message);
  if (!rc) rc = gap__output_open(&output, path, GAP__ENC_PLAIN, message);
  if (rc) return rc;
  gap__output_put(&output, cut.before, cut.before_bytes);
  put_json(&output, json);
  gap__output_put(&output, cut.behind, cut.behind_bytes);
  return gap__output_close(&output, 0, &written, message);
}
