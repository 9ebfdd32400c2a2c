/* KV pages in host memory and on the disk: what was evicted comes up as it was, what does not pay stays below. */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include "support/kv_below_try.h"

static const char *folder_of_disk(void) {
  static char folder[] = "/tmp/gapless-kv-XXXXXX";
  static bool made;
  if (!made) assert_non_null(mkdtemp(folder));
  made = true;
  return folder;
}

static void remove_folder(void) { rmdir(folder_of_disk()); }

static const char *tiers_with(const char *host, const char *disk) {
  static char text[400];
  int n = snprintf(text, sizeof text, "tiers:[%s", host ? "host=" : "");
  if (host) n += snprintf(text + n, sizeof text - (size_t)n, "%s%s", host, disk ? "," : "");
  if (disk) n += snprintf(text + n, sizeof text - (size_t)n, "disk=%s:%s", folder_of_disk(), disk);
  snprintf(text + n, sizeof text - (size_t)n, "]");
  return text;
}

static struct below_try open_with(const char *host, const char *disk, const gap_kv_options *shape) {
  gap_kv_tiers_options o = below_options(NULL);
  return below_open(tiers_with(host, disk), shape, &o);
}

/* Serves more prompts than the device holds, then again: all of each comes up, but for what has no place. */
static void serve_twice(struct below_try *t, int kinds, uint32_t tokens) {
  for (int kind = 0; kind < kinds; kind++) {
    assert_int_equal(below_serve(t, kind, tokens), 0);
    below_drain(t);
  }
  assert_true(kv_try_stats(t->kv).evicted > 0);
  for (int kind = 0; kind < kinds; kind++) {
    uint32_t there = below_fetch(t, kind, tokens);
    assert_int_equal(there, tokens / 16 * 16);
    assert_true(below_serve(t, kind, tokens) >= there);
    below_drain(t);
  }
}

static void from_host_memory(void **state) {
  (void)state;
  gap_kv_options shape = below_shape(61);
  struct below_try t = open_with("128M", NULL, &shape);
  serve_twice(&t, 8, 200);
  gap_kv_tier_stats s = below_stats(&t);
  assert_true(s.host_stored >= 8 * 12 - 60 && s.host_stored <= 8 * 12);
  assert_int_equal(s.host_held, s.host_stored);
  assert_true(s.host_fetched >= 8 * 12 - 60);
  assert_int_equal(s.lost + s.dropped + s.not_stored + s.disk_stored + s.host_refused, 0);
  below_close(&t);
}

static void from_the_disk(void **state) {
  (void)state;
  gap_kv_options shape = below_shape(61);
  struct below_try t = open_with(NULL, "200M", &shape);
  serve_twice(&t, 8, 200);
  gap_kv_tier_stats s = below_stats(&t);
  assert_true(s.disk_stored >= 8 * 12 - 60);
  assert_true(s.disk_fetched >= 8 * 12 - 60);
  assert_int_equal(s.lost + s.dropped + s.not_stored + s.host_stored, 0);
  below_close(&t);
}

/* Host memory has a part only, of which buffers take some: the oldest sink. */
static void through_host_memory_to_the_disk(void **state) {
  (void)state;
  gap_kv_options shape = below_shape(61);
  gap_kv_tiers_options o = below_options(NULL);
  o.host_bytes = 24 * MIB;
  struct below_try t = below_open(tiers_with("128M", "200M"), &shape, &o);
  serve_twice(&t, 16, 200);
  gap_kv_tier_stats s = below_stats(&t);
  assert_int_equal(s.host_held + s.disk_held, s.host_stored);
  assert_true(s.host_held <= 48 && s.disk_stored >= 16 * 12 - 48 - 60);
  assert_true(s.disk_fetched > 0);
  assert_int_equal(s.lost + s.dropped + s.not_stored, 0);
  below_close(&t);
}

/* What has no room in the last place is dropped, the oldest first; what there is of a prompt comes up to the first gap. */
static void more_than_all_places(void **state) {
  (void)state;
  gap_kv_options shape = below_shape(61);
  gap_kv_tiers_options o = below_options(NULL);
  o.host_bytes = 16 * MIB;
  struct below_try t = below_open(tiers_with("128M", NULL), &shape, &o);
  for (int kind = 0; kind < 8; kind++) {
    below_serve(&t, kind, 200);
    below_drain(&t);
  }
  gap_kv_tier_stats s = below_stats(&t);
  assert_true(s.dropped > 0 && s.host_held <= 32);
  uint32_t there = below_fetch(&t, 0, 200);
  assert_true(there < 192 && below_stats(&t).missed > 0);
  assert_int_equal(below_serve(&t, 0, 200), there);
  below_close(&t);
}

