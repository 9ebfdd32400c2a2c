/* Processes of their own with a heap each, which a test directs: what they hold on one shared card of `host` is real, and so are
 * their sockets, their threads and their ends.
 *
 * The test calls actors_set_up first: a folder of its own for the sockets and the card, so that other programs are left alone. */
#ifndef GAP_TESTS_ACTOR_H
#define GAP_TESTS_ACTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ACTOR_SLOTS 64
#define ACTORS_MAX 16

struct actor {
  pid_t process;
  int line; /* to it */
};

int actors_set_up(void **state);
int actors_tear_down(void **state); /* fails where something was left behind */
int actors_begin(void **state);     /* before each test: a card of its own, and nobody left of one that failed */
const char *actors_folder(void);    /* of the sockets */
int actors_sockets(void);           /* how many there are */
void actors_fresh_card(void);       /* those who are started from here on share another card */

/* A process with a heap on the shared card, of `bytes` in all. */
struct actor actor_start(uint64_t bytes, const char *conf);
/* Destroys its heap, after the checker found nothing wrong, and waits for its end. */
void actor_end(struct actor *);
void actor_kill(struct actor *);
void actor_stop(struct actor *); /* every thread of it stands when this returns; SIGCONT goes on */

/* Allocates and fills with a pattern; the code. */
int actor_get(struct actor *, int slot, uint64_t bytes);
/* The same, without waiting for it; then actor_answer gives the code. */
void actor_ask_get(struct actor *, int slot, uint64_t bytes);
int actor_answer(struct actor *);
bool actor_has_answer(struct actor *, int within_ms);
/* Compares the contents, then frees. */
void actor_give(struct actor *, int slot);
void actor_look(struct actor *, int slot); /* only compares */
int64_t actor_stat(struct actor *, const char *name);
void actor_configure(struct actor *, const char *conf);
/* Why its last request failed; overwritten by the next call. */
const char *actor_explain(struct actor *);

/* Steps for `run_ms`: blocks of `least` to `most` bytes in sum, filled, held for `hold_ms`, compared, freed, and a
 * time without: `rest_ms`, and so many times as long as the step took.  What came of it is told by actor_report. */
struct actor_work {
  uint64_t least, most;
  int run_ms, hold_ms, rest_ms, rest_times;
  uint32_t seed;
};
struct actor_report {
  int64_t steps, refused,
      wrong; /* steps that were done; requests that failed (the step is done again); contents that differed */
};
void actor_ask_work(struct actor *, const struct actor_work *);
struct actor_report actor_report(struct actor *);

int64_t actors_now_ms(void);
void actors_pause(int ms);

#endif
