/* A main for fuzz targets where no fuzzer is at hand: runs the target once over every file given, and over every file in
 * every folder given (sub-folders too).  The kept corpus is a regression test this way, under any compiler. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

static unsigned inputs_run;

/* NULL when the file cannot be read. The bytes lie in a block of exactly their length, so that a sanitizer sees an overrun. */
static uint8_t *read_file(const char *path, size_t bytes) {
  FILE *file = fopen(path, "rb");
  uint8_t *data = file ? malloc(bytes ? bytes : 1) : NULL;
  if (data && fread(data, 1, bytes, file) != bytes) {
    free(data);
    data = NULL;
  }
  if (file) fclose(file);
  return data;
}

static int run_file(const char *path, size_t bytes) {
  uint8_t *data = read_file(path, bytes);
  if (!data) {
    fprintf(stderr, "%s: cannot be read\n", path);
    return 1;
  }
  (void)LLVMFuzzerTestOneInput(data, bytes);
  free(data);
  inputs_run++;
  return 0;
}

static int run_path(const char *path);

static int run_folder(const char *path) {
  DIR *folder = opendir(path);
  if (!folder) {
    fprintf(stderr, "%s: cannot be opened\n", path);
    return 1;
  }
  int failed = 0;
  for (struct dirent *entry; (entry = readdir(folder));) {
    char inner[4096];
    if (entry->d_name[0] == '.') continue;
    if (snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name) >= (int)sizeof inner) failed = 1;
    else failed |= run_path(inner);
  }
  closedir(folder);
  return failed;
}

static int run_path(const char *path) {
  struct stat about;
  if (stat(path, &about) != 0) {
    fprintf(stderr, "%s: not found\n", path);
    return 1;
  }
  return S_ISDIR(about.st_mode) ? run_folder(path) : run_file(path, (size_t)about.st_size);
}

int main(int argc, char **argv) {
  int failed = 0;
  for (int i = 1; i < argc; i++) failed |= run_path(argv[i]);
  printf("%u inputs run\n", inputs_run);
  return failed || inputs_run == 0; /* a corpus that is missing must not look green */
}
