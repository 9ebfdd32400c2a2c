/* A plan file becomes the steps of each stream: see follow.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/planfile.h"
#include "core/follow.h"

enum { FILE_BYTES_MAX = 64 << 20, REQUESTS_MAX = 1 << 22 };

/* ---- the file ---- */

static int refuse_errno(struct gap__text *why) {
  gap__text_add(why, "%s", strerror(errno));
  return GAP_EIO;
}

static int read_all(int fd, unsigned char *data, size_t bytes, struct gap__text *why) {
  for (size_t done = 0; done < bytes;) {
    ssize_t got = read(fd, data + done, bytes - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refuse_errno(why);
    if (got == 0) {
      gap__text_add(why, "the file ends while it is read");
      return GAP_EIO;
    }
    done += (size_t)got;
  }
  return 0;
}

static int size_of(int fd, size_t *bytes, struct gap__text *why) {
  struct stat about;
  if (fstat(fd, &about)) return refuse_errno(why);
  if (!S_ISREG(about.st_mode)) {
    gap__text_add(why, "it is not a file");
    return GAP_EIO;
  }
  if (about.st_size > FILE_BYTES_MAX) {
    gap__text_add(why, "it is larger than a plan may be (64 MiB)");
    return GAP_ELIMIT;
  }
  *bytes = (size_t)about.st_size;
  return 0;
}

/* Does not wait for what is no file: a pipe that nobody writes to. */
static int read_file(const char *path, unsigned char **out, size_t *bytes, struct gap__text *why) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return refuse_errno(why);
  int rc = size_of(fd, bytes, why);
  if (!rc && !(*out = malloc(*bytes + 1))) rc = GAP_ENOMETA;
  if (!rc) rc = read_all(fd, *out, *bytes, why);
  close(fd);
  return rc;
}

/* ---- the steps ---- */

static int check_entry(const struct gap__planfile *file, uint32_t index, struct gap__text *why) {
  const struct gap__plan_entry *entry = &file->at[index];
  if (entry->bytes % GAP__UNIT == 0 && entry->offset % GAP__UNIT == 0) return 0;
  gap__text_add(why, "request %" PRIu32 " has no multiple of 512 bytes for its size or offset: not a program's plan",
                index);
  return GAP_ENOTSUP;
}

static int check_range(const struct gap__planfile *file, struct gap__text *why) {
  int rc = 0;
  if (file->count == 0) {
    gap__text_add(why, "it has no requests");
    return GAP_EFORMAT;
  }
  if (file->plan_bytes >> GAP__UNIT_SHIFT > GAP__UNITS_MAX) {
    gap__text_add(why, "it needs more addresses than any card has memory");
    return GAP_ELIMIT;
  }
  for (uint32_t i = 0; i < file->count && !rc; i++) rc = check_entry(file, i, why);
  return rc;
}

/* Streams that make no request are left out. */
static uint32_t lay_out(const struct gap__planfile *file, struct gap__plan *plan, uint32_t *number) {
  for (uint32_t i = 0; i < file->count; i++) number[file->at[i].stream]++;
  uint32_t first = 0;
  for (uint32_t i = 0; i < file->stream_count; i++) {
    uint32_t count = number[i];
    number[i] = plan->stream_count;
    if (!count) continue;
    plan->streams[plan->stream_count++] = (struct gap__plan_stream){.first = first, .low = UINT32_MAX};
    first += count;
  }
  return first;
}

static void add_step(struct gap__plan *plan, struct gap__plan_stream *stream, struct gap__plan_step step) {
  plan->steps[stream->first + stream->count++] = step;
  if (step.off < stream->low) stream->low = step.off;
  if (step.off + step.units > stream->high) stream->high = step.off + step.units;
}

static bool share_addresses(const struct gap__plan *plan) {
  for (uint32_t i = 0; i < plan->stream_count; i++)
    for (uint32_t k = 0; k < i; k++)
      if (plan->streams[i].low < plan->streams[k].high && plan->streams[k].low < plan->streams[i].high) return true;
  return false;
}

static void fill(const struct gap__planfile *file, struct gap__plan *plan, uint32_t *number) {
  plan->step_count = lay_out(file, plan, number);
  plan->units = (uint32_t)(file->plan_bytes >> GAP__UNIT_SHIFT);
  for (uint32_t i = 0; i < file->count; i++) {
    const struct gap__plan_entry *entry = &file->at[i];
    add_step(plan, &plan->streams[number[entry->stream]],
             (struct gap__plan_step){(uint32_t)(entry->bytes >> GAP__UNIT_SHIFT),
                                     (uint32_t)(entry->offset >> GAP__UNIT_SHIFT)});
  }
  plan->takes_turns = share_addresses(plan);
}

static int make(const struct gap__planfile *file, struct gap__plan **out) {
  struct gap__plan *plan = calloc(1, sizeof *plan);
  uint32_t *number = calloc(file->stream_count, sizeof *number);
  if (plan) plan->streams = calloc(file->stream_count, sizeof *plan->streams);
  if (plan) plan->steps = calloc(file->count, sizeof *plan->steps);
  bool ok = number && plan && plan->streams && plan->steps;
  if (ok) fill(file, plan, number);
  else gap__plan_unload(plan);
  free(number);
  *out = ok ? plan : NULL;
  return ok ? 0 : GAP_ENOMETA;
}

int gap__plan_load(const char *path, struct gap__plan **out, struct gap__text *why) {
  unsigned char *data = NULL;
  size_t bytes = 0;
  struct gap__planfile file = {0};
  *out = NULL;
  int rc = read_file(path, &data, &bytes, why);
  if (!rc) rc = gap__planfile_decode(data, bytes, REQUESTS_MAX, &file, why);
  free(data);
  if (!rc) rc = check_range(&file, why);
  if (!rc) rc = make(&file, out);
  gap__planfile_free(&file);
  return rc;
}

void gap__plan_unload(struct gap__plan *plan) {
  if (!plan) return;
  free(plan->streams);
  free(plan->steps);
  free(plan);
}
