/* Virtual mode: ranges that grow in place, ahead of need, and share pages; every byte is looked at. */
#include "gapless/kv_virtual.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "support/api_try.h"
#include "support/child.h"

enum { STREAM = 8, RANGES = 6 };
#define PAGE ((uint64_t)2 << 20)

struct fixture {
  gap_heap *heap;
  gap_kv_virtual *v;
  gap_kv_virtual_about about;
};

static gap_kv_virtual_about look(gap_kv_virtual *v) {
  gap_kv_virtual_about about = {.size = sizeof about};
  assert_int_equal(gap_kv_virtual_get_about(v, &about), 0);
  return about;
}

static struct fixture open_on(gap_backend backend, unsigned flags, uint64_t ahead, const char *conf) {
  struct fixture f = {.heap = api_open(backend, 256 * MIB, conf)};
  gap_kv_virtual_options o = GAP_KV_VIRTUAL_OPTIONS_INIT;
  o.stream = STREAM, o.ranges = RANGES, o.range_bytes = 16 * PAGE - 5, o.ahead_bytes = ahead, o.flags = flags;
  assert_int_equal(gap_kv_virtual_create(f.heap, &o, &f.v), 0);
  f.about = look(f.v);
  assert_int_equal(f.about.stride, 16 * PAGE);
  return f;
}

static struct fixture open_with(unsigned flags, uint64_t ahead) {
  return open_on(GAP_BACKEND_HOST, flags, ahead, "reserve:0");
}

static void close_all(struct fixture *f) {
  gap_kv_virtual_destroy(f->v);
  assert_int_equal(api_usage(f->heap, 0).live_bytes, 0);
  api_close(f->heap);
}

static uint64_t *words(const struct fixture *f, uint32_t range) {
  return (uint64_t *)(uintptr_t)(f->about.base + range * f->about.stride);
}

static void fill(const struct fixture *f, uint32_t range, uint64_t from, uint64_t to) {
  for (uint64_t i = from / 8; i < to / 8; i++) words(f, range)[i] = i * 8 + range + 1;
}

static void expect(const struct fixture *f, uint32_t range, uint32_t as, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes / 8; i++)
    if (words(f, range)[i] != i * 8 + as + 1) fail_msg("range %u byte %llu", range, (unsigned long long)i * 8);
}

static int grow(struct fixture *f, uint32_t first, uint32_t count, uint64_t bytes) {
  return gap_kv_virtual_grow(f->v, first, count, bytes);
}

/* ---- growing ---- */

static void ranges_grow_in_place(unsigned flags) {
  struct fixture f = open_with(flags | GAP_KV_VIRTUAL_NO_THREAD, 0);
  uint64_t bytes[RANGES] = {0};
  for (uint64_t step = 1; step < 12; step++)
    for (uint32_t r = 0; r < RANGES; r++) {
      uint64_t to = bytes[r] + (step * 333333 + r * 100000) / 8 * 8;
      assert_int_equal(grow(&f, r, 1, to), 0);
      fill(&f, r, bytes[r], to);
      bytes[r] = to;
    }
  uint64_t held = 0;
  for (uint32_t r = 0; r < RANGES; r++) {
    expect(&f, r, r, bytes[r]);
    held += (bytes[r] + PAGE - 1) / PAGE * PAGE;
  }
  assert_int_equal(look(f.v).bytes_held, held);
  assert_int_equal(look(f.v).pages_late, held / PAGE);
  assert_int_equal(api_usage(f.heap, 0).live_bytes, held);
  assert_int_equal(gap_kv_virtual_shrink(f.v, 1, 2, PAGE), 0);
  assert_int_equal(gap_kv_virtual_shrink(f.v, 1, 2, 7 * PAGE), 0); /* no less than it has */
  expect(&f, 1, 1, PAGE);
  expect(&f, 3, 3, bytes[3]);
  assert_int_equal(grow(&f, 1, 2, 3 * PAGE), 0);
  fill(&f, 1, PAGE, 3 * PAGE);
  expect(&f, 1, 1, 3 * PAGE);
  api_check(f.heap);
  close_all(&f);
}

