/* Made-up scripts under faults: what nobody thought of.  The same numbers give the same scripts everywhere.
 * GAP_TORTURE_SEEDS=N plays N of them and lets every call fail; without it a few are played and a share of their calls fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/fault_script.h"
#include "support/gapless_try.h"

enum { STEPS = 70, SEEDS_QUICK = 8, SHARE_QUICK = 12, STREAM_COUNT = 5, POOL_COUNT = 3 };

static const char *const confs[] = {
    "max_memory:32MiB,reserve:0",
    "reserve:0,chunk_max:8MiB,grow_limit:1.2",
    ("strategy:caching_allocator,max_memory:56MiB,large_segment_size_mb:12,max_split_size_mb:20,garbage_collection_"
     "threshold:0.7"),
    "max_memory:24MiB,reserve:0,nmalloc:2,granularity:64KiB",
    "pooled,max_memory:36MiB,reserve:0",
    "heuristic,reserve:0,pool_sizes:[4KiB,1MiB]",
};

static unsigned below(uint64_t *seed, unsigned count) { return (unsigned)try_random(seed, count); }

/* Half are whole pages; the rest are of any size. */
static uint64_t size_of(uint64_t *seed) {
  return below(seed, 2) ? (1 + try_random(seed, 5)) * PAGE : try_log_uniform(seed, 1, 9 * MIB);
}

static struct step make_step(uint64_t *seed) {
  struct step step = {.slot = below(seed, SCRIPT_SLOTS), .stream = below(seed, STREAM_COUNT)};
  switch (below(seed, 24)) {
    case 0: step.kind = STEP_TRIM; break;
    case 1: step.kind = STEP_CAP, step.bytes = try_random(seed, 24) * PAGE; break;
    case 2: step.kind = STEP_CONF, step.conf = confs[below(seed, sizeof confs / sizeof *confs)]; break;
    case 3: step.kind = STEP_RETAIN, step.pool = 1 + below(seed, POOL_COUNT); break;
    case 4: step.kind = STEP_RELEASE, step.pool = 1 + below(seed, POOL_COUNT); break;
    case 5: step.kind = below(seed, 2) ? STEP_CAPTURE : STEP_CAPTURED; break;
    case 6: step.kind = below(seed, 2) ? STEP_HOLD : STEP_RETIRE; break;
    case 7: step.kind = STEP_HELP; break;
    case 8: step.kind = STEP_PASS; break;
    case 9: step.kind = STEP_TICK; break;
    case 10:
    case 11:
    case 12: step.kind = STEP_USE; break;
    case 13:
    case 14:
    case 15:
    case 16:
    case 17: step.kind = STEP_GIVE; break;
    default:
      step.kind = STEP_GET, step.bytes = size_of(seed);
      if (below(seed, 6) == 0) step.pool = 1 + below(seed, POOL_COUNT);
  }
  return step;
}

static void torture_seed(uint64_t number, unsigned share) {
  char name[32];
  struct step steps[STEPS];
  uint64_t seed = number;
  snprintf(name, sizeof name, "random%llu", (unsigned long long)number);
  struct script script = {.name = name,
                          .conf = confs[number % (sizeof confs / sizeof *confs)],
                          .steps = steps,
                          .step_count = STEPS,
                          .maker = number % 2 ? GAP__MAKER_STEPPED : GAP__MAKER_OFF,
                          .card_bytes = 96 * MIB,
                          .open = true,
                          .spared = SPARED,
                          .share = share};
  for (unsigned i = 0; i < STEPS; i++) steps[i] = make_step(&seed);
  script_torture(&script);
}

static void random_scripts(void **state) {
  (void)state;
  const char *wanted = getenv("GAP_TORTURE_SEEDS");
  uint64_t count = wanted ? strtoull(wanted, NULL, 10) : SEEDS_QUICK;
  for (uint64_t number = 1; number <= count; number++) torture_seed(number, wanted ? 1 : SHARE_QUICK);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_scripts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
