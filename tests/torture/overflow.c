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
      .share = 3,
      .card_bytes = 64 * MIB,
      .rungs = RUNG(grow) | RUNG(overflow) | RUNG(fail),
      .reached = reached,
  };
  script_torture(&script);
}

/* clang-format off */
static const struct step moves[] = {
    GET(0, 1, 8 * MIB), GET(1, 1, 5 * MIB), COLD(0), COLD(1), GET(2, 1, 3 * MIB), GET(3, 1, 6 * MIB), /* out, behind the gate */
    USE(0, 2), GIVE(0), PASS, GET(4, 1, 8 * MIB), GET(5, 2, 4 * MIB),                                 /* a moved one is freed */
    COLD(4), GIVE(3), DEFRAGMENT, GET(3, 1, 7 * MIB), WARM(1), GIVE(2), GIVE(5), PASS, DEFRAGMENT,    /* and back */
    TRIM(0), GET(2, 2, 16 * MIB), COLD(2), COLD(3), DEFRAGMENT, WARM(2), GIVE(4), GIVE(1), PASS, TICK, DEFRAGMENT,
    GIVE(2), GIVE(3), PASS, TRIM(0), GET(6, 3, 12 * MIB),
};
/* clang-format on */

/* A driver that never maps again between unmapping and mapping leaves nothing to be done (torture/gapless_convert.c). */
#define ONCE (1ull << GAP__CALL_map | 1ull << GAP__CALL_set_access)

static bool moved(const struct gap__stats *s) {
  return s->overflow_out_bytes >= 10 * (int64_t)MIB && s->overflow_back_bytes >= 6 * (int64_t)MIB;
}

static void torture_moves(void **state) {
  (void)state;
  static const struct script script = {
      .name = "moves",
      .conf = "max_memory:16MiB,reserve:0,overflow:32MiB,convert:gated",
      .steps = moves,
      .step_count = COUNT(moves),
      .spared = SPARED,
      .once = ONCE,
      .share = 4,
      .card_bytes = 64 * MIB,
      .rungs = RUNG(overflow),
      .reached = moved,
  };
  script_torture(&script);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(torture_overflow), cmocka_unit_test(torture_moves)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
