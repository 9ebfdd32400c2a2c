/* Ranges while driver calls and host memory fail, one after the other: what fails may be tried again, and every byte is where it was. */
#include <stdbool.h>

#include "core/heap.h"
#include "dev/host/host.h"
#include "gapless/kv_virtual.h"
#include "support/api_try.h"
#include "support/fault.h"

enum { RUNS_A_KIND = 60, STREAM = 8, RANGES = 4 };
#define PAGE ((uint64_t)2 << 20)

struct scene {
  struct gap__dev *dev;
  struct fault fault;
  gap_heap *heap;
  gap_kv_virtual *v;
  gap_kv_virtual_about about;
  uint64_t bytes[RANGES]; /* that each has, by what the calls said */
  uint32_t owner[RANGES]; /* whose words it shows */
};

static bool failed(int rc) {
  if (rc) assert_true(rc == GAP_ENOMEM || rc == GAP_ENOMETA || rc == GAP_EDEVICE || rc == GAP_ENOTSUP);
  return rc != 0;
}

static uint64_t *word(const struct scene *s, uint32_t range, uint64_t at) {
  return (uint64_t *)(uintptr_t)(s->about.base + range * s->about.stride + at);
}

/* The first and the last word of each page tell whose it is. */
static void look(const struct scene *s) {
  for (uint32_t r = 0; r < RANGES; r++)
    for (uint64_t at = 0; at + PAGE <= s->bytes[r]; at += PAGE)
      assert_int_equal(*word(s, r, at), (s->owner[r] + 1) * 1000 + at / PAGE);
}

static void grow(struct scene *s, uint32_t range, uint64_t pages) {
  if (failed(gap_kv_virtual_grow(s->v, range, 1, pages * PAGE))) return;
  for (uint64_t at = s->bytes[range]; at < pages * PAGE; at += PAGE)
    *word(s, range, at) = (s->owner[range] + 1) * 1000 + at / PAGE;
  if (s->bytes[range] < pages * PAGE) s->bytes[range] = pages * PAGE;
  look(s);
}

static void shrink(struct scene *s, uint32_t range, uint64_t pages) {
  if (failed(gap_kv_virtual_shrink(s->v, range, 1, pages * PAGE))) return;
  if (s->bytes[range] > pages * PAGE) s->bytes[range] = pages * PAGE;
  if (!pages) s->owner[range] = range;
  look(s);
}

/* A call that failed in the middle has left nothing; one after a failed grow finds pages that it did not ask for. */
static void share(struct scene *s, uint32_t to, uint32_t from, uint64_t bytes) {
  if (s->bytes[from] < bytes || s->bytes[to]) return;
  shrink(s, to, 0);
  int rc = gap_kv_virtual_share(s->v, to, from, 1, bytes);
  if (rc == GAP_ESTATE || failed(rc)) return;
  s->owner[to] = s->owner[from];
  s->bytes[to] = bytes / PAGE * PAGE;
  look(s);
}

static void play(struct scene *s) {
  for (int turn = 0; turn < 2; turn++) {
    grow(s, 0, 3);
    grow(s, 1, 2);
    share(s, 2, 0, 2 * PAGE + 4096);
    share(s, 3, 2, PAGE);
    shrink(s, 0, 1);
    grow(s, 0, 4);
    shrink(s, 1, 0);
    grow(s, 1, 5);
    shrink(s, 2, 0);
    shrink(s, 3, 0);
  }
}

static int open_ranges(struct scene *s, unsigned flags) {
  gap_kv_virtual_options o = GAP_KV_VIRTUAL_OPTIONS_INIT;
  o.stream = STREAM, o.ranges = RANGES, o.range_bytes = 6 * PAGE, o.flags = flags | GAP_KV_VIRTUAL_NO_THREAD;
  int rc = gap_kv_virtual_create(s->heap, &o, &s->v);
  s->about.size = sizeof s->about;
  for (uint32_t r = 0; r < RANGES; r++) s->owner[r] = r;
  return rc ? rc : gap_kv_virtual_get_about(s->v, &s->about);
}

static void run(const struct fault_plan *plan, unsigned flags, struct fault *out) {
  struct scene *s = calloc(1, sizeof *s);
  struct gap__host_params params = {.total_bytes = 64 * MIB};
  assert_int_equal(gap__host_create(0, &params, &s->dev), 0);
  fault_attach(&s->fault, s->dev, plan);
  struct gap__dev *devs[] = {s->dev};
  struct gap__heap_params hp = {.devs = devs, .dev_count = 1, .maker = GAP__MAKER_OFF};
  fault_watch(&s->fault);
  if (failed(gap__heap_create(&hp, &s->heap))) s->heap = NULL;
  if (s->heap && !failed(open_ranges(s, flags))) play(s);
  gap_kv_virtual_destroy(s->v);
  s->fault.over = true;
  char text[300] = "";
  if (s->heap && gap__heap_check(s->heap, 0, text, sizeof text)) fail_msg("%s", text);
  gap__heap_destroy(s->heap);
  fault_watch(NULL);
  assert_int_equal(s->fault.pieces, 0);
  assert_int_equal(s->fault.pages_mapped, 0);
  *out = s->fault;
  free(s);
}

static void each_call_fails_once(void **state) {
  (void)state;
  for (unsigned flags = 0; flags < 2; flags++) {
    struct fault_plan none = {0};
    struct fault whole, one;
    run(&none, flags, &whole);
    assert_true(whole.calls[GAP__CALL_map] > 5);
    for (int kind = 0; kind < FAULT_KINDS; kind++) {
      uint64_t step = whole.calls[kind] / RUNS_A_KIND + 1;
      for (uint64_t nth = 1; nth <= whole.calls[kind]; nth += step) {
        struct fault_plan plan = {
            .kind = kind, .nth = nth, .code = kind == GAP__CALL_chunk_create ? GAP_ENOMEM : GAP_EDEVICE};
        if (getenv("GAP_TORTURE"))
          fprintf(stderr, "%u %s %llu\n", flags, fault_kind_name(kind), (unsigned long long)nth);
        run(&plan, flags, &one);
        assert_true(one.hits <= 1);
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_call_fails_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
