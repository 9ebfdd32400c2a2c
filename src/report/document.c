#include "report/document.h"

#include <stdio.h>
#include <stdlib.h>

#include "gapless/gapless.h"

static void put_diff(const struct gap__document *document, struct gap__emit *emit) {
  gap__emit_name(emit, "diff");
  if (!document->diff) {
    gap__emit_null(emit);
    return;
  }
  char *json = gap__diff_json(document->diff, document->diff_rows);
  gap__emit_begin(emit, '{');
  GAP__EMIT(emit, number, "panel_a", document->diff_panels[0]);
  GAP__EMIT(emit, number, "panel_b", document->diff_panels[1]);
  gap__emit_members(emit, json);
  gap__emit_end(emit, '}');
  free(json);
}

static void put_job(const struct gap__document *document, struct gap__emit *emit) {
  struct gap__text words = {0};
  gap__emit_name(emit, "job");
  if (!document->job) {
    gap__emit_null(emit);
    return;
  }
  gap__job_say(document->job, &words);
  gap__emit_begin(emit, '{');
  GAP__EMIT(emit, number, "limits", document->job->limits);
  GAP__EMIT(emit, text, "text", gap__text_str(&words));
  gap__emit_end(emit, '}');
  emit->text.failed |= words.failed;
  gap__text_free(&words);
}

int gap__document_json(const struct gap__document *document, char **out) {
  struct gap__emit emit = {0};
  char tool[64];
  int rc = 0;
  snprintf(tool, sizeof tool, "gapless %s", gap_version());
  gap__emit_begin(&emit, '{');
  GAP__EMIT(&emit, text, "format", "gapless-report");
  GAP__EMIT(&emit, number, "version", GAP__REPORT_VERSION);
  GAP__EMIT(&emit, text, "tool", tool);
  gap__emit_name(&emit, "panels");
  gap__emit_begin(&emit, '[');
  for (uint32_t i = 0; !rc && i < document->panel_count; i++) rc = gap__panel_emit(document->panels[i], &emit);
  gap__emit_end(&emit, ']');
  put_diff(document, &emit);
  put_job(document, &emit);
  gap__emit_end(&emit, '}');
  if (rc) gap__text_free(&emit.text);
  *out = rc ? NULL : gap__text_take(&emit.text);
  return rc || *out ? rc : GAP_ENOMETA;
}