/* Slabs of many small KV pages, each in pieces layer by layer: many to a crate. */
static void small_pages_by_layer(void **state) {
  (void)state;
  gap_kv_options shape = kv_try_options(16, 64 * MIB);
  shape.heads = 4, shape.head_size = 64, shape.layers = 8, shape.sharing = GAP_KV_SHARING_SHA256;
  struct below_try t = open_with("128M", NULL, &shape);
  for (int kind = 0; kind < 2; kind++) below_serve(&t, kind, 3000);
  below_leave(&t);
  for (int kind = 0; kind < 2; kind++) {
    assert_int_equal(below_fetch(&t, kind, 3000), 2992);
    assert_true(below_serve(&t, kind, 3000) >= 2992);
  }
  assert_int_equal(below_stats(&t).lost, 0);
  below_close(&t);
}

static void groups_and_windows(void **state) {
  (void)state;
  static const uint32_t windows[] = {0, 40};
  gap_kv_options shape = below_shape(61);
  shape.group_count = 2, shape.windows = windows;
  struct below_try t = open_with("128M", NULL, &shape);
  below_serve(&t, 1, 300);
  below_leave(&t);
  assert_int_equal(below_fetch(&t, 1, 300), 288);
  uint64_t up = below_stats(&t).host_fetched;
  assert_true(up >= 18 + 2 && up < 36); /* of the group with the window its end only */
  assert_true(below_serve(&t, 1, 300) >= 288);
  below_close(&t);
}

/* The prefix on the device stays while its end comes up, though the device has no other room for it. */
static void the_prefix_stays(void **state) {
  (void)state;
  gap_kv_options shape = below_shape(61);
  struct below_try t = open_with("128M", NULL, &shape);
  below_serve(&t, 1, 304);
  below_drain(&t);
  for (int kind = 2; kind < 5; kind++) below_serve(&t, kind, 200); /* the end of the first goes */
  below_drain(&t);
  assert_int_equal(below_fetch(&t, 1, 304), 304);
  assert_int_equal(below_serve(&t, 1, 304), 304);
  below_close(&t);
}

/* Half of the device at most is brought up at once. */
static void longer_than_half(void **state) {
  (void)state;
  gap_kv_options shape = below_shape(61);
  struct below_try t = open_with("128M", NULL, &shape);
  below_serve(&t, 1, 600);
  below_leave(&t);
  assert_int_equal(below_fetch(&t, 1, 600), 30 * 16);
  assert_int_equal(below_stats(&t).no_room, 7);
  assert_int_equal(below_serve(&t, 1, 600), 30 * 16);
  below_close(&t);
}

/* ---- the planner ---- */

static struct below_try open_rated(const gap_kv_rates *rates) {
  gap_kv_options shape = below_shape(81);
  gap_kv_tiers_options o = below_options(NULL);
  o.rates = rates;
  struct below_try t = below_open(tiers_with("128M", NULL), &shape, &o);
  below_serve(&t, 1, 320);
  below_leave(&t);
  return t;
}

static void what_does_not_pay_stays_below(void **state) {
  (void)state;
  gap_kv_rates rates = {.size = sizeof rates, .host = {.latency_ns = 1000, .bytes_s = 100 * MIB}, .token_ns = 1000};
  struct below_try t = open_rated(&rates);
  assert_int_equal(below_fetch(&t, 1, 320), 0);
  assert_int_equal(below_stats(&t).host_refused, 20);
  assert_int_equal(below_stats(&t).host_fetched, 0);
  for (int i = 0; i < 100; i++)
    assert_int_equal(gap_kv_tell_computed(t.kv, 1000, 1000000000), 0); /* a slow processor */
  assert_int_equal(below_fetch(&t, 1, 320), 320);
  assert_int_equal(below_stats(&t).host_fetched, 20);
  assert_int_equal(below_serve(&t, 1, 320), 320);
  below_close(&t);
}

