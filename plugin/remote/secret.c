#include "secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void gap__remote_wipe(void *secret, size_t bytes) { explicit_bzero(secret, bytes); }

static int refuse(char *message, size_t bytes, const char *path, const char *why) {
  snprintf(message, bytes, "password file %s: %s", path, why);
  return GAP_EIO;
}

static const char *fault_of(const struct stat *file) {
  if (!S_ISREG(file->st_mode)) return "is not a regular file";
  if (file->st_uid != geteuid() && file->st_uid != 0) return "belongs to somebody else";
  return file->st_mode & 077 ? "others may read or write it (chmod 600)" : NULL;
}

static int read_file(const char *path, char out[GAP__REMOTE_SECRET_BYTES], char *message, size_t bytes) {
  struct stat file;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return refuse(message, bytes, path, strerror(errno));
  const char *fault = fstat(fd, &file) ? strerror(errno) : fault_of(&file);
  ssize_t got = fault ? 0 : read(fd, out, GAP__REMOTE_SECRET_BYTES);
  close(fd);
  if (fault || got < 0) return refuse(message, bytes, path, fault ? fault : "cannot be read");
  size_t length = 0;
  while (length < (size_t)got && out[length] && out[length] != '\n' && out[length] != '\r') length++;
  if (length == 0) return refuse(message, bytes, path, "the first line is empty");
  if (length == GAP__REMOTE_SECRET_BYTES) return refuse(message, bytes, path, "the first line is too long");
  return out[length] = '\0', 0;
}

int gap__remote_secret(const gap_remote_options *options, struct gap__remote_url *urls, uint32_t count, char *message,
                       size_t bytes) {
  char secret[GAP__REMOTE_SECRET_BYTES] = "";
  const char *variable = options->flags & GAP_REMOTE_NO_ENVIRONMENT ? NULL : getenv(GAP__REMOTE_PASSWORD_VARIABLE);
  int rc = 0;
  if (variable && strlen(variable) >= sizeof secret) {
    snprintf(message, bytes, GAP__REMOTE_PASSWORD_VARIABLE " is too long");
    return GAP_EVALUE;
  }
  if (variable && *variable) memcpy(secret, variable, strlen(variable) + 1);
  else if (options->password_file) rc = read_file(options->password_file, secret, message, bytes);
  for (uint32_t i = 0; i < count && rc == 0 && secret[0]; i++)
    if (!urls[i].has_password) {
      memcpy(urls[i].password, secret, sizeof secret);
      urls[i].has_password = true;
    }
  gap__remote_wipe(secret, sizeof secret);
  for (uint32_t i = 0; i < count && rc == 0; i++)
    if (urls[i].user[0] && !urls[i].has_password) {
      snprintf(message, bytes, "server %u of the list: a user, but no password", i + 1);
      rc = GAP_EVALUE;
    }
  return rc;
}
