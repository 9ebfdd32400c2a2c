#include "tier/budget.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define NONE UINT64_MAX
enum { PATH_BYTES = 1024 };

struct family { /* version 2 in one tree, version 1, and 2 beside 1 */
  const char *mount, *limit, *soft, *use, *cache;
};
static const struct family version1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", NULL, "memory.usage_in_bytes",
                                       "total_inactive_file "};
static const struct family version2[] = {
    {"/sys/fs/cgroup", "memory.max", "memory.high", "memory.current", "inactive_file "},
    {"/sys/fs/cgroup/unified", "memory.max", "memory.high", "memory.current", "inactive_file "}};

/* Where it is looked, and what came of it. */
struct look {
  const char *root;
  int unread;
};

static FILE *open_in(struct look *look, const char *path) {
  FILE *file = fopen(path, "re");
  if (!file && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) look->unread = errno;
  return file;
}

/* The number behind `name` in a file, or the first one for ""; NONE: there is none ("max" is none). */
static uint64_t number_in(struct look *look, const char *path, const char *name) {
  char line[256];
  unsigned long long value = NONE;
  FILE *file = open_in(look, path);
  if (!file) return NONE;
  for (bool found = false; !found && fgets(line, sizeof line, file);)
    if (strncmp(line, name, strlen(name)) == 0) {
      found = true;
      if (sscanf(line + strlen(name), "%llu", &value) != 1) value = NONE;
    }
  fclose(file);
  return value;
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t figure(struct look *look, const char *folder, const char *file, const char *name) {
  char path[PATH_BYTES];
  return file && snprintf(path, sizeof path, "%s/%s", folder, file) < PATH_BYTES ? number_in(look, path, name) : NONE;
}

/* Limit - use of one group. */
static uint64_t room_of(struct look *look, const struct family *family, const char *folder) {
  uint64_t limit = smaller(figure(look, folder, family->limit, ""), figure(look, folder, family->soft, ""));
  uint64_t use = figure(look, folder, family->use, ""), cache = figure(look, folder, "memory.stat", family->cache);
  if (limit == NONE || use == NONE) return NONE;
  if (cache != NONE) use -= smaller(use, cache);
  return limit > use ? limit - use : 0;
}

/* From a group up to the mount.  In a container the path may be one of the machine's that is not to be seen here: then the mount
 * is the container's own group. */
static uint64_t room_up(struct look *look, const struct family *family, const char *group) {
  char folder[PATH_BYTES];
  int top = snprintf(folder, sizeof folder, "%s%s", look->root, family->mount), length;
  if (top < 0 || top >= PATH_BYTES) return NONE;
  length = snprintf(folder + top, sizeof folder - (size_t)top, "%s", group);
  if (length < 0 || length >= PATH_BYTES - top) folder[top] = '\0';
  uint64_t room = NONE;
  for (char *end = folder + strlen(folder); end && end >= folder + top; end = strrchr(folder, '/')) {
    *end = '\0';
    room = smaller(room, room_of(look, family, folder));
  }
  return room;
}

static bool names_memory(const char *list, const char *end) {
  for (const char *next; list < end; list = next + 1) {
    next = memchr(list, ',', (size_t)(end - list));
    if (!next) next = end;
    if (next - list == 6 && memcmp(list, "memory", 6) == 0) return true;
  }
  return false;
}

/* A line of /proc/self/cgroup: number:controllers:path; version 2 has no controllers there. */
static uint64_t room_in_line(struct look *look, char *line) {
  char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
  uint64_t room = NONE;
  if (!path) return NONE;
  line[strcspn(line, "\n")] = '\0';
  const char *group = strcmp(path + 1, "/") == 0 ? "" : path + 1;
  if (path == list + 1)
    for (unsigned i = 0; i < 2; i++) room = smaller(room, room_up(look, &version2[i], group));
  else if (names_memory(list + 1, path)) room = room_up(look, &version1, group);
  return room;
}

static uint64_t group_room(struct look *look) {
  char path[PATH_BYTES], line[PATH_BYTES];
  uint64_t room = NONE;
  if (snprintf(path, sizeof path, "%s/proc/self/cgroup", look->root) >= PATH_BYTES) return NONE;
  FILE *file = open_in(look, path);
  while (file && fgets(line, sizeof line, file)) room = smaller(room, room_in_line(look, line));
  if (file) fclose(file);
  return room;
}

void gap__budget_look(const char *root, struct gap__budget *out) {
  char path[PATH_BYTES];
  struct look look = {.root = root};
  bool fits = snprintf(path, sizeof path, "%s/proc/meminfo", root) < PATH_BYTES;
  uint64_t kib = fits ? number_in(&look, path, "MemAvailable:") : NONE;
  out->available_bytes = kib == NONE || kib > NONE / 1024 ? NONE : kib * 1024;
  out->group_bytes = group_room(&look);
  out->unread = look.unread;
}

uint64_t gap__budget_room(const struct gap__budget *b, uint64_t locked_bytes) {
  uint64_t now = smaller(b->available_bytes, b->group_bytes);
  if (b->unread) return 0;
  if (now == NONE || locked_bytes > NONE - now) return NONE;
  uint64_t most = (now + locked_bytes) / 5 * 4;
  return most > locked_bytes ? most - locked_bytes : 0;
}
