/* The strategy `gapless` under faults, without a cap: large chunks, the page maker, idle pages before new ones; then caps below
 * what is held. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/fault_script.h"

/* clang-format off */
static const struct step growth[] = {
    GET(0, 1, 34 * MIB), PASS, TICK, GET(1, 1, 3 * MIB), TICK, GET(2, 2, 10 * MIB), GIVE(0), GIVE(2), GET(3, 1, 600), PASS, TICK,
    GET(4, 2, 30 * MIB), GIVE(4), GET(5, 3, 300), PASS, /* steal_ready */
    GET(6, 3, 6 * MIB), GET(7, 3, 4 * MIB), GET(8, 3, 4 * MIB), GET(9, 3, 16 * MIB), TICK,
    GIVE(7), GIVE(9), GET(10, 1, 14 * MIB), GIVE(6), GIVE(8), GIVE(10), PASS,
    GET(11, 2, 2 * MIB), GET(12, 2, 10 * MIB), GIVE(11), GET(13, 2, 5 * MIB), TICK, /* stolen chunks too large for a gap */
    CAP(20 * MIB), REFUSED(2, 24 * MIB), GIVE(12), CAP(22 * MIB), GET(14, 1, 4 * MIB), /* a cap below what is held, and live */
    CAP(2 * MIB), REFUSED(1, 4 * MIB), CAP(40 * MIB), GET(15, 1, 12 * MIB), GIVE(13), GIVE(15), TRIM(0),
    CONF("chunk_max:8MiB,reserve:4MiB,grow_limit:1.2"), CAP(0), GET(16, 1, 66 * MIB), GET(17, 2, 17 * MIB), GIVE(16),
    GET(18, 1, 21 * MIB), GIVE(17), GIVE(18), PASS, GET(19, 2, 40 * MIB), TICK, PASS, TICK,
};
/* clang-format on */

static bool growth_reached(const struct gap__stats *s) {
  return s->pages_made_ahead && s->pages_trimmed && s->pages_stolen;
}

static void torture_growth(void **state) {
  (void)state;
  static const struct script script = {
      .name = "growth",
      .conf = "chunk_max:4MiB,reserve:4MiB,grow_limit:1.5",
      .steps = growth,
      .step_count = COUNT(growth),
      .maker = GAP__MAKER_STEPPED,
      .spared = SPARED,
      .card_bytes = 160 * MIB,
      .rungs = RUNG(grow) | RUNG(steal_ready) | RUNG(fail),
      .reached = growth_reached,
  };
  script_torture(&script);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(torture_growth)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
