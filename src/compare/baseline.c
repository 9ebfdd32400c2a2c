/* Figures of a file as a small JSON object, to be kept where the file itself is too large to keep. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/check.h"
#include "trace/json_text.h"

enum { VERSION = 1, BYTES_MAX = 1 << 20 };

static const char mark[] = "gapless_figures";

static json_t *value_json(enum gap__figure figure, const struct gap__figure_value *value) {
  if (!value->known) return json_null();
  bool whole = gap__figure_info(figure)->kind != GAP__FIGURE_PERCENT;
  return whole ? json_integer((json_int_t)value->value) : json_real(value->value);
}

char *gap__baseline_json(const struct gap__figures_set *set) {
  json_t *object = json_object(), *figures = json_object();
  json_object_set_new(object, mark, json_integer(VERSION));
  json_object_set_new(object, "file", gap__json_text(set->file));
  json_object_set_new(object, "device", json_integer(set->device));
  for (int i = 0; i < GAP__FIGURE_COUNT; i++)
    json_object_set_new(figures, gap__figure_info((enum gap__figure)i)->name,
                        value_json((enum gap__figure)i, &set->at[i]));
  json_object_set_new(object, "figures", figures);
  return gap__json_take(object, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
}

/* A file may say anything. */
static bool is_figure(const json_t *value) {
  return !json_is_number(value) || fabs(json_number_value(value)) <= GAP__FIGURE_MOST;
}

static int take(const json_t *object, struct gap__figures_set *set, char *message, size_t bytes) {
  const json_t *figures = json_object_get(object, "figures");
  if (json_integer_value(json_object_get(object, mark)) != VERSION || !json_is_object(figures)) {
    snprintf(message, bytes, "figures of another version, or none");
    return GAP_EFORMAT;
  }
  for (int i = 0; i < GAP__FIGURE_COUNT; i++) {
    const char *name = gap__figure_info((enum gap__figure)i)->name;
    const json_t *value = json_object_get(figures, name);
    if (!is_figure(value)) {
      snprintf(message, bytes, "%s is beyond what can be counted", name);
      return GAP_EFORMAT;
    }
    set->at[i] = (struct gap__figure_value){json_is_number(value), json_number_value(value)};
  }
  return 0;
}

/* Whole, if it is small and begins like an object. */
static char *read_small(const char *path) {
  FILE *file = strcmp(path, "-") == 0 ? NULL : fopen(path, "rb");
  char *text = file ? malloc(BYTES_MAX) : NULL;
  size_t length = text ? fread(text, 1, BYTES_MAX, file) : 0;
  if (file) fclose(file);
  if (length > 0 && length < BYTES_MAX && text[0] == '{') {
    text[length] = '\0';
    return text;
  }
  free(text);
  return NULL;
}

int gap__baseline_read(const char *path, struct gap__figures_set *set, char *message, size_t bytes) {
  char *text = read_small(path);
  json_t *object = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
  int rc = GAP_ENOTSUP;
  free(text);
  if (json_object_get(object, mark)) {
    set->file = strdup(path);
    rc = set->file ? take(object, set, message, bytes) : GAP_ENOMETA;
  }
  json_decref(object);
  return rc;
}

void gap__figures_set_free(struct gap__figures_set *set) {
  free(set->file);
  *set = (struct gap__figures_set){0};
}
