#include "kv/code.h"

#include <stdlib.h>
#include <string.h>

#include "kv/cubins.h"
#include "kv/nvrtc.h"

const char *gap__kv_code_why(const struct gap_kv *kv) { return gap__text_str(&kv->code.why); }

static void digest_key(const struct gap_kv *kv, const struct kv_nvrtc *nvrtc, const char *text, const char *defines,
                       char out[GAP__SHA256_TEXT_BYTES]) {
  struct gap__sha256 sha;
  struct gap__text about = {0};
  gap__text_add(&about, "gapless 1\n%s\nsm_%u\nNVRTC %d.%d\n", defines, kv->dev->caps.arch, nvrtc->major, nvrtc->minor);
  gap__sha256_begin(&sha);
  gap__sha256_add(&sha, gap__text_str(&about), about.length);
  gap__sha256_add(&sha, text, strlen(text));
  gap__sha256_end(&sha, out);
  gap__text_free(&about);
}

/* From disk, or compiled and put there. */
static int image_of(struct gap_kv *kv, const char *text, const char *defines, char **image) {
  struct kv_nvrtc nvrtc;
  char key[GAP__SHA256_TEXT_BYTES];
  size_t bytes;
  int rc = gap__kv_nvrtc_open(kv->dev->caps.toolkit_major, &nvrtc, &kv->code.why);
  if (rc) return rc;
  digest_key(kv, &nvrtc, text, defines, key);
  rc = gap__kv_cubins_get(key, image, &bytes);
  if (rc != GAP_ENOTMINE) return rc;
  rc = gap__kv_nvrtc_compile(&nvrtc, text, defines, kv->dev->caps.arch, &kv->code.why, image, &bytes);
  if (!rc) gap__kv_cubins_put(key, *image, bytes);
  return rc;
}

static int load_image(struct gap_kv *kv, const char *image, gap__module *out) {
  char why[200];
  int rc = gap__dev_module_load(kv->dev, image, out);
  if (!rc) kv->code.modules[kv->code.module_count++] = *out;
  if (rc) gap__dev_last_error(kv->dev, why, sizeof why);
  if (rc) gap__text_add(&kv->code.why, "%s", why);
  return rc ? GAP_ENOTSUP : 0;
}

int gap__kv_code_load(struct gap_kv *kv, const char *source, const char *defines, gap__module *out) {
  struct gap__text text = {0};
  char *image = NULL;
  gap__text_clear(&kv->code.why);
  if (!kv->dev->caps.arch || kv->options.flags & GAP_KV_NO_KERNELS) {
    gap__text_add(&kv->code.why, "%s", kv->dev->caps.arch ? "they were not wanted" : "the device runs none");
    return GAP_ENOTSUP;
  }
  if (kv->code.module_count == KV_MODULES) return GAP_ELIMIT;
  gap__text_add_bytes(&text, gap__kv_device_source, strlen(gap__kv_device_source));
  gap__text_add_bytes(&text, source, strlen(source));
  int rc = text.failed ? GAP_ENOMETA : image_of(kv, text.bytes, defines, &image);
  gap__text_free(&text);
  if (!rc) rc = load_image(kv, image, out);
  free(image);
  if (!rc) gap__text_clear(&kv->code.why);
  return rc;
}

/* What was launched has ended: the caller sees to it. */
void gap__kv_code_free(struct gap_kv *kv) {
  for (uint32_t i = 0; i < kv->code.module_count; i++) gap__dev_module_unload(kv->dev, kv->code.modules[i]);
  gap__text_free(&kv->code.why);
}
