/* Two processes on one real card: what one holds idle serves the other, and both make progress.
 *
 * A third process takes most of the card, so that the two have ROOM between them.  Each fills what it gets by kernels and compares it by kernels
 * before it frees; a neighbour that got memory before its last use had ended, or live memory, would leave wrong words.  Figures are
 * printed: how long a hand-over takes, and the longest allocation of a process while it is asked.
 *
 *   neighbours [--room SIZE] [--host]     --host: the same on the host backend's shared card, to try the program itself */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/heap.h"
#include "dev/cuda/cuda.h"
#include "dev/host/host.h"
#include "gapless/gapless.h"
#include "gpu/kernels.h"

#define MIB ((uint64_t)1 << 20)
#define BLOCKS_MAX 512
enum { SKIPPED = 77 };

static bool on_host;
static uint64_t room = 16384 * MIB; /* of the two together */
static unsigned passed, failed;

static void count(bool good, const char *what, int line) {
  passed += good;
  failed += !good;
  if (!good) printf("neighbours.c:%d: not so: %s\n", line, what);
}
#define CHECK(condition) count((condition), #condition, __LINE__)

static int64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void pause_ms(int64_t ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

/* ---- a process ---- */

enum what { GET, GIVE, LOOK, STAT, FREE_BYTES, WORK, END };

struct order {
  enum what what;
  uint64_t bytes, piece; /* GET: in blocks of `piece`; WORK: at most so much at once */
  int64_t run_ms;
  char name[64]; /* STAT */
};

struct reply {
  int code;
  int64_t value, took_us;
  int64_t steps, refused, longest_us; /* WORK */
  uint64_t wrong;                     /* words, in all so far */
};

struct block {
  gap_addr addr;
  uint64_t bytes, pattern;
};

struct self {
  gap_heap *heap;
  struct gap__dev *dev;
  struct kernels *kernels; /* NULL: host */
  gap_stream stream;
  struct block blocks[BLOCKS_MAX];
  int count;
  uint64_t patterns;
  int64_t longest_us; /* allocation */
};

static int fill(struct self *self, const struct block *b) {
  if (self->kernels) return kernels_fill(self->kernels, b->addr, b->bytes, b->pattern, self->stream);
  return gap__host_fill(self->dev, b->addr, b->bytes, b->pattern, self->stream);
}

static int expect(struct self *self, const struct block *b) {
  if (self->kernels) return kernels_expect(self->kernels, b->addr, b->bytes, b->pattern, self->stream);
  return gap__host_expect(self->dev, b->addr, b->bytes, b->pattern, self->stream);
}

static uint64_t wrong_words(struct self *self) {
  return self->kernels ? kernels_wrong(self->kernels) : gap__host_faults(self->dev);
}

static int get_block(struct self *self, uint64_t bytes) {
  struct block *b = &self->blocks[self->count];
  int64_t began = now_us();
  if (self->count == BLOCKS_MAX) return GAP_ELIMIT;
  int rc = gap_alloc(self->heap, 0, self->stream, bytes, &b->addr);
  int64_t took = now_us() - began;
  if (took > self->longest_us) self->longest_us = took;
  if (rc) return rc;
  b->bytes = bytes;
  b->pattern = (uint64_t)getpid() << 32 | ++self->patterns;
  self->count++;
  return fill(self, b);
}

static int get(struct self *self, uint64_t bytes, uint64_t piece) {
  int rc = 0;
  for (; bytes && !rc; bytes -= bytes < piece ? bytes : piece) rc = get_block(self, bytes < piece ? bytes : piece);
  return rc;
}

/* Compares and frees at once, with the comparison still queued. */
static int give(struct self *self) {
  int rc = 0;
  while (self->count && !rc) {
    const struct block *b = &self->blocks[--self->count];
    rc = expect(self, b);
    if (!rc) rc = gap_free(self->heap, b->addr);
  }
  return rc;
}

static int look(struct self *self) {
  int rc = 0;
  for (int i = 0; i < self->count && !rc; i++) rc = expect(self, &self->blocks[i]);
  return rc;
}

static void work(struct self *self, const struct order *order, struct reply *reply) {
  unsigned seed = (unsigned)getpid();
  self->longest_us = 0;
  for (int64_t until = now_us() + order->run_ms * 1000; now_us() < until && !reply->code;) {
    uint64_t left = order->bytes / 2 + order->bytes / 2 / 100 * (uint64_t)(rand_r(&seed) % 100);
    int rc = 0;
    while (left >= MIB && !rc) {
      uint64_t bytes = order->piece / 4 + order->piece / 100 * (uint64_t)(rand_r(&seed) % 100);
      rc = get_block(self, bytes < left ? bytes : left);
      left -= bytes < left ? bytes : left;
    }
    reply->steps += rc == 0;
    reply->refused += rc == GAP_ENOMEM;
    if (rc && rc != GAP_ENOMEM) reply->code = rc;
    else reply->code = give(self);
    pause_ms(5);
  }
  reply->longest_us = self->longest_us;
}

static void carry_out(struct self *self, const struct order *order, struct reply *reply) {
  uint64_t free_bytes = 0, total_bytes;
  char text[500] = "";
  int64_t began = now_us();
  switch (order->what) {
    case GET:
      reply->code = get(self, order->bytes, order->piece);
      if (reply->code == GAP_ENOMEM && give(self)) reply->code = GAP_EDEVICE;
      break;
    case GIVE: reply->code = give(self); break;
    case LOOK: reply->code = look(self); break;
    case STAT: reply->code = gap_stat(self->heap, 0, order->name, &reply->value); break;
    case FREE_BYTES:
      reply->code = gap__dev_mem_info(self->dev, &free_bytes, &total_bytes);
      reply->value = (int64_t)free_bytes;
      break;
    case WORK: work(self, order, reply); break;
    case END: reply->code = gap_check(self->heap, 0, text, sizeof text); break;
  }
  reply->took_us = now_us() - began;
  reply->wrong = wrong_words(self);
  if (reply->code && reply->code != GAP_ENOMEM)
    printf("process %d: %s %s\n", getpid(), gap_strerror(reply->code), text);
}

static int open_heap(struct self *self, const char *conf) {
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  options.backend = on_host ? GAP_BACKEND_HOST : GAP_BACKEND_CUDA;
  options.device_bytes = on_host ? room : 0;
  options.conf = conf;
  int rc = gap_heap_create(&options, &self->heap);
  if (!rc) rc = gap_alloc(self->heap, 0, 0, MIB, &self->blocks[0].addr); /* opens the device */
  if (rc) return rc;
  self->dev = gap__heap_dev(self->heap, 0);
  rc = gap__dev_stream_create(self->dev, &self->stream);
  if (!rc && !on_host) rc = kernels_open(self->dev, &self->kernels);
  return rc;
}

/* A refusal is an answer like any other. */
static bool goes_on(const struct order *order, const struct reply *reply) {
  return order->what != END && (reply->code == 0 || reply->code == GAP_ENOMEM);
}

static void act(int line, const char *conf) {
  static struct self self;
  struct order order = {.what = GET};
  struct reply reply = {.code = open_heap(&self, conf)};
  gap_free(self.heap, self.blocks[0].addr);
  while (send(line, &reply, sizeof reply, MSG_NOSIGNAL) == (ssize_t)sizeof reply && goes_on(&order, &reply)) {
    if (recv(line, &order, sizeof order, 0) != (ssize_t)sizeof order) break;
    reply = (struct reply){0};
    carry_out(&self, &order, &reply);
  }
  kernels_close(self.kernels);
  gap_heap_destroy(self.heap);
  _exit(0);
}

/* ---- the two, and the one that takes the rest ---- */

struct actor {
  pid_t process;
  int line;
};

static struct reply hear(struct actor *actor) {
  struct reply reply = {.code = GAP_EIO};
  if (recv(actor->line, &reply, sizeof reply, 0) != (ssize_t)sizeof reply) reply.code = GAP_EIO;
  return reply;
}

static void say(struct actor *actor, struct order order) { send(actor->line, &order, sizeof order, MSG_NOSIGNAL); }

static struct reply tell(struct actor *actor, struct order order) {
  say(actor, order);
  return hear(actor);
}

static int start(struct actor *actor, const char *conf) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) return GAP_EIO;
  fflush(stdout);
  actor->process = fork();
  if (actor->process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    act(ends[1], conf);
  }
  close(ends[1]);
  actor->line = ends[0];
  return hear(actor).code;
}

