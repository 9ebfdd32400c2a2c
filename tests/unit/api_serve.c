/* `gapless explain PID`: a running process tells its own user what its heaps hold, and nobody else, and nothing that a stranger does
 * harms it. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/door.h"
#include "base/text.h"
#include "gapless/explain.h"
#include "support/api_try.h"
#include "toolsapi/ask.h"
#include "trace/history.h"

enum { NOBODY = 65534 };

/* Children make heaps, which have threads: the thread sanitizer would rather end them. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

/* ---- support ---- */

static char runtime_folder[64];

/* A folder of the test's own, so that other programs of the user are left alone. */
static int set_up(void **state) {
  (void)state;
  snprintf(runtime_folder, sizeof runtime_folder, "/tmp/gapless-serve-XXXXXX");
  if (!mkdtemp(runtime_folder)) return -1;
  return setenv("XDG_RUNTIME_DIR", runtime_folder, 1);
}

static char *in_folder(const char *name) {
  static char path[200];
  snprintf(path, sizeof path, "%s/gapless/%s", runtime_folder, name);
  return path;
}

static char *number(pid_t process) {
  static char text[32];
  snprintf(text, sizeof text, "%ld", (long)process);
  return text;
}

static int tear_down(void **state) {
  (void)state;
  rmdir(in_folder(""));
  return rmdir(runtime_folder); /* fails where something was left behind */
}

static bool has_door(pid_t process) {
  struct stat about;
  return lstat(in_folder(number(process)), &about) == 0;
}

static int ask(pid_t process, char *message, size_t bytes) {
  struct gap__text reply = {0};
  *message = '\0';
  int rc = gap__ask_state(process, &reply, message, bytes);
  gap__text_free(&reply);
  return rc;
}

static void expect_nobody(pid_t process, int code, const char *words) {
  char message[300];
  assert_int_equal(ask(process, message, sizeof message), code);
  if (!strstr(message, words)) fail_msg("\"%s\" does not say \"%s\"", message, words);
}

static struct gap__history *state_of(pid_t process) {
  struct gap__text reply = {0};
  struct gap__history *history;
  char message[300], *text;
  if (gap__ask_state(process, &reply, message, sizeof message)) fail_msg("%s", message);
  if (gap__history_read_memory(reply.bytes, reply.length, &history, &text)) fail_msg("%s", text);
  gap__text_free(&reply);
  return history;
}

static void pause_ms(long ms) {
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* A child that runs `work` and then waits to be killed; returns when the work is done. */
static pid_t child_with(void (*work)(void)) {
  int ready[2];
  char byte;
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
    work();
    if (write(ready[1], "r", 1) != 1) _exit(2);
    for (;;) pause();
  }
  close(ready[1]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  return child;
}

static void end_child(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

static void serve_ten(void) {
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "serve:True");
  api_get(heap, 8, 10 * MIB);
}

static void do_nothing(void) {}

/* ---- what is told ---- */

static void a_process_tells_what_it_holds(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 256 * MIB, "serve:True,max_memory:100M,page_maker:False");
  gap_addr a = api_get(heap, 8, 10 * MIB + 100), b = api_get(heap, 8, 3 * MIB), c = api_get(heap, 16, 700), none;
  api_give(heap, b);
  assert_int_equal(gap_alloc(heap, 0, 8, 200 * MIB, &none), GAP_ENOMEM);
  gap_usage usage = api_usage(heap, 0);
  struct gap__history *history = state_of(getpid());
  uint64_t held = 0, live = 0, requested = 0;
  for (uint64_t i = 0; i < history->segment_count; i++) {
    assert_true(history->segments[i].is_paged);
    held += history->segments[i].total_size;
    live += history->segments[i].allocated_size;
    requested += history->segments[i].requested_size;
  }
  const struct gap__hist_facts *facts = &history->devices[0].facts;
  assert_int_equal(held, usage.held_bytes);
  assert_int_equal(live, usage.live_bytes);
  assert_int_equal(requested, 10 * MIB + 100 + 700);
  assert_int_equal(facts->returnable_bytes, usage.idle_returnable_bytes);
  assert_int_equal(facts->largest_servable_bytes, usage.largest_servable_bytes);
  assert_int_equal(facts->peak_live_bytes, usage.peak_live_bytes);
  assert_int_equal(facts->card_bytes, 256 * MIB);
  assert_int_equal(facts->free_bytes, usage.card_free_bytes);
  assert_int_equal(facts->cap_bytes, 100 * MIB);
  assert_int_equal(facts->refusals, 1);
  assert_non_null(strstr(history->text + facts->refusal, "200 MiB"));
  assert_int_equal(history->process, getpid());
  assert_string_equal(history->settings_text, "max_memory:100 MiB,serve:True,page_maker:False");
  assert_true(history->by_gapless && !history->is_torn);
  gap__history_free(history);
  api_give(heap, a);
  api_give(heap, c);
  api_close(heap);
}