static void growing(void **state) {
  (void)state;
  ranges_grow_in_place(0);
  ranges_grow_in_place(GAP_KV_VIRTUAL_SHARING);
}

/* What a range gives up serves anybody. */
static void memory_is_the_heaps(void **state) {
  (void)state;
  for (unsigned flags = 0; flags < 2; flags++) {
    struct fixture f = open_with(flags | GAP_KV_VIRTUAL_NO_THREAD, 0);
    assert_int_equal(gap_set_cap(f.heap, 0, 40 * PAGE), 0);
    assert_int_equal(grow(&f, 0, 2, 16 * PAGE), 0);
    gap_addr a = 0;
    assert_int_equal(gap_alloc(f.heap, 0, STREAM, 20 * PAGE, &a), GAP_ENOMEM);
    assert_int_equal(gap_kv_virtual_shrink(f.v, 0, 1, 0), 0);
    a = api_get(f.heap, STREAM, 20 * PAGE);
    assert_int_equal(grow(&f, 2, 1, 16 * PAGE), GAP_ENOMEM);
    api_give(f.heap, a);
    assert_int_equal(grow(&f, 2, 1, 16 * PAGE), 0);
    fill(&f, 2, 0, 16 * PAGE);
    expect(&f, 2, 2, 16 * PAGE);
    close_all(&f);
  }
}

/* ---- ahead ---- */

static void wait_for_pages(struct fixture *f, uint64_t held) {
  for (int i = 0; i < 3000 && look(f->v).bytes_held < held; i++)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  assert_int_equal(look(f->v).bytes_held, held);
}

static void the_thread_is_ahead(void **state) {
  (void)state;
  for (unsigned flags = 0; flags < 2; flags++) {
    struct fixture f = open_with(flags, 2 * PAGE);
    assert_int_equal(grow(&f, 0, RANGES, 100), 0);
    for (uint64_t i = 1; i < 14; i++) {
      wait_for_pages(&f, RANGES * (i + 2) * PAGE);
      assert_int_equal(grow(&f, 0, RANGES, i * PAGE + 8), 0);
      for (uint32_t r = 0; r < RANGES; r++) fill(&f, r, (i - 1) * PAGE, i * PAGE + 8);
    }
    gap_kv_virtual_about about = look(f.v);
    assert_int_equal(about.pages_late, RANGES);
    assert_int_equal(about.pages_ahead, RANGES * 13);
    for (uint32_t r = 0; r < RANGES; r++) expect(&f, r, r, 13 * PAGE);
    close_all(&f);
  }
}

struct worker {
  struct fixture *f;
  uint32_t range;
};

static void *grow_and_shrink(void *arg) {
  const struct worker *w = arg;
  for (uint64_t i = 1; i < 60; i++) {
    uint64_t bytes = (i % 12 + 1) * PAGE;
    if (gap_kv_virtual_grow(w->f->v, w->range, 1, bytes)) return arg;
    fill(w->f, w->range, 0, 64), fill(w->f, w->range, bytes - 64, bytes);
    if (i % 5 == 0 && gap_kv_virtual_shrink(w->f->v, w->range, 1, PAGE)) return arg;
    if (words(w->f, w->range)[3] != 24 + w->range + 1) return arg;
  }
  return NULL;
}

/* Beside the object's own thread. */
static void several_threads(void **state) {
  (void)state;
  for (unsigned flags = 0; flags < 2; flags++) {
    struct fixture f = open_with(flags, 3 * PAGE);
    struct worker w[RANGES];
    pthread_t thread[RANGES];
    void *failed;
    for (uint32_t r = 0; r < RANGES; r++) {
      w[r] = (struct worker){&f, r};
      assert_int_equal(pthread_create(&thread[r], NULL, grow_and_shrink, &w[r]), 0);
    }
    for (uint32_t r = 0; r < RANGES; r++) {
      pthread_join(thread[r], &failed);
      assert_null(failed);
    }
    close_all(&f);
  }
}

