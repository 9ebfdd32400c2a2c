#include "tune/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

static int complain(int code, char *message, size_t bytes, const char *path, const char *why) {
  snprintf(message, bytes, "%s: %s", path, why);
  return code;
}

char *gap__cache_default(const char *(*get)(const char *name)) {
  const char *base = get("XDG_CACHE_HOME"), *home = get("HOME");
  struct gap__text path = {0};
  if (base && base[0] == '/') gap__text_add(&path, "%s/gapless/tune", base);
  else if (home && home[0] == '/') gap__text_add(&path, "%s/.cache/gapless/tune", home);
  else return NULL;
  return gap__text_take(&path);
}

/* mkdir -p; those that are there already stay as they are. */
static int make_folders(const char *folder, char *message, size_t bytes) {
  char *path = strdup(folder);
  int rc = path ? 0 : GAP_ENOMETA;
  for (char *at = path; rc == 0 && at && *at; at++) {
    char *slash = strchr(at + 1, '/');
    if (slash) *slash = '\0';
    if (mkdir(path, 0700) != 0 && errno != EEXIST) rc = complain(GAP_EIO, message, bytes, path, strerror(errno));
    if (!slash) break;
    *slash = '/';
    at = slash - 1;
  }
  free(path);
  return rc;
}

int gap__cache_open(const char *folder, char *message, size_t bytes) {
  struct stat status;
  int rc = make_folders(folder, message, bytes);
  if (rc != 0) return rc;
  if (lstat(folder, &status) != 0) return complain(GAP_EIO, message, bytes, folder, strerror(errno));
  if (!S_ISDIR(status.st_mode)) return complain(GAP_EIO, message, bytes, folder, "not a folder");
  if (status.st_uid != geteuid()) return complain(GAP_EIO, message, bytes, folder, "belongs to another user");
  if (status.st_mode & (S_IWGRP | S_IWOTH)) return complain(GAP_EIO, message, bytes, folder, "others may write to it");
  return 0;
}

static int file_name(const char *folder, const char *hash, const char *end, char *out, size_t bytes) {
  int length = snprintf(out, bytes, "%s/%s.jsonl%s", folder, hash, end);
  return length > 0 && (size_t)length < bytes ? 0 : GAP_ELIMIT;
}

/* NULL with errno ENOENT when there is none. */
static FILE *open_own(const char *path) {
  struct stat status;
  int handle = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (handle < 0) return NULL;
  bool ours = fstat(handle, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
              !(status.st_mode & (S_IWGRP | S_IWOTH));
  FILE *file = ours ? fdopen(handle, "r") : NULL;
  if (file) return file;
  close(handle);
  errno = EPERM;
  return NULL;
}

int gap__cache_load(const char *folder, const char *hash, const struct gap__settings *settings,
                    struct gap__tuned_list *list, char *message, size_t bytes) {
  char path[4096], why[512];
  struct gap__tuned_list read = {0};
  if (file_name(folder, hash, "", path, sizeof path) != 0)
    return complain(GAP_ELIMIT, message, bytes, folder, "too long");
  FILE *file = open_own(path);
  if (!file) return errno == ENOENT ? 0 : complain(GAP_EIO, message, bytes, path, strerror(errno));
  int rc = gap__store_read(file, settings, &read, why, sizeof why);
  fclose(file);
  if (rc != 0) complain(rc, message, bytes, path, why);
  for (uint32_t i = 0; rc == 0 && i < read.count; i++) {
    if (strcmp(read.at[i]->facts.hash, hash) != 0) continue; /* of no use here */
    rc = gap__tuned_list_add(list, read.at[i]);
    read.at[i] = NULL;
  }
  gap__tuned_list_free(&read);
  return rc;
}

int gap__cache_save(const char *folder, const char *hash, const struct gap__tuned_list *list, char *message,
                    size_t bytes) {
  char path[4096], fresh[4096], end[64];
  snprintf(end, sizeof end, ".%" PRIu64 ".new", (uint64_t)getpid());
  if (file_name(folder, hash, "", path, sizeof path) != 0 || file_name(folder, hash, end, fresh, sizeof fresh) != 0)
    return complain(GAP_ELIMIT, message, bytes, folder, "too long");
  unlink(fresh);
  int handle = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  FILE *file = handle >= 0 ? fdopen(handle, "w") : NULL;
  if (!file) {
    if (handle >= 0) close(handle);
    return complain(GAP_EIO, message, bytes, fresh, strerror(errno));
  }
  int rc = gap__store_write(file, list);
  if (fclose(file) != 0 && rc == 0) rc = GAP_EIO;
  if (rc == 0 && rename(fresh, path) != 0) rc = GAP_EIO;
  if (rc != 0) {
    complain(rc, message, bytes, path, rc == GAP_EIO ? strerror(errno) : gap_strerror(rc));
    unlink(fresh);
  }
  return rc;
}
