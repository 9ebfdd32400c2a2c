/* The replay's address map against a plain array, through growth, collisions and removals in every order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "replay/blockmap.h"

enum { KEYS = 20000, ROUNDS = 400000 };

static uint64_t random_state = 88172645463325252u;
static uint64_t next_random(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

static uint64_t key_of(size_t i) { return 0x7f0000000000 + (uint64_t)i * 512; }

static void agree(const struct gap__blockmap *map, const uint64_t *expected, size_t i) {
  struct gap__blockmap_entry *entry = gap__blockmap_find(map, key_of(i));
  if (expected[i] == 0) {
    assert_null(entry);
    return;
  }
  assert_non_null(entry);
  assert_int_equal(entry->addr, expected[i]);
}

static void test_against_an_array(void **state) {
  (void)state;
  static uint64_t expected[KEYS];
  struct gap__blockmap map;
  size_t count = 0;
  assert_int_equal(gap__blockmap_init(&map), 0);
  for (int round = 0; round < ROUNDS; round++) {
    size_t i = next_random() % KEYS;
    agree(&map, expected, i);
    if (expected[i] == 0) {
      expected[i] = next_random() | 1;
      gap__blockmap_put(&map, key_of(i))->addr = expected[i];
      count++;
    } else {
      gap__blockmap_take(&map, gap__blockmap_find(&map, key_of(i)));
      expected[i] = 0;
      count--;
    }
    assert_int_equal(map.count, count);
  }
  for (size_t i = 0; i < KEYS; i++) agree(&map, expected, i);
  gap__blockmap_destroy(&map);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_an_array)};
  return cmocka_run_group_tests_name("blockmap", tests, NULL, NULL);
}
