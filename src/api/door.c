#include "api/door.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
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
  snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/%.40s", folder, name);
}

bool gap__door_is_socket(int folder, const char *name, uid_t user) {
  struct stat about;
  return fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(about.st_mode) && about.st_uid == user;
}
