/* redis-benchmark on the same server, with the same sizes: what a client without checks, headers and pieces reaches. */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "remote_bench.h"

extern char **environ;

/* Its output, read to the end; false: it did not run, or said that it failed. */
static bool run(char *const *words, char *out, size_t room) {
  int ends[2], status = 0;
  pid_t child;
  size_t length = 0;
  posix_spawn_file_actions_t actions;
  if (pipe2(ends, O_CLOEXEC)) return false;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  int rc = posix_spawnp(&child, words[0], &actions, NULL, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  for (ssize_t got = 1; rc == 0 && got > 0 && length<room - 1; length += got> 0 ? (size_t)got : 0)
    got = read(ends[0], out + length, room - 1 - length);
  close(ends[0]);
  out[length] = '\0';
  return rc == 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* "SET","1234.5",... */
static bool find_rate(const char *csv, const char *name, double *out) {
  char want[16];
  snprintf(want, sizeof want, "\"%s\",\"", name);
  const char *at = strstr(csv, want), *end = at ? strchr(at + strlen(want), '"') : NULL;
  return end && gap__text_parse_real(at + strlen(want), (size_t)(end - at) - strlen(want), out) == 0;
}

bool remote_beside(const char *host, const char *port, const struct remote_bench *bench, double *set, double *get) {
  char size[24], clients[16], requests[24], csv[4096];
  double count =
      bench->seconds * 2e8 / (double)(bench->value_bytes + 10000); /* about as long as ours, unless it is much faster */
  uint64_t least = bench->depth * 10ull, number = count > (double)least ? (uint64_t)count : least;
  snprintf(size, sizeof size, "%llu", (unsigned long long)bench->value_bytes);
  snprintf(clients, sizeof clients, "%u", bench->depth);
  snprintf(requests, sizeof requests, "%llu", (unsigned long long)number);
  char *words[] = {"redis-benchmark",
                   "-h",
                   (char *)(uintptr_t)host,
                   "-p",
                   (char *)(uintptr_t)port,
                   "-t",
                   "set,get",
                   "-d",
                   size,
                   "-c",
                   clients,
                   "-n",
                   requests,
                   "--csv",
                   NULL};
  if (!run(words, csv, sizeof csv) || !find_rate(csv, "SET", set) || !find_rate(csv, "GET", get)) return false;
  *set *= (double)bench->value_bytes;
  *get *= (double)bench->value_bytes;
  return true;
}
