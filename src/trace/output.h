/* A stream of bytes to a file or standard output; plain, gzip, xz or zstd.
 *
 * A file is written beside its name and takes the name only when it is whole, so a failure leaves what was there.  Errors are kept: the
 * first one is told by gap__output_close. */
#ifndef GAP_TRACE_OUTPUT_H
#define GAP_TRACE_OUTPUT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "trace/decode.h"

#define GAP__OUTPUT_WINDOW ((size_t)256 << 10) /* bytes, of the plain and of the packed side each */

struct gap__output {
  unsigned char *window, *packed;
  size_t used;      /* of the window */
  uint64_t written; /* bytes behind the encoder */
  void *encoder;
  enum gap__encoding encoding;
  int fd;                 /* -1: nowhere, or into `sink` */
  struct gap__text *sink; /* where the path is NULL: set after opening; the bytes are appended */
  char *path;             /* NULL: standard output */
  char *fresh;            /* the name until it is whole; NULL: written in place */
  int rc, error;          /* of the first failure; errno where rc is GAP_EIO */
};

/* The encoding that a name asks for: .gz, .xz, .zst; `length` without that ending. */
enum gap__encoding gap__encoding_of_name(const char *name, size_t *length);

/* "-" is standard output; NULL: nowhere.  0, GAP_EIO, GAP_ENOMETA with a message. */
int gap__output_open(struct gap__output *, const char *path, enum gap__encoding, char **message);
void gap__output_put(struct gap__output *, const void *bytes, size_t count);
void gap__output_print(struct gap__output *, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Finishes the file and gives it its name, unless `rc` or something before failed: then it is removed.  The first failure; `written` is the
 * bytes behind the encoder. */
int gap__output_close(struct gap__output *, int rc, uint64_t *written, char **message);

/* All of it at once, plain.  0, GAP_EIO, GAP_ENOMETA with a message. */
int gap__output_write(const char *path, const void *bytes, size_t count, char **message);

static inline void gap__output_byte(struct gap__output *output, unsigned char byte) {
  if (output->used < GAP__OUTPUT_WINDOW) output->window[output->used++] = byte;
  else gap__output_put(output, &byte, 1);
}

#endif
