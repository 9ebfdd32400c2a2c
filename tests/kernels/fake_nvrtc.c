/* NVRTC for tests without one: what it "compiles" is the text of the options, by which the fake driver finds kernels
 * that were compiled for the processor.  FAKE_NVRTC_VERSION is its version, 13 unless said otherwise;
 * FAKE_NVRTC_REFUSES: every program is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { TEXT = 1024 };
static int compiled;

EXPORT int fake_nvrtc_compiled(void);
EXPORT int nvrtcVersion(int *major, int *minor);
EXPORT int nvrtcCreateProgram(void **out, const char *source, const char *name, int headers, const char *const *texts,
                              const char *const *names);
EXPORT int nvrtcCompileProgram(void *program, int count, const char *const *options);
EXPORT int nvrtcGetCUBINSize(void *program, size_t *out);
EXPORT int nvrtcGetCUBIN(void *program, char *out);
EXPORT int nvrtcGetProgramLogSize(void *program, size_t *out);
EXPORT int nvrtcGetProgramLog(void *program, char *out);
EXPORT int nvrtcDestroyProgram(void **program);

int fake_nvrtc_compiled(void) { return compiled; }

int nvrtcVersion(int *major, int *minor) {
  const char *version = getenv("FAKE_NVRTC_VERSION");
  *major = version ? atoi(version) : 13;
  *minor = 0;
  return 0;
}

int nvrtcCreateProgram(void **out, const char *source, const char *name, int headers, const char *const *texts,
                       const char *const *names) {
  (void)name, (void)headers, (void)texts, (void)names;
  *out = calloc(1, TEXT);
  return *out && strstr(source, "extern \"C\" __global__") && strstr(source, "KERNEL(") ? 0 : 1;
}

int nvrtcCompileProgram(void *program, int count, const char *const *options) {
  size_t used = 0;
  for (int i = 0; i < count; i++) used += (size_t)snprintf((char *)program + used, TEXT - used, "%s ", options[i]);
  compiled++;
  return getenv("FAKE_NVRTC_REFUSES") ? 6 : 0;
}

int nvrtcGetCUBINSize(void *program, size_t *out) {
  *out = strlen(program) + 1;
  return 0;
}

int nvrtcGetCUBIN(void *program, char *out) {
  memcpy(out, program, strlen(program) + 1);
  return 0;
}

int nvrtcGetProgramLogSize(void *program, size_t *out) {
  (void)program;
  *out = sizeof "as it was told";
  return 0;
}

int nvrtcGetProgramLog(void *program, char *out) {
  (void)program;
  memcpy(out, "as it was told", sizeof "as it was told");
  return 0;
}

int nvrtcDestroyProgram(void **program) {
  free(*program);
  *program = NULL;
  return 0;
}
