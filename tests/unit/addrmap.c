/* The address map, against a plain table; clusters are made on purpose by equal homes. */
#include "base/addrmap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ADDRESSES = 3000 };

static void random_operations(void **state) {
  (void)state;
  static uint32_t model[ADDRESSES];
  struct gap__addrmap map;
  uint32_t count = 0;
  assert_int_equal(gap__addrmap_init(&map), 0);
  srand(2);
  for (int round = 0; round < 60000; round++) {
    uint32_t i = (uint32_t)rand() % ADDRESSES;
    uint64_t addr = (uint64_t)(i + 1) << 9;
    assert_int_equal(gap__addrmap_get(&map, addr), model[i]);
    if (model[i]) {
      gap__addrmap_remove(&map, addr);
      model[i] = 0;
      count--;
    } else {
      assert_int_equal(gap__addrmap_reserve(&map), 0);
      gap__addrmap_put(&map, addr, model[i] = (uint32_t)round + 1);
      count++;
    }
    assert_int_equal(map.count, count);
  }
  for (uint32_t i = 0; i < ADDRESSES; i++) assert_int_equal(gap__addrmap_get(&map, (uint64_t)(i + 1) << 9), model[i]);
  gap__addrmap_destroy(&map);
}

/* Removing the first of a cluster must leave the others reachable. */
static void clusters_close_up(void **state) {
  (void)state;
  struct gap__addrmap map;
  assert_int_equal(gap__addrmap_init(&map), 0);
  uint64_t same[8];
  uint32_t home = gap__addrmap_home(&map, 1 << 9), found = 0;
  for (uint64_t i = 1; found < 8; i++) {
    if (gap__addrmap_home(&map, i << 9) == home) same[found++] = i << 9;
  }
  for (uint32_t i = 0; i < 8; i++) gap__addrmap_put(&map, same[i], i + 1);
  for (uint32_t gone = 0; gone < 8; gone++) {
    gap__addrmap_remove(&map, same[gone]);
    for (uint32_t i = 0; i < 8; i++) assert_int_equal(gap__addrmap_get(&map, same[i]), i > gone ? i + 1 : 0);
  }
  gap__addrmap_destroy(&map);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_operations),
      cmocka_unit_test(clusters_close_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
