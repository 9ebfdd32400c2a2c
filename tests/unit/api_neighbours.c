/* Processes on one card: idle memory of one serves another, live memory never; and nothing that one of them does, or a stranger who speaks in
 * its place, makes another fail otherwise than it would alone, or wait for long. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/talk.h"
#include "gapless/gapless.h"
#include "support/actor.h"

#define MIB ((uint64_t)1 << 20)
#define CARD (128 * MIB) /* of which 8 MiB are left free */
enum { NOBODY = 65534 };

/* Actors have threads, and are made by fork: the thread sanitizer would rather end them. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

static struct actor start(const char *conf) {
  char text[200];
  snprintf(text, sizeof text, "page_maker:False,%s", conf);
  return actor_start(CARD, text);
}

/* One with `mib` of idle memory, and a small live block in its slot 0. */
static struct actor start_idle(const char *conf, uint64_t mib) {
  struct actor actor = start(conf);
  assert_int_equal(actor_get(&actor, 0, MIB), 0);
  assert_int_equal(actor_get(&actor, 1, mib * MIB), 0);
  actor_give(&actor, 1);
  return actor;
}

static int64_t held_mib(struct actor *actor) { return actor_stat(actor, "reserved_bytes.all.current") / (int64_t)MIB; }

/* ---- what is shared ---- */

static void idle_memory_serves_the_other(void **state) {
  (void)state;
  struct actor a = start_idle("lend_after_ms:0", 90), b = start("lend_after_ms:0");
  assert_int_equal(held_mib(&a), 92);
  assert_int_equal(actor_get(&b, 0, 80 * MIB), 0); /* 36 are free, and 8 stay so */
  assert_int_equal(held_mib(&a), 40);
  actor_look(&a, 0);
  assert_in_range(actor_stat(&a, "neighbour_requests"), 1, 8); /* a busy machine gives it in pieces */
  assert_int_equal(actor_stat(&a, "neighbour_given_bytes"), 52 * MIB);
  assert_int_equal(actor_stat(&b, "neighbour_got_bytes"), 52 * MIB);
  assert_int_equal(actor_stat(&b, "rung.neighbours.count"), 1);
  assert_int_equal(actor_get(&a, 1, 90 * MIB), GAP_ENOMEM); /* it is b's now */
  assert_non_null(
      strstr(actor_explain(&a), "1 other gapless process on the card: 80 MiB held by neighbours, 0 B of it idle"));
  actor_give(&b, 0);
  assert_int_equal(actor_get(&a, 1, 90 * MIB), 0); /* and comes back */
  actor_give(&a, 1), actor_give(&a, 0);
  actor_end(&a), actor_end(&b);
}

/* What was used of late is waited for, and what goes on being used is not. */
static void recent_memory_is_waited_for(void **state) {
  (void)state;
  struct actor a = start_idle("lend_after_ms:400", 90), b = start("lend_after_ms:400");
  int64_t began = actors_now_ms();
  assert_int_equal(actor_get(&b, 0, 80 * MIB), 0);
  assert_in_range(actors_now_ms() - began, 200, 5000);
  actor_give(&b, 0);
  struct actor_work steps = {
      .least = 80 * MIB, .most = 90 * MIB, .run_ms = 6000, .hold_ms = 5, .rest_ms = 30, .seed = 3};
  assert_int_equal(actor_get(&b, 1, 4 * MIB), 0);
  actors_pause(600);
  actor_ask_work(&a, &steps); /* gets it back, and keeps it */
  actors_pause(1500);
  began = actors_now_ms();
  assert_int_equal(actor_get(&b, 0, 80 * MIB), GAP_ENOMEM);
  assert_in_range(actors_now_ms() - began, 0, 4000);
  struct actor_report report = actor_report(&a);
  assert_int_equal(report.refused + report.wrong, 0);
  assert_true(report.steps > 0);
  assert_int_equal(actor_get(&b, 0, 80 * MIB), 0); /* it has ended */
  actor_give(&b, 0), actor_give(&b, 1);
  actor_end(&a), actor_end(&b);
}