/* ---- sharing ---- */

static void a_prefix_is_shared(void **state) {
  (void)state;
  struct fixture f = open_with(GAP_KV_VIRTUAL_SHARING, 0);
  uint64_t prefix = 3 * PAGE + 4096;
  assert_int_equal(grow(&f, 0, 2, 4 * PAGE), 0);
  fill(&f, 0, 0, prefix), fill(&f, 1, 0, prefix);
  assert_int_equal(gap_kv_virtual_share(f.v, 2, 0, 2, prefix), 0);
  assert_int_equal(gap_kv_virtual_share(f.v, 4, 2, 2, prefix), 0); /* of one that shares itself */
  gap_kv_virtual_about about = look(f.v);
  assert_int_equal(about.bytes_held, (2 * 4 + 4) * PAGE);
  assert_int_equal(about.bytes_shared, 4 * 3 * PAGE);
  for (uint32_t r = 0; r < RANGES; r++) {
    expect(&f, r, r % 2, prefix);
    assert_int_equal(grow(&f, r, 1, 5 * PAGE), 0);
    fill(&f, r, prefix, 5 * PAGE); /* behind it each has its own */
  }
  for (uint32_t r = 0; r < RANGES; r++) {
    expect(&f, r, r % 2, prefix);
    assert_int_equal(words(&f, r)[prefix / 8], prefix + r + 1);
  }
  /* The first goes, and comes back with other contents: the others keep theirs. */
  assert_int_equal(gap_kv_virtual_shrink(f.v, 0, 2, 0), 0);
  assert_int_equal(grow(&f, 0, 2, 4 * PAGE), 0);
  memset(words(&f, 0), 0xcc, 4 * PAGE);
  for (uint32_t r = 2; r < RANGES; r++) expect(&f, r, r % 2, prefix);
  assert_int_equal(look(f.v).bytes_shared, 2 * 3 * PAGE);
  api_check(f.heap);
  close_all(&f);
}

static struct fixture in_child;
static void caught(int signal) {
  (void)signal;
  _exit(7);
}
static void writes_into_the_prefix(void *arg) {
  (void)arg;
  signal(SIGSEGV, caught); /* whatever a sanitizer would do */
  words(&in_child, 2)[5] = 1;
}

static void shared_pages_refuse_writes(void **state) {
  (void)state;
  in_child = open_with(GAP_KV_VIRTUAL_SHARING | GAP_KV_VIRTUAL_NO_THREAD, 0);
  assert_int_equal(grow(&in_child, 0, 1, PAGE), 0);
  fill(&in_child, 0, 0, PAGE);
  assert_int_equal(gap_kv_virtual_share(in_child.v, 2, 0, 1, PAGE), 0);
  ended(run_child(writes_into_the_prefix, NULL), 7);
  close_all(&in_child);
}

static void sharing_has_its_rules(void **state) {
  (void)state;
  struct fixture f = open_with(0, 0);
  assert_int_equal(grow(&f, 0, 1, PAGE), 0);
  assert_int_equal(gap_kv_virtual_share(f.v, 1, 0, 1, PAGE), GAP_ENOTSUP);
  close_all(&f);
  f = open_with(GAP_KV_VIRTUAL_SHARING | GAP_KV_VIRTUAL_NO_THREAD, 0);
  assert_int_equal(grow(&f, 0, 2, 2 * PAGE), 0);
  assert_int_equal(gap_kv_virtual_share(f.v, 1, 0, 1, PAGE), GAP_ESTATE);     /* it has memory */
  assert_int_equal(gap_kv_virtual_share(f.v, 2, 0, 1, 3 * PAGE), GAP_ESTATE); /* there is less */
  assert_int_equal(gap_kv_virtual_share(f.v, 5, 0, 2, PAGE), GAP_EINVAL);
  assert_int_equal(gap_set_cap(f.heap, 0, 4 * PAGE), 0);
  assert_int_equal(gap_kv_virtual_share(f.v, 2, 0, 2, PAGE + 8), GAP_ENOMEM); /* for the page of its own */
  assert_int_equal(look(f.v).bytes_shared, 0);
  assert_int_equal(gap_kv_virtual_share(f.v, 2, 0, 2, PAGE), 0);
  assert_int_equal(look(f.v).bytes_shared, 2 * PAGE);
  close_all(&f);
}

