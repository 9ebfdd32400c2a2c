/* SHA-256: the vectors of FIPS 180-4, by the processor's instructions and without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/sha256.h"
#include "base/sha256_block.h"

static void says(const char *text, const char *digest) {
  struct gap__sha256 sha;
  char out[GAP__SHA256_TEXT_BYTES];
  gap__sha256_begin(&sha);
  gap__sha256_add(&sha, text, strlen(text));
  gap__sha256_end(&sha, out);
  assert_string_equal(out, digest);
}

static void vectors(void **state) {
  (void)state;
  says("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  says("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  says("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void a_million_in_pieces(void **state) {
  (void)state;
  struct gap__sha256 sha;
  uint8_t digest[GAP__SHA256_BYTES], a[997];
  memset(a, 'a', sizeof a);
  gap__sha256_begin(&sha);
  for (size_t left = 1000000, part; left; left -= part)
    gap__sha256_add(&sha, a, part = left < sizeof a ? left : sizeof a);
  gap__sha256_digest(&sha, digest);
  static const uint8_t expected[] = {0xcd, 0xc7, 0x6e, 0x5c, 0x99, 0x14, 0xfb, 0x92, 0x81, 0xa1, 0xc7};
  assert_memory_equal(digest, expected, sizeof expected);
}

static void both_agree(void **state) {
  (void)state;
  gap__sha256_compress *hardware = gap__sha256_hardware();
  if (!hardware) skip();
  for (int round = 0; round < 200; round++) {
    uint32_t plain[8], fast[8];
    uint8_t block[64];
    for (int i = 0; i < 64; i++) block[i] = (uint8_t)(rand() >> 3);
    for (int i = 0; i < 8; i++) plain[i] = fast[i] = (uint32_t)rand() * 77777u;
    gap__sha256_plain(plain, block);
    hardware(fast, block);
    assert_memory_equal(plain, fast, sizeof plain);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(vectors), cmocka_unit_test(a_million_in_pieces),
                                     cmocka_unit_test(both_agree)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
