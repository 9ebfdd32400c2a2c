/* The independent checker must find every violation that is planted, and nothing where there is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "replay/checker.h"

#define PAGE GAP__PAGE
#define AT(page) ((gap_addr)(0x1000 + (page)) * PAGE)

enum { MAPPINGS_MAX = 32 };

/* A made-up card: whatever mappings the test lists. */
struct fake {
  struct gap__dev_mapping mappings[MAPPINGS_MAX];
  size_t count;
  uint64_t held;
  uint64_t version;
};

static int fake_walk(void *arg, gap__checker_visit *visit, void *visit_arg) {
  const struct fake *fake = arg;
  int rc = 0;
  for (size_t i = 0; i < fake->count && rc == 0; i++) rc = visit(visit_arg, &fake->mappings[i]);
  return rc;
}
static uint64_t fake_held(void *arg) { return ((struct fake *)arg)->held; }
static uint64_t fake_version(void *arg) { return ((struct fake *)arg)->version; }

struct bench {
  struct fake fake;
  struct gap__checker *checker;
  char text[400];
};

static void map(struct bench *bench, gap_addr addr, uint64_t bytes, gap__chunk chunk) {
  assert_true(bench->fake.count < MAPPINGS_MAX);
  bench->fake.mappings[bench->fake.count++] = (struct gap__dev_mapping){addr, bytes, chunk, true, false};
  bench->fake.held += bytes;
  bench->fake.version++;
}

static int check(struct bench *bench, uint64_t cap) {
  return gap__checker_check(bench->checker, cap, bench->text, sizeof bench->text);
}

#define assert_finds(bench, cap, words) \
  do { \
    assert_int_equal(check(bench, cap), GAP_EMISMATCH); \
    assert_non_null(strstr((bench)->text, words)); \
  } while (0)

static int set_up(void **state) {
  struct bench *bench = calloc(1, sizeof *bench);
  assert_non_null(bench);
  struct gap__checker_source source = {&bench->fake, fake_walk, fake_held, fake_version};
  assert_int_equal(gap__checker_create(&source, &bench->checker), 0);
  *state = bench;
  return 0;
}

static int tear_down(void **state) {
  struct bench *bench = *state;
  gap__checker_destroy(bench->checker);
  free(bench);
  return 0;
}

static void alloc(struct bench *bench, gap_addr addr, uint64_t bytes) {
  assert_int_equal(gap__checker_alloc(bench->checker, addr, bytes), 0);
}
static void release(struct bench *bench, gap_addr addr) {
  assert_int_equal(gap__checker_free(bench->checker, addr), 0);
}

static void test_sound_heap_passes(void **state) {
  struct bench *bench = *state;
  map(bench, AT(0), PAGE, 1);
  map(bench, AT(1), 2 * PAGE, 2);
  map(bench, AT(8), PAGE, 0);
  alloc(bench, AT(0), 512);
  alloc(bench, AT(0) + 512, 2 * PAGE); /* over the border of two chunks */
  alloc(bench, AT(8), PAGE);
  assert_int_equal(check(bench, 4 * PAGE), 0);
  release(bench, AT(0) + 512);
  alloc(bench, AT(0) + 512, 512);
  alloc(bench, AT(0) + 1024, 512);
  assert_int_equal(check(bench, 4 * PAGE), 0);
}

static void test_overlap(void **state) {
  struct bench *bench = *state;
  map(bench, AT(0), PAGE, 1);
  alloc(bench, AT(0), 1024);
  assert_int_equal(check(bench, 0), 0);
  alloc(bench, AT(0) + 512, 512);
  assert_finds(bench, 0, "overlap");
}

static void test_overlap_within_one_window(void **state) {
  struct bench *bench = *state;
  map(bench, AT(0), PAGE, 1);
  alloc(bench, AT(0) + 4096, 512);
  alloc(bench, AT(0), 4097);
  assert_finds(bench, 0, "overlap");
}

static void test_same_address_twice(void **state) {
  struct bench *bench = *state;
  map(bench, AT(0), PAGE, 1);
  alloc(bench, AT(0), 512);
  alloc(bench, AT(0), 512);
  assert_finds(bench, 0, "handed out while a live block starts there");
}

static void test_free_of_nothing(void **state) {
  struct bench *bench = *state;
  release(bench, AT(0));
  assert_finds(bench, 0, "no live block starts there");
}

static void test_block_without_memory(void **state) {
  struct bench *bench = *state;
  map(bench, AT(0), PAGE, 1);
  alloc(bench, AT(0), PAGE + 1);
  assert_finds(bench, 0, "no memory stands behind");
}

static void test_hole_inside_a_block(void **state) {
  struct bench *bench = *state;
  map(bench, AT(0), PAGE, 1);
  map(bench, AT(2), PAGE, 2);
  alloc(bench, AT(0), 3 * PAGE);
  assert_finds(bench, 0, "no memory stands behind");
}

static void test_memory_taken_away(void **state) {
  struct bench *bench = *state;
  map(bench, AT(0), PAGE, 1);
  alloc(bench, AT(0), PAGE);
  assert_int_equal(check(bench, 0), 0);
  bench->fake.count = 0;
  bench->fake.version++;
  assert_finds(bench, 0, "no memory stands behind");
}

