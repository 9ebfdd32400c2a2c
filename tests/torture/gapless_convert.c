/* The strategy `gapless` under faults: conversion, behind the gate and at safe points.  Whatever call fails, contents and mappings are
 * whole: addresses are between two memories only while the driver unmaps the one and maps the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/fault_script.h"

/* A driver that never maps or lets in again between unmapping and mapping leaves nothing to be done:
 * unit.conversion:torn_and_healed. */
#define ONCE (1ull << GAP__CALL_map | 1ull << GAP__CALL_set_access)

/* clang-format off */
static const struct step gated[] = {
    GET(0, 1, 32 * MIB), GET(1, 1, 26 * MIB), GIVE(0), GET(2, 1, 2 * MIB), GET(3, 1, 9 * MIB), GET(4, 1, 3 * MIB), GIVE(3),
    USE(2, 2), PASS, GET(5, 1, 32 * MIB), PASS,                                /* one chunk with two kept runs */
    GIVE(5), GIVE(4), GET(6, 2, 20 * MIB), GET(7, 1, 700), USE(1, 3), GIVE(1), /* its pages move on; a pending block */
    GET(8, 3, 16 * MIB), PASS, GIVE(6), GIVE(8), GIVE(2), PASS, TRIM(0),
    GET(0, 1, 30 * MIB), GET(1, 2, 24 * MIB), GIVE(0), GIVE(1), GET(2, 1, 3 * MIB), GET(3, 2, 1 * MIB), HOLD(2),
    GET(9, 3, 38 * MIB), PASS,                                                 /* two chunks behind one gate */
    GIVE(9), CAPTURE(2), GET(10, 1, 40 * MIB), CAPTURED(2), GIVE(10), RETIRE(2), GET(11, 1, 34 * MIB), PASS,
};
static const struct step safe_points[] = {
    GET(0, 1, 32 * MIB), GET(1, 2, 30 * MIB), GIVE(0), GIVE(1), GET(2, 1, 2 * MIB), GET(3, 2, 3 * MIB), USE(2, 2), PASS,
    DEFRAGMENT, GET(4, 1, 46 * MIB), GIVE(4), GIVE(2), GIVE(3), PASS, TRIM(0),
    GET(0, 1, 32 * MIB), GET(1, 1, 8 * MIB), GIVE(0), GET(2, 1, 5 * MIB), USE(2, 3), GIVE(1), TRIM(0), GET(5, 3, 50 * MIB), PASS,
    CONF("convert:off"), GIVE(5), GET(6, 1, 30 * MIB),
};
/* clang-format on */

static bool converted(const struct gap__stats *s) { return s->conversions >= 3; }

static void torture_gated(void **state) {
  (void)state;
  static const struct script script = {
      .name = "gated",
      .conf = "max_memory:64MiB,reserve:0,convert:gated",
      .steps = gated,
      .step_count = COUNT(gated),
      .spared = SPARED,
      .once = ONCE,
      .share = 3,
      .card_bytes = 160 * MIB,
      .rungs = RUNG(grow) | RUNG(convert),
      .open = true,
      .reached = converted,
  };
  script_torture(&script);
}

static void torture_safe_points(void **state) {
  (void)state;
  static const struct script script = {
      .name = "safe_points",
      .conf = "max_memory:64MiB,reserve:0,convert:safe_points,chunk_max:32MiB",
      .steps = safe_points,
      .step_count = COUNT(safe_points),
      .spared = SPARED,
      .once = ONCE,
      .share = 3,
      .card_bytes = 160 * MIB,
      .rungs = RUNG(grow),
      .open = true,
      .reached = converted,
  };
  script_torture(&script);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(torture_gated), cmocka_unit_test(torture_safe_points)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