static void measured_here(void **state) {
  (void)state;
  gap_kv_options shape = below_shape(61);
  struct below_try t = open_with("64M", "64M", &shape);
  gap_kv_tier_stats s = below_stats(&t);
  assert_true(s.rates.host.bytes_s > MIB && s.rates.disk.bytes_s > MIB);
  assert_int_equal(s.rates.remote.bytes_s, 0);
  assert_int_equal(s.page_bytes, MIB / 2);
  below_close(&t);
}

/* ---- faults ---- */

/* The file has no name: by its descriptor. */
static void damage_disk(void) {
  DIR *all = opendir("/proc/self/fd");
  unsigned char *rubbish = calloc(1, 64 << 10);
  int damaged = 0;
  for (struct dirent *one; (one = readdir(all));) {
    char path[300], target[300];
    snprintf(path, sizeof path, "/proc/self/fd/%s", one->d_name);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n <= 0) continue;
    target[n] = '\0';
    if (strncmp(target, folder_of_disk(), strlen(folder_of_disk())) != 0) continue;
    int file = open(path, O_WRONLY);
    assert_true(file >= 0);
    for (off_t at = 4096; at < 64 << 20; at += 2 << 20) damaged += pwrite(file, rubbish, 64 << 10, at) > 0;
    close(file);
  }
  closedir(all);
  free(rubbish);
  assert_true(damaged > 0);
}

static void a_damaged_disk(void **state) {
  (void)state;
  gap_kv_options shape = below_shape(61);
  struct below_try t = open_with(NULL, "200M", &shape);
  below_serve(&t, 1, 400);
  below_leave(&t);
  damage_disk();
  assert_int_equal(below_fetch(&t, 1, 400), 0);
  assert_true(below_stats(&t).lost > 0);
  assert_int_equal(below_serve(&t, 1, 400), 0); /* computed anew, and stored anew */
  below_leave(&t);
  assert_int_equal(below_fetch(&t, 1, 400), 400);
  assert_int_equal(below_serve(&t, 1, 400), 400);
  below_close(&t);
}

/* Less host memory than was asked for: what there is serves. */
static void a_small_budget(void **state) {
  (void)state;
  gap_kv_options shape = below_shape(61);
  struct below_try t = open_with("12M", NULL, &shape);
  for (int kind = 0; kind < 12; kind++) {
    below_serve(&t, kind, 200);
    below_drain(&t);
  }
  gap_kv_tier_stats s = below_stats(&t);
  assert_true(s.host_stored > 0 && s.host_held <= 24 && s.dropped > 0);
  uint32_t there = 0;
  for (int kind = 0; kind < 12; kind++) there += below_fetch(&t, kind, 200);
  assert_true(there > 0);
  below_close(&t);
}

/* ---- sequences ---- */

enum { SEQS = 6 };

/* Swapped sequences have room for two in host memory: the others go to the disk, and all come back as they were. */
static struct below_try open_for_sequences(struct kv_try *seqs) {
  gap_kv_options shape = below_shape(80);
  shape.host_bytes = 14 * MIB; /* 28 KV pages */
  struct below_try t = open_with("64M", "200M", &shape);
  for (int i = 0; i < SEQS; i++) {
    kv_try_begin(t.kv, &seqs[i], 1, NULL, 0, 0);
    kv_try_learn(&seqs[i], below_text(i), 190);
    assert_int_equal(kv_try_append(t.kv, &seqs[i]), 0);
  }
  return t;
}

static void swap_out(struct below_try *t, const struct kv_try *seq) {
  assert_int_equal(gap_kv_swap_out(t->kv, seq->seq), 0);
  below_drain(t);
}

static int swap_in(struct below_try *t, const struct kv_try *seq) {
  int rc;
  while ((rc = gap_kv_swap_in(t->kv, seq->seq)) == GAP_EAGAIN) below_drain(t);
  if (!rc) assert_int_equal(gap_kv_flush(t->kv), 0);
  kv_try_check(t->kv);
  return rc;
}

static void sequences_go_to_the_disk(void **state) {
  (void)state;
  static struct kv_try seqs[SEQS];
  struct below_try t = open_for_sequences(seqs);
  for (int i = 0; i < SEQS; i++) swap_out(&t, &seqs[i]);
  assert_true(below_stats(&t).sequences_down >= SEQS - 2);
  gap_kv_forget(t.kv); /* not to find them cached */
  for (int i = SEQS; i-- > 0;) {
    assert_int_equal(swap_in(&t, &seqs[i]), 0);
    kv_try_verify(t.kv, &seqs[i]);
  }
  assert_true(below_stats(&t).sequences_up >= SEQS - 2);
  kv_try_learn(&seqs[0], below_text(9), 40);
  assert_int_equal(kv_try_append(t.kv, &seqs[0]), 0);
  kv_try_verify(t.kv, &seqs[0]);
  below_close(&t);
}