static void a_process_is_explained(void **state) {
  gap_explain_options options;
  gap_explanation *explanation;
  char message[300];
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 256 * MIB, "serve:True,max_memory:64M,page_maker:False");
  gap_addr a = api_get(heap, 8, 30 * MIB), b = api_get(heap, 8, 20 * MIB);
  api_give(heap, a);
  gap_explain_defaults(&options);
  for (int i = 0; i < 3; i++) {
    static const gap_explain_verdict wanted[] = {GAP_EXPLAIN_FITS, GAP_EXPLAIN_FITS, GAP_EXPLAIN_LIMIT};
    static const uint64_t asked[] = {0, 44 * MIB, 60 * MIB};
    options.request_bytes = asked[i];
    if (gap_explain_open_process(getpid(), &options, &explanation, message, sizeof message)) fail_msg("%s", message);
    assert_int_equal(gap_explain_verdict_of(explanation), wanted[i]);
    assert_int_equal(gap_explain_can_be_had(explanation), i < 2);
    char *words = gap_explain_words(explanation, 0), *json = gap_explain_json(explanation, "1");
    assert_non_null(strstr(words, "gapless"));
    assert_null(strstr(words, "PyTorch's"));
    assert_non_null(strstr(json, "\"idle_returnable_bytes\":31457280"));
    assert_non_null(strstr(json, "\"largest_servable_bytes\":46137344"));
    free(words);
    free(json);
    gap_explain_close(explanation);
  }
  options.device = 1; /* never opened: it holds nothing */
  assert_int_equal(gap_explain_open_process(getpid(), &options, &explanation, message, sizeof message), GAP_EINVAL);
  assert_non_null(strstr(message, "the process has 1"));
  api_give(heap, b);
  api_close(heap);
}

static void pytorchs_policy_tells_its_segments(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 256 * MIB, "serve:True,strategy:caching_allocator");
  gap_addr a = api_get(heap, 8, 3 * MIB);
  struct gap__history *history = state_of(getpid());
  assert_int_equal(history->segment_count, 1);
  assert_false(history->segments[0].is_paged || history->segments[0].is_expandable || history->by_gapless);
  assert_int_equal(history->segments[0].total_size, 20 * MIB);
  assert_int_equal(history->segments[0].active_size, 3 * MIB);
  gap__history_free(history);
  assert_int_equal(gap_configure(heap, "serve:True,strategy:caching_allocator,expandable_segments:True"), 0);
  gap_addr b = api_get(heap, 16, 3 * MIB);
  history = state_of(getpid());
  bool found = false;
  for (uint64_t i = 0; i < history->segment_count; i++) found |= history->segments[i].is_expandable;
  assert_true(found);
  gap__history_free(history);
  api_give(heap, a);
  api_give(heap, b);
  api_close(heap);
}

static void two_heaps_are_one_answer(void **state) {
  (void)state;
  gap_heap *one = api_open(GAP_BACKEND_HOST, 64 * MIB, "serve:True");
  gap_heap *other = api_open(GAP_BACKEND_SIM, 64 * MIB, "serve:True");
  gap_heap *silent = api_open(GAP_BACKEND_SIM, 64 * MIB, NULL);
  gap_addr a = api_get(one, 8, 4 * MIB), b = api_get(other, 8, 6 * MIB), c = api_get(silent, 8, 16 * MIB);
  struct gap__history *history = state_of(getpid());
  assert_int_equal(history->segment_count, 2);
  assert_int_equal(history->segments[0].active_size + history->segments[1].active_size, 10 * MIB);
  gap__history_free(history);
  api_give(one, a);
  api_close(one);
  history = state_of(getpid());
  assert_int_equal(history->segment_count, 1);
  gap__history_free(history);
  api_give(other, b);
  api_close(other);
  assert_false(has_door(getpid()));
  api_give(silent, c);
  api_close(silent);
}

