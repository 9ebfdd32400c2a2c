#include "toolsapi/ask.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/door.h"
#include "gapless/gapless.h"
#include "record/format.h"

enum { ANSWER_MS = 5000, PAUSE_MS = 50, PIECE_BYTES = 1 << 16, ANSWER_BYTES_MOST = 1 << 30 };

struct asker {
  pid_t process;
  uid_t user; /* whose process it is */
  char state; /* as /proc says: 'T' stopped, 'Z' ended */
  int64_t until_ms;
  char *message;
  size_t bytes;
};

static int fail(const struct asker *asker, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int fail(const struct asker *asker, int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(asker->message, asker->bytes, format, args);
  va_end(args);
  return code;
}

/* ---- the process ---- */

static FILE *open_about(pid_t process, const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%ld/%s", (long)process, name);
  return fopen(path, "re");
}

/* Its user and its state.  False: it is not there, or hidden from us. */
static bool look_at_process(struct asker *asker) {
  FILE *file = open_about(asker->process, "status");
  char line[256];
  unsigned user;
  bool found = false;
  while (file && fgets(line, sizeof line, file)) {
    sscanf(line, "State: %c", &asker->state);
    if (sscanf(line, "Uid: %*u %u", &user) != 1) continue; /* the effective one, under which it answers */
    asker->user = user;
    found = true;
  }
  if (file) fclose(file);
  return found;
}

static bool has_library(pid_t process) {
  FILE *file = open_about(process, "maps");
  char line[1024];
  bool found = false;
  while (!found && file && fgets(line, sizeof line, file)) found = strstr(line, "/libgapless") != NULL;
  if (file) fclose(file);
  return found;
}

static int find_process(struct asker *asker) {
  bool is_there = asker->process > 0 && (kill(asker->process, 0) == 0 || errno == EPERM);
  bool is_seen = is_there && look_at_process(asker);
  if (!is_there || asker->state == 'Z')
    return fail(asker, GAP_EINVAL, "there is no process of this number, and no file of this name");
  if (!is_seen) return fail(asker, GAP_EINVAL, "it is another user's process: only that user and root may ask it");
  if (asker->user != geteuid() && geteuid() != 0)
    return fail(asker, GAP_EINVAL, "it is the process of user %u: only that user and root may ask it", asker->user);
  return 0;
}

static int nobody(const struct asker *asker) {
  if (has_library(asker->process))
    return fail(asker, GAP_EINVAL,
                "it uses gapless but cannot be asked: it has made no heap yet, or serve:False is set "
                "(serve:True on host and sim)");
  return fail(asker, GAP_EINVAL, "it is no gapless process, or one that cannot be asked (serve:False)");
}

/* ---- the line ---- */

static bool wait_for(const struct asker *asker, int fd, short events) {
  struct pollfd wanted = {.fd = fd, .events = events};
  int64_t left = asker->until_ms - gap__door_now_ms();
  int ready = left > 0 ? poll(&wanted, 1, (int)left) : 0;
  return ready > 0 || (ready < 0 && errno == EINTR);
}

static int no_answer(const struct asker *asker) {
  return fail(asker, GAP_EIO, "no answer within %d s%s", ANSWER_MS / 1000,
              asker->state == 'T' || asker->state == 't' ? ": it is stopped" : "");
}

/* Where as many as can wait are waiting already the kernel says "again". */
static int call(const struct asker *asker, int folder, const char *name, int *out) {
  struct sockaddr_un address;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return fail(asker, GAP_EIO, "no socket: %s", strerror(errno));
  gap__door_address(folder, name, &address);
  int rc = 0;
  while (!rc && connect(fd, (const struct sockaddr *)&address, sizeof address) < 0) {
    if (errno != EAGAIN) rc = errno == ECONNREFUSED ? nobody(asker) : fail(asker, GAP_EIO, "%s", strerror(errno));
    else if (gap__door_now_ms() >= asker->until_ms) rc = no_answer(asker);
    else (void)poll(NULL, 0, PAUSE_MS);
  }
  if (rc) close(fd);
  else *out = fd;
  return rc;
}

/* A socket of this name may be another process's: one of another container, or one that had this number before. */
static int check_other_side(const struct asker *asker, int fd) {
  struct ucred who;
  socklen_t bytes = sizeof who;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes))
    return fail(asker, GAP_EIO, "who answers is not known: %s", strerror(errno));
  if (who.pid == asker->process && who.uid == asker->user) return 0;
  return fail(asker, GAP_EINVAL, "another process (%ld, of user %u) answers in its place", (long)who.pid, who.uid);
}

