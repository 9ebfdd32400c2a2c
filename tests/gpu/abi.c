/* Compares our declarations of the driver's interface with the real cuda.h, where there is one: every value, the size of every type,
 * offset and size of every member; and that each entry point exists in the version that it is declared for (that does not compile
 * otherwise). */
#include <stdbool.h>
#include <stdio.h>

#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
#include <cuda.h>
#include <cudaTypedefs.h>

#include "dev/cuda/abi.h"

static unsigned passed, failed;

static void compare(const char *what, unsigned long long ours, unsigned long long theirs) {
  bool same = ours == theirs;
  passed += same;
  failed += !same;
  if (!same) printf("%s: %llu here, %llu in cuda.h\n", what, ours, theirs);
}

#define SIZE(type, path) sizeof(((type *)0)->path)
#define GAP_CUDA_VALUE(name, value) compare(#name, (unsigned long long)(value), (unsigned long long)(name));
#define GAP_CUDA_STRUCT(ours, theirs) compare("size of " #theirs, sizeof(ours), sizeof(theirs));
#define GAP_CUDA_FIELD(ours, theirs, path) \
  compare("offset of " #theirs "." #path, offsetof(ours, path), offsetof(theirs, path)); \
  compare("size of " #theirs "." #path, SIZE(ours, path), SIZE(theirs, path));

#define GAP_CUDA_MEMBER(ours, path, theirs, their_path) \
  compare("offset of " #theirs "." #their_path, offsetof(ours, path), offsetof(theirs, their_path)); \
  compare("size of " #theirs "." #their_path, SIZE(ours, path), SIZE(theirs, their_path));

#define GAP_CUDA_ENTRY(name, version, group, parameters) \
  compare("pointer to " #name, sizeof(gap__cuda_result(*) parameters), sizeof(PFN_##name##_v##version));

int main(void) {
#include "dev/cuda/abi.def"
#include "dev/cuda/entry_points.def"
  printf("abi against cuda.h of CUDA %d.%d: %u passed, %u failed\n", CUDA_VERSION / 1000, CUDA_VERSION / 10 % 100,
         passed, failed);
  return failed != 0;
}

#else

int main(void) {
  puts("abi skipped: no cuda.h here");
  return 77;
}
#endif