/* A third asks two. */
static void several_give_together(void **state) {
  (void)state;
  struct actor a = start_idle("lend_after_ms:0", 40), b = start_idle("lend_after_ms:0", 40),
               c = start("lend_after_ms:0");
  assert_int_equal(actor_get(&c, 0, 100 * MIB), 0);
  assert_true(held_mib(&a) + held_mib(&b) <= 20);
  actor_look(&a, 0), actor_look(&b, 0);
  assert_int_equal(actor_stat(&c, "neighbours"), 2);
  actor_end(&a), actor_end(&b), actor_end(&c);
}

static void two_heaps_of_one_process(void **state) {
  (void)state;
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  gap_heap *heaps[2];
  gap_addr addr;
  options.backend = GAP_BACKEND_HOST;
  options.device_bytes = CARD;
  options.conf = "lend_after_ms:0,page_maker:False";
  for (int i = 0; i < 2; i++) assert_int_equal(gap_heap_create(&options, &heaps[i]), 0);
  assert_int_equal(gap_alloc(heaps[0], 0, 8, 100 * MIB, &addr), 0);
  assert_int_equal(gap_free(heaps[0], addr), 0);
  assert_int_equal(gap_alloc(heaps[1], 0, 8, 100 * MIB, &addr), 0);
  for (int i = 0; i < 2; i++) gap_heap_destroy(heaps[i]);
}

/* ---- who takes part ---- */

static void the_key_joins_and_leaves(void **state) {
  (void)state;
  struct actor a = start("neighbours:False"), b = start_idle("lend_after_ms:0", 90);
  assert_int_equal(actor_get(&a, 0, MIB), 0);
  assert_int_equal(actors_sockets(), 1);
  assert_int_equal(actor_get(&a, 1, 80 * MIB), GAP_ENOMEM);
  assert_int_equal(actor_stat(&b, "neighbour_requests"), 0);
  actor_configure(&a, "neighbours:True");
  assert_int_equal(actors_sockets(), 2);
  assert_int_equal(actor_get(&a, 1, 80 * MIB), 0);
  actor_configure(&b, "neighbours:False");
  actor_configure(&a, "neighbours:False");
  assert_int_equal(actors_sockets(), 0);
  actor_end(&a), actor_end(&b);
}

/* Processes on another card are not even known. */
static void another_card(void **state) {
  (void)state;
  struct actor a = start_idle("lend_after_ms:0", 100);
  actors_fresh_card();
  struct actor b = start("lend_after_ms:0");
  assert_int_equal(actor_get(&b, 0, 110 * MIB), 0);
  assert_int_equal(actor_get(&b, 1, 20 * MIB), GAP_ENOMEM);
  assert_int_equal(actor_stat(&b, "neighbour_asks"), 0);
  assert_null(strstr(actor_explain(&b), "neighbours"));
  assert_int_equal(actors_sockets(), 2);
  actor_end(&a), actor_end(&b);
}

static void what_ends_leaves_no_socket(void **state) {
  (void)state;
  struct actor a = start_idle("lend_after_ms:0", 10), b = start_idle("lend_after_ms:0", 10);
  assert_int_equal(actors_sockets(), 2);
  actor_end(&a);
  assert_int_equal(actors_sockets(), 1);
  actor_kill(&b);
  assert_int_equal(actors_sockets(), 1);
  struct actor c = start_idle("lend_after_ms:0", 10); /* who joins sweeps */
  assert_int_equal(actors_sockets(), 1);
  actor_end(&c);
  assert_int_equal(actors_sockets(), 0);
}

