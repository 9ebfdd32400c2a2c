#include "trace/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gapless/gapless.h"
#include "trace/message.h"

static uint64_t end_position(const struct gap__input *input) {
  return input->before + (uint64_t)(input->end - input->window);
}

static ssize_t read_memory(struct gap__input *input, void *to, size_t room) {
  size_t bytes = input->memory_left < room ? input->memory_left : room;
  if (bytes) memcpy(to, input->memory, bytes);
  input->memory += bytes;
  input->memory_left -= bytes;
  return (ssize_t)bytes;
}

static int read_source(struct gap__input *input, void *to, size_t room, size_t *got, char **message) {
  ssize_t bytes;
  do {
    bytes = input->fd < 0 ? read_memory(input, to, room) : read(input->fd, to, room);
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0)
    return gap__message_set(message, GAP_EIO, "byte %llu: cannot read: %s", (unsigned long long)end_position(input),
                            strerror(errno));
  *got = (size_t)bytes;
  input->raw_at_end = bytes == 0;
  input->raw_done += (uint64_t)bytes;
  if (input->progress && bytes) input->progress(input->progress_arg, input->raw_done, input->raw_total);
  return 0;
}

static int refill_raw(struct gap__input *input, char **message) {
  size_t got = 0;
  int rc = read_source(input, input->raw, GAP__INPUT_WINDOW, &got, message);
  input->raw_next = input->raw;
  input->raw_end = input->raw + got;
  return rc;
}

/* Moves what is not yet taken to the front of the window. */
static void slide(struct gap__input *input) {
  size_t used = (size_t)(input->next - input->window), left = (size_t)(input->end - input->next);
  memmove(input->window, input->next, left);
  input->before += used;
  input->next = input->window;
  input->end = input->window + left;
}

static int decode_failed(const struct gap__input *input, int code, char **message) {
  unsigned long long at = end_position(input);
  const char *name = gap__encoding_name(input->decoder.encoding);
  if (code == GAP_EFORMAT)
    return gap__message_set(message, code, "byte %llu: the %s data are corrupt or end early", at, name);
  if (code == GAP_ELIMIT)
    return gap__message_set(message, code, "byte %llu: the %s data need more than 256 MiB to decode", at, name);
  return gap__message_set(message, code, "byte %llu: out of host memory", at);
}

static int decode_some(struct gap__input *input, char **message) {
  struct gap__decode_step step = {.in = input->raw_next,
                                  .in_end = input->raw_end,
                                  .out = input->window + (input->end - input->window),
                                  .out_end = input->window + GAP__INPUT_WINDOW,
                                  .in_is_last = input->raw_at_end};
  int rc = gap__decoder_step(&input->decoder, &step);
  input->raw_next = step.in;
  input->end = step.out;
  input->at_end = step.finished;
  return rc ? decode_failed(input, rc, message) : 0;
}

/* Plain data need no second buffer: they are read straight into the window. */
static int read_plain(struct gap__input *input, char **message) {
  size_t have = (size_t)(input->end - input->window), got = 0;
  int rc = read_source(input, input->window + have, GAP__INPUT_WINDOW - have, &got, message);
  input->end += got;
  input->at_end = !rc && got == 0;
  return rc;
}

static int add_some(struct gap__input *input, char **message) {
  if (input->raw_next == input->raw_end && !input->raw_at_end) {
    if (input->decoder.encoding == GAP__ENC_PLAIN) return read_plain(input, message);
    int rc = refill_raw(input, message);
    if (rc) return rc;
  }
  return decode_some(input, message);
}

static int check_length(const struct gap__input *input, char **message) {
  if (end_position(input) <= GAP__INPUT_BYTES_MAX) return 0;
  return gap__message_set(message, GAP_ELIMIT, "byte %llu: more than 16 GiB after decompression",
                          (unsigned long long)GAP__INPUT_BYTES_MAX);
}

