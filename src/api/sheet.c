#include "api/sheet.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "api/client.h"
#include "api/door.h"
#include "base/text.h"
#include "core/glance.h"

/* ---- names ---- */

bool gap__sheet_is_name(const char *name, long *process) {
  char *end;
  *process = strtol(name, &end, 10);
  return *name >= '1' && *name <= '9' && strcmp(end, GAP__SHEET_SUFFIX) == 0;
}

/* Freed blocks between live ones are not counted by a glance. */
static bool is_told(const char *name) { return strncmp(name, "inactive_split", 14) != 0; }

struct names {
  struct gap__text text;
  uint32_t count;
};

static int add_name(void *arg, const char *name, int64_t value) {
  struct names *names = arg;
  (void)value;
  if (!is_told(name)) return 0;
  gap__text_add_bytes(&names->text, name, strlen(name) + 1);
  names->count++;
  return 0;
}

static int list_names(struct names *names) {
  struct gap__stats *none = calloc(1, sizeof *none);
  if (none) gap__stats_tell(none, add_name, names);
  free(none);
  return none && !names->text.failed ? 0 : GAP_ENOMETA;
}

/* ---- making ---- */

static uint32_t round_up(uint64_t bytes) { return (uint32_t)((bytes + 63) & ~(uint64_t)63); }

static void fill_head(struct gap__sheet_head *head, const struct names *names) {
  head->version = GAP__SHEET_VERSION;
  head->names_at = round_up(sizeof *head);
  head->names_bytes = (uint32_t)names->text.length;
  head->figure_count = names->count;
  head->devices_at = round_up(head->names_at + head->names_bytes);
  head->device_bytes = round_up(8 + sizeof(struct gap__sheet_device) + names->count * 8ull);
  head->device_most = GAP__SHEET_DEVICES;
  head->period_ms = GAP__SHEET_PERIOD_MS;
  head->process = getpid();
  memcpy(head->magic, GAP__SHEET_MAGIC, sizeof head->magic);
  snprintf(head->program, sizeof head->program, "%s", program_invocation_short_name);
  snprintf(head->release, sizeof head->release, "%s", gap_version());
}

/* The room is taken now: where the folder fills up later, a write must not end the process. */
static int map_file(struct gap__sheet *sheet) {
  if (posix_fallocate(sheet->fd, 0, (off_t)sheet->bytes)) return GAP_EIO;
  void *at = mmap(NULL, sheet->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, sheet->fd, 0);
  if (at == MAP_FAILED) return GAP_ENOMETA;
  sheet->head = at;
  return 0;
}

static int open_new(struct gap__sheet *sheet, int folder, const char *name) {
  unlinkat(folder, name, 0);
  sheet->fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
  bool is_ours = sheet->fd >= 0 && flock(sheet->fd, LOCK_EX | LOCK_NB) == 0 && fstat(sheet->fd, &sheet->about) == 0;
  return is_ours ? 0 : GAP_EIO;
}

static int make_file(struct gap__sheet *sheet, int folder, const struct names *names) {
  struct gap__sheet_head head = {0};
  char unfinished[GAP__SHEET_NAME_BYTES + 1];
  fill_head(&head, names);
  sheet->bytes = head.devices_at + (size_t)head.device_bytes * head.device_most;
  sheet->made = calloc(1, head.device_bytes);
  snprintf(sheet->name, sizeof sheet->name, "%ld" GAP__SHEET_SUFFIX, (long)getpid());
  snprintf(unfinished, sizeof unfinished, ".%s", sheet->name);
  int rc = sheet->made ? open_new(sheet, folder, unfinished) : GAP_ENOMETA;
  if (!rc) rc = map_file(sheet);
  if (rc) return rc;
  memcpy(sheet->head, &head, sizeof head);
  memcpy((char *)sheet->head + head.names_at, names->text.bytes, names->text.length);
  return renameat(folder, unfinished, folder, sheet->name) ? GAP_EIO : 0;
}

int gap__sheet_make(struct gap__sheet *sheet, int folder) {
  struct names names = {0};
  *sheet = (struct gap__sheet){.fd = -1};
  int rc = list_names(&names);
  if (!rc) rc = make_file(sheet, folder, &names);
  gap__text_free(&names.text);
  if (rc) gap__sheet_close(sheet);
  return rc;
}

void gap__sheet_remove_name(const struct gap__sheet *sheet, int folder) {
  if (sheet->head) gap__door_remove(folder, sheet->name, &sheet->about);
}

void gap__sheet_close(struct gap__sheet *sheet) {
  if (sheet->head) munmap(sheet->head, sheet->bytes);
  if (sheet->fd >= 0) close(sheet->fd);
  free(sheet->made);
  *sheet = (struct gap__sheet){.fd = -1};
}

/* ---- writing ---- */

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

struct writing {
  int64_t *at;
};

static int put_figure(void *arg, const char *name, int64_t value) {
  struct writing *writing = arg;
  if (is_told(name)) *writing->at++ = value;
  return 0;
}

static void put_usage(gap_heap *heap, int device, const struct gap__glance *glance, struct gap__sheet_device *out) {
  _Static_assert((int)GAP__GLANCE_USAGES == (int)GAP__SHEET_USAGES, "all of a glance fit into a sheet");
  out->usage_count = glance->usage_count;
  out->usage_missed = glance->usage_missed;
  for (uint32_t i = 0; i < glance->usage_count; i++) {
    const struct gap__usage *from = &glance->usage[i];
    struct gap__sheet_usage *to = &out->usage[i];
    *to = (struct gap__sheet_usage){.stream = from->stream,
                                    .pool_first = from->pool.first,
                                    .pool_second = from->pool.second,
                                    .live_blocks = from->live_blocks,
                                    .live_bytes = from->live_bytes,
                                    .pending_bytes = from->pending_bytes,
                                    .idle_bytes = from->idle_bytes};
    gap__heap_pool_tag(heap, device, from->pool, to->tag);
  }
}