/* ---- when there is a door ---- */

static void the_key_opens_and_closes(void **state) {
  char message[300];
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, NULL);
  assert_false(has_door(getpid()));
  expect_nobody(getpid(), GAP_EINVAL, "serve:False");
  assert_int_equal(gap_configure(heap, "serve:True"), 0);
  assert_int_equal(ask(getpid(), message, sizeof message), 0);
  assert_int_equal(gap_configure(heap, "serve:auto"), 0);
  assert_false(has_door(getpid()));
  assert_int_equal(gap_configure(heap, "serve:True"), 0);
  assert_true(has_door(getpid()));
  api_close(heap);
  assert_false(has_door(getpid()));

  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  options.backend = GAP_BACKEND_HOST;
  options.flags = GAP_HEAP_NO_THREAD | GAP_HEAP_NO_ENVIRONMENT;
  options.conf = "serve:True";
  assert_int_equal(gap_heap_create(&options, &heap), 0);
  assert_false(has_door(getpid()));
  api_close(heap);
}

static void nobody_to_ask(void **state) {
  (void)state;
  pid_t child = child_with(do_nothing);
  expect_nobody(child, GAP_EINVAL, "no gapless process");
  kill(child, SIGKILL);
  pause_ms(50);
  expect_nobody(child, GAP_EINVAL, "no process of this number"); /* it has ended, but nobody has waited for it */
  waitpid(child, NULL, 0);
  expect_nobody(child, GAP_EINVAL, "no process of this number");
  expect_nobody(0, GAP_EINVAL, "no process of this number");
  expect_nobody(-1, GAP_EINVAL, "no process of this number");
}

static void a_child_has_a_door_of_its_own(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "serve:True");
  gap_addr a = api_get(heap, 8, 2 * MIB);
  pid_t plain = child_with(do_nothing), child = child_with(serve_ten);
  expect_nobody(plain, GAP_EINVAL, "cannot be asked");
  struct gap__history *history = state_of(child);
  assert_int_equal(history->segments[0].active_size, 10 * MIB);
  gap__history_free(history);
  history = state_of(getpid());
  assert_int_equal(history->segments[0].active_size, 2 * MIB);
  gap__history_free(history);
  end_child(plain);
  assert_true(has_door(getpid())); /* the end of a child takes nothing away */
  end_child(child);
  assert_true(has_door(child)); /* it was killed */
  api_give(heap, a);
  api_close(heap);
  heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "serve:True");
  assert_false(has_door(child)); /* who opens a door sweeps */
  api_close(heap);
}

__attribute__((weak)) void __lsan_disable(void);

/* The heap is left as it is, as programs do. */
static void a_door_goes_with_its_process(void **state) {
  (void)state;
  pid_t child = fork();
  if (child == 0) {
    if (__lsan_disable) __lsan_disable();
    serve_ten();
    exit(has_door(getpid()) ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_false(has_door(child));
}

/* ---- strangers ---- */

static int connect_to(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
  assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
  return fd;
}

static size_t answer_to(const char *line, char *out, size_t bytes) {
  int fd = connect_to(in_folder(number(getpid())));
  size_t length = 0;
  assert_int_equal(send(fd, line, strlen(line), MSG_NOSIGNAL), (ssize_t)strlen(line));
  for (ssize_t got; (got = recv(fd, out + length, bytes - length, 0)) > 0;) length += (size_t)got;
  close(fd);
  return length;
}

static void nonsense_is_answered_or_not(void **state) {
  char answer[4096], many[200], message[300];
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "serve:True");
  size_t length = answer_to("gapless state 9\n", answer, sizeof answer);
  assert_int_equal(strncmp(answer, "gapless: ", 9), 0);
  assert_int_equal(answer[length - 1], '\n');
  memset(many, 'x', sizeof many - 1);
  many[sizeof many - 1] = '\0';
  assert_int_equal(answer_to(many, answer, sizeof answer), 0); /* too long a line */
  close(connect_to(in_folder(number(getpid()))));
  assert_int_equal(ask(getpid(), message, sizeof message), 0); /* it still answers */
  api_close(heap);
}

/* Who connects and says nothing, or takes nothing, keeps the heap from ending for no time. */
static void a_silent_stranger_holds_nothing_up(void **state) {
  struct timespec before, after;
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "serve:True");
  int silent = connect_to(in_folder(number(getpid())));
  pause_ms(50); /* the thread waits for its line */
  clock_gettime(CLOCK_MONOTONIC, &before);
  api_close(heap);
  clock_gettime(CLOCK_MONOTONIC, &after);
  assert_true((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 < 500);
  close(silent);
}

/* A socket of the right name that somebody else listens at. */
static void another_process_in_its_place(void **state) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  (void)state;
  pid_t child = child_with(do_nothing);
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "serve:True"); /* makes the folder */
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  snprintf(address.sun_path, sizeof address.sun_path, "%.100s", in_folder(number(child)));
  assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
  expect_nobody(child, GAP_EINVAL, "no gapless process"); /* nobody listens */
  assert_int_equal(listen(fd, 1), 0);
  expect_nobody(child, GAP_EINVAL, "another process");
  close(fd);
  assert_int_equal(unlink(address.sun_path), 0);
  assert_int_equal(symlink("x", in_folder(number(child))), 0);
  expect_nobody(child, GAP_EINVAL, "no gapless process");
  assert_int_equal(unlink(address.sun_path), 0);
  end_child(child);
  api_close(heap);
}

