/* Plans that a heap follows, on real bytes: bytes make requests, of which a plan is made, or one that is wrong somewhere; then the program
 * asks more or less for that.  Promised: a plan is refused with a reason or followed; blocks never overlap and keep their
 * contents whatever the program does, the checker finds nothing, and in the end everything goes back. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/planfile.h"
#include "contents.h"
#include "core/follow.h"
#include "core/heap.h"
#include "fuzz.h"

#define MIB ((uint64_t)1 << 20)
enum { REQUESTS = 24, STREAMS = 3, PERIODS = 3 };

struct slot {
  gap_addr addr;
  uint64_t bytes, pattern;
  gap_stream stream;
};

struct play {
  const uint8_t *data;
  size_t left;
  struct gap__plan_entry entries[REQUESTS];
  uint32_t count, moments;
  gap_heap *heap;
  struct gap__dev *dev;
  uint64_t patterns;
  struct slot slots[REQUESTS], late;
};

static uint8_t byte(struct play *p) {
  if (!p->left) return 0;
  p->left--;
  return *p->data++;
}

static gap_stream stream_of(uint32_t index) { return (gap_stream)(index + 1) * 1024; }

/* ---- the plan ---- */

/* 512 B to 128 KiB, or whole pages. */
static uint64_t size(struct play *p) {
  uint8_t how = byte(p);
  return how >= 224 ? (how % 4 + 1u) * GAP__PAGE : (how % 16 + 1u) << (9 + how / 32);
}