int gap__input_fill(struct gap__input *input, char **message) {
  if (input->at_end) return 0;
  slide(input);
  while (!input->at_end && input->end - input->next < GAP__INPUT_SLACK) {
    int rc = add_some(input, message);
    if (rc) return rc;
  }
  return check_length(input, message);
}

int gap__input_take(struct gap__input *input, void *to, size_t count, size_t *got, char **message) {
  unsigned char *out = to;
  *got = 0;
  while (*got < count) {
    size_t have = (size_t)(input->end - input->next), want = count - *got;
    if (have == 0) {
      if (input->at_end) break;
      int rc = gap__input_fill(input, message);
      if (rc) return rc;
      continue;
    }
    if (want > have) want = have;
    memcpy(out + *got, input->next, want);
    input->next += want;
    *got += want;
  }
  return 0;
}

/* Until the window has a whole line, or what is left of the stream. */
static int fill_line(struct gap__input *input, size_t *length, char **message) {
  for (;;) {
    size_t there = (size_t)(input->end - input->next);
    const unsigned char *stop = there ? memchr(input->next, '\n', there) : NULL;
    *length = stop ? (size_t)(stop - input->next) : there;
    if (*length > GAP__INPUT_LINE_MAX)
      return gap__message_set(message, GAP_EFORMAT, "byte %llu: a line of more than %d bytes",
                              (unsigned long long)gap__input_position(input), GAP__INPUT_LINE_MAX);
    if (stop || input->at_end) return 0;
    slide(input);
    int rc = add_some(input, message);
    if (!rc) rc = check_length(input, message);
    if (rc) return rc;
  }
}

int gap__input_line(struct gap__input *input, const char **line, size_t *length, char **message) {
  size_t whole = 0;
  *line = NULL;
  int rc = fill_line(input, &whole, message);
  if (rc || input->next == input->end) return rc;
  *line = (const char *)input->next;
  *length = whole && input->next[whole - 1] == '\r' ? whole - 1 : whole;
  input->next += input->next + whole < input->end ? whole + 1 : whole;
  return 0;
}

int gap__input_drain(struct gap__input *input, char **message) {
  if (input->decoder.encoding == GAP__ENC_PLAIN) return 0;
  while (!input->at_end) {
    input->next = input->end;
    int rc = gap__input_fill(input, message);
    if (rc) return rc;
  }
  return 0;
}

static int start(struct gap__input *input, char **message) {
  input->window = calloc(1, GAP__INPUT_WINDOW + GAP__INPUT_SLACK);
  input->raw = malloc(GAP__INPUT_WINDOW);
  input->next = input->end = input->window;
  int rc = input->window && input->raw ? refill_raw(input, message)
                                       : gap__message_set(message, GAP_ENOMETA, "out of host memory");
  if (!rc) {
    enum gap__encoding encoding = gap__encoding_guess(input->raw_next, (size_t)(input->raw_end - input->raw_next));
    rc = gap__decoder_init(&input->decoder, encoding);
    if (rc) gap__message_set(message, rc, "out of host memory");
  }
  if (!rc) rc = gap__input_fill(input, message);
  if (rc) gap__input_close(input);
  return rc;
}

int gap__input_open(struct gap__input *input, const char *path, gap__progress *progress, void *arg, char **message) {
  *input = (struct gap__input){.progress = progress, .progress_arg = arg};
  struct stat status;
  input->fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
  if (input->fd < 0) return gap__message_set(message, GAP_EIO, "%s", strerror(errno));
  if (fstat(input->fd, &status) == 0 && S_ISREG(status.st_mode)) input->raw_total = (uint64_t)status.st_size;
  return start(input, message);
}

int gap__input_open_memory(struct gap__input *input, const void *bytes, size_t count, char **message) {
  *input = (struct gap__input){.fd = -1, .memory = bytes, .memory_left = count, .raw_total = count};
  return start(input, message);
}

void gap__input_close(struct gap__input *input) {
  gap__decoder_destroy(&input->decoder);
  free(input->window);
  free(input->raw);
  if (input->fd > STDIN_FILENO) close(input->fd);
  *input = (struct gap__input){.fd = -1};
}
