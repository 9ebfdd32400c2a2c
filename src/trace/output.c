#include "trace/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gapless/gapless.h"
#include "trace/encode.h"
#include "trace/message.h"

enum { NUMBER_BYTES = 32, PRINT_BYTES = 400 };

enum gap__encoding gap__encoding_of_name(const char *name, size_t *length) {
  static const struct {
    const char *ending;
    enum gap__encoding encoding;
  } known[] = {{".gz", GAP__ENC_GZIP}, {".xz", GAP__ENC_XZ}, {".zst", GAP__ENC_ZSTD}};
  *length = strlen(name);
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    size_t end = strlen(known[i].ending);
    if (*length <= end || strcmp(name + *length - end, known[i].ending) != 0) continue;
    *length -= end;
    return known[i].encoding;
  }
  return GAP__ENC_PLAIN;
}

static void fail(struct gap__output *output, int rc) {
  if (output->rc) return;
  output->rc = rc;
  output->error = errno;
}

/* What is no file, a pipe or /dev/null, is written to as it is. */
static bool is_special(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

static int open_file(struct gap__output *output, const char *path) {
  output->path = strdup(path);
  if (output->path && is_special(path)) {
    output->fd = open(path, O_WRONLY | O_CLOEXEC);
    return output->fd < 0 ? GAP_EIO : 0;
  }
  size_t room = strlen(path) + NUMBER_BYTES;
  output->fresh = malloc(room);
  if (!output->path || !output->fresh) return GAP_ENOMETA;
  snprintf(output->fresh, room, "%s.%" PRIu64 ".new", path, (uint64_t)getpid());
  unlink(output->fresh); /* left by a process of this number; or put there by somebody who guesses */
  output->fd = open(output->fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  return output->fd < 0 ? GAP_EIO : 0;
}

static void release(struct gap__output *output) {
  gap__encoder_free(output->encoding, output->encoder);
  free(output->window);
  free(output->packed);
  free(output->path);
  free(output->fresh);
  *output = (struct gap__output){.fd = -1};
}

int gap__output_open(struct gap__output *output, const char *path, enum gap__encoding encoding, char **message) {
  *output = (struct gap__output){.fd = -1, .encoding = encoding};
  output->window = malloc(GAP__OUTPUT_WINDOW);
  output->packed = malloc(GAP__OUTPUT_WINDOW);
  if (encoding != GAP__ENC_PLAIN) output->encoder = gap__encoder_new(encoding);
  bool ready = output->window && output->packed && (output->encoder || encoding == GAP__ENC_PLAIN);
  int rc = ready ? 0 : GAP_ENOMETA;
  if (!rc && path && strcmp(path, "-") == 0) output->fd = STDOUT_FILENO;
  else if (!rc && path) rc = open_file(output, path);
  if (!rc) return 0;
  if (rc == GAP_EIO) gap__message_set(message, rc, "cannot write %s: %s", path, strerror(errno));
  else gap__message_set(message, rc, "out of host memory");
  release(output);
  return rc;
}

static void write_out(struct gap__output *output, const unsigned char *bytes, size_t count) {
  output->written += count;
  if (output->sink) gap__text_add_bytes(output->sink, (const char *)bytes, count);
  while (output->fd >= 0 && count && !output->rc) {
    ssize_t done = write(output->fd, bytes, count);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      fail(output, GAP_EIO);
      return;
    }
    bytes += done;
    count -= (size_t)done;
  }
}

static void encode(struct gap__output *output, bool is_last) {
  struct gap__decode_step step = {.in = output->window, .in_end = output->window + output->used, .in_is_last = is_last};
  while (!output->rc && !step.finished && (is_last || step.in < step.in_end)) {
    step.out = output->packed;
    step.out_end = output->packed + GAP__OUTPUT_WINDOW;
    int rc = gap__encoder_step(output->encoding, output->encoder, &step);
    if (rc) fail(output, rc);
    write_out(output, output->packed, (size_t)(step.out - output->packed));
  }
}

static void flush(struct gap__output *output, bool is_last) {
  if (output->encoding == GAP__ENC_PLAIN) write_out(output, output->window, output->used);
  else encode(output, is_last);
  output->used = 0;
}

void gap__output_put(struct gap__output *output, const void *bytes, size_t count) {
  const unsigned char *from = bytes;
  while (count && !output->rc) {
    size_t room = GAP__OUTPUT_WINDOW - output->used, some = count < room ? count : room;
    memcpy(output->window + output->used, from, some);
    output->used += some;
    from += some;
    count -= some;
    if (output->used == GAP__OUTPUT_WINDOW) flush(output, false);
  }
}

/* What is printed are numbers and short words; text of any length is put. */
void gap__output_print(struct gap__output *output, const char *format, ...) {
  char text[PRINT_BYTES];
  va_list args;
  va_start(args, format);
  int length = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (length > 0) gap__output_put(output, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

int gap__output_close(struct gap__output *output, int rc, uint64_t *written, char **message) {
  if (rc) fail(output, rc);
  if (!output->rc) flush(output, true);
  if (output->path && close(output->fd) != 0) fail(output, GAP_EIO);
  if (output->fresh && !output->rc && rename(output->fresh, output->path) != 0) fail(output, GAP_EIO);
  if (output->fresh && output->rc) unlink(output->fresh);
  rc = output->rc;
  *written = output->written;
  if (rc == GAP_EIO)
    gap__message_set(message, rc, "cannot write %s: %s", output->path ? output->path : "standard output",
                     strerror(output->error));
  else if (rc) gap__message_set(message, rc, "%s", gap_strerror(rc));
  release(output);
  return rc;
}

int gap__output_write(const char *path, const void *bytes, size_t count, char **message) {
  struct gap__output output;
  uint64_t written;
  int rc = gap__output_open(&output, path, GAP__ENC_PLAIN, message);
  if (rc) return rc;
  gap__output_put(&output, bytes, count);
  return gap__output_close(&output, 0, &written, message);
}