static struct {
  char bytes[1 << 16];
  size_t length;
} lie; /* what the liar answers */

/* Listens where its heap's door would be; a child of its own answers once. */
static void lie_once(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char line[64];
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  snprintf(address.sun_path, sizeof address.sun_path, "%.100s", in_folder(number(getpid())));
  if (bind(fd, (const struct sockaddr *)&address, sizeof address) || listen(fd, 1)) _exit(3);
  if (fork() != 0) return;
  int other = accept(fd, NULL, NULL);
  if (recv(other, line, sizeof line, 0) <= 0 || send(other, lie.bytes, lie.length, MSG_NOSIGNAL) < 0) _exit(4);
  _exit(0);
}

static void expect_lie_told(const char *words) {
  gap_explain_options options;
  gap_explanation *explanation;
  char message[300];
  pid_t child = child_with(lie_once);
  gap_explain_defaults(&options);
  assert_true(gap_explain_open_process(child, &options, &explanation, message, sizeof message) < 0);
  if (!strstr(message, words)) fail_msg("\"%s\" does not say \"%s\"", message, words);
  end_child(child);
  unlink(in_folder(number(child)));
}

/* Half an answer, as of a process that ends meanwhile, is no state in which nothing is held. */
static void an_answer_that_is_none(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "serve:True"); /* makes the folder */
  gap_addr a = api_get(heap, 8, 2 * MIB);
  size_t whole = answer_to(GAP__DOOR_ASK_STATE, lie.bytes, sizeof lie.bytes);
  assert_true(whole > 100 && whole < sizeof lie.bytes);
  lie.length = whole - 20;
  expect_lie_told("ends in the middle");
  lie.length = 10;
  expect_lie_told("byte 8");
  lie.bytes[8] ^= 4, lie.length = whole;
  expect_lie_told("byte 8");
  lie.length = 0;
  expect_lie_told("without an answer");
  strcpy(lie.bytes, "no \x1b[31m way"), lie.length = strlen(lie.bytes);
  expect_lie_told("it answers: no ");
  api_give(heap, a);
  api_close(heap);
}

static void a_stopped_process_is_given_up(void **state) {
  (void)state;
  pid_t child = child_with(serve_ten);
  kill(child, SIGSTOP);
  assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
  expect_nobody(child, GAP_EIO, "it is stopped");
  end_child(child);
  unlink(in_folder(number(child)));
}

static void only_a_folder_of_ones_own(void **state) {
  char path[128];
  (void)state;
  snprintf(path, sizeof path, "%s/test", runtime_folder);
  assert_int_equal(gap__door_open_folder(path, geteuid(), false), GAP_EIO);
  int folder = gap__door_open_folder(path, geteuid(), true);
  assert_true(folder >= 0);
  struct stat about;
  assert_int_equal(fstat(folder, &about), 0);
  assert_int_equal(about.st_mode & 0777, 0700);
  close(folder);
  assert_int_equal(chmod(path, 0750), 0);
  assert_int_equal(gap__door_open_folder(path, geteuid(), true), GAP_EINVAL);
  assert_int_equal(chmod(path, 0700), 0);
  assert_int_equal(gap__door_open_folder(path, geteuid() + 1, true), GAP_EINVAL);
  char link[160];
  snprintf(link, sizeof link, "%s-link", path);
  assert_int_equal(symlink(path, link), 0);
  assert_int_equal(gap__door_open_folder(link, geteuid(), true), GAP_EIO);
  assert_int_equal(unlink(link), 0);
  assert_int_equal(rmdir(path), 0);
}