/* ---- errors ---- */

static int create(gap_heap *heap, uint32_t ranges, uint64_t bytes, unsigned flags) {
  gap_kv_virtual_options o = GAP_KV_VIRTUAL_OPTIONS_INIT;
  gap_kv_virtual *v = NULL;
  o.ranges = ranges, o.range_bytes = bytes, o.flags = flags;
  int rc = gap_kv_virtual_create(heap, &o, &v);
  gap_kv_virtual_destroy(v);
  return rc;
}

static void wrong_calls_are_refused(void **state) {
  (void)state;
  struct fixture f = open_with(0, 0);
  assert_int_equal(create(f.heap, 0, PAGE, 0), GAP_EINVAL);
  assert_int_equal(create(f.heap, 65537, PAGE, 0), GAP_EINVAL);
  assert_int_equal(create(f.heap, 1, 0, 0), GAP_EINVAL);
  assert_int_equal(create(f.heap, 65536, 16 * PAGE, 0), GAP_EINVAL);
  assert_int_equal(create(f.heap, 1, PAGE, 4), GAP_EINVAL);
  assert_int_equal(create(NULL, 1, PAGE, 0), GAP_EINVAL);
  assert_int_equal(create(f.heap, 1, 1, 0), 0);
  assert_int_equal(grow(&f, 0, RANGES + 1, 8), GAP_EINVAL);
  assert_int_equal(grow(&f, RANGES, 1, 8), GAP_EINVAL);
  assert_int_equal(grow(&f, 0, 1, 16 * PAGE + 1), GAP_EINVAL);
  assert_int_equal(gap_kv_virtual_grow(NULL, 0, 1, 8), GAP_EINVAL);
  assert_int_equal(gap_kv_virtual_shrink(f.v, 0, 7, 8), GAP_EINVAL);
  assert_int_equal(gap_kv_virtual_get_about(f.v, NULL), GAP_EINVAL);
  gap_kv_virtual_destroy(NULL);
  close_all(&f);
}

/* The simulated card has no bytes: what is held is the same. */
static void simulated(void **state) {
  (void)state;
  struct fixture f = open_on(GAP_BACKEND_SIM, GAP_KV_VIRTUAL_SHARING, 4 * PAGE, "reserve:0");
  assert_int_equal(grow(&f, 0, 3, 8 * PAGE), 0);
  assert_int_equal(gap_kv_virtual_share(f.v, 3, 0, 3, 6 * PAGE), 0);
  assert_int_equal(look(f.v).bytes_held, 24 * PAGE);
  assert_int_equal(gap_kv_virtual_shrink(f.v, 0, 3, 0), 0);
  close_all(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(growing),
                                     cmocka_unit_test(memory_is_the_heaps),
                                     cmocka_unit_test(the_thread_is_ahead),
                                     cmocka_unit_test(several_threads),
                                     cmocka_unit_test(a_prefix_is_shared),
                                     cmocka_unit_test(shared_pages_refuse_writes),
                                     cmocka_unit_test(sharing_has_its_rules),
                                     cmocka_unit_test(wrong_calls_are_refused),
                                     cmocka_unit_test(simulated)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
