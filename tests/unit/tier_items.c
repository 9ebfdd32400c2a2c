/* Items: byte strings that leave the device and come back, to host memory and to the disk: bytes, order, room, and what goes wrong. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "dev/cuda/cuda.h"
#include "support/fake_cuda.h"
#include "support/tier_try.h"

#define CARD (256 * MIB)
#define QUIET "page_maker:False,reserve:0"
enum { SPANS = 5, THREADS = 4 };

static const uint64_t sizes[SPANS] = {5 * MIB, 512, 3 * MIB + 1000, 40, 9 * MIB};

static char folder[] = "/tmp/tier_items.XXXXXX", with_disk[80], disk_alone[80];

static int make_folder(void **state) {
  (void)state;
  if (!mkdtemp(folder)) return -1;
  snprintf(with_disk, sizeof with_disk, "host=64M,disk=%s:100M", folder);
  snprintf(disk_alone, sizeof disk_alone, "disk=%s:100M", folder);
  return 0;
}
static int remove_folder(void **state) {
  (void)state;
  return rmdir(folder);
}

struct strings {
  gap_span spans[SPANS];
  uint64_t bytes;
};

static struct strings get_strings(struct tier_try *s, uint64_t seed) {
  struct strings out = {.bytes = 0};
  for (unsigned i = 0; i < SPANS; i++) {
    out.spans[i] = (gap_span){try_get(&s->t, STREAM_A, sizes[i]), sizes[i]};
    tier_try_fill(out.spans[i].addr, sizes[i], seed + i);
    out.bytes += sizes[i];
  }
  return out;
}
static void wipe(const struct strings *x) {
  for (unsigned i = 0; i < SPANS; i++) memset((void *)(uintptr_t)x->spans[i].addr, 0xEE, x->spans[i].bytes);
}
static bool holds(const struct strings *x, uint64_t seed) {
  bool all = true;
  for (unsigned i = 0; i < SPANS; i++) all &= tier_try_filled(x->spans[i].addr, sizes[i], seed + i);
  return all;
}
static void give_strings(struct tier_try *s, struct strings *x) {
  for (unsigned i = 0; i < SPANS; i++) try_give(&s->t, x->spans[i].addr);
}

static int put(struct tier_try *s, const struct strings *x, unsigned flags, gap_item *item) {
  return gap__tier_put(s->tier, 0, x->spans, SPANS, STREAM_A, flags, item);
}
static int get(struct tier_try *s, const struct strings *x, gap_item item) {
  return gap__tier_get(s->tier, 0, item, 0, x->spans, SPANS, STREAM_B);
}
static int join(struct tier_try *s, gap_item item) { return gap__tier_join(s->tier, 0, item, STREAM_B); }
static gap_item_info look(struct tier_try *s, gap_item item) {
  gap_item_info info = {.size = sizeof info};
  assert_int_equal(gap__tier_look(s->tier, 0, item, &info), 0);
  return info;
}
static void drop(struct tier_try *s, gap_item item) { assert_int_equal(gap__tier_drop(s->tier, 0, item), 0); }

/* What was dropped goes when nothing of it is under way. */
static void nothing_used(struct tier_try *s) {
  gap_tiers now = tier_try_figures(s);
  for (int i = 0; i < 5000 && (now.host_used_bytes || now.disk_used_bytes); i++) {
    usleep(1000);
    now = tier_try_figures(s);
  }
  assert_true(now.host_used_bytes == 0 && now.disk_used_bytes == 0);
}

/* Out, over other bytes, and back; a second time; both pieces and spans end in the middle of each other. */
static void round_trip(const char *tiers, unsigned flags, bool disk) {
  struct tier_try s = tier_try_open(CARD, QUIET, tiers);
  struct strings x = get_strings(&s, 7);
  gap_item item;
  assert_int_equal(put(&s, &x, flags, &item), 0);
  assert_int_equal(join(&s, item), 0);
  wipe(&x);
  for (int round = 0; round < 2; round++) {
    assert_int_equal(get(&s, &x, item), 0);
    assert_int_equal(join(&s, item), 0);
    assert_int_equal(gap__tier_wait(s.tier, 0, item), 0);
    assert_true(holds(&x, 7));
    wipe(&x);
  }
  gap_item_info info = look(&s, item);
  assert_true(info.bytes == x.bytes && info.host_bytes == (disk ? 0 : 18 * MIB) &&
              info.disk_bytes == (disk ? 18 * MIB : 0));
  assert_true(!info.busy && !info.error);
  drop(&s, item);
  assert_int_equal(gap__tier_drop(s.tier, 0, item), GAP_EINVAL);
  nothing_used(&s);
  give_strings(&s, &x);
  assert_int_equal(gap__host_faults(s.t.dev), 0);
  tier_try_close(&s);
}
static void in_host_memory(void **state) {
  (void)state;
  round_trip("", 0, false);
}
static void on_disk(void **state) {
  (void)state;
  round_trip(with_disk, GAP_PUT_DISK, true);
}
static void on_disk_alone(void **state) {
  (void)state;
  round_trip(disk_alone, 0, true);
  round_trip(disk_alone, GAP_PUT_HOST, false);
}

