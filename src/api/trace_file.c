#include "api/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "gapless/gapless.h"

enum { NAMES = 16 }; /* tried, where others write under the ones before */

int gap__trace_file_complain(const struct gap__trace_file *file, const char *what) {
  gap__log(GAP__LOG_ERROR, "%s:%s: %s: %s; no trace is written", file->key, file->path, what, strerror(errno));
  return GAP_EIO;
}

/* ---- SIGXFSZ ends a program that does not expect it ---- */

struct held {
  sigset_t signal, before;
};

static void hold_signal(struct held *held) {
  sigemptyset(&held->signal);
  sigaddset(&held->signal, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &held->signal, &held->before);
}

/* It came to this thread if to any.  Leaves errno as it is. */
static void release_signal(const struct held *held) {
  int error = errno;
  if (!sigismember(&held->before, SIGXFSZ)) sigtimedwait(&held->signal, NULL, &(struct timespec){0});
  pthread_sigmask(SIG_SETMASK, &held->before, NULL);
  errno = error;
}

/* ---- the file ---- */

/* Names in a folder that others write to can be guessed: what lies there must be a file of this user under this one name, or a trace
 * would empty another one. */
static int open_own(const char *path) {
  const int flags = O_RDWR | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK; /* a pipe is refused */
  struct stat about;
  int fd = open(path, flags | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
  if (fd >= 0 || errno != EEXIST) return fd;
  fd = open(path, flags);
  if (fd < 0) return -1;
  if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid() && about.st_nlink == 1) return fd;
  close(fd);
  errno = EPERM;
  return -1;
}

/* It stays locked while it is written, so that nobody else empties it. */
static int open_locked(const char *path) {
  int fd = open_own(path);
  if (fd < 0) return -1;
  bool is_ours = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; /* some file systems know no locks */
  if (is_ours && ftruncate(fd, 0) == 0) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

static const char *why_not_opened(void) {
  return errno == EPERM || errno == ELOOP ? "is not this user's alone" : "cannot be opened";
}

/* NAME, NAME.PID, NAME.PID.1, ... */
static void name_file(struct gap__trace_file *file, const char *path, int turn) {
  const long process = (long)getpid();
  if (turn == 0) snprintf(file->path, sizeof file->path, "%s", path);
  else if (turn == 1) snprintf(file->path, sizeof file->path, "%s.%ld", path, process);
  else snprintf(file->path, sizeof file->path, "%s.%ld.%d", path, process, turn - 1);
}

int gap__trace_file_open(struct gap__trace_file *file, const char *key, const char *path, uint64_t bytes_most) {
  *file = (struct gap__trace_file){.key = key, .fd = -1, .bytes_most = bytes_most};
  for (int turn = 0; file->fd < 0 && turn < NAMES; turn++) {
    name_file(file, path, turn);
    file->fd = open_locked(file->path);
    if (file->fd < 0 && errno != EWOULDBLOCK) return gap__trace_file_complain(file, why_not_opened());
  }
  return file->fd < 0 ? gap__trace_file_complain(file, "is being written by others") : 0;
}

int gap__trace_file_reserve(struct gap__trace_file *file, uint64_t bytes) {
  struct held held;
  hold_signal(&held);
  errno = posix_fallocate(file->fd, 0, (off_t)bytes);
  release_signal(&held);
  if (!errno) return 0;
  gap__trace_file_complain(file, "cannot have its size");
  (void)!ftruncate(file->fd, 0);
  return GAP_EIO;
}

static bool write_whole(int fd, const char *bytes, size_t count) {
  while (count) {
    ssize_t written = write(fd, bytes, count);
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) bytes += written, count -= (size_t)written;
  }
  return true;
}

int gap__trace_file_write(void *arg, const void *bytes, size_t count) {
  struct gap__trace_file *file = arg;
  struct held held;
  hold_signal(&held);
  bool is_written = write_whole(file->fd, bytes, count);
  release_signal(&held);
  if (is_written) {
    file->bytes += count;
    return 0;
  }
  int rc = gap__trace_file_complain(file, "cannot be written on");
  if (ftruncate(file->fd, (off_t)file->bytes) != 0) gap__log(GAP__LOG_DEBUG, "%s ends in the middle", file->path);
  return rc;
}

int gap__trace_file_turn(struct gap__trace_file *file) {
  char old[PATH_MAX + 8];
  snprintf(old, sizeof old, "%s.1", file->path);
  if (rename(file->path, old) != 0) return gap__trace_file_complain(file, "cannot be renamed");
  gap__trace_file_close(file);
  file->fd = open_locked(file->path);
  file->bytes = 0;
  return file->fd < 0 ? gap__trace_file_complain(file, "cannot be opened again") : 0;
}

void gap__trace_file_close(struct gap__trace_file *file) {
  if (file->fd >= 0) close(file->fd);
  file->fd = -1;
}