static int send_line(const struct asker *asker, int fd, const char *line) {
  size_t left = strlen(line);
  while (left && wait_for(asker, fd, POLLOUT)) {
    ssize_t sent = send(fd, line, left, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return fail(asker, GAP_EIO, "it hung up: %s", strerror(errno));
    if (sent > 0) line += sent, left -= (size_t)sent;
  }
  return left ? no_answer(asker) : 0;
}

/* To the end: the other side closes.  Whoever goes on sending is given time. */
static int receive_all(struct asker *asker, int fd, struct gap__text *reply) {
  char piece[PIECE_BYTES];
  while (wait_for(asker, fd, POLLIN)) {
    ssize_t got = recv(fd, piece, sizeof piece, 0);
    if (got == 0) return 0;
    if (got < 0 && errno != EAGAIN && errno != EINTR) return fail(asker, GAP_EIO, "it hung up: %s", strerror(errno));
    if (got < 0) continue;
    gap__text_add_bytes(reply, piece, (size_t)got);
    if (reply->failed || reply->length > ANSWER_BYTES_MOST) return fail(asker, GAP_ENOMETA, "its answer is too long");
    asker->until_ms = gap__door_now_ms() + ANSWER_MS;
  }
  return no_answer(asker);
}

/* ---- the whole ---- */

/* Of what is no answer only so much is shown as cannot harm a terminal. */
static size_t plain_length(const char *text) {
  size_t length = 0;
  while (text[length] >= ' ' && text[length] <= '~') length++;
  return length;
}

static int talk(struct asker *asker, int fd, struct gap__text *reply) {
  int rc = check_other_side(asker, fd);
  if (!rc) rc = send_line(asker, fd, GAP__DOOR_ASK_STATE);
  if (!rc) rc = receive_all(asker, fd, reply);
  if (rc) return rc;
  if (reply->length >= GAP__RECORD_MAGIC_BYTES && !memcmp(reply->bytes, GAP__RECORD_MAGIC, GAP__RECORD_MAGIC_BYTES))
    return 0;
  if (reply->length == 0) return fail(asker, GAP_EIO, "it hung up without an answer");
  return fail(asker, GAP_EFORMAT, "it answers: %.*s", (int)plain_length(reply->bytes), reply->bytes);
}

/* The open folder that has its door. */
static int find_folder(const struct asker *asker, const char *name) {
  char paths[GAP__DOOR_FOLDERS][GAP__DOOR_PATH_BYTES];
  gap__door_folders(asker->user, paths);
  for (int i = 0; i < GAP__DOOR_FOLDERS; i++) {
    int folder = paths[i][0] ? gap__door_open_folder(paths[i], asker->user, false) : -1;
    if (folder >= 0 && gap__door_is_socket(folder, name, asker->user)) return folder;
    if (folder >= 0) close(folder);
  }
  return -1;
}

int gap__ask_state(pid_t process, struct gap__text *reply, char *message, size_t bytes) {
  struct asker asker = {
      .process = process, .until_ms = gap__door_now_ms() + ANSWER_MS, .message = message, .bytes = bytes};
  char name[32];
  int fd = -1, rc = find_process(&asker);
  if (rc) return rc;
  snprintf(name, sizeof name, "%ld", (long)process);
  int folder = find_folder(&asker, name);
  if (folder < 0) return nobody(&asker);
  rc = call(&asker, folder, name, &fd);
  close(folder);
  if (!rc) rc = talk(&asker, fd, reply);
  if (fd >= 0) close(fd);
  return rc;
}
