/* What may end a process is played in a child; what it prints is counted. */
#ifndef GAP_TESTS_CHILD_H
#define GAP_TESTS_CHILD_H

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/api_try.h"

struct child {
  int status; /* as waitpid tells it */
  int lines;  /* printed, on either channel */
};

static inline int lines_from(int fd) {
  char text[4096];
  int lines = 0;
  for (ssize_t got; (got = read(fd, text, sizeof text)) > 0;)
    for (ssize_t i = 0; i < got; i++) lines += text[i] == '\n';
  return lines;
}

/* Children end with live blocks; parts of these belong to other threads. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0"; }

/* One that hangs is killed. */
static inline struct child run_child(void (*play)(void *), void *arg) {
  int ends[2];
  struct child child;
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (!pid) {
    dup2(ends[1], 1), dup2(ends[1], 2);
    close(ends[0]), close(ends[1]);
    alarm(20);
    play(arg);
    _exit(99);
  }
  close(ends[1]);
  child.lines = lines_from(ends[0]);
  close(ends[0]);
  assert_true(waitpid(pid, &child.status, 0) == pid);
  return child;
}

static inline void ended(struct child child, int status) {
  if (!WIFEXITED(child.status)) fail_msg("ended by signal %d", WTERMSIG(child.status));
  assert_int_equal(WEXITSTATUS(child.status), status);
  assert_true(child.lines <= 1);
}

#endif
