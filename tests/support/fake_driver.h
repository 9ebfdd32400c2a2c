/* For programs that let the library find the fake driver by itself.  It looks for libcuda.so.1, so the program starts itself once
 * more with a folder in its search path where the fake driver has that name; the folder goes at the end. */
#ifndef GAP_TESTS_FAKE_DRIVER_H
#define GAP_TESTS_FAKE_DRIVER_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/fake_cuda.h"

#define FAKE_DRIVER_FOLDER "GAP_TEST_FAKE_DRIVER"

static inline void fake_driver_link(const char *folder, char link[sizeof P_tmpdir + 60]) {
  snprintf(link, sizeof P_tmpdir + 60, "%s/libcuda.so.1", folder);
}

/* Returns in the second life only. */
static inline void fake_driver_find(char **argv) {
  char folder[] = P_tmpdir "/gapless-driver.XXXXXX", link[sizeof P_tmpdir + 60];
  if (getenv(FAKE_DRIVER_FOLDER)) return;
  if (!mkdtemp(folder)) exit(1);
  fake_driver_link(folder, link);
  if (symlink(GAP_TEST_FAKE_CUDA, link)) exit(1);
  setenv("LD_LIBRARY_PATH", folder, 1);
  setenv(FAKE_DRIVER_FOLDER, folder, 1);
  execv("/proc/self/exe", argv);
  exit(1);
}

static inline void fake_driver_forget(void) {
  char link[sizeof P_tmpdir + 60];
  fake_driver_link(getenv(FAKE_DRIVER_FOLDER), link);
  unlink(link);
  rmdir(getenv(FAKE_DRIVER_FOLDER));
}

#endif