static void test_not_accessible(void **state) {
  struct bench *bench = *state;
  map(bench, AT(0), PAGE, 1);
  bench->fake.mappings[0].accessible = false;
  alloc(bench, AT(0), 512);
  assert_finds(bench, 0, "not accessible");
}

static void test_alias_with_one_live_side_passes(void **state) {
  struct bench *bench = *state;
  map(bench, AT(0), PAGE, 7);
  map(bench, AT(4), PAGE, 7);
  bench->fake.held = PAGE;
  alloc(bench, AT(4), PAGE);
  assert_int_equal(check(bench, PAGE), 0);
}

static void test_alias_with_disjoint_bytes_passes(void **state) {
  struct bench *bench = *state;
  map(bench, AT(0), PAGE, 7);
  map(bench, AT(4), PAGE, 7);
  bench->fake.held = PAGE;
  alloc(bench, AT(0), 512);
  alloc(bench, AT(4) + 512, 512);
  assert_int_equal(check(bench, PAGE), 0);
}

static void test_alias_with_shared_bytes(void **state) {
  struct bench *bench = *state;
  map(bench, AT(0), PAGE, 3);
  map(bench, AT(1), PAGE, 7);
  map(bench, AT(4), PAGE, 7);
  bench->fake.held = 2 * PAGE;
  alloc(bench, AT(0) + 512, PAGE); /* 512 bytes into chunk 7 */
  alloc(bench, AT(4) + 511, 512);
  assert_finds(bench, 0, "same bytes of chunk 7");
}

static void test_mappings_overlap(void **state) {
  struct bench *bench = *state;
  map(bench, AT(0), 2 * PAGE, 1);
  map(bench, AT(1), PAGE, 2);
  assert_finds(bench, 0, "overlap");
}

static void test_part_of_a_chunk_mapped(void **state) {
  struct bench *bench = *state;
  map(bench, AT(0), 2 * PAGE, 1);
  map(bench, AT(4), PAGE, 1);
  assert_finds(bench, 0, "chunk 1 is mapped with");
}

static void test_over_the_cap(void **state) {
  struct bench *bench = *state;
  map(bench, AT(0), 2 * PAGE, 1);
  assert_int_equal(check(bench, 2 * PAGE), 0);
  bench->fake.held += 512; /* an idle handle that is mapped nowhere counts too */
  assert_finds(bench, 2 * PAGE, "512 over the cap");
}

static void test_more_mapped_than_held(void **state) {
  struct bench *bench = *state;
  map(bench, AT(0), PAGE, 1);
  bench->fake.held = 0;
  assert_finds(bench, 0, "are held");
}

/* The view of a real simulated card: memory that is unmapped behind the checker's back is noticed. */
static void test_simulated_card(void **state) {
  struct bench *bench = *state;
  struct gap__sim_params params = {.total_bytes = 64 * PAGE};
  struct gap__dev *dev;
  gap_addr base;
  gap__chunk chunk;
  assert_int_equal(gap__sim_create(0, &params, &dev), 0);
  gap__checker_destroy(bench->checker);
  struct gap__checker_source source = gap__checker_sim(dev);
  assert_int_equal(gap__checker_create(&source, &bench->checker), 0);
  assert_int_equal(gap__dev_reserve(dev, 8 * PAGE, PAGE, &base), 0);
  assert_int_equal(gap__dev_chunk_create(dev, PAGE, GAP__PLACE_DEVICE, &chunk), 0);
  assert_int_equal(gap__dev_map(dev, base, PAGE, chunk), 0);
  alloc(bench, base, PAGE);
  assert_finds(bench, 0, "not accessible");
  assert_int_equal(gap__dev_set_access(dev, base, PAGE), 0);
  assert_int_equal(check(bench, PAGE), 0);
  assert_int_equal(gap__dev_map(dev, base + PAGE, PAGE, chunk), 0);
  assert_int_equal(gap__dev_set_access(dev, base + PAGE, PAGE), 0);
  assert_int_equal(check(bench, PAGE), 0);
  alloc(bench, base + PAGE, 512);
  assert_finds(bench, PAGE, "same bytes");
  gap__dev_destroy(dev);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_sound_heap_passes),
      TEST(test_overlap),
      TEST(test_overlap_within_one_window),
      TEST(test_same_address_twice),
      TEST(test_free_of_nothing),
      TEST(test_block_without_memory),
      TEST(test_hole_inside_a_block),
      TEST(test_memory_taken_away),
      TEST(test_not_accessible),
      TEST(test_alias_with_one_live_side_passes),
      TEST(test_alias_with_disjoint_bytes_passes),
      TEST(test_alias_with_shared_bytes),
      TEST(test_mappings_overlap),
      TEST(test_part_of_a_chunk_mapped),
      TEST(test_over_the_cap),
      TEST(test_more_mapped_than_held),
      TEST(test_simulated_card),
  };
  return cmocka_run_group_tests_name("checker", tests, NULL, NULL);
}
