/* Overflow under faults: host memory behind device addresses, under a cap of four pages, each driver call and each piece of host memory
 * failing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/fault_script.h"

/* clang-format off */
static const struct step overflow[] = {
    GET(0, 1, 8 * MIB), GET(1, 1, 3 * MIB), GET(2, 1, 300), GET(3, 1, 40 * KIB),       /* made */
    GIVE(1), GET(1, 1, 4 * MIB), GIVE(2), GIVE(3), GET(2, 1, 6 * MIB),                 /* fit, and stitched */
    GIVE(2), PASS, GET(4, 2, 6 * MIB),                                                 /* from another stream */
    GIVE(4), HOLD(2), GET(5, 1, 6 * MIB), GIVE(5),                                     /* ordered behind it */
    GIVE(0), GET(0, 1, 5 * MIB), GET(6, 1, 9 * MIB),                                   /* the device first */
    USE(6, 2), GIVE(6), PASS, GET(6, 1, 9 * MIB), REFUSED(1, 60 * MIB),                /* pending */
    TRIM(0), GIVE(6), GIVE(1), TRIM(0), GET(7, 3, 12 * MIB), GET(8, 3, 2 * MIB),
    CONF("max_memory:8MiB,reserve:0"), GIVE(7), REFUSED(3, 14 * MIB), CONF("max_memory:8MiB,reserve:0,overflow:12MiB"), GET(9, 3, 10 * MIB),
};
/* clang-format on */

static bool reached(const struct gap__stats *s) {
  return s->overflow_bytes_peak >= 12 * (int64_t)MIB && s->pages_stolen_alias && s->overflow_refused;
}

static void torture_overflow(void **state) {
  (void)state;
  static const struct script script = {
      .name = "overflow",
      .conf = "max_memory:8MiB,reserve:0,overflow:20MiB",
      .steps = overflow,
      .step_count = COUNT(overflow),
      .spared = SPARED,
      .card_bytes = 64 * MIB,
      .rungs = RUNG(grow) | RUNG(overflow) | RUNG(fail),
      .reached = reached,
  };
  script_torture(&script);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(torture_overflow)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
