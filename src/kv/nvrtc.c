#include "kv/nvrtc.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"

enum { OPTIONS_MOST = 16, SITES_MOST = 8 };

/* ---- one file ---- */

/* The library looks for its built-in functions by name, and does not find them in a wheel: they are loaded before it. */
static void load_builtins(const char *file) {
  char pattern[PATH_MAX];
  glob_t found;
  const char *slash = strrchr(file, '/');
  if (!slash) return;
  snprintf(pattern, sizeof pattern, "%.*s/libnvrtc-builtins*.so.*", (int)(slash - file), file);
  if (glob(pattern, 0, NULL, &found)) return;
  for (size_t i = 0; i < found.gl_pathc; i++)
    if (!strstr(found.gl_pathv[i], ".alt.")) (void)dlopen(found.gl_pathv[i], RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  globfree(&found);
}

static bool bind(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

static bool bind_all(void *library, struct kv_nvrtc *n) {
  return bind(library, "nvrtcCreateProgram", &n->create) && bind(library, "nvrtcCompileProgram", &n->compile) &&
         bind(library, "nvrtcGetCUBINSize", &n->cubin_size) && bind(library, "nvrtcGetCUBIN", &n->cubin) &&
         bind(library, "nvrtcGetProgramLogSize", &n->log_size) && bind(library, "nvrtcGetProgramLog", &n->log) &&
         bind(library, "nvrtcDestroyProgram", &n->destroy);
}

static bool try_file(const char *file, unsigned major_most, struct kv_nvrtc *out, struct gap__text *why) {
  int (*version)(int *, int *);
  load_builtins(file);
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) return false;
  if (bind_all(library, out) && bind(library, "nvrtcVersion", &version) && version(&out->major, &out->minor) == 0) {
    if ((unsigned)out->major <= major_most) return true;
    gap__text_add(why, "%s is of CUDA %d, newer than the driver; ", file, out->major);
  } else {
    gap__text_add(why, "%s lacks what is needed; ", file);
  }
  (void)dlclose(library);
  return false;
}

static bool try_pattern(const char *pattern, unsigned major_most, struct kv_nvrtc *out, struct gap__text *why) {
  glob_t found;
  bool done = false;
  if (glob(pattern, 0, NULL, &found)) return false;
  for (size_t i = found.gl_pathc; !done && i-- > 0;) { /* the newest first */
    const char *name = found.gl_pathv[i];
    if (!strstr(name, "builtins") && !strstr(name, ".alt.")) done = try_file(name, major_most, out, why);
  }
  globfree(&found);
  return done;
}

/* ---- where it may be ---- */

struct sites {
  char folder[SITES_MOST][PATH_MAX];
  int count;
};

/* Python's folder of packages, of a library that lies in it. */
static int note_site(struct dl_phdr_info *info, size_t bytes, void *arg) {
  static const char *const names[] = {"/site-packages/", "/dist-packages/"};
  struct sites *sites = arg;
  (void)bytes;
  for (int n = 0; n < 2; n++) {
    const char *at = strstr(info->dlpi_name, names[n]);
    if (!at || sites->count == SITES_MOST) continue;
    char *to = sites->folder[sites->count];
    snprintf(to, PATH_MAX, "%.*s", (int)(at - info->dlpi_name + (long)strlen(names[n])), info->dlpi_name);
    bool known = false;
    for (int i = 0; i < sites->count; i++) known |= strcmp(sites->folder[i], to) == 0;
    sites->count += !known;
  }
  return 0;
}

static bool try_under(const char *folder, const char *rest, unsigned major_most, struct kv_nvrtc *out,
                      struct gap__text *why) {
  char pattern[PATH_MAX];
  if (!folder || snprintf(pattern, sizeof pattern, "%s/%s", folder, rest) >= (int)sizeof pattern) return false;
  return try_pattern(pattern, major_most, out, why);
}

static bool try_wheels(unsigned major_most, struct kv_nvrtc *out, struct gap__text *why) {
  static const char *const places[] = {"nvidia/*/lib/libnvrtc.so.*", "torch/lib/libnvrtc*.so*",
                                       "cupy/.data/lib/libnvrtc.so.*"};
  struct sites *sites = calloc(1, sizeof *sites);
  bool done = false;
  if (!sites) return false;
  dl_iterate_phdr(note_site, sites);
  for (int i = 0; !done && i < sites->count; i++)
    for (int p = 0; !done && p < 3; p++) done = try_under(sites->folder[i], places[p], major_most, out, why);
  free(sites);
  return done;
}

static bool try_toolkits(unsigned major_most, struct kv_nvrtc *out, struct gap__text *why) {
  const char *const roots[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
  for (int i = 0; i < 3; i++)
    if (try_under(roots[i], "lib64/libnvrtc.so.*", major_most, out, why) ||
        try_under(roots[i], "targets/*/lib/libnvrtc.so.*", major_most, out, why))
      return true;
  return false;
}

static bool try_loader(unsigned major_most, struct kv_nvrtc *out, struct gap__text *why) {
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"};
  for (int i = 0; i < 3; i++)
    if (try_file(names[i], major_most, out, why)) return true;
  return false;
}

int gap__kv_nvrtc_open(unsigned major_most, struct kv_nvrtc *out, struct gap__text *why) {
  const char *named = getenv("GAPLESS_NVRTC");
  bool found = named ? try_file(named, major_most, out, why)
                     : try_wheels(major_most, out, why) || try_toolkits(major_most, out, why) ||
                           try_loader(major_most, out, why);
  if (!found) gap__text_add(why, "no NVRTC was found%s%s", named ? " at " : "", named ? named : "");
  return found ? 0 : GAP_ENOTSUP;
}

/* ---- compiling ---- */

static int take_image(const struct kv_nvrtc *n, void *program, char **image, size_t *bytes) {
  if (n->cubin_size(program, bytes) || !*bytes) return GAP_ENOTSUP;
  *image = malloc(*bytes);
  if (!*image) return GAP_ENOMETA;
  if (!n->cubin(program, *image)) return 0;
  free(*image);
  return GAP_ENOTSUP;
}

static void add_log(const struct kv_nvrtc *n, void *program, struct gap__text *why) {
  size_t bytes = 0;
  char *text = n->log_size(program, &bytes) == 0 && bytes ? malloc(bytes) : NULL;
  if (text && n->log(program, text) == 0) gap__text_add(why, "NVRTC %d.%d: %s", n->major, n->minor, text);
  free(text);
}

/* Words of `text` become options; it is cut up. */
static int split_words(char *text, const char **options, int count) {
  char *rest;
  for (char *word = strtok_r(text, " ", &rest); word && count < OPTIONS_MOST; word = strtok_r(NULL, " ", &rest))
    options[count++] = word;
  return count;
}

int gap__kv_nvrtc_compile(const struct kv_nvrtc *n, const char *source, const char *defines, unsigned arch,
                          struct gap__text *why, char **image, size_t *bytes) {
  const char *options[OPTIONS_MOST] = {"--std=c++17", "-w"};
  char target[32], words[256];
  void *program = NULL;
  snprintf(target, sizeof target, "-arch=sm_%u", arch);
  snprintf(words, sizeof words, "%s", defines);
  options[2] = target;
  int count = split_words(words, options, 3);
  if (n->create(&program, source, "gapless.cu", 0, NULL, NULL)) return GAP_ENOMETA;
  int rc = n->compile(program, count, options) ? GAP_ENOTSUP : take_image(n, program, image, bytes);
  if (rc) add_log(n, program, why);
  n->destroy(&program);
  return rc;
}
