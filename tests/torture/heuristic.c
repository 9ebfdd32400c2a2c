/* The strategy `heuristic` under faults: it goes from segments to pages and back while blocks of both live. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/fault_script.h"

/* clang-format off */
static const struct step choices[] = {
    GET(0, 1, 6 * MIB), GET(1, 1, 300), GET(2, 2, 11 * MIB), USE(0, 2), GIVE(0), PASS, /* segments */
    RETAIN(1), GET_POOL(3, 2, 1, 3 * MIB), GET(4, 1, 40 * MIB),                          /* more than half: pages */
    GIVE(2), GET_POOL(5, 2, 1, 700), GET(6, 3, 5 * MIB), USE(6, 1), GIVE(6), GIVE(3), PASS, TRIM(0),
    GIVE(4), CAP(36 * MIB), GET(7, 1, 2 * MIB), GET(8, 3, 9 * MIB), GIVE(7), TRIM(0),
    CAP(0), GET(9, 1, 2 * MIB),                                                           /* segments again */
    CONF("heuristic,reserve:0,max_memory:80MiB"), GET(10, 1, 2 * MIB), RETIRE(3), GIVE(8), GIVE(9),
    CONF("gapless,reserve:0"), GET(11, 1, MIB), CONF("heuristic,reserve:0"), GET(12, 1, MIB),
    GIVE(10), GIVE(5), RELEASE(1), GIVE(11), GIVE(1), PASS, TRIM(0), GET(13, 2, 20 * MIB),
};
/* clang-format on */

static bool choices_reached(const struct gap__stats *s) { return s->strategy_changes >= 3 && s->pages_grown; }

static void torture_choices(void **state) {
  (void)state;
  static const struct script script = {
      .name = "choices",
      .conf = "heuristic,reserve:0",
      .steps = choices,
      .step_count = COUNT(choices),
      .spared = SPARED,
      .card_bytes = 96 * MIB,
      .rungs = RUNG(grow),
      .reached = choices_reached,
  };
  script_torture(&script);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(torture_choices)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
