/* A stream of bytes seen through one window: files, standard input and memory; plain, gzip, xz and zstd by content.
 *
 * The reader takes bytes at `next` and moves it; what lies in [next, end) is valid, and GAP__INPUT_SLACK bytes beyond
 * `end` may be read (not used) without harm, so that an operand of fixed length needs no check of its own. */
#ifndef GAP_TRACE_INPUT_H
#define GAP_TRACE_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/decode.h"
#include "trace/history.h"

#define GAP__INPUT_SLACK 512                      /* bytes */
#define GAP__INPUT_WINDOW ((size_t)256 << 10)     /* bytes, the window and the compressed side each */
#define GAP__INPUT_LINE_MAX (64 << 10)            /* bytes; a part of the window */
#define GAP__INPUT_BYTES_MAX ((uint64_t)16 << 30) /* bytes after decompression: a limit against bombs */

struct gap__input {
  const unsigned char *next, *end;
  bool at_end;     /* nothing follows `end` */
  uint64_t before; /* bytes of the stream before window[0] */
  unsigned char *window;
  /* the compressed side */
  int fd; /* -1: memory */
  const unsigned char *memory;
  size_t memory_left;
  unsigned char *raw;
  const unsigned char *raw_next, *raw_end;
  bool raw_at_end;
  uint64_t raw_done, raw_total; /* bytes; total 0 where unknown */
  struct gap__decoder decoder;
  gap__progress *progress;
  void *progress_arg;
};

/* Opens and looks at the first bytes.  "-" is standard input.  Returns 0, GAP_EIO, GAP_ENOMETA; on an error nothing is left
 * open and *message says why. */
int gap__input_open(struct gap__input *, const char *path, gap__progress *, void *arg, char **message);
int gap__input_open_memory(struct gap__input *, const void *bytes, size_t count, char **message);
void gap__input_close(struct gap__input *);

/* Brings more bytes behind those not yet taken: afterwards at least GAP__INPUT_SLACK are in the window, or `at_end` is
 * true.  Returns 0, GAP_EIO, GAP_EFORMAT (corrupt compressed data), GAP_ELIMIT, GAP_ENOMETA. */
int gap__input_fill(struct gap__input *, char **message);
/* Copies up to `count` bytes and moves on; *got is less only at the end. */
int gap__input_take(struct gap__input *, void *to, size_t count, size_t *got, char **message);
/* The next line without its end (\n, \r\n), in place: good until the next call.  At the end *line is NULL.  Also GAP_EFORMAT for a line longer
 * than GAP__INPUT_LINE_MAX. */
int gap__input_line(struct gap__input *, const char **line, size_t *length, char **message);
/* Reads to the end, so that a compressed file's own checksums are verified. */
int gap__input_drain(struct gap__input *, char **message);

/* What was opened as a history, whose path is `path`; closes it.  As gap__history_read. */
int gap__history_read_opened(struct gap__input *, const char *path, struct gap__history **out, char **message);

static inline uint64_t gap__input_position(const struct gap__input *input) {
  return input->before + (uint64_t)(input->next - input->window);
}

#endif
