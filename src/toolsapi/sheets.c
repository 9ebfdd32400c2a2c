#include "toolsapi/sheets.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/door.h"

/* A user cannot hold up or fill a reader of root's: so many sheets a folder, of so many bytes, each tried again so often. */
enum { BYTES_MOST = 1 << 20, SHEETS_A_FOLDER = 256, TRIES = 400, TRY_NS = 50000 };

/* ---- one sheet ---- */

struct source {
  gap__sheet_read_fn *read;
  void *arg;
  struct gap__sheet_head head;
  int tries; /* left, for all devices together */
};

static bool read_at(const struct source *from, void *out, size_t bytes, uint64_t offset) {
  return from->read(from->arg, out, bytes, offset);
}

/* Parts lie behind each other, none is larger than a sheet can sensibly be, and words are where words can be read. */
static bool is_laid_out(const struct gap__sheet_head *head) {
  uint64_t figures = head->figure_count * (uint64_t)8, devices = (uint64_t)head->device_bytes * head->device_most;
  return !memcmp(head->magic, GAP__SHEET_MAGIC, sizeof head->magic) && head->version == GAP__SHEET_VERSION &&
         head->names_at >= sizeof *head && head->names_bytes <= BYTES_MOST &&
         head->devices_at >= (uint64_t)head->names_at + head->names_bytes && head->devices_at <= BYTES_MOST &&
         head->devices_at % 8 == 0 && head->device_bytes % 8 == 0 && devices <= BYTES_MOST &&
         head->device_bytes >= 8 + sizeof(struct gap__sheet_device) + figures &&
         atomic_load_explicit(&head->device_count, memory_order_relaxed) <= head->device_most;
}

/* As many as there are figures, and the last one ends. */
static bool are_names(const char *names, uint32_t bytes, uint32_t count) {
  uint32_t ends = 0;
  for (uint32_t i = 0; i < bytes; i++) ends += names[i] == '\0';
  return ends == count && (bytes == 0 || names[bytes - 1] == '\0');
}

/* Texts of others go to a terminal and into files of text. */
static void clean_all(char *text, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (text[i] && (text[i] < ' ' || text[i] > '~')) text[i] = '?';
}

static void clean(char *text, size_t bytes) {
  text[bytes - 1] = '\0';
  clean_all(text, bytes);
}

static bool is_same_usage(const struct gap__sheet_usage *a, const struct gap__sheet_usage *b) {
  return a->stream == b->stream && a->pool_first == b->pool_first && a->pool_second == b->pool_second;
}

/* A stream has one line in a pool. */
static void drop_repeated_usages(struct gap__sheet_device *device) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < device->usage_count; i++) {
    uint32_t same = 0;
    while (same < kept && !is_same_usage(&device->usage[same], &device->usage[i])) same++;
    if (same == kept) device->usage[kept++] = device->usage[i];
  }
  device->usage_count = kept;
}

static void clean_device(struct gap__sheet_device *device) {
  clean(device->strategy, sizeof device->strategy);
  clean(device->backend, sizeof device->backend);
  clean(device->refusal, sizeof device->refusal);
  if (device->usage_count > GAP__SHEET_USAGES) device->usage_count = GAP__SHEET_USAGES;
  drop_repeated_usages(device);
  for (uint32_t i = 0; i < device->usage_count; i++) clean(device->usage[i].tag, sizeof device->usage[i].tag);
}

static void pause_a_little(void) { nanosleep(&(struct timespec){0, TRY_NS}, NULL); }

/* False: it cannot be read, or it was being written each time. */
static bool copy_device(struct source *from, uint32_t index, unsigned char *out, size_t bytes) {
  uint64_t at = from->head.devices_at + (uint64_t)index * from->head.device_bytes, before = 1, after = 0;
  for (bool again = false; before % 2 || before != after; again = true) {
    if (again && from->tries-- <= 0) return false;
    if (again) pause_a_little();
    if (!read_at(from, &before, sizeof before, at)) return false;
    atomic_thread_fence(memory_order_seq_cst); /* the words are not read before the number, nor behind it */
    if (!read_at(from, out, bytes, at + 8)) return false;
    atomic_thread_fence(memory_order_seq_cst);
    if (!read_at(from, &after, sizeof after, at)) return false;
  }
  return true;
}

/* Two that are opened at once may be seen in one place and in the next. */
static bool has_device(const struct gap__sheet_view *view, const struct gap__sheet_device *device) {
  for (uint32_t i = 0; i < view->device_count; i++) {
    const struct gap__sheet_device *other = gap__sheet_device(view, i);
    if (other->heap == device->heap && other->ordinal == device->ordinal) return true;
  }
  return false;
}

