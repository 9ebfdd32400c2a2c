/* The strategy `gapless` under faults, following a plan: places without pages, places in use, pages that come and go, plans that
 * are read while the program runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/fault_script.h"
#include "support/plan_maker.h"

/* clang-format off */
#define FIRST GET(0, 1, 6 * MIB), GET(1, 1, 600), GET(2, 2, 3 * MIB), GIVE(0), GET(3, 1, 2 * MIB), GET(4, 1, 5 * MIB), GIVE(2), \
  GET(5, 2, 700 * KIB), GIVE(1), GET(6, 1, 9 * MIB), GIVE(3), GIVE(4), GET(7, 2, 4 * MIB)
#define REST GIVE(5), GIVE(6), GIVE(7)
/* clang-format on */

static const struct step foretold[] = {FIRST, REST};

static struct step plan_steps[] = {
    FIRST,
    PASS,
    TICK,
    REST,
    PASS,
    FIRST,
    REST,
    TRIM(0),
    TICK,
    FIRST,
    PASS,
    REST,
    /* another request, another size, a place that is kept */
    GET(0, 1, 6 * MIB),
    GET(10, 1, 11 * MIB),
    GET(1, 1, 600),
    GET(3, 1, 3 * MIB),
    GET(4, 1, 5 * MIB),
    USE(4, 2),
    GIVE(4),
    GIVE(0),
    FIRST,
    PASS,
    REST,
    GIVE(10),
    CAP(20 * MIB),
    FIRST,
    REST,
    REFUSED(2, 24 * MIB),
    CAP(0),
    {.kind = STEP_CONF, .conf = "plan:/nowhere"},
    GET(0, 1, 6 * MIB),
    GET(1, 1, 600),
    GIVE(0),
    GIVE(1),
    {.kind = STEP_CONF},
    FIRST,
    PASS,
    REST,
    FIRST,
    RETIRE(2),
    REST,
    TRIM(0),
};

/* The plan foretells the requests of `foretold`; streams 1 and 2 are its first and second. */
static void make_plan(struct plan_maker *m) {
  uint32_t slots[SCRIPT_SLOTS];
  plan_begin(m);
  for (size_t i = 0; i < COUNT(foretold); i++) {
    const struct step *step = &foretold[i];
    if (step->kind == STEP_GET) slots[step->slot] = plan_alloc(m, step->stream - 1, step->bytes);
    else plan_free(m, slots[step->slot]);
  }
  plan_finish(m);
}

static bool plan_reached(const struct gap__stats *s) {
  return s->plan_placed > 40 && s->plan_unexpected && s->plan_taken && s->plan_periods > 4;
}

static void torture_plan(void **state) {
  (void)state;
  static struct plan_maker m;
  static char conf[128], plan[128];
  make_plan(&m);
  snprintf(conf, sizeof conf, "max_memory:48MiB,reserve:0,plan:%s", m.path);
  snprintf(plan, sizeof plan, "plan:%s", m.path);
  for (size_t i = 0; i < COUNT(plan_steps); i++)
    if (plan_steps[i].kind == STEP_CONF && !plan_steps[i].conf) plan_steps[i].conf = plan;
  struct script script = {
      .name = "plan",
      .conf = conf,
      .steps = plan_steps,
      .step_count = COUNT(plan_steps),
      .maker = GAP__MAKER_STEPPED,
      .spared = SPARED,
      .card_bytes = 160 * MIB,
      .rungs = RUNG(grow) | RUNG(fail),
      .reached = plan_reached,
  };
  script_torture(&script);
  plan_remove(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(torture_plan)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
