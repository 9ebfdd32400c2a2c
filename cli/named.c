#include "named.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "cli.h"

bool names_process(const char *name, uint64_t *number) {
  return gap__text_parse_u64(name, strlen(name), number) == 0 && *number <= INT32_MAX && access(name, F_OK) != 0;
}

static bool look(const char *name, struct stat *out) {
  return (strcmp(name, "-") == 0 ? fstat(STDIN_FILENO, out) : stat(name, out)) == 0 && S_ISREG(out->st_mode);
}

int check_out(const char *command, const char *out, int count, char *const *files) {
  struct stat to, from;
  if (!out || strcmp(out, "-") == 0 || !look(out, &to)) return 0;
  for (int i = 0; i < count; i++)
    if (look(files[i], &from) && from.st_dev == to.st_dev && from.st_ino == to.st_ino)
      return usage_error(command, "%s is an input, which would be overwritten", out);
  return 0;
}