static void a_folder_that_is_not_ones_own(void **state) {
  char target[160];
  (void)state;
  rmdir(actors_folder());
  snprintf(target, sizeof target, "%s-elsewhere", actors_folder());
  assert_int_equal(mkdir(target, 0700), 0);
  assert_int_equal(symlink(target, actors_folder()), 0);
  struct actor a = start_idle("neighbours:True", 90);
  assert_int_equal(actors_sockets(), 0);
  assert_int_equal(actor_get(&a, 1, 100 * MIB), 0);
  actor_give(&a, 1);
  assert_int_equal(actor_get(&a, 1, 125 * MIB), GAP_ENOMEM); /* and asking finds nobody */
  actor_end(&a);
  assert_int_equal(unlink(actors_folder()), 0);
  assert_int_equal(rmdir(target), 0);
}

/* ---- killed and stopped ---- */

static void a_killed_neighbour(void **state) {
  (void)state;
  struct actor a = start_idle("lend_after_ms:60000", 90), b = start("lend_after_ms:0");
  assert_int_equal(actor_get(&b, 0, MIB), 0);
  actor_ask_get(&b, 1, 100 * MIB); /* too long until a gives: it would be refused, but for the end of a */
  actor_kill(&a);
  int rc = actor_answer(&b);
  if (rc) assert_int_equal(actor_get(&b, 1, 100 * MIB), 0);
  assert_int_equal(actor_get(&b, 2, 110 * MIB), GAP_ENOMEM); /* asks, and finds a name without a process */
  assert_int_equal(actors_sockets(), 1);
  assert_null(strstr(actor_explain(&b), "did not answer"));
  actor_end(&b);
}

static void a_stopped_neighbour(void **state) {
  (void)state;
  struct actor a = start_idle("lend_after_ms:0", 90), b = start("lend_after_ms:0");
  assert_int_equal(actor_get(&b, 0, MIB), 0);
  actor_stop(&a);
  int64_t began = actors_now_ms();
  assert_int_equal(actor_get(&b, 1, 80 * MIB), GAP_ENOMEM);
  int64_t first = actors_now_ms() - began;
  assert_in_range(first, 900, 4000);
  assert_non_null(strstr(actor_explain(&b), "1 did not answer."));
  began = actors_now_ms();
  for (int i = 0; i < 5; i++)
    assert_int_equal(actor_get(&b, 1, 80 * MIB), GAP_ENOMEM); /* it is left out for a second */
  assert_true(actors_now_ms() - began < 3 * first);
  assert_in_range(actor_stat(&b, "neighbour_silent"), 1, 2); /* in seconds that a busy machine takes longer for */
  kill(a.process, SIGCONT);
  actors_pause(300);
  assert_int_equal(actor_stat(&a, "neighbour_given_bytes"), 0); /* nobody waits for that answer any more */
  actors_pause(1000);
  assert_int_equal(actor_get(&b, 1, 80 * MIB), 0);
  actor_look(&a, 0);
  actor_end(&a), actor_end(&b);
}

/* ---- liars ---- */

struct liar {
  char text[300];
  int length; /* -1: says nothing and goes on holding the line; 0: hangs up */
};

static struct sockaddr_un address_of(const char *name) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%.40s/%.60s", actors_folder(), name);
  return address;
}

/* The name of the only socket there is; and one on the same card. */
static void only_name(char out[80]) {
  char command[160];
  snprintf(command, sizeof command, "ls %s", actors_folder());
  FILE *list = popen(command, "re");
  assert_true(list && fscanf(list, "%79s", out) == 1);
  pclose(list);
}

static pid_t start_liar(const struct liar *liar) {
  char name[80], own[96], byte = 'r';
  int ready[2];
  only_name(name);
  snprintf(own, sizeof own, "%.37s.liar", name);
  assert_int_equal(pipe(ready), 0);
  pid_t process = fork();
  if (process == 0) {
    struct sockaddr_un address = address_of(own);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) || listen(fd, 8)) _exit(1);
    if (write(ready[1], &byte, 1) != 1) _exit(2);
    for (;;) {
      char line[200];
      int other = accept(fd, NULL, NULL);
      if (recv(other, line, sizeof line, 0) <= 0) continue;
      if (liar->length > 0) send(other, liar->text, (size_t)liar->length, MSG_NOSIGNAL);
      if (liar->length >= 0) close(other);
    }
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]), close(ready[1]);
  return process;
}

