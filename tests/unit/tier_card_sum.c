/* Checksums of sleeping memory that the card makes itself: the value, what is noticed, and what happens where the card does not. */
#include <string.h>

#include "base/mix.h"
#include "dev/cuda/cuda.h"
#include "support/fake_cuda.h"
#include "support/tier_try.h"
#include "tier/card_sum.h"

#define CARD (512 * MIB)
#define BYTES (40 * MIB)
#define QUIET "page_maker:False,reserve:0"

/* ---- the kernel's part, by the processor ---- */

static void run_sum(const void *argument, const struct fake_cuda_grid *grid) {
  const struct gap__card_sum_argument *a = argument;
  const uint64_t *words = (const uint64_t *)(uintptr_t)a->addr;
  uint64_t *parts = (uint64_t *)(uintptr_t)a->parts, threads = grid->threads, all = grid->blocks[0] * threads;
  for (uint64_t block = 0; block < grid->blocks[0]; block++) {
    parts[block] = 0;
    for (uint64_t at = 4 * block * threads; at < 4 * (block + 1) * threads; at++)
      for (uint64_t i = at; i < a->words; i += 4 * all)
        parts[block] += gap__mix64(words[i] + (i + 1) * 0x9E3779B97F4A7C15);
  }
}

static bool find_sum(const char *image, const char *name, struct fake_cuda_kernel *out) {
  if (!strstr(image, ".entry " GAP__CARD_SUM_NAME "(") || strcmp(name, GAP__CARD_SUM_NAME) != 0) return false;
  *out = (struct fake_cuda_kernel){run_sum, sizeof(struct gap__card_sum_argument)};
  return true;
}

/* ---- a card that makes them ---- */

struct carded {
  struct tier_try s;
  gap_addr block;
};

static struct carded begin(void) {
  struct gap__dev *dev;
  fake_cuda_reset(&(struct fake_cuda_settings){.total_bytes = CARD});
  fake_cuda_kernels(find_sum);
  assert_int_equal(gap__cuda_create(0, &(struct gap__cuda_params){.driver = GAP_TEST_FAKE_CUDA}, &dev), 0);
  struct carded c = {.s = tier_try_on(try_on(dev, QUIET, GAP__MAKER_OFF), "")};
  c.block = try_get_pool(&c.s.t, 0, tier_try_pool(&c.s, GAP_POOL_SHARED, "weights"), BYTES);
  tier_try_fill(c.block, BYTES, 1);
  return c;
}

static void end(struct carded *c) {
  assert_true(tier_try_filled(c->block, BYTES, 1));
  try_give(&c->s.t, c->block);
  tier_try_close(&c->s);
  assert_int_equal(fake_cuda_wrong(), 0);
  fake_cuda_kernels(NULL);
}

static const struct gap__image *image_of(const struct carded *c) { return &c->s.tier->devices[0].image; }

static void by_card(void **state) {
  (void)state;
  struct carded c = begin();
  for (int round = 0; round < 3; round++) {
    assert_int_equal(tier_try_sleep(&c.s, "weights", 0), 0);
    const struct gap__image *image = image_of(&c);
    assert_true(image->count > 0);
    for (uint32_t i = 0; i < image->count; i++) {
      const struct gap__piece *piece = &image->pieces[i];
      assert_true(piece->by_card);
      assert_int_equal(piece->sum, gap__card_sum_here(piece->host, gap__piece_bytes(piece)));
    }
    uint64_t launched = fake_cuda_calls("cuLaunchKernel"), pieces = image->count;
    assert_int_equal(tier_try_wake(&c.s, "weights", 0), 0);
    assert_int_equal(fake_cuda_calls("cuLaunchKernel"), launched + pieces);
    assert_true(tier_try_filled(c.block, BYTES, 1));
  }
  end(&c);
  assert_int_equal(fake_cuda_calls("cuModuleLoadData"), 2); /* one each way */
  assert_int_equal(fake_cuda_calls("cuModuleUnload"), 2);
  assert_int_equal(fake_cuda_calls("cuMemHostUnregister"), fake_cuda_calls("cuMemHostRegister"));
}

static void flipped_bits(void **state) {
  (void)state;
  struct carded c = begin();
  uint64_t seed = 3;
  assert_int_equal(tier_try_sleep(&c.s, "weights", 0), 0);
  for (uint32_t i = 0; i < image_of(&c)->count; i += 3) {
    const struct gap__piece *piece = &image_of(&c)->pieces[i];
    uint64_t at = try_random(&seed, gap__piece_bytes(piece));
    piece->host[at] ^= 0x40;
    assert_int_equal(tier_try_wake(&c.s, "weights", 0), GAP_EIO);
    assert_true(tier_try_said(&c.s, "in host memory: its checksum is not what it was"));
    piece->host[at] ^= 0x40;
  }
  assert_int_equal(tier_try_wake(&c.s, "weights", 0), 0);
  end(&c);
}

/* ---- a card that does not, or no longer ---- */

static void launches_that_fail(void **state) {
  (void)state;
  struct carded c = begin();
  fake_cuda_fail("cuLaunchKernel", 999, 1, 1);
  assert_int_equal(tier_try_sleep(&c.s, "weights", 0), GAP_EDEVICE);
  assert_int_equal(tier_try_figures(&c.s).asleep_bytes, 0);
  assert_true(tier_try_filled(c.block, BYTES, 1));
  assert_int_equal(tier_try_sleep(&c.s, "weights", 0), 0);
  fake_cuda_fail("cuLaunchKernel", 999, 1, 1);
  assert_int_equal(tier_try_wake(&c.s, "weights", 0), GAP_EDEVICE);
  assert_true(tier_try_figures(&c.s).asleep_bytes >= BYTES);
  assert_int_equal(tier_try_wake(&c.s, "weights", 0), 0);
  end(&c);
}