static void end(struct actor *actor) {
  struct reply reply = tell(actor, (struct order){.what = END});
  CHECK(reply.code == 0);
  CHECK(reply.wrong == 0);
  waitpid(actor->process, NULL, 0);
  close(actor->line);
}

static struct reply get_from(struct actor *actor, uint64_t bytes, uint64_t piece) {
  return tell(actor, (struct order){.what = GET, .bytes = bytes, .piece = piece});
}

static int64_t stat_of(struct actor *actor, const char *name) {
  struct order order = {.what = STAT};
  snprintf(order.name, sizeof order.name, "%s", name);
  return tell(actor, order).value;
}

static void print_exchange(struct actor *actor, const char *who) {
  printf("  %s: asked %lld times (%.1f ms), %lld MiB came free; gave %lld MiB\n", who,
         (long long)stat_of(actor, "neighbour_asks"), (double)stat_of(actor, "rung.neighbours.us") / 1e3,
         (long long)(stat_of(actor, "neighbour_got_bytes") >> 20),
         (long long)(stat_of(actor, "neighbour_given_bytes") >> 20));
}

static struct actor ballast;

/* After the two have their contexts. */
static int take_the_rest(struct actor *one) {
  if (on_host) return 0;
  if (start(&ballast, "neighbours:False,page_maker:False,reserve:0")) return GAP_EIO;
  uint64_t left = (uint64_t)tell(one, (struct order){.what = FREE_BYTES}).value;
  if (left <= room) return 0;
  return get_from(&ballast, left - room, left).code;
}

