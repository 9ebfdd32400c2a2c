/* Size classes under faults: trays that are cut and dissolve, shorter ones at the cap, blocks that other streams use, private
 * pools, and the strategy that changes while blocks of both kinds live. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/fault_script.h"

/* clang-format off */
static const struct step classes[] = {
    GET(0, 1, 100), GET(1, 1, 900 * KIB), GET(2, 1, 1200 * KIB), GET(3, 1, 3 * MIB), /* the last one's tray has 6 MiB */
    GIVE(3), GIVE(1), GET(4, 1, 5 * MIB), GIVE(4),                                  /* no class: pages of its own */
    GET(5, 2, 700 * KIB), USE(5, 1), GIVE(5), GET(6, 2, 700 * KIB), PASS, GET(7, 2, 700 * KIB), GIVE(6), GIVE(7),
    RETAIN(1), GET_POOL(8, 1, 1, 20 * KIB), GET_POOL(9, 1, 1, 2 * MIB), GIVE(8), GET_POOL(8, 1, 1, 17 * KIB), GIVE(9),
    CONF("gapless,max_memory:20MiB,reserve:0"),
    GIVE(2), GET(10, 1, 1100 * KIB), GET(11, 2, 6 * MIB),
    CONF("pooled,max_memory:20MiB,reserve:0"),
    GET(12, 2, 2 * MIB), GIVE(10), GIVE(11), GET(13, 3, 3 * MIB), REFUSED(3, 12 * MIB), GIVE(12), PASS, TRIM(0),
    GET(14, 3, 3 * MIB), GIVE(8), RELEASE(1), GET(15, 3, 4 * MIB), GIVE(13), RETIRE(3), GIVE(14), GIVE(15), GET(16, 1, 8 * MIB),
};
/* clang-format on */

static bool classes_reached(const struct gap__stats *s) {
  return s->pages_grown && s->pages_stolen && s->class_trays && s->num_ooms == 1;
}

static void torture_classes(void **state) {
  (void)state;
  static const struct script script = {
      .name = "classes",
      .conf = "pooled,max_memory:20MiB,reserve:0",
      .steps = classes,
      .step_count = COUNT(classes),
      .spared = SPARED,
      .card_bytes = 64 * MIB,
      .rungs = RUNG(fit) | RUNG(grow) | RUNG(fail),
      .share = 3,
      .reached = classes_reached,
  };
  script_torture(&script);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(torture_classes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