/* Any part, cut in any way. */
static void parts(const char *tiers, unsigned flags) {
  struct tier_try s = tier_try_open(CARD, QUIET, tiers);
  const uint64_t bytes = 41 * MIB;
  gap_addr from = try_get(&s.t, STREAM_A, bytes), to = try_get(&s.t, STREAM_A, bytes);
  uint64_t random = 3;
  gap_item item;
  tier_try_fill(from, bytes, 5);
  assert_int_equal(gap__tier_put(s.tier, 0, &(gap_span){from, bytes}, 1, STREAM_A, flags, &item), 0);
  for (int i = 0; i < 30; i++) {
    uint64_t begin = try_random(&random, bytes), most = bytes - begin, first = 1 + try_random(&random, most),
             second = most - first ? 1 + try_random(&random, most - first) : 0;
    gap_span spans[2] = {{to + begin, first}, {to, second}}; /* what lies in front is used for the second */
    if (second > begin) second = 0;
    spans[1].bytes = second;
    memset((void *)(uintptr_t)to, 0, bytes);
    assert_int_equal(gap__tier_get(s.tier, 0, item, begin, spans, second ? 2 : 1, STREAM_A), 0);
    assert_int_equal(gap__tier_wait(s.tier, 0, item), 0);
    assert_memory_equal((void *)(uintptr_t)(to + begin), (void *)(uintptr_t)(from + begin), first);
    assert_memory_equal((void *)(uintptr_t)to, (void *)(uintptr_t)(from + begin + first), second);
  }
  drop(&s, item);
  nothing_used(&s);
  try_give(&s.t, from);
  try_give(&s.t, to);
  tier_try_close(&s);
}
static void parts_of_host_memory(void **state) {
  (void)state;
  parts("", 0);
}
static void parts_of_the_disk(void **state) {
  (void)state;
  parts(with_disk, GAP_PUT_DISK);
}

static void arguments(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, "");
  struct strings x = get_strings(&s, 1);
  gap_item item = 5, none = 0;
  gap_item_info info = {.size = 3};
  assert_int_equal(gap__tier_put(s.tier, 0, x.spans, 0, STREAM_A, 0, &item), GAP_EINVAL);
  assert_true(tier_try_said(&s, "put: no spans were given"));
  assert_int_equal(gap__tier_put(s.tier, 0, &(gap_span){x.spans[0].addr, 0}, 1, STREAM_A, 0, &item), GAP_EINVAL);
  assert_int_equal(gap__tier_put(s.tier, 0, &(gap_span){x.spans[0].addr, UINT64_MAX}, 1, STREAM_A, 0, &item),
                   GAP_EINVAL);
  assert_true(tier_try_said(&s, "put: a span has no address or no bytes"));
  assert_int_equal(gap__tier_put(s.tier, 1, x.spans, SPANS, STREAM_A, 0, &item), GAP_EINVAL);
  assert_int_equal(put(&s, &x, 3, &item), GAP_EINVAL);
  assert_true(tier_try_said(&s, "put: it goes to host memory or to the disk"));
  assert_int_equal(put(&s, &x, GAP_PUT_DISK, &item), GAP_ELIMIT);
  assert_true(tier_try_said(&s, "there is no disk in tiers"));
  assert_int_equal(item, 5);
  assert_int_equal(get(&s, &x, none), GAP_EINVAL);
  assert_true(tier_try_said(&s, "get: there is no such item"));
  assert_int_equal(join(&s, 77), GAP_EINVAL);
  assert_true(tier_try_said(&s, "join: there is no such item"));
  assert_int_equal(put(&s, &x, 0, &item), 0);
  assert_int_equal(gap__tier_get(s.tier, 0, item, 1, x.spans, SPANS, STREAM_A), GAP_EINVAL); /* beyond its end */
  assert_true(tier_try_said(&s, "from 1 on were asked for"));
  assert_int_equal(gap__tier_get(s.tier, 0, item, UINT64_MAX, x.spans, 1, STREAM_A), GAP_EINVAL);
  assert_int_equal(gap__tier_look(s.tier, 0, item, &info), GAP_EINVAL);
  assert_int_equal(gap__tier_put(s.tier, 0, &(gap_span){4096, 4096}, 1, STREAM_A, 0, &none), GAP_EINVAL);
  assert_true(tier_try_said(&s, "put: a span is no memory that the device reaches, or it sleeps"));
  gap__host_stream_capture(s.t.dev, STREAM_B, true);
  assert_int_equal(get(&s, &x, item), GAP_ESTATE);
  assert_int_equal(join(&s, item), GAP_ESTATE);
  assert_true(tier_try_said(&s, "join: the stream captures a graph"));
  assert_int_equal(gap__tier_put(s.tier, 0, x.spans, SPANS, STREAM_B, 0, &none), GAP_ESTATE);
  assert_true(tier_try_said(&s, "captures"));
  gap__host_stream_capture(s.t.dev, STREAM_B, false);
  drop(&s, item);
  give_strings(&s, &x);
  nothing_used(&s);
  tier_try_close(&s);
}

