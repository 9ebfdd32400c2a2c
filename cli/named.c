#include "named.h"

#include <string.h>
#include <unistd.h>

#include "base/text.h"

bool names_process(const char *name, uint64_t *number) {
  return gap__text_parse_u64(name, strlen(name), number) == 0 && *number <= INT32_MAX && access(name, F_OK) != 0;
}
