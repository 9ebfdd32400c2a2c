/* See plan_maker.h. */
#include "support/plan_maker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

void plan_begin(struct plan_maker *m) {
  *m = (struct plan_maker){.path = "/tmp/gapless-plan-XXXXXX"};
  int fd = mkstemp(m->path);
  assert_true(fd >= 0);
  close(fd);
}

uint32_t plan_alloc(struct plan_maker *m, uint32_t stream, uint64_t bytes) {
  assert_true(m->count < PLAN_MOST);
  m->at[m->count] = (struct gap__plan_entry){
      .bytes = (bytes + 511) / 512 * 512, .align = 512, .stream = stream, .from = m->moments++};
  if (stream >= m->streams) m->streams = stream + 1;
  return m->count++;
}

void plan_free(struct plan_maker *m, uint32_t index) { m->at[index].to = m->moments++; }

static bool in_the_way(const struct gap__plan_entry *a, const struct gap__plan_entry *b) {
  bool in_time = a->from < b->to && b->from < a->to;
  return in_time && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static void place(struct plan_maker *m, uint32_t index) {
  struct gap__plan_entry *entry = &m->at[index];
  entry->offset = 0;
  for (uint32_t i = 0; i < index;) {
    bool blocked = in_the_way(entry, &m->at[i]);
    if (blocked) entry->offset = m->at[i].offset + m->at[i].bytes;
    i = blocked ? 0 : i + 1;
  }
}

void plan_finish(struct plan_maker *m) {
  bool any = false;
  for (uint32_t i = 0; i < m->count; i++) {
    any |= m->at[i].to == 0;
    if (!m->at[i].to) m->at[i].to = m->moments;
  }
  m->moments += any;
  for (uint32_t i = 0; i < m->count; i++) place(m, i);
  plan_write(m);
}

void plan_write_bytes(const struct plan_maker *m, const void *data, size_t bytes) {
  FILE *file = fopen(m->path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

void plan_write(struct plan_maker *m) {
  uint64_t streams[64] = {0};
  struct gap__planfile file = {.at = m->at,
                               .count = m->count,
                               .moments = m->moments,
                               .streams = streams,
                               .stream_count = m->streams ? m->streams : 1};
  assert_true(m->streams <= 64);
  for (uint32_t i = 0; i < m->count; i++) {
    uint64_t end = m->at[i].offset + m->at[i].bytes;
    file.total_bytes += m->at[i].bytes;
    if (end > file.plan_bytes) file.plan_bytes = end;
  }
  unsigned char *data;
  size_t bytes;
  assert_int_equal(gap__planfile_encode(&file, &data, &bytes), 0);
  plan_write_bytes(m, data, bytes);
  free(data);
}

void plan_remove(const struct plan_maker *m) { unlink(m->path); }

const char *plan_conf(const struct plan_maker *m, const char *rest) {
  static char text[256];
  snprintf(text, sizeof text, "%s%splan:%s", rest, *rest ? "," : "", m->path);
  return text;
}
