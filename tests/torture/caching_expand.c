/* Expandable segments of caching_allocator under faults: growth, holes, unmapping, refusal, private pools. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/fault_script.h"

#define SETTINGS "strategy:caching_allocator,max_memory:76MiB,large_segment_size_mb:12,expandable_segments:"

/* Pages of 12 MiB for large requests. */
/* clang-format off */
static const struct step segments[] = {
    GET(0, 1, 300), GET(1, 1, 3 * MIB), GET(2, 1, 10 * MIB), GIVE(1), GET(1, 1, 2 * MIB),     /* growth, split, fit */
    GET(3, 1, 23 * MIB), GET(4, 1, 3 * MIB), GIVE(3), TRIM(0),                                /* a hole in the middle */
    GET(3, 1, 14 * MIB), GET(5, 2, 900 * KIB), GET(6, 2, 900 * KIB), GET(7, 2, 900 * KIB),    /* it is filled */
    USE(3, 2), GIVE(3), GET(8, 1, 1 * MIB), PASS, GET(3, 1, 14 * MIB),                        /* another stream's use */
    GIVE(5), GIVE(6), GIVE(7), GIVE(2), GIVE(3), GET(9, 3, 40 * MIB),                         /* give back, ask again */
    REFUSED(1, 60 * MIB), HELP(9), GET(10, 1, 50 * MIB), GIVE(10), GIVE(0), GIVE(8), TRIM(0), /* fail; callbacks */
    CAPTURE(1), TRIM(0), CAPTURED(1), GIVE(1), GIVE(4), PASS, TRIM(0),                        /* all goes */
    GET(11, 1, 13 * MIB), CONF(SETTINGS "False"), GET(12, 1, 4 * MIB), GET(13, 1, 13 * MIB),  /* both sorts */
    CONF(SETTINGS "True"), GIVE(11), GET(14, 1, 5 * MIB), GIVE(12), GIVE(13), GIVE(14), PASS, TRIM(0),
};
/* clang-format on */

static bool segments_reached(const struct gap__stats *s) {
  return s->num_alloc_retries && s->num_device_free > 5 && s->segment[GAP__KIND_ALL].allocated && s->num_ooms;
}

static void torture_segments(void **state) {
  (void)state;
  static const struct script script = {
      .name = "caching_expand",
      .conf = SETTINGS "True",
      .steps = segments,
      .step_count = COUNT(segments),
      .card_bytes = 108 * MIB,
      .rungs = RUNG(fit) | RUNG(grow) | RUNG(wait) | RUNG(callbacks) | RUNG(fail),
      .reached = segments_reached,
  };
  script_torture(&script);
}

/* ---- private pools ---- */

/* clang-format off */
static const struct step pools[] = {
    RETAIN(1), GET_POOL(0, 1, 1, 6 * MIB), GET_POOL(1, 1, 1, 900), GET(2, 1, 3 * MIB), GET_POOL(3, 1, 1, 20 * MIB),
    GIVE(3), TRIM(0), GET_POOL(3, 1, 1, 18 * MIB), GIVE(0), REFUSED_POOL(1, 1, 60 * MIB), RELEASE(1), TRIM(1), GIVE(3),
    TRIM(1), GIVE(1), RETAIN(2), GET_POOL(4, 2, 2, 30 * MIB), GIVE(4), RELEASE(2), GET(5, 2, 30 * MIB), GIVE(5), GIVE(2),
    PASS, TRIM(0),
};
/* clang-format on */

static void torture_pools(void **state) {
  (void)state;
  static const struct script script = {
      .name = "caching_expand_pools",
      .conf = "strategy:caching_allocator,expandable_segments:True,max_memory:64MiB,large_segment_size_mb:12",
      .steps = pools,
      .step_count = COUNT(pools),
      .card_bytes = 108 * MIB,
      .rungs = RUNG(fit) | RUNG(grow) | RUNG(wait) | RUNG(fail),
  };
  script_torture(&script);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(torture_segments), cmocka_unit_test(torture_pools)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