/* Behind what the stream was given, not before: the device has not begun with the fill when the put is asked for. */
static void in_stream_order(void **state) {
  (void)state;
  struct tier_try s =
      tier_try_on(try_host(&(struct gap__host_params){.total_bytes = CARD, .manual = true}, QUIET, GAP__MAKER_OFF), "");
  gap_addr a = try_get(&s.t, STREAM_A, 4 * MIB), b = try_get(&s.t, STREAM_A, 4 * MIB);
  gap_item item;
  assert_int_equal(gap__host_fill(s.t.dev, a, 4 * MIB, 17, STREAM_A), 0);
  assert_int_equal(gap__tier_put(s.tier, 0, &(gap_span){a, 4 * MIB}, 1, STREAM_A, 0, &item), 0);
  assert_int_equal(gap__tier_join(s.tier, 0, item, STREAM_A), 0);
  assert_int_equal(gap__host_fill(s.t.dev, a, 4 * MIB, 18, STREAM_A), 0); /* allowed by the join */
  assert_int_equal(gap__host_fill(s.t.dev, b, 4 * MIB, 19, STREAM_A), 0);
  assert_int_equal(gap__tier_get(s.tier, 0, item, 0, &(gap_span){b, 4 * MIB}, 1, STREAM_A), 0);
  assert_int_equal(gap__tier_join(s.tier, 0, item, STREAM_B), 0);
  assert_int_equal(gap__host_expect(s.t.dev, b, 4 * MIB, 17, STREAM_B), 0);
  drop(&s, item);
  gap__host_run_all(s.t.dev);
  assert_int_equal(gap__host_expect(s.t.dev, a, 4 * MIB, 18, STREAM_A), 0);
  gap__host_run_all(s.t.dev);
  assert_int_equal(gap__host_faults(s.t.dev), 0);
  nothing_used(&s);
  try_give(&s.t, a);
  try_give(&s.t, b);
  gap__host_run_all(s.t.dev);
  tier_try_close(&s);
}

/* The same calls by the driver's interface, on the legacy stream and on one of its own. */
static void through_the_driver(void **state) {
  (void)state;
  struct gap__dev *dev;
  fake_cuda_reset(&(struct fake_cuda_settings){.total_bytes = 256 * MIB});
  assert_int_equal(gap__cuda_create(0, &(struct gap__cuda_params){.driver = GAP_TEST_FAKE_CUDA}, &dev), 0);
  struct tier_try s = tier_try_on(try_on(dev, QUIET, GAP__MAKER_OFF), with_disk);
  gap_stream streams[2] = {0};
  assert_int_equal(gap__dev_stream_create(dev, &streams[1]), 0);
  gap_addr from = try_get(&s.t, 0, 9 * MIB), to = try_get(&s.t, 0, 9 * MIB);
  tier_try_fill(from, 9 * MIB, 3);
  for (unsigned i = 0; i < 4; i++) {
    gap_item item;
    gap_stream out = streams[i % 2], in = streams[1 - i % 2];
    unsigned flags = i < 2 ? 0 : GAP_PUT_DISK;
    memset((void *)(uintptr_t)to, 0, 9 * MIB);
    assert_int_equal(gap__tier_put(s.tier, 0, &(gap_span){from, 9 * MIB}, 1, out, flags, &item), 0);
    assert_int_equal(gap__tier_join(s.tier, 0, item, out), 0);
    assert_int_equal(gap__tier_get(s.tier, 0, item, 0, &(gap_span){to, 9 * MIB}, 1, in), 0);
    assert_int_equal(gap__tier_join(s.tier, 0, item, in), 0);
    assert_int_equal(gap__tier_wait(s.tier, 0, item), 0);
    assert_true(tier_try_filled(to, 9 * MIB, 3));
    drop(&s, item);
  }
  nothing_used(&s);
  try_give(&s.t, from);
  try_give(&s.t, to);
  assert_int_equal(gap__dev_stream_destroy(dev, streams[1]), 0);
  tier_try_close(&s);
  assert_int_equal(fake_cuda_wrong(), 0);
}