static int copy_devices(struct source *from, struct gap__sheet_view *out) {
  uint32_t count = atomic_load_explicit(&from->head.device_count, memory_order_relaxed);
  out->stride = (uint32_t)sizeof(struct gap__sheet_device) + from->head.figure_count * 8;
  out->devices = calloc(count ? count : 1, out->stride);
  if (!out->devices) return GAP_ENOMETA;
  for (uint32_t i = 0; i < count; i++) {
    unsigned char *to = out->devices + (size_t)out->device_count * out->stride;
    if (!copy_device(from, i, to, out->stride) || has_device(out, (void *)to)) continue;
    clean_device((struct gap__sheet_device *)(void *)to);
    out->device_count++;
  }
  return 0;
}

static int copy_names(const struct source *from, struct gap__sheet_view *out) {
  uint32_t bytes = from->head.names_bytes;
  out->names = malloc(bytes ? bytes : 1);
  if (!out->names) return GAP_ENOMETA;
  if (!read_at(from, out->names, bytes, from->head.names_at)) return GAP_EFORMAT;
  clean_all(out->names, bytes);
  return are_names(out->names, bytes, from->head.figure_count) ? 0 : GAP_EFORMAT;
}

int gap__sheet_parse(gap__sheet_read_fn *read, void *arg, struct gap__sheet_view *out) {
  struct source from = {.read = read, .arg = arg, .tries = TRIES};
  *out = (struct gap__sheet_view){0};
  if (!read(arg, &from.head, sizeof from.head, 0) || !is_laid_out(&from.head)) return GAP_EFORMAT;
  out->process = from.head.process;
  out->period_ms = from.head.period_ms;
  out->looked_ns = atomic_load_explicit(&from.head.looked_ns, memory_order_relaxed);
  out->figure_count = from.head.figure_count;
  memcpy(out->program, from.head.program, sizeof out->program);
  memcpy(out->release, from.head.release, sizeof out->release);
  clean(out->program, sizeof out->program);
  clean(out->release, sizeof out->release);
  int rc = copy_names(&from, out);
  if (!rc) rc = copy_devices(&from, out);
  if (rc) gap__sheet_view_free(out);
  return rc;
}

void gap__sheet_view_free(struct gap__sheet_view *view) {
  free(view->names);
  free(view->devices);
  *view = (struct gap__sheet_view){0};
}

/* ---- figures ---- */

const struct gap__sheet_device *gap__sheet_device(const struct gap__sheet_view *view, uint32_t index) {
  return (const void *)(view->devices + (size_t)index * view->stride);
}

bool gap__sheet_figure(const struct gap__sheet_view *view, uint32_t device, const char *name, int64_t *out) {
  const int64_t *figures = (const void *)(gap__sheet_device(view, device) + 1);
  const char *at = view->names;
  for (uint32_t i = 0; i < view->figure_count; i++, at += strlen(at) + 1) {
    if (strcmp(at, name) != 0) continue;
    *out = figures[i];
    return true;
  }
  return false;
}

int64_t gap__sheet_value(const struct gap__sheet_view *view, uint32_t device, const char *name) {
  int64_t value = 0;
  return gap__sheet_figure(view, device, name, &value) ? value : 0;
}

/* ---- all of them ---- */

static bool read_file(void *arg, void *out, size_t bytes, uint64_t offset) {
  return pread(*(int *)arg, out, bytes, (off_t)offset) == (ssize_t)bytes;
}

static struct gap__sheet_view *room_for_one(struct gap__sheets *sheets) {
  if (sheets->count == sheets->capacity) {
    uint32_t capacity = sheets->capacity ? 2 * sheets->capacity : 16;
    struct gap__sheet_view *more = realloc(sheets->views, capacity * sizeof *more);
    if (!more) return NULL;
    sheets->views = more;
    sheets->capacity = capacity;
  }
  return &sheets->views[sheets->count];
}

static bool has_process(long process, uid_t user) {
  char path[40];
  struct stat about;
  snprintf(path, sizeof path, "/proc/%ld", process);
  return stat(path, &about) == 0 && about.st_uid == user;
}