static const char *backend_word(gap_heap *heap) {
  static const char *const words[] = {
      [GAP_BACKEND_CUDA] = "cuda", [GAP_BACKEND_SIM] = "sim", [GAP_BACKEND_HOST] = "host"};
  unsigned backend = (unsigned)gap__client_of(heap)->options.backend;
  return backend < sizeof words / sizeof words[0] && words[backend] ? words[backend] : "";
}

static void put_device(gap_heap *heap, int device, const struct gap__glance *glance, struct gap__sheet_device *out) {
  out->card_free_bytes = glance->card_free_bytes;
  out->card_bytes = glance->card_bytes;
  memcpy(out->uuid, gap__heap_dev(heap, device)->caps.uuid, sizeof out->uuid);
  snprintf(out->strategy, sizeof out->strategy, "%s", glance->strategy);
  snprintf(out->backend, sizeof out->backend, "%s", backend_word(heap));
  if (gap__heap_diagnosis(heap, device, out->refusal, sizeof out->refusal)) *out->refusal = '\0';
  put_usage(heap, device, glance, out);
  gap__stats_tell(&glance->stats, put_figure, &(struct writing){(int64_t *)(void *)(out + 1)});
}

static gap__sheet_word *device_at(const struct gap__sheet *sheet, uint32_t index) {
  return (void *)((char *)sheet->head + sheet->head->devices_at + (size_t)index * sheet->head->device_bytes);
}

/* The one thread that writes. */
static void copy_out(const struct gap__sheet *sheet, uint32_t index) {
  gap__sheet_word *sequence = device_at(sheet, index);
  uint64_t number = atomic_load_explicit(sequence, memory_order_relaxed), words = sheet->head->device_bytes / 8 - 1;
  atomic_store_explicit(sequence, number | 1, memory_order_relaxed);
  for (uint64_t i = 0; i < words; i++) atomic_store_explicit(sequence + 1 + i, sheet->made[i], memory_order_release);
  atomic_store_explicit(sequence, (number | 1) + 1, memory_order_release);
}

static void copy_back(const struct gap__sheet *sheet, uint32_t index) {
  const gap__sheet_word *words = device_at(sheet, index) + 1;
  for (uint64_t i = 0; i < sheet->head->device_bytes / 8 - 1; i++)
    sheet->made[i] = atomic_load_explicit(words + i, memory_order_relaxed);
}

static bool is_of(const struct gap__sheet_device *device, uint32_t heap, uint32_t ordinal) {
  return device->heap == heap && device->ordinal == ordinal && device->taken_ns;
}

/* What cannot be looked at now keeps its figures, if it has any, and says so. */
static bool publish_device(struct gap__sheet *sheet, gap_heap *heap, uint32_t number, int device, uint32_t index) {
  struct gap__sheet_device *made = (void *)sheet->made;
  struct gap__glance glance;
  uint64_t before_ns = now_ns();
  int rc = gap__heap_glance(heap, device, &glance);
  if (rc && rc != GAP_ESTATE) return false;
  if (rc) {
    copy_back(sheet, index);
    if (!is_of(made, number, (uint32_t)device)) return false;
    made->is_busy = 1;
  } else {
    memset(made, 0, sheet->head->device_bytes - 8);
    made->heap = number;
    made->ordinal = (uint32_t)device;
    made->taken_ns = before_ns;
    put_device(heap, device, &glance, made);
  }
  copy_out(sheet, index);
  return true;
}

void gap__sheet_publish(struct gap__sheet *sheet, gap_heap *const *heaps, int count) {
  uint32_t used = 0;
  if (!sheet->head) return;
  for (int i = 0; i < count; i++)
    for (int device = 0; device < gap__heap_device_count(heaps[i]) && used < GAP__SHEET_DEVICES; device++)
      used += publish_device(sheet, heaps[i], (uint32_t)i, device, used);
  atomic_store_explicit(&sheet->head->device_count, used, memory_order_release);
  atomic_store_explicit(&sheet->head->looked_ns, now_ns(), memory_order_release);
}

/* ---- both sides ---- */

static int open_any(int folder, const char *name, uid_t user) {
  struct stat about;
  int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -1;
  if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == user) return fd;
  close(fd);
  return -1;
}

/* Its process held the lock for writing as long as it lived. */
static bool is_nobodys(int fd) { return flock(fd, LOCK_SH | LOCK_NB) == 0; }

int gap__sheet_open(int folder, const char *name, uid_t user) {
  int fd = open_any(folder, name, user);
  if (fd < 0 || !is_nobodys(fd)) return fd;
  close(fd);
  return -1;
}

static void sweep_one(int folder, const char *name, uid_t user) {
  struct stat about;
  int fd = open_any(folder, name, user);
  if (fd < 0) return;
  if (is_nobodys(fd) && fstat(fd, &about) == 0) gap__door_remove(folder, name, &about);
  close(fd);
}

void gap__sheet_sweep(int folder, uid_t user) {
  int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
  long process;
  for (const struct dirent *entry; list && (entry = readdir(list));)
    if (gap__sheet_is_name(entry->d_name, &process)) sweep_one(folder, entry->d_name, user);
  if (list) closedir(list);
  else if (copy >= 0) close(copy);
}