/* ---- room ---- */

/* Host memory first, then the disk, then no more: in words, and all that was put is there. */
static void until_full(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, with_disk);
  struct strings x = get_strings(&s, 0);
  gap_item items[16];
  unsigned count = 0;
  while (put(&s, &x, 0, &items[count]) == 0) count++;
  assert_int_equal(count, 6); /* one of 64 - 32 MiB of host memory, five of 100 MiB of the disk */
  assert_true(look(&s, items[0]).host_bytes && look(&s, items[1]).disk_bytes);
  assert_true(tier_try_said(&s, "100.0 MiB that tiers allows are in use") ||
              tier_try_said(&s, "100 MiB that tiers allows"));
  assert_int_equal(put(&s, &x, GAP_PUT_HOST, &items[count]), GAP_ELIMIT);
  assert_true(tier_try_said(&s, "the limit is that of tiers"));
  for (unsigned i = 0; i < count; i++) assert_int_equal(gap__tier_wait(s.tier, 0, items[i]), 0);
  for (unsigned i = 0; i < count; i++) {
    wipe(&x);
    assert_int_equal(get(&s, &x, items[i]), 0);
    assert_int_equal(gap__tier_wait(s.tier, 0, items[i]), 0);
    assert_true(holds(&x, 0));
    drop(&s, items[i]);
  }
  nothing_used(&s);
  give_strings(&s, &x);
  tier_try_close(&s);
}

/* What was dropped and is still on its way back is waited for, since there is no other room. */
static void waits_for_what_leaves(void **state) {
  (void)state;
  struct tier_try s = tier_try_on(
      try_host(&(struct gap__host_params){.total_bytes = CARD, .manual = true}, QUIET, GAP__MAKER_OFF), "host=8M");
  gap_addr a = try_get(&s.t, STREAM_A, 8 * MIB);
  gap_item item;
  for (unsigned i = 0; i < 5; i++) {
    assert_int_equal(gap__host_fill(s.t.dev, a, 8 * MIB, 100 + i, STREAM_A), 0);
    assert_int_equal(gap__tier_put(s.tier, 0, &(gap_span){a, 8 * MIB}, 1, STREAM_A, 0, &item), 0);
    assert_int_equal(gap__tier_join(s.tier, 0, item, STREAM_A), 0);
    assert_int_equal(gap__host_fill(s.t.dev, a, 8 * MIB, 9, STREAM_A), 0);
    assert_int_equal(gap__tier_get(s.tier, 0, item, 0, &(gap_span){a, 8 * MIB}, 1, STREAM_A), 0);
    assert_int_equal(gap__tier_join(s.tier, 0, item, STREAM_A), 0);
    assert_int_equal(gap__host_expect(s.t.dev, a, 8 * MIB, 100 + i, STREAM_A), 0);
    drop(&s, item);
  }
  gap__host_run_all(s.t.dev);
  assert_int_equal(gap__host_faults(s.t.dev), 0);
  nothing_used(&s);
  try_give(&s.t, a);
  gap__host_run_all(s.t.dev);
  tier_try_close(&s);
}

static void waits_for_what_leaves_the_disk(void **state) {
  (void)state;
  char small[64];
  snprintf(small, sizeof small, "disk=%s:20M", folder);
  struct tier_try s = tier_try_open(CARD, QUIET, small);
  struct strings x = get_strings(&s, 3);
  for (unsigned i = 0; i < 10; i++) {
    gap_item item;
    assert_int_equal(put(&s, &x, 0, &item), 0);
    drop(&s, item);
  }
  nothing_used(&s);
  give_strings(&s, &x);
  tier_try_close(&s);
}

