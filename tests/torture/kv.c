/* The KV cache while driver calls and host memory fail, one after the other: what fails has changed nothing, and every token is where it was. */
#include <stdbool.h>

#include "core/heap.h"
#include "dev/host/host.h"
#include "support/fault.h"
#include "support/kv_try.h"

enum { RUNS_A_KIND = 40, TWO_STREAMS = 9 };

struct scene {
  struct gap__dev *dev;
  struct fault fault;
  gap_heap *heap;
  gap_kv *kv;
  struct kv_try a, b;
  bool a_out;
};

static void quietly(struct scene *s, bool on) { fault_watch(on ? NULL : &s->fault); }

/* What the test itself looks at must not count. */
static void look(struct scene *s) {
  quietly(s, true);
  s->fault.over = true;
  kv_try_check(s->kv);
  assert_int_equal(gap_kv_flush(s->kv), 0);
  if (s->a.seq && !s->a_out) kv_try_verify(s->kv, &s->a);
  if (s->b.seq) kv_try_verify(s->kv, &s->b);
  s->fault.over = false;
  quietly(s, false);
}

static bool failed(int rc) {
  if (rc) assert_true(rc == GAP_ENOMEM || rc == GAP_ENOMETA || rc == GAP_EDEVICE || rc == GAP_ENOTSUP);
  return rc != 0;
}

static void grow(struct scene *s, struct kv_try *t, uint32_t count, int32_t from) {
  int32_t tokens[400];
  uint32_t had = t->count;
  if (!t->seq) return;
  for (uint32_t i = 0; i < count; i++) tokens[i] = from + (int32_t)i % 37;
  kv_try_learn(t, tokens, count);
  gap_kv_request r = {.seq = t->seq, .tokens = count, .ids = t->tokens + had};
  if (failed(gap_kv_append(s->kv, &r, 1))) t->count = had;
  failed(gap_kv_flush(s->kv));
  quietly(s, true);
  s->fault.over = true;
  kv_try_step(s->kv, t);
  s->fault.over = false;
  quietly(s, false);
  look(s);
}

static void open_a(struct scene *s) {
  uint32_t hit = 0;
  s->a = (struct kv_try){.tenant = 5};
  gap_kv_prompt p = {.size = sizeof p, .tenant = 5};
  if (failed(gap_kv_open(s->kv, &p, &s->a.seq, &hit))) s->a.seq = 0;
  look(s);
}

static void fork_b(struct scene *s) {
  gap_kv_seq made = 0;
  if (!s->a.seq || failed(gap_kv_fork(s->kv, s->a.seq, &made))) return;
  s->b = s->a;
  s->b.seq = made;
  look(s);
}

static void swap_a(struct scene *s) {
  if (!s->a.seq) return;
  int rc = s->a_out ? gap_kv_swap_in(s->kv, s->a.seq) : gap_kv_swap_out(s->kv, s->a.seq);
  if (!failed(rc)) s->a_out = !s->a_out;
  look(s);
}

static void close_b(struct scene *s) {
  if (!s->b.seq || failed(gap_kv_close(s->kv, s->b.seq, TWO_STREAMS))) return;
  s->b.seq = 0;
  look(s);
}

static void shorten_a(struct scene *s, uint32_t tokens) {
  if (!s->a.seq || s->a_out || s->a.count < tokens || failed(gap_kv_truncate(s->kv, s->a.seq, tokens))) return;
  s->a.count = s->a.computed = tokens;
  look(s);
}

static void compact(struct scene *s) {
  gap_kv_compaction c = {.size = sizeof c};
  failed(gap_kv_compact(s->kv, &c));
  look(s);
}

static void bare(struct scene *s) {
  int32_t ids[30];
  if (!failed(gap_kv_get_pages(s->kv, 30, ids))) assert_int_equal(gap_kv_free_pages(s->kv, 30, ids), 0);
  gap_kv_retention r = {.size = sizeof r, .tokens = 1000, .priority = 5, .ttl_ms = 10};
  if (s->a.seq && !s->a_out) failed(gap_kv_retain(s->kv, s->a.seq, &r));
  gap_kv_trim(s->kv, NULL);
  look(s);
}

static void play(struct scene *s) {
  open_a(s);
  grow(s, &s->a, 300, 0);
  fork_b(s);
  grow(s, &s->b, 30, 500);
  if (!s->a_out) grow(s, &s->a, 3, 700);
  swap_a(s);
  grow(s, &s->b, 100, 800);
  swap_a(s);
  if (!s->a_out) grow(s, &s->a, 200, 900);
  bare(s);
  close_b(s);
  shorten_a(s, 120);
  compact(s);
  if (!s->a_out) grow(s, &s->a, 50, 0);
}

static gap_kv_options shape(void) {
  gap_kv_options o = kv_try_options(16, 24 * MIB);
  o.heads = 8, o.head_size = 64, o.host_bytes = 16 * MIB, o.copy_stream = 7;
  o.layout = GAP_KV_BLOCK_MAJOR;
  return o;
}

static void run(const struct fault_plan *plan, struct fault *out) {
  struct scene *s = calloc(1, sizeof *s);
  struct gap__host_params params = {.total_bytes = 64 * MIB};
  gap_kv_options o = shape();
  assert_int_equal(gap__host_create(0, &params, &s->dev), 0);
  fault_attach(&s->fault, s->dev, plan);
  struct gap__dev *devs[] = {s->dev};
  struct gap__heap_params hp = {.devs = devs, .dev_count = 1, .maker = GAP__MAKER_OFF};
  fault_watch(&s->fault);
  if (failed(gap__heap_create(&hp, &s->heap))) s->heap = NULL;
  int rc = s->heap ? gap_kv_create(s->heap, &o, &s->kv) : GAP_ENOMEM;
  if (rc) assert_null(s->kv);
  if (!failed(rc)) play(s);
  gap_kv_destroy(s->kv);
  s->fault.over = true;
  char text[300] = "";
  if (s->heap && gap__heap_check(s->heap, 0, text, sizeof text)) fail_msg("%s", text);
  gap__heap_destroy(s->heap);
  fault_watch(NULL);
  assert_int_equal(s->fault.pieces, 0); /* of host memory, not given back */
  assert_int_equal(s->fault.pages_mapped, 0);
  *out = s->fault;
  free(s);
}

static void each_call_fails_once(void **state) {
  (void)state;
  struct fault_plan none = {0};
  struct fault whole, one;
  run(&none, &whole);
  if (getenv("GAP_TORTURE"))
    for (int kind = 0; kind < FAULT_KINDS; kind++)
      fprintf(stderr, "%s: %llu calls\n", fault_kind_name(kind), (unsigned long long)whole.calls[kind]);
  assert_true(whole.calls[GAP__CALL_copy] > 30 && whole.calls[GAP__CALL_stream_wait] >= 3 &&
              whole.calls[FAULT_BYTES] >= 5);
  for (int kind = 0; kind < FAULT_KINDS; kind++) {
    uint64_t step = whole.calls[kind] / RUNS_A_KIND + 1;
    for (uint64_t nth = 1; nth <= whole.calls[kind]; nth += step) {
      struct fault_plan plan = {
          .kind = kind, .nth = nth, .code = kind == GAP__CALL_chunk_create ? GAP_ENOMEM : GAP_EDEVICE};
      if (getenv("GAP_TORTURE")) fprintf(stderr, "%s %llu\n", fault_kind_name(kind), (unsigned long long)nth);
      run(&plan, &one);
      assert_true(one.hits <= 1);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_call_fails_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
