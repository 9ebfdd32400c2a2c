/* Conversions for the public header: a history is read whatever it is in, and written. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gapless/convert.h"
#include "trace/formats.h"
#include "trace/message.h"

gap_format gap_format_at(uint32_t index) {
  const struct gap__format *format = gap__format_at(index);
  if (!format) return (gap_format){0};
  return (gap_format){format->name, format->words, format->endings, format->read != NULL, format->write != NULL};
}

void gap_convert_defaults(gap_convert_options *options) {
  *options = (gap_convert_options){.size = sizeof *options, .device = -1};
}

static int choose_format(const char *out, const gap_convert_options *options, const struct gap__format **format,
                         char **message) {
  *format = options->to ? gap__format_named(options->to) : gap__format_of_name(out);
  if (*format && (*format)->write) return 0;
  if (options->to) return gap__message_set(message, GAP_EVALUE, "\"%s\" is no format that can be written", options->to);
  return gap__message_set(message, GAP_EVALUE, "the name %s does not say which format: give it with --to", out);
}

/* A format of one device gets the one asked for, else the first with events. */
static int choose_device(const struct gap__history *history, const struct gap__format *format, int64_t *device,
                         char **message) {
  if (*device >= (int64_t)history->device_count || !history->device_count)
    return gap__message_set(message, GAP_EINVAL, "there is no device %" PRId64 ": the file has %" PRIu32,
                            *device < 0 ? 0 : *device, history->device_count);
  if (*device >= 0 || format->carries & GAP__HAS_DEVICES) return 0;
  for (*device = 0; *device + 1 < (int64_t)history->device_count; ++*device)
    if (history->devices[*device].event_count) return 0;
  return 0;
}

/* Leaves one device of several. */
static void narrow(struct gap__history *history, int64_t device) {
  uint64_t kept = 0;
  for (uint32_t i = 0; i < history->device_count; i++)
    if (i != device) history->devices[i].event_count = 0;
  for (uint64_t i = 0; i < history->segment_count; i++)
    if (history->segments[i].device == device) history->segments[kept++] = history->segments[i];
  history->segment_count = kept;
}

static int write_out(const struct gap__history *history, const char *out, const struct gap__format *format,
                     const gap_convert_options *options, gap_convert_result *result, char **message) {
  struct gap__output output;
  struct gap__writing writing = {.history = history,
                                 .device = (uint32_t)(result->device < 0 ? 0 : result->device),
                                 .blocks_from = options->blocks_from,
                                 .out = &output,
                                 .progress = options->progress,
                                 .progress_arg = options->progress_arg};
  size_t length;
  for (uint32_t i = 0; i < history->device_count; i++) writing.total += history->devices[i].event_count;
  result->events = writing.total;
  int rc = gap__output_open(&output, out, gap__encoding_of_name(out, &length), message);
  if (rc) return rc;
  rc = format->write(&writing);
  return gap__output_close(&output, rc, &result->bytes, message);
}

static void tell_losses(const struct gap__history *history, const struct gap__format *format,
                        gap_convert_result *result) {
  struct gap__text text = {0};
  gap__format_losses(format, history, result->device, &text);
  snprintf(result->lost, sizeof result->lost, "%s", gap__text_str(&text));
  gap__text_free(&text);
}

static int convert(const char *in, const char *out, const gap_convert_options *options, gap_convert_result *result,
                   char **message) {
  const struct gap__format *format;
  struct gap__history *history = NULL;
  int rc = choose_format(out, options, &format, message);
  if (!rc) rc = gap__history_read(in, options->progress, options->progress_arg, &history, message);
  if (!rc) rc = choose_device(history, format, &result->device, message);
  if (!rc) tell_losses(history, format, result);
  if (!rc && result->device >= 0) narrow(history, result->device);
  if (!rc) rc = write_out(history, out, format, options, result, message);
  if (!rc && history->is_torn) result->torn_at = history->torn_at;
  if (!rc) result->from = gap__format_at(history->format)->name;
  result->to = format ? format->name : NULL;
  gap__history_free(history);
  return rc;
}

int gap_convert(const char *in, const char *out, const gap_convert_options *options, gap_convert_result *result,
                char *message, size_t bytes) {
  char *text = NULL;
  *result = (gap_convert_result){.device = options->device};
  int rc = convert(in, out, options, result, &text);
  if (rc) snprintf(message, bytes, "%s", text ? text : gap_strerror(rc));
  free(text);
  return rc;
}
