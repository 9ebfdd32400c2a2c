#include "kv/cubins.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gapless/gapless.h"

enum { TEXT = GAP__SHA256_TEXT_BYTES, IMAGE_MOST = 64 << 20, FOLDERS = 2 };

/* ---- the folder: the user's word, or his cache, or one under the temporary folder ---- */

static bool base_folder(int which, char out[PATH_MAX]) {
  const char *own = getenv("GAPLESS_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"),
             *tmp = getenv("TMPDIR");
  if (own && *own) return which == 0 && snprintf(out, PATH_MAX, "%s", own) < PATH_MAX;
  if (which == 1)
    return snprintf(out, PATH_MAX, "%s/gapless-%u", tmp && *tmp ? tmp : "/tmp", (unsigned)geteuid()) < PATH_MAX;
  if (cache && *cache == '/') return snprintf(out, PATH_MAX, "%s/gapless", cache) < PATH_MAX;
  return home && *home == '/' && snprintf(out, PATH_MAX, "%s/.cache/gapless", home) < PATH_MAX;
}

static bool is_ours(const struct stat *found) { return found->st_uid == geteuid() && !(found->st_mode & 022); }

static bool is_safe(const char *path) {
  struct stat found;
  return lstat(path, &found) == 0 && S_ISDIR(found.st_mode) && is_ours(&found);
}

static bool make_safe(const char *path) { return (mkdir(path, 0700) == 0 || errno == EEXIST) && is_safe(path); }

/* `make`: folders that are missing, as far as the cache's own parent. */
static bool folder(int which, bool make, char out[PATH_MAX]) {
  char base[PATH_MAX], parent[PATH_MAX];
  if (!base_folder(which, base) || snprintf(out, PATH_MAX, "%s/kernels", base) >= PATH_MAX) return false;
  memcpy(parent, base, sizeof parent);
  char *slash = strrchr(parent, '/');
  if (make && slash && slash > parent) *slash = '\0', (void)mkdir(parent, 0700);
  return make ? make_safe(base) && make_safe(out) : is_safe(base) && is_safe(out);
}

/* ---- files: the digest of the image as text, then the image ---- */

static void digest_of(const char *image, size_t bytes, char out[TEXT]) {
  struct gap__sha256 sha;
  gap__sha256_begin(&sha);
  gap__sha256_add(&sha, image, bytes);
  gap__sha256_end(&sha, out);
}

static bool read_all(int file, char *to, size_t bytes) {
  for (ssize_t got; bytes; to += got, bytes -= (size_t)got)
    if ((got = read(file, to, bytes)) <= 0) return false;
  return true;
}

static bool write_all(int file, const char *from, size_t bytes) {
  for (ssize_t put; bytes; from += put, bytes -= (size_t)put)
    if ((put = write(file, from, bytes)) <= 0) return false;
  return true;
}

static int read_image(int file, size_t bytes, char **image) {
  char said[TEXT], found[TEXT];
  char *at = malloc(bytes);
  if (!at) return GAP_ENOMETA;
  bool good = read_all(file, said, TEXT) && read_all(file, at, bytes);
  if (good) digest_of(at, bytes, found);
  if (good && memcmp(said, found, TEXT) == 0) {
    *image = at;
    return 0;
  }
  free(at);
  return GAP_ENOTMINE;
}

static int get_from(const char *path, char **image, size_t *bytes) {
  struct stat found;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), rc = GAP_ENOTMINE;
  if (file < 0) return rc;
  bool fits = fstat(file, &found) == 0 && S_ISREG(found.st_mode) && is_ours(&found) && found.st_size > TEXT &&
              found.st_size <= IMAGE_MOST;
  if (fits) {
    *bytes = (size_t)found.st_size - TEXT;
    rc = read_image(file, *bytes, image);
  }
  close(file);
  return rc;
}

static bool name_file(const char *in, const char *key, const char *end, char out[PATH_MAX]) {
  return snprintf(out, PATH_MAX, "%s/%s%s", in, key, end) < PATH_MAX;
}

int gap__kv_cubins_get(const char key[TEXT], char **image, size_t *bytes) {
  char in[PATH_MAX], path[PATH_MAX];
  int rc = GAP_ENOTMINE;
  for (int i = 0; rc == GAP_ENOTMINE && i < FOLDERS; i++)
    if (folder(i, false, in) && name_file(in, key, ".cubin", path)) rc = get_from(path, image, bytes);
  return rc;
}

static bool put_into(const char *in, const char *key, const char *image, size_t bytes) {
  char temporary[PATH_MAX], path[PATH_MAX], digest[TEXT];
  if (!name_file(in, key, ".XXXXXX", temporary) || !name_file(in, key, ".cubin", path)) return false;
  int file = mkostemp(temporary, O_CLOEXEC);
  if (file < 0) return false;
  digest_of(image, bytes, digest);
  bool good = write_all(file, digest, TEXT) && write_all(file, image, bytes);
  good = close(file) == 0 && good;
  if (!good || rename(temporary, path)) (void)unlink(temporary), good = false;
  return good;
}

void gap__kv_cubins_put(const char key[TEXT], const char *image, size_t bytes) {
  char in[PATH_MAX];
  for (int i = 0; i < FOLDERS; i++)
    if (folder(i, true, in) && put_into(in, key, image, bytes)) return;
}
