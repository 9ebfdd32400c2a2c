/* The checksum of what sleeps: one result by both ways, and no corruption that stays unseen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/sum.h"

enum { BYTES = 8192 };

static void make(unsigned char *data, uint64_t seed) {
  for (size_t i = 0; i < BYTES; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    data[i] = (unsigned char)(seed >> 56);
  }
}

static void both_ways_agree(void **state) {
  (void)state;
  unsigned char data[BYTES];
  for (uint64_t seed = 1; seed <= 20; seed++) {
    make(data, seed);
    for (size_t bytes = 0; bytes <= BYTES; bytes += 32 * (seed + 3))
      assert_int_equal(gap__sum(data, bytes), gap__sum_by_table(data, bytes));
  }
}

static void the_length_counts(void **state) {
  (void)state;
  unsigned char data[128] = {0};
  assert_int_not_equal(gap__sum(data, 0), gap__sum(data, 32));
  assert_int_not_equal(gap__sum(data, 96), gap__sum(data, 128));
}

static void every_bit_counts(void **state) {
  (void)state;
  unsigned char data[BYTES];
  make(data, 7);
  uint64_t sum = gap__sum(data, BYTES);
  for (size_t bit = 0; bit < BYTES * 8; bit++) {
    data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    if (gap__sum(data, BYTES) == sum) fail_msg("bit %zu may change unseen", bit);
    data[bit / 8] ^= (unsigned char)(1u << bit % 8);
  }
}

/* Runs turned to zeros or ones, words and blocks changing places, in data that repeats and in data that does not. */
static void larger_changes(void **state) {
  (void)state;
  unsigned char data[BYTES], other[BYTES];
  for (int repeats = 0; repeats < 2; repeats++) {
    if (repeats)
      for (size_t i = 0; i < BYTES; i++) data[i] = (unsigned char)(0x11 * (1 + i % 8));
    else make(data, 9);
    uint64_t sum = gap__sum(data, BYTES);
    for (size_t from = 0; from < BYTES; from += 64)
      for (size_t length = 1; from + length <= BYTES; length *= 2)
        for (int value = 0; value < 256; value += 255) {
          memcpy(other, data, BYTES);
          memset(other + from, value, length);
          if (memcmp(other, data, BYTES) != 0) assert_int_not_equal(gap__sum(other, BYTES), sum);
        }
    for (size_t from = 0; from + 16 <= BYTES; from += 8) {
      memcpy(other, data, BYTES);
      memcpy(other + from, data + from + 8, 8);
      memcpy(other + from + 8, data + from, 8);
      if (memcmp(other, data, BYTES) != 0) assert_int_not_equal(gap__sum(other, BYTES), sum);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(both_ways_agree), cmocka_unit_test(the_length_counts),
                                     cmocka_unit_test(every_bit_counts), cmocka_unit_test(larger_changes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