/* 0 also where there is none, or none that is what its name says. */
static int read_sheet(int folder, const char *name, long process, uid_t user, struct gap__sheets *out) {
  int fd = gap__sheet_open(folder, name, user);
  if (fd < 0) return 0;
  struct gap__sheet_view *view = room_for_one(out);
  int rc = view ? gap__sheet_parse(read_file, &fd, view) : GAP_ENOMETA;
  close(fd);
  if (!rc && view->process != process) {
    gap__sheet_view_free(view);
    rc = GAP_EFORMAT;
  }
  if (!rc) view->user = user, view->is_of_process = has_process(process, user);
  out->count += rc == 0;
  out->unknown += rc == GAP_EFORMAT;
  return rc == GAP_EFORMAT ? 0 : rc;
}

/* Closes the folder. */
static int read_open_folder(int folder, uid_t user, long only, struct gap__sheets *out) {
  int rc = 0;
  gap__sheet_sweep(folder, user);
  int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
  long process;
  uint32_t most = out->count + SHEETS_A_FOLDER;
  for (const struct dirent *entry; !rc && list && out->count < most && (entry = readdir(list));)
    if (gap__sheet_is_name(entry->d_name, &process) && (!only || process == only))
      rc = read_sheet(folder, entry->d_name, process, user, out);
  if (list) closedir(list);
  else if (copy >= 0) close(copy);
  close(folder);
  return rc;
}

static int read_folder(const char *path, uid_t user, long only, struct gap__sheets *out) {
  int folder = gap__door_open_folder(path, user, false);
  return folder < 0 ? 0 : read_open_folder(folder, user, only, out);
}

/* One that was named: that it cannot be read is said. */
static int read_named(const char *path, long only, struct gap__sheets *out) {
  struct stat about;
  if (stat(path, &about)) return GAP_EIO;
  if (about.st_uid != geteuid() && geteuid() != 0) return GAP_EINVAL;
  int folder = gap__door_open_folder(path, about.st_uid, false);
  return folder < 0 ? folder : read_open_folder(folder, about.st_uid, only, out);
}

static int read_user(uid_t user, long only, struct gap__sheets *out) {
  char paths[GAP__DOOR_FOLDERS][GAP__DOOR_PATH_BYTES];
  int rc = 0;
  gap__door_folders(user, paths);
  if (strcmp(paths[0], paths[1]) == 0) paths[1][0] = '\0';
  for (int i = 0; i < GAP__DOOR_FOLDERS && !rc; i++)
    if (paths[i][0]) rc = read_folder(paths[i], user, only, out);
  return rc;
}

/* Users whose folder lies in `parent` as PREFIX and their number; not ourselves. */
static int read_users(const char *parent, const char *prefix, long only, struct gap__sheets *out) {
  DIR *list = opendir(parent);
  size_t length = strlen(prefix);
  int rc = 0;
  for (const struct dirent *entry; !rc && list && (entry = readdir(list));) {
    char *end, path[GAP__DOOR_PATH_BYTES];
    const char *digits = entry->d_name + length;
    if (strncmp(entry->d_name, prefix, length) != 0 || *digits < '0' || *digits > '9') continue;
    unsigned long user = strtoul(digits, &end, 10);
    if (*end || user == geteuid()) continue;
    snprintf(path, sizeof path, "%s/%s%s", parent, entry->d_name, length ? "" : "/gapless");
    rc = read_folder(path, (uid_t)user, only, out);
  }
  if (list) closedir(list);
  return rc;
}

/* Of several with one number that of the user who has such a process here comes first. */
static int by_process(const void *left, const void *right) {
  const struct gap__sheet_view *a = left, *b = right;
  if (a->process != b->process) return a->process < b->process ? -1 : 1;
  return (int)b->is_of_process - (int)a->is_of_process;
}

static int read_usual(long only, struct gap__sheets *out) {
  int rc = read_user(geteuid(), only, out);
  if (!rc && geteuid() == 0) rc = read_users("/run/user", "", only, out);
  if (!rc && geteuid() == 0) rc = read_users("/tmp", "gapless-", only, out);
  return rc;
}

int gap__sheets_read(const char *folder, long process, struct gap__sheets *out) {
  *out = (struct gap__sheets){0};
  int rc = folder ? read_named(folder, process, out) : read_usual(process, out);
  if (rc) gap__sheets_free(out);
  else if (out->count) qsort(out->views, out->count, sizeof *out->views, by_process);
  return rc;
}

void gap__sheets_free(struct gap__sheets *sheets) {
  for (uint32_t i = 0; i < sheets->count; i++) gap__sheet_view_free(&sheets->views[i]);
  free(sheets->views);
  *sheets = (struct gap__sheets){0};
}