/* A pool that falls asleep finds the room of what was dropped before, though its copies are to come. */
static void a_sleep_behind_what_leaves(void **state) {
  (void)state;
  struct tier_try s = tier_try_on(
      try_host(&(struct gap__host_params){.total_bytes = CARD, .manual = true}, QUIET, GAP__MAKER_OFF), "host=16M");
  gap_pool_id pool = tier_try_pool(&s, GAP_POOL_SHARED, "weights");
  gap_addr a = try_get(&s.t, STREAM_A, 8 * MIB), w = try_get_pool(&s.t, STREAM_A, pool, 12 * MIB);
  gap_item item;
  tier_try_fill(w, 12 * MIB, 1);
  for (unsigned i = 0; i < 2; i++) {
    assert_int_equal(gap__tier_put(s.tier, 0, &(gap_span){a, 8 * MIB}, 1, STREAM_A, 0, &item), 0);
    assert_int_equal(gap__tier_get(s.tier, 0, item, 0, &(gap_span){a, 8 * MIB}, 1, STREAM_A), 0);
    assert_int_equal(gap__tier_join(s.tier, 0, item, STREAM_A), 0);
    drop(&s, item);
    assert_int_equal(tier_try_sleep(&s, "weights", 0), 0);
    assert_int_equal(tier_try_wake(&s, "weights", 0), 0);
    assert_true(tier_try_filled(w, 12 * MIB, 1));
  }
  try_give(&s.t, a);
  try_give(&s.t, w);
  gap__host_run_all(s.t.dev);
  tier_try_close(&s);
}

/* ---- what is noticed ---- */

static struct tier_item *record(struct tier_try *s, gap_item item) {
  return gap__slab_at(&s->tier->devices[0].items.records, (uint32_t)item);
}

static void damage(struct tier_try *s, gap_item item, unsigned piece) {
  const struct gap__piece *p = &record(s, item)->kept.pieces[piece];
  if (p->host) {
    p->host[12345] ^= 4;
    return;
  }
  unsigned char *block = aligned_alloc(4096, 4096);
  assert_non_null(block);
  off_t where = (off_t)(p->disk * GAP__DISK_UNIT + 8192);
  assert_int_equal(pread(s->tier->devices[0].disk.file, block, 4096, where), 4096);
  block[99] ^= 1;
  assert_int_equal(pwrite(s->tier->devices[0].disk.file, block, 4096, where), 4096);
  free(block);
}

static void corrupted(const char *tiers, unsigned flags, unsigned piece) {
  struct tier_try s = tier_try_open(CARD, QUIET, tiers);
  struct strings x = get_strings(&s, 3);
  gap_item item, other;
  assert_int_equal(put(&s, &x, flags, &item), 0);
  assert_int_equal(put(&s, &x, flags, &other), 0);
  assert_int_equal(gap__tier_wait(s.tier, 0, item), 0);
  damage(&s, item, piece);
  assert_int_equal(get(&s, &x, item), 0);
  assert_int_equal(join(&s, item), GAP_EIO);
  assert_true(tier_try_said(&s, "checksum"));
  damage(&s, item, piece); /* repairs it */
  assert_int_equal(get(&s, &x, item), 0);
  assert_int_equal(gap__tier_wait(s.tier, 0, item), 0);
  assert_int_equal(get(&s, &x, other), 0);
  assert_int_equal(gap__tier_wait(s.tier, 0, other), 0);
  assert_true(holds(&x, 3));
  drop(&s, item);
  drop(&s, other);
  nothing_used(&s);
  give_strings(&s, &x);
  tier_try_close(&s);
}
static void corrupted_in_host_memory(void **state) {
  (void)state;
  corrupted("", 0, 0);
  corrupted("", 0, 1);
}
static void corrupted_on_disk(void **state) {
  (void)state;
  corrupted(disk_alone, 0, 2);
}