/* Closed where they are: on the disk, on their way, and with the cache. */
static void sequences_that_end_below(void **state) {
  (void)state;
  static struct kv_try seqs[SEQS];
  struct below_try t = open_for_sequences(seqs);
  for (int i = 0; i < 4; i++) swap_out(&t, &seqs[i]);
  assert_int_equal(gap_kv_close(t.kv, seqs[3].seq, 0), 0);
  assert_int_equal(gap_kv_close(t.kv, seqs[2].seq, 0), 0);
  assert_int_equal(gap_kv_swap_out(t.kv, seqs[4].seq), 0);
  assert_int_equal(gap_kv_swap_out(t.kv, seqs[5].seq), 0);
  assert_int_equal(gap_kv_close(t.kv, seqs[5].seq, 0), 0);
  below_drain(&t);
  (void)gap_kv_swap_in(t.kv, seqs[1].seq);
  assert_int_equal(gap_kv_close(t.kv, seqs[1].seq, 0), 0);
  below_drain(&t);
  assert_int_equal(swap_in(&t, &seqs[0]), 0);
  kv_try_verify(t.kv, &seqs[0]);
  below_close(&t);
}

/* What cannot be read is an error of its own, and a step goes on without it. */
static void sequences_that_are_lost(void **state) {
  (void)state;
  static struct kv_try seqs[SEQS];
  struct below_try t = open_for_sequences(seqs);
  for (int i = 0; i < SEQS; i++) swap_out(&t, &seqs[i]);
  gap_kv_forget(t.kv);
  damage_disk();
  assert_int_equal(swap_in(&t, &seqs[SEQS - 2]), GAP_EIO);
  gap_kv_request again = {.seq = seqs[SEQS - 2].seq, .tokens = 1, .ids = below_text(0)};
  gap_kv_about about = {.size = sizeof about};
  assert_int_equal(gap_kv_step(t.kv, &again, 1), 0);
  assert_int_equal(again.outcome, GAP_KV_PREEMPTED);
  assert_int_equal(gap_kv_get_about(t.kv, again.seq, &about), 0);
  assert_int_equal(about.tokens, 0);
  assert_true(below_stats(&t).lost > 0);
  below_close(&t);
}

/* ---- arguments; a simulated device ---- */

static void arguments(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 256 * MIB, tiers_with("64M", NULL));
  gap_kv_options shape = below_shape(61);
  gap_kv_tiers_options o = below_options(NULL), bad = o;
  gap_kv_tier_stats stats = {.size = sizeof stats};
  gap_kv_prompt p = {.size = sizeof p, .tokens = below_text(1), .count = 100};
  gap_kv_ticket ticket = 0;
  char words[200];
  shape.sharing = GAP_KV_SHARING_FAST;
  gap_kv *kv = kv_try_open(heap, &shape);
  assert_int_equal(gap_kv_tiers_open(kv, &o, words, sizeof words), GAP_ENOTSUP);
  assert_non_null(strstr(words, "SHA-256"));
  assert_int_equal(gap_kv_fetch(kv, &p, &ticket), GAP_ESTATE);
  assert_int_equal(gap_kv_get_tier_stats(kv, &stats), GAP_ESTATE);
  assert_int_equal(gap_kv_tiers_drain(kv, 1), GAP_ESTATE);
  gap_kv_destroy(kv);
  shape.sharing = GAP_KV_SHARING_SHA256;
  kv = kv_try_open(heap, &shape);
  bad.size = 3;
  assert_int_equal(gap_kv_tiers_open(kv, &bad, NULL, 0), GAP_EINVAL);
  bad = o, bad.fetch_ms = 0;
  assert_int_equal(gap_kv_tiers_open(kv, &bad, NULL, 0), GAP_EINVAL);
  assert_int_equal(gap_kv_tiers_open(kv, &o, NULL, 0), 0);
  assert_int_equal(gap_kv_tiers_open(kv, &o, NULL, 0), GAP_ESTATE);
  assert_int_equal(gap_kv_fetch(kv, NULL, &ticket), GAP_EINVAL);
  assert_int_equal(gap_kv_fetch_poll(kv, 77, NULL), GAP_EINVAL);
  assert_int_equal(gap_kv_tell_computed(kv, 0, 1), GAP_EINVAL);
  p.count = shape.tokens + 1;
  assert_int_equal(gap_kv_fetch(kv, &p, &ticket), GAP_ELIMIT);
  assert_null(gap_kv_get_remote(kv));
  gap_kv_destroy(kv);
  api_close(heap);
}