/* Sums that the card made are checked by the processor where it makes none any more. */
static void code_that_cannot_be_had(void **state) {
  (void)state;
  struct carded c = begin();
  assert_int_equal(tier_try_sleep(&c.s, "weights", 0), 0);
  assert_true(image_of(&c)->pieces[0].by_card);
  fake_cuda_fail("cuModuleLoadData", 218, 0, 1); /* the other direction loads it for itself */
  assert_int_equal(tier_try_wake(&c.s, "weights", GAP_WAKE_KEEP), 0);
  const struct gap__piece *piece = &image_of(&c)->pieces[0];
  assert_int_equal(tier_try_sleep(&c.s, "weights", GAP_SLEEP_UNCHANGED), 0);
  piece->host[12345] ^= 1;
  assert_int_equal(tier_try_wake(&c.s, "weights", 0), GAP_EIO);
  piece->host[12345] ^= 1;
  uint64_t launched = fake_cuda_calls("cuLaunchKernel");
  assert_int_equal(tier_try_wake(&c.s, "weights", 0), 0);
  assert_int_equal(fake_cuda_calls("cuLaunchKernel"), launched);
  end(&c);
}

/* Of each call that a sleep or a waking through the card makes, the first few fail in turn: bytes are whole, and nothing is left behind. */
static void any_call_that_fails(void **state) {
  (void)state;
  static const char *const calls[] = {"cuModuleLoadData", "cuModuleGetFunction", "cuMemHostRegister", "cuLaunchKernel",
                                      "cuMemcpyAsync",    "cuEventRecord",       "cuEventSynchronize"};
  unsigned refused = 0;
  for (unsigned call = 0; call < sizeof calls / sizeof *calls; call++)
    for (unsigned nth = 0; nth < 4; nth++) {
      struct carded c = begin();
      fake_cuda_fail(calls[call], 999, nth, 1);
      bool slept = tier_try_sleep(&c.s, "weights", 0) == 0;
      if (!slept) assert_true(tier_try_filled(c.block, BYTES, 1));
      if (!slept) assert_int_equal(tier_try_sleep(&c.s, "weights", 0), 0);
      fake_cuda_fail(calls[call], 999, nth, 1);
      bool woke = tier_try_wake(&c.s, "weights", 0) == 0;
      fake_cuda_fail(NULL, 0, 0, 0);
      if (!woke) assert_int_equal(tier_try_wake(&c.s, "weights", 0), 0);
      refused += !slept + !woke;
      end(&c);
    }
  assert_true(refused > 0);
}

/* Sums that the processor made, since the card could not at first, are checked by it when the card can. */
static void code_that_comes_late(void **state) {
  (void)state;
  struct carded c = begin();
  fake_cuda_fail("cuModuleLoadData", 218, 0, 1);
  assert_int_equal(tier_try_sleep(&c.s, "weights", 0), 0);
  const struct gap__piece *piece = &image_of(&c)->pieces[0];
  assert_false(piece->by_card);
  piece->host[4321] ^= 1;
  assert_int_equal(tier_try_wake(&c.s, "weights", 0), GAP_EIO);
  piece->host[4321] ^= 1;
  assert_int_equal(tier_try_wake(&c.s, "weights", 0), 0);
  assert_int_equal(fake_cuda_calls("cuModuleLoadData"), 2);
  assert_int_equal(fake_cuda_calls("cuLaunchKernel"), 0);
  end(&c);
}

static void no_code_at_all(void **state) {
  (void)state;
  struct carded c = begin();
  fake_cuda_kernels(NULL);
  assert_int_equal(tier_try_sleep(&c.s, "weights", 0), 0);
  assert_false(image_of(&c)->pieces[0].by_card);
  assert_int_equal(tier_try_wake(&c.s, "weights", 0), 0);
  end(&c);
}

/* ---- the value ---- */

/* Each bit counts, and so does the place of each word. */
static void each_bit(void **state) {
  (void)state;
  uint64_t words[64], seed = 9;
  for (unsigned i = 0; i < 64; i++) words[i] = try_random(&seed, UINT64_MAX);
  uint64_t sum = gap__card_sum_here(words, sizeof words);
  for (unsigned bit = 0; bit < 64 * 64; bit++) {
    words[bit / 64] ^= 1ull << bit % 64;
    assert_int_not_equal(gap__card_sum_here(words, sizeof words), sum);
    words[(bit / 64 + 2) % 64] ^= 1ull << bit % 64; /* the same bit elsewhere does not undo it */
    assert_int_not_equal(gap__card_sum_here(words, sizeof words), sum);
    words[(bit / 64 + 2) % 64] ^= 1ull << bit % 64;
    words[bit / 64] ^= 1ull << bit % 64;
  }
  uint64_t first = words[0];
  words[0] = words[63], words[63] = first;
  assert_int_not_equal(gap__card_sum_here(words, sizeof words), sum);
  memset(words, 0, sizeof words);
  assert_int_not_equal(gap__card_sum_here(words, 256), gap__card_sum_here(words, 512));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(by_card),
      cmocka_unit_test(flipped_bits),
      cmocka_unit_test(launches_that_fail),
      cmocka_unit_test(code_that_cannot_be_had),
      cmocka_unit_test(any_call_that_fails),
      cmocka_unit_test(code_that_comes_late),
      cmocka_unit_test(no_code_at_all),
      cmocka_unit_test(each_bit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