/* A file that can no longer be written: told by the join, and the bytes are where they were. */
static void unwritable(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, disk_alone);
  struct strings x = get_strings(&s, 3);
  gap_item item, lost;
  assert_int_equal(put(&s, &x, 0, &item), 0);
  assert_int_equal(gap__tier_wait(s.tier, 0, item), 0);
  int file = dup(s.tier->devices[0].disk.file), other = open("/dev/null", O_RDONLY);
  assert_true(dup2(other, s.tier->devices[0].disk.file) >= 0);
  int rc = put(&s, &x, 0, &lost);
  if (!rc) {
    assert_int_equal(join(&s, lost), GAP_EIO);
    assert_int_equal(join(&s, lost), GAP_EIO); /* for good */
    assert_int_equal(get(&s, &x, lost), 0);
    assert_int_equal(join(&s, lost), GAP_EIO);
    drop(&s, lost);
  } else {
    assert_int_equal(rc, GAP_EIO);
  }
  assert_true(holds(&x, 3));
  assert_true(dup2(file, s.tier->devices[0].disk.file) >= 0);
  close(file);
  close(other);
  wipe(&x);
  assert_int_equal(get(&s, &x, item), 0);
  assert_int_equal(gap__tier_wait(s.tier, 0, item), 0);
  assert_true(holds(&x, 3));
  drop(&s, item);
  give_strings(&s, &x);
  tier_try_close(&s);
}

/* ---- several threads, and an end in the middle ---- */

struct worker {
  struct tier_try *s;
  struct strings x;
  uint64_t seed;
  unsigned wrong;
};

static void *go_round(void *arg) {
  struct worker *w = arg;
  gap_stream stream = 4096 + 8 * w->seed;
  for (uint64_t i = 0; i < 12; i++) {
    gap_item item;
    for (unsigned k = 0; k < SPANS; k++) tier_try_fill(w->x.spans[k].addr, sizes[k], w->seed + i + k);
    if (gap__tier_put(w->s->tier, 0, w->x.spans, SPANS, stream, i % 3 ? 0 : GAP_PUT_DISK, &item)) {
      w->wrong++;
      continue;
    }
    w->wrong += i % 2 && gap__tier_join(w->s->tier, 0, item, stream) != 0;
    w->wrong += !(i % 2) && gap__tier_wait(w->s->tier, 0, item) != 0;
    if (!(i % 2)) wipe(&w->x);
    w->wrong += gap__tier_get(w->s->tier, 0, item, 0, w->x.spans, SPANS, stream) != 0;
    w->wrong += gap__tier_wait(w->s->tier, 0, item) != 0;
    w->wrong += !holds(&w->x, w->seed + i);
    w->wrong += gap__tier_drop(w->s->tier, 0, item) != 0;
  }
  return NULL;
}

static void threads(void **state) {
  (void)state;
  char tiers[80];
  snprintf(tiers, sizeof tiers, "host=96M,disk=%s:100M", folder);
  struct tier_try s = tier_try_open(CARD, QUIET, tiers);
  struct worker workers[THREADS];
  pthread_t ids[THREADS];
  for (unsigned i = 0; i < THREADS; i++) workers[i] = (struct worker){&s, get_strings(&s, i), 1000 * i, 0};
  for (unsigned i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&ids[i], NULL, go_round, &workers[i]), 0);
  for (unsigned i = 0; i < THREADS; i++) {
    pthread_join(ids[i], NULL);
    assert_int_equal(workers[i].wrong, 0);
    give_strings(&s, &workers[i].x);
  }
  nothing_used(&s);
  assert_int_equal(gap__host_faults(s.t.dev), 0);
  tier_try_close(&s);
}

static void ends_with_items(void **state) {
  (void)state;
  struct tier_try s = tier_try_open(CARD, QUIET, with_disk);
  struct strings x = get_strings(&s, 3);
  gap_item item;
  assert_int_equal(put(&s, &x, 0, &item), 0);
  assert_int_equal(get(&s, &x, item), 0);
  assert_int_equal(put(&s, &x, GAP_PUT_DISK, &item), 0);
  assert_int_equal(get(&s, &x, item), 0);
  drop(&s, item);
  tier_try_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(in_host_memory),
      cmocka_unit_test(on_disk),
      cmocka_unit_test(on_disk_alone),
      cmocka_unit_test(parts_of_host_memory),
      cmocka_unit_test(parts_of_the_disk),
      cmocka_unit_test(arguments),
      cmocka_unit_test(in_stream_order),
      cmocka_unit_test(through_the_driver),
      cmocka_unit_test(until_full),
      cmocka_unit_test(waits_for_what_leaves),
      cmocka_unit_test(waits_for_what_leaves_the_disk),
      cmocka_unit_test(a_sleep_behind_what_leaves),
      cmocka_unit_test(corrupted_in_host_memory),
      cmocka_unit_test(corrupted_on_disk),
      cmocka_unit_test(unwritable),
      cmocka_unit_test(threads),
      cmocka_unit_test(ends_with_items),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