static void serve_simulated(gap_kv *kv, int kind, uint32_t tokens, uint32_t *there, uint32_t *hit) {
  gap_kv_prompt p = {.size = sizeof p, .tokens = below_text(kind), .count = tokens};
  gap_kv_ticket ticket;
  gap_kv_seq seq;
  assert_int_equal(gap_kv_fetch(kv, &p, &ticket), 0);
  assert_int_equal(gap_kv_fetch_wait(kv, ticket, 1000, there), 0);
  assert_int_equal(gap_kv_open(kv, &p, &seq, hit), 0);
  gap_kv_request r = {.seq = seq, .tokens = tokens - *hit, .ids = below_text(kind) + *hit};
  assert_int_equal(gap_kv_append(kv, &r, 1), 0);
  assert_int_equal(gap_kv_flush(kv), 0);
  assert_int_equal(gap_kv_close(kv, seq, 0), 0);
  assert_int_equal(gap_kv_tiers_drain(kv, 1000), 0);
  kv_try_check(kv);
}

static void counted_on_a_simulated_device(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, NULL);
  gap_kv_options shape = below_shape(61);
  gap_kv_rates rates = {.size = sizeof rates,
                        .host = {10000, 50 * GIB},
                        .disk = {100000, 2 * GIB},
                        .remote = {500000, GIB},
                        .token_ns = 100000};
  gap_kv_tiers_options o = below_options("m");
  gap_kv_tier_stats s = {.size = sizeof s};
  uint32_t there, hit;
  o.host_bytes = 10 * MIB, o.disk_bytes = 20 * MIB, o.remote_bytes = 200 * MIB;
  gap_kv *kv = kv_try_open(heap, &shape);
  assert_int_equal(gap_kv_tiers_open(kv, &o, NULL, 0), GAP_EINVAL);
  o.rates = &rates;
  assert_int_equal(gap_kv_tiers_open(kv, &o, NULL, 0), 0);
  for (int kind = 0; kind < 10; kind++) serve_simulated(kv, kind, 200, &there, &hit);
  for (int kind = 0; kind < 10; kind++) {
    serve_simulated(kv, kind, 200, &there, &hit);
    assert_int_equal(there, 192);
    assert_true(hit >= 192);
  }
  assert_int_equal(gap_kv_get_tier_stats(kv, &s), 0);
  assert_int_equal(s.remote_stored, 120);
  assert_int_equal(s.remote_held, 120);
  assert_true(s.host_held <= 20 && s.disk_held <= 40);
  assert_true(s.remote_fetched > 0 && s.disk_fetched + s.host_fetched + s.remote_fetched <= 120);
  assert_int_equal(s.lost + s.not_stored, 0);
  gap_kv_destroy(kv);
  gap_heap_destroy(heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(from_host_memory),
      cmocka_unit_test(from_the_disk),
      cmocka_unit_test(through_host_memory_to_the_disk),
      cmocka_unit_test(more_than_all_places),
      cmocka_unit_test(small_pages_by_layer),
      cmocka_unit_test(groups_and_windows),
      cmocka_unit_test(the_prefix_stays),
      cmocka_unit_test(longer_than_half),
      cmocka_unit_test(what_does_not_pay_stays_below),
      cmocka_unit_test(measured_here),
      cmocka_unit_test(a_damaged_disk),
      cmocka_unit_test(a_small_budget),
      cmocka_unit_test(sequences_go_to_the_disk),
      cmocka_unit_test(sequences_that_end_below),
      cmocka_unit_test(sequences_that_are_lost),
      cmocka_unit_test(arguments),
      cmocka_unit_test(counted_on_a_simulated_device),
  };
  int rc = cmocka_run_group_tests(tests, NULL, NULL);
  remove_folder();
  return rc;
}