static void end_liar(pid_t process) {
  char name[80], own[96];
  kill(process, SIGKILL);
  waitpid(process, NULL, 0);
  only_name(name);
  snprintf(own, sizeof own, "%.37s.liar", name);
  unlink(address_of(own).sun_path);
}

static struct liar says(const char *text) {
  struct liar liar = {.length = (int)strlen(text)};
  memcpy(liar.text, text, strlen(text));
  return liar;
}

/* A request that must fail does so within `most_ms`, and those that need nobody are served as ever. */
static void bear(const struct liar *liar, int most_ms) {
  actors_fresh_card();
  struct actor b = start("lend_after_ms:0");
  assert_int_equal(actor_get(&b, 0, 60 * MIB), 0);
  pid_t process = start_liar(liar);
  int64_t began = actors_now_ms();
  assert_int_equal(actor_get(&b, 1, 64 * MIB), GAP_ENOMEM);
  int64_t took = actors_now_ms() - began;
  if (took > most_ms) fail_msg("\"%.*s\" took %lld ms", liar->length, liar->text, (long long)took);
  assert_int_equal(actor_stat(&b, "neighbour_got_bytes"), 0);
  assert_int_equal(actor_get(&b, 1, 50 * MIB), 0);
  actor_give(&b, 1), actor_give(&b, 0);
  end_liar(process);
  actor_end(&b);
}

static void lies_cost_a_bounded_time(void **state) {
  (void)state;
  struct liar lies[] = {
      says("gapless gave 1 99999999999 0 0 0\n"),           /* has given a lot */
      says("gapless gave 1 0 99999999999 1 99999999999\n"), /* will, for ever */
      says("gapless gave 1 18446744073709551615 18446744073709551615 18446744073709551615 18446744073709551615\n"),
      says("gapless gave 1 18446744073709551616 0 0 0\n"), /* no number */
      says("gapless gave 2 1 1 1 1\n"),                    /* another version */
      says("gapless gave 1 -1 0 0 0\n"),
      says("gapless gave 1 1 1\n"),
      says("gapless gave 1 0 0 0 0"),
      says("x\n"),
      {.length = 0},
      {.length = 299},
      {.length = -1},
  };
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) bear(&lies[i], 3000);
}

/* ---- strangers who ask ---- */

/* Asks as a neighbour would. */
static ssize_t ask(const char *name, const char *text, size_t length, char answer[300]) {
  struct sockaddr_un address = address_of(name);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  struct timeval most = {.tv_sec = 3};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  if (connect(fd, (const struct sockaddr *)&address, sizeof address)) {
    close(fd);
    return -errno;
  }
  ssize_t got = send(fd, text, length, MSG_NOSIGNAL) == (ssize_t)length ? recv(fd, answer, 299, 0) : -1;
  if (got >= 0) answer[got] = '\0';
  close(fd);
  return got;
}

static void strange_questions(void **state) {
  char name[80], uuid[33], text[GAP__TALK_MOST * 4], answer[300];
  (void)state;
  struct actor a = start_idle("lend_after_ms:0", 90);
  only_name(name);
  snprintf(uuid, sizeof uuid, "%.32s", name + strlen("near-"));
  const char *wrong[] = {"",
                         "x",
                         "\n",
                         "gapless give 2 %s 4096\n",
                         "gapless give 1 %s -1\n",
                         "gapless give 1 %s 1",
                         "gapless give 1 %s 1 \n",
                         "gapless give 1 %s 18446744073709551616\n",
                         "gapless give 1 00000000000000000000000000000000 4096\n",
                         "gapless state 1\n"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    int length = snprintf(text, sizeof text, wrong[i], uuid);
    assert_int_equal(ask(name, text, (size_t)length, answer), 0); /* it hangs up */
  }
  memset(text, 'x', sizeof text);
  assert_int_equal(ask(name, text, sizeof text, answer), 0);
  assert_int_equal(held_mib(&a), 92);
  size_t length = gap__talk_write_request(text, uuid, UINT64_MAX); /* all that is idle, and no more */
  assert_true(ask(name, text, length, answer) > 0);
  for (int i = 0; i < 100 && held_mib(&a) > 2; i++)
    ask(name, text, length, answer); /* as much at once as 100 ms allow */
  assert_true(ask(name, text, length, answer) > 0);
  assert_string_equal(answer, "gapless gave 1 0 0 0 2097152\n");
  assert_int_equal(held_mib(&a), 2);
  actor_look(&a, 0);
  actor_end(&a);
}

