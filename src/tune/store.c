#include "tune/store.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "record/crc.h"
#include "trace/json_text.h"
#include "tune/model.h"

enum { VERSION = 1, LINE_MAX_BYTES = 4 << 20, NAME_MAX_BYTES = 4096, LINES_MAX = 64 << 20 };
static const uint64_t NUMBER_MAX = (uint64_t)1 << 62;

/* ---- Writing ---- */

/* Of a line as it is written, its own checksum left out. */
static int checksum(const json_t *line, json_int_t *out) {
  char *text = json_dumps(line, JSON_COMPACT);
  if (text) *out = gap__crc32((const unsigned char *)text, strlen(text));
  free(text);
  return text ? 0 : GAP_ENOMETA;
}

/* A digit that a disk has altered would be a number like any other, so each line carries a checksum. */
static int put_line(FILE *file, json_t *line) {
  json_int_t crc = 0;
  int rc = line ? checksum(line, &crc) : GAP_ENOMETA;
  if (rc == 0 && json_object_set_new(line, "crc", json_integer(crc)) != 0) rc = GAP_ENOMETA;
  if (rc == 0 && (json_dumpf(line, file, JSON_COMPACT) != 0 || fputc('\n', file) == EOF)) rc = GAP_EIO;
  json_decref(line);
  return rc;
}

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }

static json_t *facts_line(const struct gap__tune_facts *facts, bool in_table) {
  return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:b}", "history", facts->hash, "file",
                   gap__json_text(facts->file), "device", number(facts->device), "busy_devices",
                   number(facts->busy_devices), "lag_us", number(facts->lag_us), "events", number(facts->events),
                   "peak_live_bytes", number(facts->peak_live_bytes), "recorded_us", number(facts->recorded_us),
                   "wrapped", number(facts->wrapped), "recorded_policy", gap_policy_name(facts->recorded_policy),
                   "recorded_conf", gap__json_text(facts->recorded_conf), "in_table", in_table);
}

static json_t *trial_array(const struct gap__trial *trial) {
  uint64_t fields[GAP__TRIAL_FIELDS];
  json_t *array = json_array();
  memcpy(fields, trial, sizeof fields);
  for (size_t i = 0; i < GAP__TRIAL_FIELDS; i++) json_array_append_new(array, number(fields[i]));
  return array;
}
_Static_assert(sizeof(struct gap__trial) == GAP__TRIAL_FIELDS * sizeof(uint64_t), "nothing but numbers of 64 bits");

static json_t *setting_line(const struct gap__tuned *tuned, uint32_t index) {
  const struct gap__trials *trials = &tuned->tried[index].trials;
  json_t *array = json_array();
  for (uint32_t i = 0; i < trials->count; i++) json_array_append_new(array, trial_array(&trials->at[i]));
  return json_pack("{s:s, s:s, s:b, s:o}", "policy", gap_policy_name(gap__tuned_policy(tuned, index)), "conf",
                   gap__tuned_conf(tuned, index), "recorded", index == tuned->settings->count, "trials", array);
}

static int put_tuned(FILE *file, const struct gap__tuned *tuned) {
  bool in_table = tuned->facts.recorded_index < tuned->settings->count;
  json_t *facts = facts_line(&tuned->facts, in_table);
  if (facts && in_table) {
    uint32_t index = gap__tuned_recorded(tuned);
    json_object_set_new(facts, "table_conf", json_string(gap__tuned_conf(tuned, index)));
  }
  int rc = put_line(file, facts);
  for (uint32_t i = 0; rc == 0 && i < tuned->count; i++)
    if (tuned->tried[i].trials.count > 0) rc = put_line(file, setting_line(tuned, i));
  return rc;
}

int gap__store_write(FILE *file, const struct gap__tuned_list *list) {
  int rc = put_line(file, json_pack("{s:i, s:s}", "gapless_tune", VERSION, "model", gap__tune_model));
  for (uint32_t i = 0; rc == 0 && i < list->count; i++) rc = put_tuned(file, list->at[i]);
  return rc == 0 && fflush(file) != 0 ? GAP_EIO : rc;
}

