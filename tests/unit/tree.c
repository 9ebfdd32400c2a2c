/* The ordered set, against a sorted array. */
#include "base/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { KEYS = 2000 };

struct key {
  uint64_t major, minor;
  uint32_t index;
};

struct model {
  struct gap__slab slab;
  struct gap__tree tree;
  struct key sorted[KEYS];
  uint32_t count;
};

static int order(const void *a, const void *b) {
  const struct key *x = a, *y = b;
  if (x->major != y->major) return x->major < y->major ? -1 : 1;
  return (x->minor > y->minor) - (x->minor < y->minor);
}

static int setup(void **state) {
  struct model *model = calloc(1, sizeof *model);
  assert_int_equal(gap__slab_init(&model->slab, sizeof(struct gap__tree_node), KEYS + 1), 0);
  *state = model;
  return 0;
}

static int teardown(void **state) {
  struct model *model = *state;
  gap__slab_destroy(&model->slab);
  free(model);
  return 0;
}

static uint32_t add(struct model *model, uint64_t major, uint64_t minor) {
  uint32_t index = gap__slab_take(&model->slab);
  *gap__tree_node_at(&model->slab, index) = (struct gap__tree_node){.major = major, .minor = minor};
  gap__tree_insert(&model->tree, &model->slab, index);
  model->sorted[model->count++] = (struct key){major, minor, index};
  qsort(model->sorted, model->count, sizeof *model->sorted, order);
  return index;
}

static void drop(struct model *model, uint32_t place) {
  gap__tree_erase(&model->tree, &model->slab, model->sorted[place].index);
  gap__slab_give(&model->slab, model->sorted[place].index);
  for (uint32_t i = place + 1; i < model->count; i++) model->sorted[i - 1] = model->sorted[i];
  model->count--;
}

static void compare_lookup(const struct model *model, uint64_t major, uint64_t minor) {
  struct key key = {major, minor, 0};
  uint32_t place = 0;
  while (place < model->count && order(&model->sorted[place], &key) < 0) place++;
  uint32_t at_least = place < model->count ? model->sorted[place].index : 0;
  uint32_t below = place ? model->sorted[place - 1].index : 0;
  assert_int_equal(gap__tree_at_least(&model->tree, &model->slab, major, minor), at_least);
  assert_int_equal(gap__tree_below(&model->tree, &model->slab, major, minor), below);
}

static void empty(void **state) {
  struct model *model = *state;
  assert_int_equal(gap__tree_first(&model->tree, &model->slab), 0);
  assert_int_equal(gap__tree_last(&model->tree, &model->slab), 0);
  assert_true(gap__tree_check(&model->tree, &model->slab));
}

static void equal_majors_go_by_minor(void **state) {
  struct model *model = *state;
  uint32_t high = add(model, 7, 30), low = add(model, 7, 10), middle = add(model, 7, 20), other = add(model, 6, 99);
  assert_int_equal(gap__tree_at_least(&model->tree, &model->slab, 7, 0), low);
  assert_int_equal(gap__tree_next(&model->tree, &model->slab, low), middle);
  assert_int_equal(gap__tree_next(&model->tree, &model->slab, middle), high);
  assert_int_equal(gap__tree_next(&model->tree, &model->slab, high), 0);
  assert_int_equal(gap__tree_below(&model->tree, &model->slab, 7, 10), other);
}

static void random_operations(void **state) {
  struct model *model = *state;
  srand(1);
  for (int round = 0; round < 4000; round++) {
    bool grow = model->count < 2 || (model->count < KEYS / 4 && rand() % 5 < 3);
    if (grow) add(model, (uint64_t)(rand() % 50), (uint64_t)round);
    else drop(model, (uint32_t)rand() % model->count);
    compare_lookup(model, (uint64_t)(rand() % 52), (uint64_t)(rand() % 4000));
    if (round % 64 == 0) assert_true(gap__tree_check(&model->tree, &model->slab));
  }
  assert_int_equal(model->tree.count, model->count);
}

static uint32_t depth_of(const struct gap__slab *slab, const struct gap__tree *tree, uint64_t major) {
  uint32_t depth = 0, at = tree->root;
  for (; at; depth++) {
    const struct gap__tree_node *node = gap__tree_node_at(slab, at);
    if (node->major == major) break;
    at = node->major < major ? node->right : node->left;
  }
  return depth;
}

/* The worst order for a plain search tree. */
static void rising_keys_stay_shallow(void **state) {
  struct model *model = *state;
  uint32_t deepest = 0;
  for (uint32_t i = 0; i < 1500; i++) add(model, i, 0);
  for (uint32_t i = 0; i < 1500; i++) {
    uint32_t depth = depth_of(&model->slab, &model->tree, i);
    if (depth > deepest) deepest = depth;
  }
  assert_in_range(deepest, 10, 40);
}

static void the_checker_sees_disorder(void **state) {
  struct model *model = *state;
  for (uint64_t i = 1; i < 9; i++) add(model, 10 * i, 0);
  assert_true(gap__tree_check(&model->tree, &model->slab));
  gap__tree_node_at(&model->slab, model->sorted[3].index)->major = 75;
  assert_false(gap__tree_check(&model->tree, &model->slab));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(empty, setup, teardown),
      cmocka_unit_test_setup_teardown(equal_majors_go_by_minor, setup, teardown),
      cmocka_unit_test_setup_teardown(random_operations, setup, teardown),
      cmocka_unit_test_setup_teardown(rising_keys_stay_shallow, setup, teardown),
      cmocka_unit_test_setup_teardown(the_checker_sees_disorder, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