static bool in_the_way(const struct gap__plan_entry *a, const struct gap__plan_entry *b) {
  return a->from < b->to && b->from < a->to && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static void place(struct play *p, uint32_t index) {
  struct gap__plan_entry *entry = &p->entries[index];
  entry->offset = 0;
  for (uint32_t i = 0; i < index;) {
    bool blocked = in_the_way(entry, &p->entries[i]);
    if (blocked) entry->offset = p->entries[i].offset + p->entries[i].bytes;
    i = blocked ? 0 : i + 1;
  }
}

/* An odd byte frees an older request first. */
static void make_requests(struct play *p) {
  uint32_t wanted = 1 + byte(p) % REQUESTS;
  while (p->count < wanted) {
    uint8_t how = byte(p);
    struct gap__plan_entry *older = p->count ? &p->entries[how / 2 % p->count] : NULL;
    if (how % 2 && older && !older->to) older->to = p->moments++;
    p->entries[p->count++] =
        (struct gap__plan_entry){.bytes = size(p), .align = 512, .stream = how / 64 % STREAMS, .from = p->moments++};
  }
  for (uint32_t i = 0; i < p->count; i++)
    if (!p->entries[i].to) p->entries[i].to = p->moments++;
  for (uint32_t i = 0; i < p->count; i++) place(p, i);
}

/* One entry is moved, made longer or given another stream: it may be in another's way then. */
static void spoil(struct play *p) {
  struct gap__plan_entry *entry = &p->entries[byte(p) % p->count];
  switch (byte(p) % 5) {
    case 0: entry->offset = (uint64_t)byte(p) << (byte(p) % 56); break;
    case 1: entry->bytes = (uint64_t)byte(p) << (byte(p) % 56); break;
    case 2: entry->stream = byte(p); break;
    case 3: entry->to += byte(p); break;
    default: entry->offset += 8; break;
  }
}

static int write_plan(const struct play *p) {
  uint64_t streams[STREAMS] = {7, 8, 9};
  struct gap__planfile file = {.at = (struct gap__plan_entry *)(uintptr_t)p->entries,
                               .count = p->count,
                               .moments = p->moments,
                               .streams = streams,
                               .stream_count = STREAMS};
  unsigned char *data;
  size_t bytes;
  for (uint32_t i = 0; i < p->count; i++) {
    uint64_t end = p->entries[i].offset + p->entries[i].bytes;
    file.total_bytes += p->entries[i].bytes;
    if (end > file.plan_bytes) file.plan_bytes = end;
  }
  int fd = memfd_create("plan", MFD_CLOEXEC);
  FUZZ_CHECK(gap__planfile_encode(&file, &data, &bytes) == 0);
  FUZZ_CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
  free(data);
  return fd;
}

static void load_alone(const char *path, bool must_work) {
  struct gap__plan *plan;
  struct gap__text why = {0};
  int rc = gap__plan_load(path, &plan, &why);
  FUZZ_CHECK(rc == 0 || (!must_work && why.length > 0));
  FUZZ_CHECK((rc == 0) == (plan != NULL));
  gap__plan_unload(plan);
  gap__text_free(&why);
}

/* ---- a program ---- */

static bool meet(const struct slot *a, const struct slot *b) {
  return a != b && a->addr && b->addr && a->addr < b->addr + b->bytes && b->addr < a->addr + a->bytes;
}

static void get(struct play *p, struct slot *s, gap_stream stream, uint64_t bytes) {
  *s = (struct slot){.bytes = bytes, .stream = stream, .pattern = ++p->patterns * 0x9E3779B97F4A7C15ull};
  int rc = gap__heap_alloc(p->heap, 0, stream, (gap_pool_id){0, 0}, bytes, &s->addr);
  FUZZ_CHECK(rc == 0 || rc == GAP_ENOMEM);
  if (rc) s->addr = 0;
  if (rc) return;
  for (int i = 0; i < REQUESTS; i++) FUZZ_CHECK(!meet(s, &p->slots[i]));
  FUZZ_CHECK(!meet(s, &p->late));
  FUZZ_CHECK(each_word(gap__host_fill, p->dev, s->addr, s->bytes, s->pattern, stream) == 0);
}

static void give(struct play *p, struct slot *s) {
  if (!s->addr) return;
  FUZZ_CHECK(each_word(gap__host_expect, p->dev, s->addr, s->bytes, s->pattern, s->stream) == 0);
  FUZZ_CHECK(gap__heap_free(p->heap, s->addr) == 0);
  s->addr = 0;
}

static void check(struct play *p) {
  char text[300];
  int rc = gap__heap_check(p->heap, 0, text, sizeof text);
  if (rc) fprintf(stderr, "checker: %s\n", text);
  FUZZ_CHECK(rc == 0);
}

/* 0, which comes when the bytes are used up: as planned. */
static void request(struct play *p, uint32_t i) {
  const struct gap__plan_entry *entry = &p->entries[i];
  uint8_t how = byte(p);
  uint64_t returned;
  if (how == 1) return;
  if (how == 2 || how == 3) give(p, &p->late);
  if (how == 2) get(p, &p->late, stream_of(entry->stream), 3000);
  if (how == 3) get(p, &p->late, stream_of(2), 3 * MIB);
  if (how == 4) FUZZ_CHECK(gap__heap_trim(p->heap, 0, (gap_pool_id){0, 0}, &returned) == 0);
  if (how == 5) FUZZ_CHECK(gap__heap_set_cap(p->heap, 0, (1 + byte(p)) * MIB) == 0);
  if (how == 6) FUZZ_CHECK(gap__heap_record_stream(p->heap, p->late.addr, stream_of(1)) == 0);
  if (how >= 8 && how < 40) gap__host_run(p->dev, stream_of(how % STREAMS), how / 8u);
  uint64_t bytes = how == 7 ? entry->bytes + 512 : how == 40 ? entry->bytes / 2 + 8 : entry->bytes;
  get(p, &p->slots[i], stream_of(how == 41 ? 1 : entry->stream), bytes);
}

static void period(struct play *p) {
  uint32_t next = 0;
  for (uint32_t moment = 0; moment < p->moments; moment++) {
    if (next < p->count && p->entries[next].from == moment) request(p, next++);
    else
      for (uint32_t i = 0; i < p->count; i++)
        if (p->entries[i].to == moment) give(p, &p->slots[i]);
  }
  for (uint32_t i = 0; i < p->count; i++) give(p, &p->slots[i]);
  check(p);
}

static void play(struct play *p, const char *path) {
  struct gap__conf_set *set = gap__conf_new();
  char conf[80];
  struct gap__host_params host = {.total_bytes = 64 * MIB, .window_max_bytes = 64 * MIB, .manual = true};
  struct gap__heap_params params = {.devs = &p->dev, .dev_count = 1};
  snprintf(conf, sizeof conf, "reserve:0,plan:%s", path);
  FUZZ_CHECK(set && gap__conf_apply(set, GAP__CONF_RUNTIME, "fuzz", conf, NULL) == 0);
  params.conf = gap__conf_values(set);
  FUZZ_CHECK(gap__host_create(0, &host, &p->dev) == 0 && gap__heap_create(&params, &p->heap) == 0);
  gap__conf_free(set);
  for (int i = 0; i < PERIODS; i++) period(p);
  give(p, &p->late);
  gap__host_run_all(p->dev);
  check(p);
  FUZZ_CHECK(gap__host_faults(p->dev) == 0);
  gap__heap_destroy(p->heap);
}

/* The plan is spoilt after the program has been made: what is asked for does not change. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static struct play p, wrong;
  char path[40];
  p = (struct play){.data = data, .left = bytes};
  make_requests(&p);
  wrong = p;
  bool spoilt = byte(&p) % 4 == 3;
  if (spoilt) spoil(&wrong);
  int fd = write_plan(&wrong);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  load_alone(path, !spoilt);
  play(&p, path);
  close(fd);
  return 0;
}
