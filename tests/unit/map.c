/* The hash map against a plain array, through growth, removals and runs that wrap around. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/map.h"
#include "gapless/gapless.h"

static void test_empty(void **state) {
  (void)state;
  struct gap__map map = {0};
  uint64_t value = 7;
  size_t cursor = 0;
  struct gap__map_slot slot;
  assert_false(gap__map_get(&map, 0, &value));
  assert_false(gap__map_remove(&map, 0, &value));
  assert_false(gap__map_next(&map, &cursor, &slot));
  assert_int_equal(value, 7);
  gap__map_free(&map);
}

static void test_replace(void **state) {
  (void)state;
  struct gap__map map = {0};
  uint64_t value = 0;
  assert_int_equal(gap__map_put(&map, 0, 1), 0);
  assert_int_equal(gap__map_put(&map, UINT64_MAX, 2), 0);
  assert_int_equal(gap__map_put(&map, 0, 3), 0);
  assert_int_equal(map.count, 2);
  assert_true(gap__map_get(&map, 0, &value));
  assert_int_equal(value, 3);
  assert_true(gap__map_remove(&map, UINT64_MAX, &value));
  assert_int_equal(value, 2);
  assert_false(gap__map_get(&map, UINT64_MAX, NULL));
  gap__map_free(&map);
}

enum { KEYS = 3000 };

static uint64_t key_of(unsigned i) { return (uint64_t)i << 21; } /* page addresses differ in few bits */

static void check_against(const struct gap__map *map, const uint64_t *model) {
  size_t present = 0, cursor = 0, walked = 0;
  for (unsigned i = 0; i < KEYS; i++) {
    uint64_t value = 0;
    assert_int_equal(gap__map_get(map, key_of(i), &value), model[i] != 0);
    assert_int_equal(value, model[i]);
    present += model[i] != 0;
  }
  for (struct gap__map_slot slot; gap__map_next(map, &cursor, &slot); walked++)
    assert_int_equal(slot.value, model[slot.key >> 21]);
  assert_int_equal(map->count, present);
  assert_int_equal(walked, present);
}

static void test_against_model(void **state) {
  (void)state;
  struct gap__map map = {0};
  static uint64_t model[KEYS];
  uint64_t seed = 1;
  for (unsigned step = 1; step <= 60000; step++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    unsigned i = (unsigned)(seed >> 33) % KEYS;
    if (seed >> 63) {
      assert_int_equal(gap__map_put(&map, key_of(i), step), 0);
      model[i] = step;
    } else {
      uint64_t value = 0;
      assert_int_equal(gap__map_remove(&map, key_of(i), &value), model[i] != 0);
      assert_int_equal(value, model[i]);
      model[i] = 0;
    }
    if (step % 6000 == 0) check_against(&map, model);
  }
  assert_true(map.count * 4 <= map.slot_count * 3);
  gap__map_free(&map);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_empty),
      cmocka_unit_test(test_replace),
      cmocka_unit_test(test_against_model),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