static void drop_the_rest(void) {
  if (!ballast.process) return;
  kill(ballast.process, SIGKILL);
  waitpid(ballast.process, NULL, 0);
  close(ballast.line);
  ballast = (struct actor){0};
}

static bool start_two(struct actor two[2], const char *conf) {
  bool good = start(&two[0], conf) == 0 && start(&two[1], conf) == 0 && take_the_rest(&two[0]) == 0;
  CHECK(good);
  return good;
}

static void end_two(struct actor two[2]) {
  end(&two[0]), end(&two[1]);
  drop_the_rest();
}

/* ---- the cases; in sixteenths of the room ---- */

#define PART (room / 16)

static void idle_memory_serves_the_other(void) {
  struct actor two[2];
  if (!start_two(two, "lend_after_ms:0")) return;
  CHECK(get_from(&two[0], 12 * PART, PART / 8).code == 0);
  CHECK(tell(&two[0], (struct order){.what = GIVE}).code == 0);
  pause_ms(1500); /* the page maker has come to rest */
  struct reply reply = get_from(&two[1], 11 * PART, 11 * PART);
  CHECK(reply.code == 0);
  printf("  %.1f GiB in one block, most of it from the other: %.1f ms\n", (double)(11 * PART) / 1073741824.0,
         (double)reply.took_us / 1e3);
  CHECK(get_from(&two[0], 12 * PART, PART).code == GAP_ENOMEM); /* it is live there */
  CHECK(tell(&two[1], (struct order){.what = LOOK}).code == 0);
  CHECK(tell(&two[1], (struct order){.what = GIVE}).code == 0);
  print_exchange(&two[0], "first"), print_exchange(&two[1], "second");
  end_two(two);
}

static void by_turns(void) {
  struct actor two[2];
  if (!start_two(two, "lend_after_ms:50")) return;
  for (int turn = 0; turn < 8; turn++) {
    struct reply reply = get_from(&two[turn % 2], 13 * PART, PART / 8);
    CHECK(reply.code == 0);
    CHECK(tell(&two[turn % 2], (struct order){.what = GIVE}).code == 0);
    printf("  turn %d: %.1f ms\n", turn, (double)reply.took_us / 1e3);
  }
  print_exchange(&two[0], "first"), print_exchange(&two[1], "second");
  CHECK(stat_of(&two[0], "neighbour_given_bytes") > (int64_t)(24 * PART));
  end_two(two);
}

/* The first had nearly all, idle; each needs less than half. */
static void both_at_work(void) {
  struct actor two[2];
  if (!start_two(two, "lend_after_ms:500")) return;
  CHECK(get_from(&two[0], 13 * PART, PART / 4).code == 0);
  CHECK(tell(&two[0], (struct order){.what = GIVE}).code == 0);
  for (int i = 0; i < 2; i++)
    say(&two[i], (struct order){.what = WORK, .bytes = 6 * PART, .piece = PART / 4, .run_ms = 8000});
  struct reply first = hear(&two[0]), second = hear(&two[1]);
  printf("  first: %lld steps, longest allocation %.1f ms; second: %lld steps, %.1f ms\n", (long long)first.steps,
         (double)first.longest_us / 1e3, (long long)second.steps, (double)second.longest_us / 1e3);
  print_exchange(&two[0], "first"), print_exchange(&two[1], "second");
  CHECK(first.code == 0 && second.code == 0);
  CHECK(first.refused == 0 && second.refused == 0);
  CHECK(first.wrong == 0 && second.wrong == 0);
  CHECK(3 * first.steps >= second.steps && 3 * second.steps >= first.steps);
  CHECK(stat_of(&two[0], "neighbour_given_bytes") > 0);
  end_two(two);
}