/* ---- Reading ---- */

struct reader {
  FILE *file;
  const struct gap__settings *settings;
  struct gap__tuned_list *list;
  struct gap__tuned *tuned; /* the one that the lines belong to */
  uint64_t line;
  char *message;
  size_t bytes;
};

static int complain(struct reader *reader, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int complain(struct reader *reader, int code, const char *format, ...) {
  char text[400];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  snprintf(reader->message, reader->bytes, "line %" PRIu64 ": %s", reader->line, text);
  return code;
}

static int get_number(struct reader *reader, const json_t *object, const char *name, uint64_t most, uint64_t *out) {
  const json_t *value = json_object_get(object, name);
  if (json_is_integer(value) && json_integer_value(value) >= 0 && (uint64_t)json_integer_value(value) <= most) {
    *out = (uint64_t)json_integer_value(value);
    return 0;
  }
  return complain(reader, GAP_EFORMAT, "\"%s\" is not a whole number from 0 to %" PRIu64, name, most);
}

static int get_string(struct reader *reader, const json_t *object, const char *name, size_t most, const char **out) {
  const json_t *value = json_object_get(object, name);
  if (json_is_string(value) && json_string_length(value) <= most &&
      strlen(json_string_value(value)) == json_string_length(value)) {
    *out = json_string_value(value);
    return 0;
  }
  return complain(reader, GAP_EFORMAT, "\"%s\" is not a string of at most %zu bytes", name, most);
}

static bool is_hash(const char *text) {
  return strlen(text) == GAP__SHA256_TEXT_BYTES - 1 && strspn(text, "0123456789abcdef") == GAP__SHA256_TEXT_BYTES - 1;
}

static int get_policy(struct reader *reader, const json_t *object, const char *name, enum gap_policy *out) {
  const char *word;
  int rc = get_string(reader, object, name, 32, &word);
  if (rc != 0) return rc;
  if (gap_policy_parse(word, strlen(word), out) == 0 && *out != GAP_POLICY_IDEAL) return 0;
  return complain(reader, GAP_EFORMAT, "\"%s\" names no policy that has settings", name);
}

static int read_head(struct reader *reader, const json_t *line) {
  const char *model;
  uint64_t version;
  if (!json_object_get(line, "gapless_tune")) return complain(reader, GAP_EFORMAT, "this is no result of gapless tune");
  int rc = get_number(reader, line, "gapless_tune", INT32_MAX, &version);
  if (rc == 0) rc = get_string(reader, line, "model", GAP__SHA256_TEXT_BYTES - 1, &model);
  if (rc != 0) return rc;
  if (version != VERSION)
    return complain(reader, GAP_EMISMATCH, "version %" PRIu64 " of the format; this program knows %d", version,
                    VERSION);
  if (strcmp(model, gap__tune_model) == 0) return 0;
  return complain(reader, GAP_EMISMATCH, "made by another version of gapless (model %.12s, here %.12s)", model,
                  gap__tune_model);
}

static int read_numbers(struct reader *reader, const json_t *line, struct gap__tune_facts *facts) {
  uint64_t device = 0, busy = 0;
  int rc = get_number(reader, line, "device", 1023, &device);
  if (rc == 0) rc = get_number(reader, line, "busy_devices", 1024, &busy);
  if (rc == 0) rc = get_number(reader, line, "lag_us", NUMBER_MAX, &facts->lag_us);
  if (rc == 0) rc = get_number(reader, line, "events", NUMBER_MAX, &facts->events);
  if (rc == 0) rc = get_number(reader, line, "peak_live_bytes", GAP__TUNE_PEAK_MAX, &facts->peak_live_bytes);
  if (rc == 0) rc = get_number(reader, line, "recorded_us", NUMBER_MAX, &facts->recorded_us);
  if (rc == 0) rc = get_number(reader, line, "wrapped", 1, &facts->wrapped);
  facts->device = (uint32_t)device;
  facts->busy_devices = (uint32_t)busy;
  return rc;
}

/* Which setting of the table was recorded, by name: the table of another version may be in another order. */
static int read_recorded(struct reader *reader, const json_t *line, struct gap__tune_facts *facts) {
  const char *conf = "";
  int rc = get_policy(reader, line, "recorded_policy", &facts->recorded_policy);
  if (rc == 0) rc = get_string(reader, line, "recorded_conf", GAP__SETTING_BYTES - 1, &conf);
  if (rc != 0) return rc;
  snprintf(facts->recorded_conf, sizeof facts->recorded_conf, "%s", conf);
  facts->recorded_index = reader->settings->count;
  if (!json_is_true(json_object_get(line, "in_table"))) return 0;
  rc = get_string(reader, line, "table_conf", GAP__SETTING_BYTES - 1, &conf);
  if (rc != 0) return rc;
  uint32_t index = gap__settings_find(reader->settings, facts->recorded_policy, conf);
  if (index == UINT32_MAX) return complain(reader, GAP_EFORMAT, "\"table_conf\" is no setting that is tried");
  facts->recorded_index = index;
  return 0;
}

static int end_history(struct reader *reader) {
  if (!reader->tuned) return 0;
  int rc = gap__tuned_list_add(reader->list, reader->tuned);
  reader->tuned = NULL;
  if (rc == GAP_EMISMATCH) return complain(reader, rc, "the history that ends above contradicts other results for it");
  return rc == 0 ? 0 : complain(reader, rc, "%s", gap_strerror(rc));
}

static int read_history(struct reader *reader, const json_t *line) {
  struct gap__tune_facts facts = {0};
  const char *hash = NULL, *file = NULL;
  int rc = end_history(reader);
  if (rc == 0) rc = get_string(reader, line, "history", GAP__SHA256_TEXT_BYTES - 1, &hash);
  if (rc == 0 && !is_hash(hash)) rc = complain(reader, GAP_EFORMAT, "\"history\" is not 64 hexadecimal digits");
  if (rc == 0) rc = get_string(reader, line, "file", NAME_MAX_BYTES, &file);
  if (rc == 0) rc = read_numbers(reader, line, &facts);
  if (rc == 0) rc = read_recorded(reader, line, &facts);
  if (rc != 0) return rc;
  snprintf(facts.hash, sizeof facts.hash, "%s", hash);
  facts.file = strdup(file);
  rc = facts.file ? gap__tuned_new(reader->settings, &facts, &reader->tuned) : GAP_ENOMETA;
  free(facts.file); /* NULL when it was taken over */
  return rc == 0 ? 0 : complain(reader, rc, "%s", gap_strerror(rc));
}

static int read_trial(struct reader *reader, const json_t *array, struct gap__trial *out) {
  uint64_t fields[GAP__TRIAL_FIELDS];
  if (!json_is_array(array) || json_array_size(array) != GAP__TRIAL_FIELDS)
    return complain(reader, GAP_EFORMAT, "a trial is not an array of %zu numbers", GAP__TRIAL_FIELDS);
  for (size_t i = 0; i < GAP__TRIAL_FIELDS; i++) {
    const json_t *value = json_array_get(array, i);
    if (!json_is_integer(value) || json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > NUMBER_MAX)
      return complain(reader, GAP_EFORMAT, "a trial holds something else than numbers from 0 on");
    fields[i] = (uint64_t)json_integer_value(value);
  }
  memcpy(out, fields, sizeof *out);
  if (out->fitted > 1) return complain(reader, GAP_EFORMAT, "a trial fitted neither 0 nor 1 times");
  if (out->cap_bytes > 0 && out->fitted && out->cap_bytes < reader->tuned->facts.peak_live_bytes)
    return complain(reader, GAP_EFORMAT, "a trial fitted under less than is live");
  return 0;
}

static int find_setting(struct reader *reader, const json_t *line, uint32_t *out) {
  const struct gap__tuned *tuned = reader->tuned;
  enum gap_policy policy;
  const char *conf = NULL;
  int rc = get_policy(reader, line, "policy", &policy);
  if (rc == 0) rc = get_string(reader, line, "conf", GAP__SETTING_BYTES - 1, &conf);
  if (rc != 0) return rc;
  bool recorded = json_is_true(json_object_get(line, "recorded"));
  *out = recorded ? tuned->settings->count : gap__settings_find(tuned->settings, policy, conf);
  if (*out < tuned->count && policy == gap__tuned_policy(tuned, *out)) return 0;
  return complain(reader, GAP_EFORMAT, "%s with \"%.80s\" is no setting that is tried", gap_policy_name(policy), conf);
}

static int read_setting(struct reader *reader, const json_t *line) {
  uint32_t index = 0;
  if (!reader->tuned) return complain(reader, GAP_EFORMAT, "a setting before any history");
  int rc = find_setting(reader, line, &index);
  const json_t *array = json_object_get(line, "trials");
  if (rc == 0 && !json_is_array(array)) rc = complain(reader, GAP_EFORMAT, "\"trials\" is not an array");
  for (size_t i = 0; rc == 0 && i < json_array_size(array); i++) {
    struct gap__trial trial;
    rc = read_trial(reader, json_array_get(array, i), &trial);
    if (rc != 0) return rc;
    rc = gap__trials_add(&reader->tuned->tried[index].trials, &trial);
    if (rc == GAP_EMISMATCH) return complain(reader, rc, "two trials of one cap contradict each other");
  }
  return rc;
}

/* A line without one may have been made by hand. */
static int check_line(struct reader *reader, json_t *line) {
  const json_t *told = json_object_get(line, "crc");
  json_int_t wanted = json_integer_value(told), crc = 0;
  if (!told) return 0;
  json_object_del(line, "crc");
  if (checksum(line, &crc) != 0) return complain(reader, GAP_ENOMETA, "out of host memory");
  return crc == wanted ? 0 : complain(reader, GAP_EFORMAT, "altered: its checksum does not match");
}

static int read_object(struct reader *reader, const json_t *line) {
  if (reader->line == 1) return read_head(reader, line);
  return json_object_get(line, "history") ? read_history(reader, line) : read_setting(reader, line);
}

static int read_line(struct reader *reader, const char *text, size_t length) {
  json_error_t error;
  if (length > LINE_MAX_BYTES) return complain(reader, GAP_ELIMIT, "longer than %d bytes", LINE_MAX_BYTES);
  json_t *line = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
  if (!line) return complain(reader, GAP_EFORMAT, "no JSON: %s", error.text);
  int rc = json_is_object(line) ? check_line(reader, line) : complain(reader, GAP_EFORMAT, "no JSON object");
  if (rc == 0) rc = read_object(reader, line);
  json_decref(line);
  return rc;
}

/* As getline, but no line makes it take more than a little over the limit. */
static int next_line(struct reader *reader, char *buffer, size_t *length) {
  int byte = EOF;
  for (*length = 0; *length <= LINE_MAX_BYTES && (byte = getc_unlocked(reader->file)) != EOF && byte != '\n';)
    buffer[(*length)++] = (char)byte;
  if (ferror(reader->file)) return complain(reader, GAP_EIO, "%s", strerror(errno));
  if (byte == EOF && *length == 0) return 1;
  reader->line++;
  return reader->line <= LINES_MAX ? 0 : complain(reader, GAP_ELIMIT, "more lines than %d", LINES_MAX);
}

int gap__store_read(FILE *file, const struct gap__settings *settings, struct gap__tuned_list *list, char *message,
                    size_t bytes) {
  struct reader reader = {.file = file, .settings = settings, .list = list, .message = message, .bytes = bytes};
  char *buffer = malloc(LINE_MAX_BYTES + 1);
  size_t length = 0;
  int rc = buffer ? 0 : GAP_ENOMETA, end = 0;
  while (rc == 0 && (end = next_line(&reader, buffer, &length)) == 0) rc = read_line(&reader, buffer, length);
  if (rc == 0 && end < 0) rc = end;
  if (rc == 0 && reader.line == 0) rc = complain(&reader, GAP_EFORMAT, "the file is empty");
  if (rc == 0) rc = end_history(&reader);
  gap__tuned_free(reader.tuned);
  free(buffer);
  return rc;
}
