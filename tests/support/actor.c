/* See actor.h.  A command and its answer are one packet each; an actor does one after the other. */
#include "support/actor.h"

#include <dirent.h>
#include <poll.h>
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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "gapless/gapless.h"

enum op { GET, GIVE, LOOK, STAT, CONFIGURE, EXPLAIN, WORK, END };
enum { WRONG = 1000, STREAM = 8, STRIDE = 64 }; /* a word in each 512 bytes: no block is smaller */

struct command {
  enum op op;
  int slot;
  uint64_t bytes;
  struct actor_work work;
  char text[200];
};

struct answer {
  int code;
  int64_t value;
  struct actor_report report;
  char text[1200];
};

int64_t actors_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void actors_pause(int ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000l}, NULL); }

/* ---- in the actor ---- */

struct held {
  gap_addr addr;
  uint64_t bytes, pattern;
};

struct self {
  gap_heap *heap;
  struct held slots[ACTOR_SLOTS];
  uint64_t taken; /* blocks so far: each has a pattern of its own */
};

static int get(struct self *self, struct held *held, uint64_t bytes) {
  int rc = gap_alloc(self->heap, 0, STREAM, bytes, &held->addr);
  if (rc) return rc;
  held->bytes = bytes;
  held->pattern = (uint64_t)getpid() << 32 | ++self->taken;
  uint64_t *words = (uint64_t *)(uintptr_t)held->addr; /* host: addresses may be dereferenced */
  for (uint64_t i = 0; i < bytes / 8; i += STRIDE) words[i] = held->pattern + i;
  return 0;
}

static int look(const struct held *held) {
  const uint64_t *words = (const uint64_t *)(uintptr_t)held->addr;
  for (uint64_t i = 0; i < held->bytes / 8; i += STRIDE)
    if (words[i] != held->pattern + i) return WRONG;
  return 0;
}

static int give(struct self *self, struct held *held) {
  int rc = look(held);
  gap_addr addr = held->addr;
  *held = (struct held){0};
  return rc ? rc : gap_free(self->heap, addr);
}

/* One step: the blocks, the work, and their end.  False: a request failed, and nothing is held. */
static bool step(struct self *self, const struct actor_work *work, uint32_t *seed, struct actor_report *report) {
  uint64_t left = work->least + (uint64_t)rand_r(seed) % (work->most - work->least + 1);
  int count = 0, rc = 0;
  for (; left && count < ACTOR_SLOTS && !rc; count += !rc) {
    uint64_t bytes = (4096 + (uint64_t)rand_r(seed) % (work->most / 4)) & ~(uint64_t)7;
    if (bytes > left || count == ACTOR_SLOTS - 1) bytes = left;
    rc = get(self, &self->slots[count], bytes);
    if (!rc) left -= bytes;
  }
  if (!rc) actors_pause(work->hold_ms);
  report->refused += rc != 0;
  while (count) report->wrong += give(self, &self->slots[--count]) != 0;
  return rc == 0;
}

static struct actor_report work_on(struct self *self, const struct actor_work *work) {
  struct actor_report report = {0};
  uint32_t seed = work->seed;
  for (int64_t until = actors_now_ms() + work->run_ms; actors_now_ms() < until;) {
    int64_t began = actors_now_ms();
    report.steps += step(self, work, &seed, &report);
    actors_pause(work->rest_ms + work->rest_times * (int)(actors_now_ms() - began));
  }
  return report;
}

static void carry_out(struct self *self, const struct command *c, struct answer *answer) {
  switch (c->op) {
    case GET: answer->code = get(self, &self->slots[c->slot], c->bytes); break;
    case GIVE: answer->code = give(self, &self->slots[c->slot]); break;
    case LOOK: answer->code = look(&self->slots[c->slot]); break;
    case STAT: answer->code = gap_stat(self->heap, 0, c->text, &answer->value); break;
    case CONFIGURE: answer->code = gap_configure(self->heap, c->text); break;
    case EXPLAIN: answer->code = gap_explain(self->heap, 0, answer->text, sizeof answer->text, NULL); break;
    case WORK: answer->report = work_on(self, &c->work); break;
    case END:
      answer->code = gap_check(self->heap, 0, answer->text, sizeof answer->text);
      gap_heap_destroy(self->heap);
      break;
  }
}

static void act(int line, uint64_t bytes, const char *conf) {
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  struct self self = {0};
  struct command command = {0};
  options.backend = GAP_BACKEND_HOST;
  options.device_bytes = bytes;
  options.conf = conf;
  if (gap_heap_create(&options, &self.heap)) _exit(2);
  while (command.op != END) {
    struct answer answer = {0};
    if (recv(line, &command, sizeof command, 0) != (ssize_t)sizeof command) _exit(3);
    carry_out(&self, &command, &answer);
    if (send(line, &answer, sizeof answer, MSG_NOSIGNAL) != (ssize_t)sizeof answer) _exit(4);
  }
  _exit(0);
}

/* ---- in the test ---- */

static char folder[64], card[100];
static int cards;
static pid_t alive[ACTORS_MAX]; /* 0: a free place */

static void enlist(pid_t process, pid_t instead_of) {
  int i = 0;
  while (i < ACTORS_MAX && alive[i] != instead_of) i++;
  assert_true(i < ACTORS_MAX);
  alive[i] = process;
}

