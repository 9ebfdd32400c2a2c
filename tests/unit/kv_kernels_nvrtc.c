/* The kernels' source through the real compiler, where there is one (GAPLESS_NVRTC names it): every shape. */
#include <stdbool.h>

#include "kv/code.h"
#include "kv/nvrtc.h"
#include "support/api_try.h"

extern const char gap__kv_move_source[], gap__kv_attend_source[];

enum { LATEST = 99, ARCH = 90 };

static struct kv_nvrtc nvrtc;

static void compile(const char *source, const char *defines) {
  struct gap__text text = {0}, why = {0};
  char *image = NULL;
  size_t bytes = 0;
  gap__text_add(&text, "%s%s", gap__kv_device_source, source);
  if (gap__kv_nvrtc_compile(&nvrtc, gap__text_str(&text), defines, ARCH, &why, &image, &bytes))
    fail_msg("%s: %s", defines, gap__text_str(&why));
  assert_memory_equal(image, "\177ELF", 4);
  assert_true(bytes > 1000);
  free(image);
  gap__text_free(&text);
  gap__text_free(&why);
}

static void every_shape_compiles(void **state) {
  (void)state;
  compile(gap__kv_move_source, "");
#define VARIANT(head, group, bf16, small) \
  compile(gap__kv_attend_source, "-DHEAD=" #head " -DGROUP=" #group " -DBF16=" #bf16 " -DSMALL_PAGES=" #small);
#include "kernels/variants.def"
#undef VARIANT
}

static void what_is_wrong_is_said(void **state) {
  (void)state;
  struct gap__text why = {0};
  char *image;
  size_t bytes;
  assert_int_equal(gap__kv_nvrtc_compile(&nvrtc, "int main( {", "", ARCH, &why, &image, &bytes), GAP_ENOTSUP);
  assert_non_null(strstr(gap__text_str(&why), "error"));
  gap__text_free(&why);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_shape_compiles), cmocka_unit_test(what_is_wrong_is_said)};
  struct gap__text why = {0};
  if (gap__kv_nvrtc_open(LATEST, &nvrtc, &why)) {
    printf("skipped: %s\n", gap__text_str(&why));
    gap__text_free(&why);
    return 77;
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
