/* gapless convert: a memory history from one format into another.
 *
 * Every function returns 0 or a negative GAP_E... code and never prints.  Not for libgapless.so: these live in the
 * command and in the static library behind it, like those of gapless/tools.h. */
#ifndef GAPLESS_CONVERT_H
#define GAPLESS_CONVERT_H

#include <stddef.h>
#include <stdint.h>

#include "gapless/tools.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The formats that there are; the name is NULL at the end. */
typedef struct gap_format {
  const char *name, *words;
  const char *endings; /* of file names, each followed by a blank */
  int reads, writes;
} gap_format;

gap_format gap_format_at(uint32_t index);

typedef struct gap_convert_options {
  size_t size;    /* sizeof(gap_convert_options) */
  const char *to; /* the name of a format; NULL: by the ending of the output's name */
  int64_t device; /* -1: all; for a format of one device the first with events */
  /* perfetto: only blocks of so many bytes become events, each with its life as a slice; 0: all, without lives */
  uint64_t blocks_from;
  gap_progress_fn progress; /* may be NULL: bytes read, then events written */
  void *progress_arg;
} gap_convert_options;

void gap_convert_defaults(gap_convert_options *);

typedef struct gap_convert_result {
  const char *from, *to; /* names of formats */
  int64_t device;        /* -1: all */
  uint64_t events;       /* read */
  uint64_t bytes;        /* written */
  uint64_t torn_at; /* the input ends in the middle, at this byte; what comes before is converted; 0: it does not */
  char lost[600];   /* what the new format cannot carry of this history: "call stacks, times"; "" nothing */
} gap_convert_result;

/* "-" is standard input or output.  An output whose name ends in .gz, .xz or .zst is packed.  An existing file is
 * replaced only by a whole one.  Reading fails as gap_history_read; GAP_EVALUE: no such format, or no ending that names
 * one; GAP_EINVAL: no such device; GAP_EIO; GAP_ENOMETA; with the reason in `message`. */
int gap_convert(const char *in, const char *out, const gap_convert_options *, gap_convert_result *, char *message,
                size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
