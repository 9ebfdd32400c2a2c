/* Where one step of a program ends and the next begins, and the phases inside a step.
 *
 * What is looked at, best first: the program's own marks (Optimizer.step, which PyTorch makes by itself), stacks that lead into an
 * optimiser or a backward pass, and the curve of live bytes, which falls back to the same floor after every step. */
#ifndef GAP_EXPLAIN_STEPS_H
#define GAP_EXPLAIN_STEPS_H

#include "explain/lives.h"
#include "explain/sites.h"

enum gap__phase { GAP__PHASE_FORWARD, GAP__PHASE_BACKWARD, GAP__PHASE_OPTIMISER };
enum gap__steps_source { GAP__STEPS_NONE, GAP__STEPS_MARKS, GAP__STEPS_STACKS, GAP__STEPS_CURVE };

/* Events [first, end); the optimiser runs in [optimiser, end). */
struct gap__step {
  uint32_t first, optimiser, end;
  uint32_t peak_event;
  uint64_t peak_bytes, floor_bytes; /* most and least live bytes in it */
};

struct gap__steps {
  struct gap__step *at; /* none or at least one; together they cover the history */
  uint32_t count;
  uint32_t optimiser_count; /* steps at whose end an optimiser ran */
  enum gap__steps_source source;
  bool trains;    /* an optimiser or a backward pass was seen */
  uint8_t *phase; /* enum gap__phase of each event */
};

int gap__steps_find(const struct gap__history *, uint32_t device, const struct gap__lives *, const struct gap__sites *,
                    struct gap__steps *); /* 0 or GAP_ENOMETA */
void gap__steps_free(struct gap__steps *);

/* The step that an event belongs to; the last one for what lies beyond. */
uint32_t gap__steps_of(const struct gap__steps *, uint32_t event);
/* How many optimiser runs, or ends of steps where there is no optimiser, begin while the block lives. */
uint32_t gap__steps_crossed(const struct gap__steps *, const struct gap__life *);

#endif
