#include "base/room.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The number behind `name` in a file of /proc, times `unit`; `name` "": the first one. */
static uint64_t number_in(const char *path, const char *name, uint64_t unit) {
  char line[200];
  unsigned long long value = 0;
  bool found = false;
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  while (!found && fgets(line, sizeof line, file))
    if (strncmp(line, name, strlen(name)) == 0) found = sscanf(line + strlen(name), "%llu", &value) == 1;
  fclose(file);
  return found ? value * unit : 0;
}

static uint64_t left(uint64_t limit, uint64_t used) { return limit > used ? limit - used : 0; }

uint64_t gap__room_addresses(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY) return GAP__ROOM_UNLIMITED;
  return left(limit.rlim_cur, number_in("/proc/self/statm", "", (uint64_t)sysconf(_SC_PAGESIZE)));
}

uint64_t gap__room_memory(void) {
  uint64_t room = gap__room_addresses(), free = GAP__ROOM_UNLIMITED;
  if (number_in("/proc/sys/vm/overcommit_memory", "", 1) == 2)
    free = left(number_in("/proc/meminfo", "CommitLimit:", 1024), number_in("/proc/meminfo", "Committed_AS:", 1024));
  return room < free ? room : free;
}