/* In a child under another user: what it has seen is its exit status. */
static int as_nobody(int (*look)(void)) {
  pid_t child = fork();
  if (child == 0) {
    if (setgid(NOBODY) || setuid(NOBODY)) _exit(100);
    _exit(look());
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int ask_parent(void) {
  char message[300];
  int rc = ask(getppid(), message, sizeof message);
  return rc == GAP_EINVAL && strstr(message, "only that user and root") ? 0 : 1;
}

/* The folder is open to all, against every rule, so that only the door itself is left to refuse. */
static int knock(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char byte;
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  snprintf(address.sun_path, sizeof address.sun_path, "%.100s", in_folder(number(getppid())));
  if (connect(fd, (const struct sockaddr *)&address, sizeof address)) return 1;
  send(fd, GAP__DOOR_ASK_STATE, strlen(GAP__DOOR_ASK_STATE), MSG_NOSIGNAL);
  return recv(fd, &byte, 1, 0) > 0 ? 2 : 0;
}

static void other_users_are_refused(void **state) {
  (void)state;
  if (geteuid() != 0) {
    expect_nobody(1, GAP_EINVAL, "only that user and root");
    return;
  }
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 64 * MIB, "serve:True");
  assert_int_equal(as_nobody(ask_parent), 0);
  assert_int_equal(chmod(runtime_folder, 0711) | chmod(in_folder(""), 0711), 0);
  assert_int_equal(chmod(in_folder(number(getpid())), 0666), 0);
  assert_int_equal(as_nobody(knock), 0);
  assert_int_equal(chmod(in_folder(""), 0700), 0);
  api_close(heap);
}

/* ---- beside the program ---- */

static atomic_bool stop;

static void *churn(void *arg) {
  gap_heap *heap = arg;
  gap_addr kept[64] = {0};
  for (unsigned i = 0; !atomic_load(&stop); i = i * 5 + 1) {
    gap_addr *at = &kept[i % 64];
    if (*at) gap_free(heap, *at);
    if (gap_alloc(heap, 0, 8 + i % 3, 512 + (uint64_t)i % 97 * 40000, at)) *at = 0;
  }
  for (int i = 0; i < 64; i++) gap_free(heap, kept[i]);
  return NULL;
}

static void every_answer_adds_up_while_threads_allocate(void **state) {
  pthread_t threads[3];
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, GIB, "serve:True");
  atomic_store(&stop, false);
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, churn, heap), 0);
  for (int i = 0; i < 30; i++) {
    struct gap__history *history = state_of(getpid());
    for (uint64_t j = 0; j < history->segment_count; j++) {
      const struct gap__hist_segment *segment = &history->segments[j];
      uint64_t sum = 0;
      for (uint32_t k = 0; k < segment->block_count; k++) sum += history->blocks[segment->block_first + k].size;
      assert_int_equal(sum, segment->total_size);
    }
    gap__history_free(history);
  }
  atomic_store(&stop, true);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  api_close(heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_process_tells_what_it_holds),
      cmocka_unit_test(a_process_is_explained),
      cmocka_unit_test(pytorchs_policy_tells_its_segments),
      cmocka_unit_test(two_heaps_are_one_answer),
      cmocka_unit_test(the_key_opens_and_closes),
      cmocka_unit_test(nobody_to_ask),
      cmocka_unit_test(a_child_has_a_door_of_its_own),
      cmocka_unit_test(a_door_goes_with_its_process),
      cmocka_unit_test(nonsense_is_answered_or_not),
      cmocka_unit_test(a_silent_stranger_holds_nothing_up),
      cmocka_unit_test(another_process_in_its_place),
      cmocka_unit_test(an_answer_that_is_none),
      cmocka_unit_test(a_stopped_process_is_given_up),
      cmocka_unit_test(only_a_folder_of_ones_own),
      cmocka_unit_test(other_users_are_refused),
      cmocka_unit_test(every_answer_adds_up_while_threads_allocate),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
