/* The strategy `gapless` under faults: private pools, capture, streams that end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/fault_script.h"

/* clang-format off */
static const struct step pools[] = {
    RETAIN(1), GET_POOL(0, 1, 1, 6 * MIB), GET_POOL(1, 1, 1, 900), CAPTURE(1), GIVE(0), GET_POOL(2, 1, 1, 2 * MIB),
    GET(3, 2, 4 * MIB), USE(3, 1), GIVE(3), GET(4, 2, 4 * MIB), /* freed under capture: its use cannot be recorded yet */
    GIVE(2), GET_POOL(5, 1, 1, 5 * MIB), CAPTURED(1), GET(12, 2, 512), PASS, GET(3, 2, 4 * MIB), REFUSED(2, 13 * MIB), REFUSED(1, 17 * MIB),
    TRIM(0), TRIM(1), RETAIN(1), RETAIN(2), GET_POOL(6, 3, 2, 2 * MIB), GIVE(5), GIVE(1), RELEASE(1), TRIM(1), RELEASE(1),
    TRIM(1), GET(7, 3, 6 * MIB), GIVE(6), RELEASE(2), GET(8, 4, 2 * MIB), /* what a released pool had serves all */
    GIVE(7), RETIRE(3), PASS, RECYCLE(3), GET(9, 3, 6 * MIB), GIVE(9), USE(8, 3), USE(8, 5), USE(8, 6), RECYCLE(5), GIVE(8),
    GET(10, 3, 8 * MIB), RETIRE(5), RETIRE(6), GIVE(10), GIVE(3), GIVE(4), RETAIN(3), GET_POOL(11, 5, 3, 16 * MIB), TRIM(0),
    TRIM(3), GIVE(11), RELEASE(3), TRIM(3),
};

/* Inside a capture blocks that other streams have used come back after their joins; one of them only when the capture has ended. */
static const struct step graphs[] = {
    RETAIN(1), CAPTURE(1), GET_POOL(0, 1, 1, 900), GET_POOL(1, 1, 1, 3 * MIB), ORDER(2, 1), ORDER(3, 1), USE(0, 2), USE(1, 2),
    USE(1, 3), GIVE(0), GIVE(1), GET_POOL(2, 1, 1, 900), ORDER(1, 2), GET_POOL(3, 1, 1, 900), GET_POOL(4, 1, 1, 3 * MIB),
    ORDER(1, 3), GET_POOL(5, 1, 1, 3 * MIB), USE(5, 2), ORDER(2, 3), USE(5, 3), GIVE(5), ORDER(3, 2), ORDER(2, 3), GET_POOL(6, 1, 1, 3 * MIB),
    ORDER(1, 2), GET_POOL(7, 1, 1, 3 * MIB), USE(7, 3), GIVE(7), CAPTURED(1), GET_POOL(8, 1, 1, 3 * MIB), PASS,
    GET_POOL(9, 1, 1, 3 * MIB), GIVE(9), GIVE(8), RELEASE(1), TRIM(1),
};
/* clang-format on */

static bool pools_reached(const struct gap__stats *s) {
  return s->pages_trimmed && s->pages_stolen && s->num_ooms == 2;
}

static void torture_pools(void **state) {
  (void)state;
  static const struct script script = {
      .name = "pools",
      .conf = "max_memory:20MiB,reserve:0,nmalloc:2",
      .steps = pools,
      .step_count = COUNT(pools),
      .spared = SPARED,
      .card_bytes = 64 * MIB,
      .rungs = RUNG(grow) | RUNG(fail) | RUNG(pending),
      .reached = pools_reached,
  };
  script_torture(&script);
}

static bool graphs_reached(const struct gap__stats *s) {
  return s->rung_count[GAP__RUNG_pending] >= 4 && s->reserved_bytes[0].peak <= 16 * (int64_t)MIB;
}

static void torture_graphs(void **state) {
  (void)state;
  static const struct script script = {
      .name = "graphs",
      .conf = "max_memory:40MiB,reserve:0,graph_capture_record_stream_reuse:True",
      .steps = graphs,
      .step_count = COUNT(graphs),
      .spared = SPARED,
      .card_bytes = 64 * MIB,
      .rungs = RUNG(grow) | RUNG(pending),
      .reached = graphs_reached,
  };
  script_torture(&script);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(torture_pools), cmocka_unit_test(torture_graphs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
