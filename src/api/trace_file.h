/* The file of a trace: its name, its size, and what happens when the disk has no more. */
#ifndef GAP_API_TRACE_FILE_H
#define GAP_API_TRACE_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gap__trace_file {
  const char *key; /* that names it, for messages */
  char path[PATH_MAX];
  int fd; /* -1: closed */
  uint64_t bytes, bytes_most;
};

/* Each returns 0 or GAP_EIO, with the reason in the log.  A limit on the size of files (RLIMIT_FSIZE) is a reason like any other:
 * the signal that comes with it does not reach the program.
 *
 * Makes the file, or empties what is there.  Another trace that is being written under that name is left alone: the
 * process's number is appended then. */
int gap__trace_file_open(struct gap__trace_file *, const char *key, const char *path, uint64_t bytes_most);
/* The file has so many bytes now, all zero, and the disk has room for them. */
int gap__trace_file_reserve(struct gap__trace_file *, uint64_t bytes);
/* A gap__record_sink: appends.  GAP_EIO: what did not go in whole is taken away again, and the log says why. */
int gap__trace_file_write(void *file, const void *bytes, size_t count);
static inline bool gap__trace_file_is_full(const struct gap__trace_file *file) {
  return file->bytes >= file->bytes_most;
}
/* What was written is kept as PATH.1, in place of what was, and a new file begins. */
int gap__trace_file_turn(struct gap__trace_file *);
/* Says in the log what cannot be, with errno.  GAP_EIO. */
int gap__trace_file_complain(const struct gap__trace_file *, const char *what);
void gap__trace_file_close(struct gap__trace_file *);

#endif
