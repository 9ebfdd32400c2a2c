/* The strategy `gapless` under faults: each rung of its ladder, under a cap of ten pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/fault_script.h"

/* clang-format off */
static const struct step ladder[] = {
    GET(0, 1, 8 * MIB), GET(1, 1, 6 * MIB), GET(2, 1, 4 * MIB),             /* grow */
    GET(3, 1, 300), GET(4, 1, 40 * KIB), GIVE(3), GET(3, 1, 300),           /* a corner, the front cache */
    GIVE(0), GET(0, 1, 5 * MIB), GET(5, 1, 3 * MIB), GIVE(5),               /* fit, split */
    USE(1, 2), GIVE(1), PASS, GET(1, 1, 6 * MIB),                           /* pending */
    USE(1, 2), HOLD(2), GIVE(1), GET(1, 1, 6 * MIB),                        /* wait for a pending block */
    GIVE(0), GIVE(2), GIVE(5), REFUSED(1, 21 * MIB), PASS,                  /* fail; closes the epoch */
    GET(6, 2, 8 * MIB),                                                     /* steal: the other stream's work has ended */
    GIVE(6), HOLD(2), GET(7, 3, 8 * MIB),                                   /* order behind, or wait */
    GIVE(7), GET(8, 1, 10 * MIB),
    GIVE(8), GIVE(1), GIVE(3), GIVE(4), GET(9, 1, 18 * MIB),                /* one stream: its pages move at once */
    GIVE(9), GET(10, 1, 2 * MIB), GET(11, 1, 6 * MIB), GET(12, 1, 2 * MIB), /* gaps */
    GET(13, 1, 6 * MIB), GIVE(11), GIVE(13), GET(14, 1, 12 * MIB),          /* stitch */
    HELP(14), GET(15, 1, 14 * MIB), GIVE(10), GIVE(12), GIVE(15),           /* callbacks */
    PASS, TRIM(0), GET(0, 1, 8 * MIB), GET(1, 1, 4 * MIB), GET(2, 1, 8 * MIB), GIVE(0), GIVE(2), GET(3, 1, 12 * MIB), GIVE(3),
    GET(4, 1, 8 * MIB), GET(5, 1, 8 * MIB), GIVE(1), GIVE(4), GIVE(5), PASS, /* mappings that still stand are taken back */
    TRIM(0), GET(0, 2, 6 * MIB), GET(1, 3, 6 * MIB), GIVE(0), GIVE(1), HOLD(2), HOLD(3), GET(2, 1, 20 * MIB), /* wait */
};
/* clang-format on */

static bool ladder_reached(const struct gap__stats *s) {
  return s->pages_stolen_alias && s->pages_reclaimed_mapping && s->pages_trimmed && s->stalls && s->num_ooms;
}

static void torture_ladder(void **state) {
  (void)state;
  static const struct script script = {
      .name = "ladder",
      .conf = "max_memory:20MiB,reserve:0",
      .steps = ladder,
      .step_count = COUNT(ladder),
      .spared = SPARED,
      .card_bytes = 64 * MIB,
      .rungs = RUNG(fit) | RUNG(pending) | RUNG(grow) | RUNG(steal) | RUNG(wait) | RUNG(callbacks) | RUNG(fail),
      .reached = ladder_reached,
  };
  script_torture(&script);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(torture_ladder)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