const char *actors_folder(void) {
  static char path[100];
  snprintf(path, sizeof path, "%s/gapless", folder);
  return path;
}

void actors_fresh_card(void) {
  if (cards) unlink(card);
  snprintf(card, sizeof card, "%s/card-%d", folder, ++cards);
  assert_int_equal(setenv("GAPLESS_HOST_CARD", card, 1), 0);
}

/* Sockets of those who were killed. */
static void actors_sweep(void) {
  DIR *list = opendir(actors_folder());
  for (const struct dirent *entry; list && (entry = readdir(list));)
    if (entry->d_name[0] != '.') unlinkat(dirfd(list), entry->d_name, 0);
  if (list) closedir(list);
}

int actors_set_up(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/gapless-actors-XXXXXX");
  if (!mkdtemp(folder) || setenv("XDG_RUNTIME_DIR", folder, 1)) return -1;
  actors_fresh_card();
  return 0;
}

int actors_begin(void **state) {
  (void)state;
  for (int i = 0; i < ACTORS_MAX; i++)
    if (alive[i]) kill(alive[i], SIGKILL), waitpid(alive[i], NULL, 0), alive[i] = 0;
  actors_sweep();
  actors_fresh_card();
  return 0;
}

int actors_tear_down(void **state) {
  (void)state;
  unlink(card);
  rmdir(actors_folder());
  return rmdir(folder);
}

int actors_sockets(void) {
  DIR *list = opendir(actors_folder());
  int count = 0;
  for (const struct dirent *entry; list && (entry = readdir(list));) count += entry->d_name[0] != '.';
  if (list) closedir(list);
  return count;
}

struct actor actor_start(uint64_t bytes, const char *conf) {
  int ends[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  pid_t process = fork();
  assert_true(process >= 0);
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
    close(ends[0]);
    act(ends[1], bytes, conf);
  }
  close(ends[1]);
  enlist(process, 0);
  return (struct actor){process, ends[0]};
}

static void say(struct actor *actor, const struct command *command) {
  assert_int_equal(send(actor->line, command, sizeof *command, MSG_NOSIGNAL), sizeof *command);
}

static void hear(struct actor *actor, struct answer *answer) {
  ssize_t got = recv(actor->line, answer, sizeof *answer, 0);
  if (got != (ssize_t)sizeof *answer) fail_msg("process %d ended", (int)actor->process);
  if (answer->code == WRONG) fail_msg("process %d found other contents than it had written", (int)actor->process);
}

static struct answer tell(struct actor *actor, struct command command) {
  struct answer answer;
  say(actor, &command);
  hear(actor, &answer);
  return answer;
}

static void must(struct actor *actor, struct command command) {
  struct answer answer = tell(actor, command);
  if (answer.code) fail_msg("process %d: %s %s", (int)actor->process, gap_strerror(answer.code), answer.text);
}

void actor_end(struct actor *actor) {
  int status;
  must(actor, (struct command){.op = END});
  close(actor->line);
  assert_int_equal(waitpid(actor->process, &status, 0), actor->process);
  enlist(0, actor->process);
  assert_int_equal(status, 0);
}

void actor_kill(struct actor *actor) {
  kill(actor->process, SIGKILL);
  waitpid(actor->process, NULL, 0);
  enlist(0, actor->process);
  close(actor->line);
}

void actor_stop(struct actor *actor) {
  int status;
  kill(actor->process, SIGSTOP);
  assert_int_equal(waitpid(actor->process, &status, WUNTRACED), actor->process);
  assert_true(WIFSTOPPED(status));
}

int actor_get(struct actor *actor, int slot, uint64_t bytes) {
  return tell(actor, (struct command){.op = GET, .slot = slot, .bytes = bytes}).code;
}

void actor_ask_get(struct actor *actor, int slot, uint64_t bytes) {
  say(actor, &(struct command){.op = GET, .slot = slot, .bytes = bytes});
}

int actor_answer(struct actor *actor) {
  struct answer answer;
  hear(actor, &answer);
  return answer.code;
}

bool actor_has_answer(struct actor *actor, int within_ms) {
  struct pollfd line = {.fd = actor->line, .events = POLLIN};
  return poll(&line, 1, within_ms) > 0;
}

void actor_give(struct actor *actor, int slot) { must(actor, (struct command){.op = GIVE, .slot = slot}); }
void actor_look(struct actor *actor, int slot) { must(actor, (struct command){.op = LOOK, .slot = slot}); }

static struct command with_text(enum op op, const char *text) {
  struct command command = {.op = op};
  snprintf(command.text, sizeof command.text, "%s", text);
  return command;
}

int64_t actor_stat(struct actor *actor, const char *name) {
  struct answer answer = tell(actor, with_text(STAT, name));
  assert_int_equal(answer.code, 0);
  return answer.value;
}

void actor_configure(struct actor *actor, const char *conf) { must(actor, with_text(CONFIGURE, conf)); }

const char *actor_explain(struct actor *actor) {
  static struct answer answer;
  answer = tell(actor, (struct command){.op = EXPLAIN});
  assert_int_equal(answer.code, 0);
  return answer.text;
}

void actor_ask_work(struct actor *actor, const struct actor_work *work) {
  say(actor, &(struct command){.op = WORK, .work = *work});
}

struct actor_report actor_report(struct actor *actor) {
  struct answer answer;
  hear(actor, &answer);
  return answer.report;
}