/* Strangers who take all seats and say nothing are shown out. */
static void silent_guests(void **state) {
  enum { GUESTS = 60 };
  int guests[GUESTS], connected = 0;
  char name[80];
  (void)state;
  struct actor a = start_idle("lend_after_ms:0", 90), b = start("lend_after_ms:0");
  only_name(name);
  struct sockaddr_un address = address_of(name);
  for (int i = 0; i < GUESTS; i++) {
    guests[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    connected += connect(guests[i], (const struct sockaddr *)&address, sizeof address) == 0;
  }
  assert_true(connected >= 16);
  int64_t began = actors_now_ms();
  int rc = GAP_ENOMEM;
  while (rc && actors_now_ms() - began < 15000) rc = actor_get(&b, 0, 80 * MIB);
  assert_int_equal(rc, 0);                         /* once they are gone */
  assert_int_equal(actor_get(&a, 1, 20 * MIB), 0); /* who never stood in the program's own way */
  for (int i = 0; i < GUESTS; i++) close(guests[i]);
  actor_end(&a), actor_end(&b);
}

/* The folder is open to all, against every rule, so that only the question who it is is left. */
static void other_users_get_nothing(void **state) {
  char name[80], text[GAP__TALK_MOST], uuid[33], answer[300];
  (void)state;
  if (geteuid() != 0) skip();
  struct actor a = start_idle("lend_after_ms:0", 90);
  only_name(name);
  snprintf(uuid, sizeof uuid, "%.32s", name + strlen("near-"));
  size_t length = gap__talk_write_request(text, uuid, 50 * MIB);
  char above[80];
  snprintf(above, sizeof above, "%.60s/..", actors_folder());
  assert_int_equal(chmod(above, 0711) | chmod(actors_folder(), 0711) | chmod(address_of(name).sun_path, 0666), 0);
  pid_t stranger = fork();
  if (stranger == 0) _exit(setgid(NOBODY) || setuid(NOBODY) ? 100 : ask(name, text, length, answer) > 0 ? 1 : 0);
  int status;
  waitpid(stranger, &status, 0);
  assert_int_equal(chmod(actors_folder(), 0700), 0);
  assert_int_equal(status, 0);
  assert_int_equal(held_mib(&a), 92);
  assert_true(ask(name, text, length, answer) > 0); /* ours is answered */
  actor_end(&a);
}

#define TEST(name) cmocka_unit_test_setup(name, actors_begin)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(idle_memory_serves_the_other),
      TEST(recent_memory_is_waited_for),
      TEST(several_give_together),
      TEST(two_heaps_of_one_process),
      TEST(the_key_joins_and_leaves),
      TEST(another_card),
      TEST(what_ends_leaves_no_socket),
      TEST(a_folder_that_is_not_ones_own),
      TEST(a_killed_neighbour),
      TEST(a_stopped_neighbour),
      TEST(lies_cost_a_bounded_time),
      TEST(strange_questions),
      TEST(silent_guests),
      TEST(other_users_get_nothing),
  };
  return cmocka_run_group_tests_name("neighbours", tests, actors_set_up, actors_tear_down);
}
