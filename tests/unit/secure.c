/* A set-user-id program does not follow the variables of who started it.  Root makes such a copy of this program and starts it. */
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/child.h"

enum { FOLLOWED = 41, IGNORED, NOT_SECURE, NOBODY = 65534 };

/* What the copy does. */
static int look(void) {
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  gap_heap *heap = NULL;
  char text[100] = "";
  if (!getauxval(AT_SECURE)) return NOT_SECURE;
  options.backend = GAP_BACKEND_SIM;
  if (gap_heap_create(&options, &heap) || gap_conf_value(heap, "nmalloc", text, sizeof text)) return 9;
  gap_heap_destroy(heap);
  return strcmp(text, "7") == 0 ? FOLLOWED : IGNORED;
}

static void copy_to(const char *path) {
  struct stat about;
  int from = open("/proc/self/exe", O_RDONLY), to = open(path, O_WRONLY | O_CREAT | O_EXCL, 0755);
  assert_true(from >= 0 && to >= 0 && fstat(from, &about) == 0);
  for (off_t done = 0; done < about.st_size;)
    assert_true(sendfile(to, from, &done, (size_t)(about.st_size - done)) > 0);
  assert_int_equal(fchown(to, NOBODY, NOBODY), 0);
  assert_int_equal(fchmod(to, 04755), 0);
  close(from), close(to);
}

static int run(const char *path) {
  int status;
  fflush(NULL);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (!pid) {
    setenv("GAPLESS_CONF", "nmalloc:7,trace:/tmp/gapless-must-not-be", 1);
    execl(path, path, "look", (char *)NULL);
    _exit(NOT_SECURE);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void variables_are_not_followed(void **state) {
  (void)state;
  char folder[] = "/tmp/gapless-secure-XXXXXX", path[64];
  if (geteuid() != 0) skip();
  assert_non_null(mkdtemp(folder));
  assert_int_equal(chmod(folder, 0755), 0);
  snprintf(path, sizeof path, "%s/copy", folder);
  copy_to(path);
  int answer = run(path);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(rmdir(folder), 0);
  if (answer == NOT_SECURE) skip(); /* such programs are not honoured there, or it cannot be started by others */
  assert_int_equal(answer, IGNORED);
  assert_int_equal(access("/tmp/gapless-must-not-be", F_OK), -1);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(variables_are_not_followed)};
  if (argc > 1 && strcmp(argv[1], "look") == 0) return look();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
