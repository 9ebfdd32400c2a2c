/* Strategies that change while blocks live, under faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/fault_script.h"

/* clang-format off */
static const struct step changes[] = {
    GET(0, 1, 6 * MIB), GET(1, 1, 300), RETAIN(1), GET_POOL(2, 2, 1, 3 * MIB), USE(0, 2),
    CONF("strategy:caching_allocator,max_memory:32MiB,large_segment_size_mb:12,reserve:0"),
    GET(3, 1, 5 * MIB), GET(12, 1, 2 * MIB), GIVE(0), GET_POOL(4, 2, 1, 500), GET(5, 3, 700 * KIB), GIVE(2), USE(3, 3), PASS,
    RETAIN(2), RETAIN(2), GET_POOL(6, 1, 2, 400),
    CONF("strategy:gapless,max_memory:32MiB,reserve:0"),
    GIVE(3), GET(7, 1, 4 * MIB), GIVE(4), GET_POOL(13, 2, 2, 2 * MIB), RELEASE(2), GIVE(13), RELEASE(1), GET(8, 3, 2 * MIB),
    CONF("strategy:caching_allocator,max_memory:40MiB,large_segment_size_mb:12,reserve:0"),
    GET(9, 1, 10 * MIB), GIVE(7), GIVE(5), RELEASE(2), TRIM(0),
    CONF("strategy:gapless,max_memory:40MiB,reserve:0,granularity:4KiB"),
    GET(10, 2, 6 * MIB + 100), GIVE(9), PASS, TRIM(0), RETIRE(2), GIVE(8), GET(11, 3, 8 * MIB),
};
/* clang-format on */

static bool changes_reached(const struct gap__stats *s) { return s->pages_grown && s->segment[0].freed > 2; }

static void torture_changes(void **state) {
  (void)state;
  static const struct script script = {
      .name = "changes",
      .conf = "max_memory:32MiB,reserve:0",
      .steps = changes,
      .step_count = COUNT(changes),
      .spared = SPARED,
      .card_bytes = 96 * MIB,
      .rungs = RUNG(fit) | RUNG(grow),
      .reached = changes_reached,
  };
  script_torture(&script);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(torture_changes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
