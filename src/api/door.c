#include "api/door.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "gapless/gapless.h"

/* A set-user-id program does not follow the variables of who started it. */
static const char *runtime_folder(uid_t user) {
  const char *folder = user == geteuid() ? secure_getenv("XDG_RUNTIME_DIR") : NULL;
  return folder && folder[0] == '/' && strlen(folder) < GAP__DOOR_PATH_BYTES / 2 ? folder : NULL;
}

/* The one that answers and the one that asks may have been started in different sessions: /run/user is where most systems
 * put the folder of the variable. */
void gap__door_folders(uid_t user, char paths[GAP__DOOR_FOLDERS][GAP__DOOR_PATH_BYTES]) {
  const char *runtime = runtime_folder(user);
  paths[0][0] = '\0';
  if (runtime) snprintf(paths[0], GAP__DOOR_PATH_BYTES, "%s/gapless", runtime);
  snprintf(paths[1], GAP__DOOR_PATH_BYTES, "/run/user/%u/gapless", user);
  snprintf(paths[2], GAP__DOOR_PATH_BYTES, "/tmp/gapless-%u", user);
}

int gap__door_open_folder(const char *path, uid_t user, bool make) {
  struct stat about;
  if (make) (void)mkdir(path, S_IRWXU); /* that it is there already is the usual case; what it is, is looked at below */
  int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return GAP_EIO;
  bool is_own = fstat(folder, &about) == 0 && about.st_uid == user && !(about.st_mode & (S_IRWXG | S_IRWXO));
  if (is_own) return folder;
  close(folder);
  return GAP_EINVAL;
}

void gap__door_address(int folder, const char *name, struct sockaddr_un *out) {
  memset(out, 0, sizeof *out);
  out->sun_family = AF_UNIX;
  snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/%.80s", folder, name);
}

bool gap__door_is_socket(int folder, const char *name, uid_t user) {
  struct stat about;
  return fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(about.st_mode) && about.st_uid == user;
}

int gap__door_open_own_folder(void) {
  char paths[GAP__DOOR_FOLDERS][GAP__DOOR_PATH_BYTES];
  int folder = GAP_EIO;
  gap__door_folders(geteuid(), paths);
  paths[1][0] = '\0'; /* for those who ask: who answers knows the variable, or has no such folder */
  for (int i = 0; folder < 0 && i < GAP__DOOR_FOLDERS; i++)
    if (paths[i][0]) folder = gap__door_open_folder(paths[i], geteuid(), true);
  return folder;
}

/* ---- sockets ---- */

int gap__door_listen(int folder, const char *name, int type, int backlog, struct stat *about) {
  char unfinished[GAP__DOOR_NAME_BYTES + 1];
  struct sockaddr_un address;
  snprintf(unfinished, sizeof unfinished, ".%s", name);
  unlinkat(folder, unfinished, 0);
  gap__door_address(folder, unfinished, &address);
  int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  bool ready = fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
               fchmodat(folder, unfinished, S_IRUSR | S_IWUSR, 0) == 0 && listen(fd, backlog) == 0 &&
               fstatat(folder, unfinished, about, AT_SYMLINK_NOFOLLOW) == 0 &&
               renameat(folder, unfinished, folder, name) == 0;
  if (ready) return fd;
  unlinkat(folder, unfinished, 0);
  if (fd >= 0) close(fd);
  return GAP_EIO;
}

void gap__door_remove(int folder, const char *name, const struct stat *about) {
  struct stat now;
  if (fstatat(folder, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_ino == about->st_ino &&
      now.st_dev == about->st_dev)
    unlinkat(folder, name, 0);
}

bool gap__door_is_deaf(int folder, const char *name, int type) {
  struct sockaddr_un address;
  if (!gap__door_is_socket(folder, name, geteuid())) return false;
  int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  gap__door_address(folder, name, &address);
  bool refused = connect(fd, (const struct sockaddr *)&address, sizeof address) < 0 && errno == ECONNREFUSED;
  close(fd);
  return refused;
}

bool gap__door_knows(int fd) {
  struct ucred who;
  socklen_t bytes = sizeof who;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes)) return false;
  return who.uid == geteuid() || who.uid == 0;
}

int64_t gap__door_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
