/* The strategy `caching_allocator` under faults: its ladder with garbage collection, private pools. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/fault_script.h"

/* clang-format off */
static const struct step ladder[] = {
    GET(0, 1, 300), GET(1, 1, 1 * MIB), GET(2, 1, 3 * MIB), GET(3, 1, 4 * MIB), GIVE(2), GET(2, 1, 2 * MIB), /* split, fit */
    GIVE(0), GIVE(1), GET(0, 1, 700 * KIB), GET(1, 2, 512),
    USE(3, 2), GIVE(3), GET(4, 1, 5 * MIB), PASS, GET(3, 1, 4 * MIB),    /* a block that another stream uses */
    USE(3, 2), USE(3, 4), HOLD(4), GIVE(3), GET(5, 1, 11 * MIB),         /* two of them */
    USE(4, 3), CAPTURE(3), GIVE(4), GET(6, 1, 700), CAPTURED(3), GET(7, 1, 900), PASS, GET(4, 1, 5 * MIB), /* a capture */
    GET(8, 1, 24 * MIB), GIVE(8), GIVE(5), GET(8, 2, 30 * MIB),          /* give everything idle back, ask again */
    GIVE(8), GIVE(4), GIVE(2), GIVE(3), PASS, TRIM(0),
    GET(9, 1, 24 * MIB), GET(10, 1, 26 * MIB), GIVE(9), GIVE(10), GET(11, 1, 34 * MIB),  /* give oversize blocks back */
    GET(12, 1, 3 * MIB), GIVE(11), GET(13, 2, 3 * MIB), GIVE(13), GET(14, 3, 3 * MIB),   /* garbage */
    GIVE(12), GIVE(14), GET(15, 2, 40 * MIB), REFUSED(1, 30 * MIB), HELP(15), GET(16, 1, 30 * MIB), /* fail; callbacks */
    GIVE(16), GIVE(0), GIVE(6), PASS, TRIM(0),
};
/* clang-format on */

static bool ladder_reached(const struct gap__stats *s) {
  return s->num_alloc_retries && s->num_sync_all_streams && s->num_device_free > 3 && s->stalls && s->num_ooms;
}

static void torture_ladder(void **state) {
  (void)state;
  static const struct script script = {
      .name = "caching",
      .conf = "strategy:caching_allocator,max_memory:64MiB,large_segment_size_mb:12,max_split_size_mb:20,"
              "garbage_collection_threshold:0.8",
      .steps = ladder,
      .step_count = COUNT(ladder),
      .card_bytes = 96 * MIB,
      .rungs = RUNG(fit) | RUNG(grow) | RUNG(wait) | RUNG(callbacks) | RUNG(fail),
      .reached = ladder_reached,
  };
  script_torture(&script);
}

/* ---- private pools ---- */

/* clang-format off */
static const struct step pools[] = {
    REFUSED(1, 60 * MIB), RETAIN(1), GET_POOL(0, 1, 1, 6 * MIB), GET_POOL(1, 1, 1, 900), GET(2, 1, 3 * MIB), CAPTURE(1),
    GIVE(0), USE(2, 1), GET_POOL(3, 1, 1, 2 * MIB), GET(4, 2, 4 * MIB), USE(4, 1), GIVE(4), GET(5, 2, 4 * MIB), CAPTURED(1),
    PASS, RETAIN(1), RETAIN(2), GET_POOL(6, 2, 2, 900 * KIB), RELEASE(1), TRIM(1), GIVE(1), GIVE(3), RELEASE(1), TRIM(1),
    GIVE(6), RELEASE(2), GET(7, 2, 20 * MIB), GIVE(7), GIVE(2), PASS, RETAIN(3), RELEASE(3), TRIM(0), RETAIN(1),
    GET_POOL(8, 1, 1, 3 * MIB), RETIRE(1), GIVE(8), RELEASE(1), GET(9, 3, 30 * MIB), GIVE(9), GET(10, 4, 30 * MIB), CAP(8 * MIB),
    REFUSED(3, 3 * MIB), GIVE(10), CAP(48 * MIB), GET(11, 3, 5 * MIB), PASS, TRIM(0),
};
/* clang-format on */

static void torture_pools(void **state) {
  (void)state;
  static const struct script script = {
      .name = "caching_pools",
      .conf = "strategy:caching_allocator,max_memory:48MiB,large_segment_size_mb:12,nmalloc:2",
      .steps = pools,
      .step_count = COUNT(pools),
      .card_bytes = 96 * MIB,
      .rungs = RUNG(fit) | RUNG(grow) | RUNG(wait) | RUNG(fail),
  };
  script_torture(&script);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(torture_ladder), cmocka_unit_test(torture_pools)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
