/* The KV cache with tiers while driver calls fail, one after the other, once and for good: what comes up is what went
 * down, or does not come; no call hangs, and no invariant breaks. */
#include <stdbool.h>
#include <unistd.h>

#include "core/heap.h"
#include "dev/host/host.h"
#include "kv/below.h"
#include "support/fault.h"
#include "support/kv_below_try.h"
#include "tier/tier.h"

enum { RUNS_A_KIND = 5, KINDS = 3, TOKENS = 200 };

struct scene {
  struct gap__dev *dev;
  struct fault fault;
  gap_heap *heap;
  struct gap__tier *tier;
  gap_kv *kv;
  struct kv_try t;
  uint32_t up;
};

static char folder[] = "/tmp/gapless-kvx-XXXXXX";

static bool failed(int rc) {
  if (rc && rc != GAP_ENOMEM && rc != GAP_ENOMETA && rc != GAP_EDEVICE && rc != GAP_EAGAIN && rc != GAP_ENOTSUP &&
      rc != GAP_EIO && rc != GAP_ELIMIT)
    fail_msg("a call failed with %d", rc);
  return rc != 0;
}

/* What the test itself looks at does not fail. */
static void look(struct scene *s, bool at_tokens) {
  s->fault.over = true;
  kv_try_check(s->kv);
  assert_int_equal(gap_kv_flush(s->kv), 0);
  if (at_tokens) kv_try_verify(s->kv, &s->t);
  s->fault.over = false;
}

/* Half-served prompts are truncated away with their sequence. */
static void serve(struct scene *s, int32_t kind) {
  gap_kv_prompt p = {.size = sizeof p, .tenant = 1, .tokens = below_text(kind), .count = TOKENS};
  uint32_t hit = 0;
  s->t = (struct kv_try){.tenant = 1};
  if (failed(gap_kv_open(s->kv, &p, &s->t.seq, &hit))) return;
  kv_try_learn(&s->t, p.tokens, hit);
  s->t.computed = hit;
  look(s, true);
  gap_kv_request r = {.seq = s->t.seq, .tokens = TOKENS - hit, .ids = p.tokens + hit};
  if (!failed(gap_kv_append(s->kv, &r, 1))) {
    kv_try_learn(&s->t, p.tokens + hit, TOKENS - hit);
    s->fault.over = true;
    kv_try_step(s->kv, &s->t);
    s->fault.over = false;
  }
  if (failed(gap_kv_close(s->kv, s->t.seq, 0))) assert_int_equal(gap_kv_close(s->kv, s->t.seq, 0), 0);
  look(s, false);
}

static void fetch(struct scene *s, int32_t kind) {
  gap_kv_prompt p = {.size = sizeof p, .tenant = 1, .tokens = below_text(kind), .count = TOKENS};
  gap_kv_ticket ticket;
  uint32_t tokens = 0;
  if (failed(gap_kv_fetch(s->kv, &p, &ticket))) return;
  assert_int_equal(gap_kv_fetch_wait(s->kv, ticket, BELOW_PATIENCE_MS, &tokens), 0);
  s->up += tokens;
  look(s, false);
}

static void play(struct scene *s) {
  for (int32_t kind = 0; kind < KINDS; kind++) serve(s, kind);
  failed(gap_kv_tiers_store(s->kv, BELOW_PATIENCE_MS));
  failed(gap_kv_forget(s->kv));
  for (int32_t kind = 0; kind < KINDS; kind++) {
    fetch(s, kind);
    serve(s, kind);
  }
  assert_int_equal(gap_kv_tiers_drain(s->kv, BELOW_PATIENCE_MS), 0);
}

static void open_cache(struct scene *s) {
  gap_kv_options o = below_shape(50);
  gap_kv_tiers_options t = below_options(NULL);
  char tiers[100];
  t.host_bytes = 12 * MIB;
  snprintf(tiers, sizeof tiers, "host=64M,disk=%s:64M", folder);
  assert_int_equal(gap__tier_create(s->heap, tiers, &s->tier), 0);
  if (failed(gap_kv_create(s->heap, &o, &s->kv))) return;
  if (!failed(gap__kv_below_open(s->kv, s->tier, &t, NULL, 0))) play(s);
}

static uint32_t run(const struct fault_plan *plan, struct fault *out) {
  struct scene *s = calloc(1, sizeof *s);
  assert_int_equal(gap__host_create(0, &(struct gap__host_params){.total_bytes = 256 * MIB}, &s->dev), 0);
  fault_attach(&s->fault, s->dev, plan);
  struct gap__dev *devs[] = {s->dev};
  struct gap__heap_params hp = {.devs = devs, .dev_count = 1, .maker = GAP__MAKER_OFF};
  if (!failed(gap__heap_create(&hp, &s->heap))) open_cache(s);
  gap_kv_destroy(s->kv);
  gap__tier_destroy(s->tier);
  s->fault.over = true;
  char text[300] = "";
  if (s->heap && gap__heap_check(s->heap, 0, text, sizeof text)) fail_msg("%s", text);
  gap__heap_destroy(s->heap);
  *out = s->fault;
  uint32_t up = s->up;
  free(s);
  return up;
}

/* The background's calls come in no fixed order: which one fails differs from run to run. */
static void each_call_fails(void **state) {
  (void)state;
  static const int kinds[] = {
      GAP__CALL_copy,         GAP__CALL_event_create, GAP__CALL_event_record,  GAP__CALL_event_query,
      GAP__CALL_event_wait,   GAP__CALL_stream_wait,  GAP__CALL_stream_create, GAP__CALL_pin,
      GAP__CALL_chunk_create, GAP__CALL_map};
  struct fault whole, one;
  assert_non_null(mkdtemp(folder));
  assert_int_equal(run(&(struct fault_plan){0}, &whole), KINDS * (TOKENS / 16 * 16));
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    uint64_t step = whole.calls[kinds[k]] / RUNS_A_KIND + 1;
    for (uint64_t nth = 1; nth <= whole.calls[kinds[k]]; nth += step)
      for (int lasting = 0; lasting < 2; lasting++) {
        struct fault_plan plan = {.kind = kinds[k],
                                  .nth = nth,
                                  .code = kinds[k] == GAP__CALL_chunk_create ? GAP_ENOMEM : GAP_EDEVICE,
                                  .lasting = lasting};
        if (getenv("GAP_TORTURE"))
          fprintf(stderr, "%s %llu %d\n", fault_kind_name(plan.kind), (unsigned long long)nth, lasting);
        run(&plan, &one);
      }
  }
  assert_int_equal(rmdir(folder), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_call_fails)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