static void who_is_at_work_is_left_alone(void) {
  struct actor two[2];
  if (!start_two(two, "lend_after_ms:2000")) return;
  say(&two[0], (struct order){.what = WORK, .bytes = 11 * PART, .piece = PART / 4, .run_ms = 6000});
  pause_ms(1500);
  struct reply reply = get_from(&two[1], 10 * PART, PART);
  CHECK(reply.code == GAP_ENOMEM);
  printf("  refused after %.1f ms\n", (double)reply.took_us / 1e3);
  struct reply work = hear(&two[0]);
  printf("  meanwhile %lld steps, %lld refused, longest allocation %.1f ms\n", (long long)work.steps,
         (long long)work.refused, (double)work.longest_us / 1e3);
  print_exchange(&two[0], "first"), print_exchange(&two[1], "second");
  CHECK(work.code == 0 && work.refused == 0 && work.wrong == 0 && work.steps > 0);
  CHECK(stat_of(&two[0], "neighbour_given_bytes") <= (int64_t)(6 * PART)); /* what a step varies by */
  end_two(two);
}

static void stopped_and_killed(void) {
  struct actor two[2];
  if (!start_two(two, "lend_after_ms:0")) return;
  CHECK(get_from(&two[0], 12 * PART, PART).code == 0);
  CHECK(tell(&two[0], (struct order){.what = GIVE}).code == 0);
  pause_ms(1500);
  kill(two[0].process, SIGSTOP);
  CHECK(waitpid(two[0].process, NULL, WUNTRACED) == two[0].process);
  struct reply reply = get_from(&two[1], 10 * PART, 10 * PART);
  CHECK(reply.code == GAP_ENOMEM);
  CHECK(reply.took_us < 3000000);
  printf("  beside a stopped neighbour: refused after %.1f ms\n", (double)reply.took_us / 1e3);
  kill(two[0].process, SIGKILL);
  waitpid(two[0].process, NULL, 0);
  close(two[0].line);
  for (int tries = 0; tries < 100 && reply.code; tries++) { /* the driver takes its time */
    reply = get_from(&two[1], 10 * PART, 10 * PART);
    if (reply.code) pause_ms(50);
  }
  CHECK(reply.code == 0);
  end(&two[1]);
  drop_the_rest();
}

static void run(const char *name, void (*test)(void)) {
  printf("%s\n", name);
  int64_t began = now_us();
  test();
  printf("  (%.1f s)\n", (double)(now_us() - began) / 1e6);
}

/* Asked in a process of its own: the driver is of no use after fork. */
static bool has_card(void) {
  pid_t process = fork();
  if (process == 0) {
    int cards = 0;
    _exit(gap__cuda_device_count(NULL, &cards) == 0 && cards > 0 ? 0 : 1);
  }
  int status = 1;
  waitpid(process, &status, 0);
  return status == 0;
}

static bool read_options(int count_of, char **words) {
  for (int i = 1; i < count_of; i++) {
    if (!strcmp(words[i], "--host")) on_host = true, room = 256 * MIB;
    else if (!strcmp(words[i], "--room") && i + 1 < count_of) room = strtoull(words[++i], NULL, 10) * MIB;
    else return false;
  }
  return room >= 16 * MIB;
}

int main(int count_of, char **words) {
  char folder[] = "/tmp/gapless-neighbours-XXXXXX", card[64], command[64];
  if (!read_options(count_of, words)) return fprintf(stderr, "usage: neighbours [--room MIB] [--host]\n"), 2;
  if (!on_host && !has_card()) return printf("neighbours skipped: no card\n"), SKIPPED;
  if (!mkdtemp(folder)) return 2;
  snprintf(card, sizeof card, "%s/card", folder);
  setenv("XDG_RUNTIME_DIR", folder, 1); /* other programs of the user are left alone */
  if (on_host) setenv("GAPLESS_HOST_CARD", card, 1);
  run("idle memory serves the other", idle_memory_serves_the_other);
  run("by turns", by_turns);
  run("both at work", both_at_work);
  run("who is at work is left alone", who_is_at_work_is_left_alone);
  run("stopped and killed", stopped_and_killed);
  snprintf(command, sizeof command, "rm -r %s", folder);
  CHECK(system(command) == 0);
  printf("neighbours: %u passed, %u failed\n", passed, failed);
  return failed != 0;
}
