/* Host memory that is refused on purpose.  In a program linked with --wrap=NAME for each function below, the allocator's own
 * calls arrive here, those of the C library itself do not. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/meta.h"
#include "support/fault.h"

void *__real_mmap(void *, size_t, int, int, int, off_t);
int __real_munmap(void *, size_t);
void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void __real_free(void *);
char *__real_strdup(const char *);
int __real_vasprintf(char **, const char *, va_list);
uint32_t __real_gap__slab_take_slow(struct gap__slab *);

#pragma GCC visibility push(default) /* some linkers look for them from shared libraries too */
void *__wrap_mmap(void *, size_t, int, int, int, off_t);
int __wrap_munmap(void *, size_t);
void *__wrap_malloc(size_t);
void *__wrap_calloc(size_t, size_t);
void *__wrap_realloc(void *, size_t);
void __wrap_free(void *);
char *__wrap_strdup(const char *);
int __wrap_vasprintf(char **, const char *, va_list);
uint32_t __wrap_gap__slab_take_slow(struct gap__slab *);
#pragma GCC visibility pop

static bool refused(struct fault *f, int kind) {
  if (!f || !fault_strikes(f, kind)) return false;
  errno = ENOMEM;
  return true;
}

void *__wrap_mmap(void *addr, size_t bytes, int protection, int flags, int fd, off_t offset) {
  struct fault *f = fault_watched();
  if (refused(f, FAULT_PAGES)) return MAP_FAILED;
  void *got = __real_mmap(addr, bytes, protection, flags, fd, offset);
  if (f && got != MAP_FAILED) f->pages_mapped++;
  return got;
}

int __wrap_munmap(void *addr, size_t bytes) {
  if (fault_watched()) fault_watched()->pages_mapped--;
  return __real_munmap(addr, bytes);
}

static void *counted(struct fault *f, void *piece) {
  if (f && piece) f->pieces++;
  return piece;
}

void *__wrap_malloc(size_t bytes) {
  struct fault *f = fault_watched();
  return refused(f, FAULT_BYTES) ? NULL : counted(f, __real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t bytes) {
  struct fault *f = fault_watched();
  return refused(f, FAULT_BYTES) ? NULL : counted(f, __real_calloc(count, bytes));
}

void *__wrap_realloc(void *piece, size_t bytes) {
  struct fault *f = fault_watched();
  if (refused(f, FAULT_BYTES)) return NULL;
  void *got = __real_realloc(piece, bytes);
  return piece ? got : counted(f, got);
}

void __wrap_free(void *piece) {
  if (piece && fault_watched()) fault_watched()->pieces--;
  __real_free(piece);
}

char *__wrap_strdup(const char *text) {
  struct fault *f = fault_watched();
  return refused(f, FAULT_BYTES) ? NULL : counted(f, __real_strdup(text));
}

int __wrap_vasprintf(char **out, const char *format, va_list arguments) {
  struct fault *f = fault_watched();
  if (refused(f, FAULT_BYTES)) return -1;
  int length = __real_vasprintf(out, format, arguments);
  if (length >= 0) counted(f, *out);
  return length;
}

uint32_t __wrap_gap__slab_take_slow(struct gap__slab *slab) {
  return refused(fault_watched(), FAULT_RECORD) ? 0 : __real_gap__slab_take_slow(slab);
}
