/* The independent checker: shares no code with the allocator it checks.
 *
 * It is told what every allocation call returned and what was freed, keeps its own sorted list of live blocks, and asks the backend
 * what is mapped where.  It then states, each time it is asked:
 *   1. no two live blocks overlap;
 *   2. every live byte lies on a mapped, accessible chunk or a segment;
 *   3. no two live bytes share one physical byte through two mappings of a chunk;
 *   4. no two mappings overlap, and all mappings of a chunk have one size;
 *   5. chunks and segments sum to at most the cap, and to no less than what is mapped of the device's memory.
 * Between two checks changes are only noted; a check costs O(c log c + live blocks and the pages under them) for c changes. */
#ifndef GAP_CHECKER_H
#define GAP_CHECKER_H

#include <stddef.h>
#include <stdint.h>

#include "dev/sim/sim.h"

typedef int gap__checker_visit(void *arg, const struct gap__dev_mapping *);

/* What is checked: the simulated card, or in tests of the checker a made-up one. */
struct gap__checker_source {
  void *arg;
  int (*walk)(void *arg, gap__checker_visit *, void *visit_arg); /* every mapping, in address order */
  uint64_t (*held_bytes)(void *arg);
  uint64_t (*version)(void *arg); /* the same number twice: no mapping changed in between; NULL: always look */
};

struct gap__checker;

int gap__checker_create(const struct gap__checker_source *, struct gap__checker **out); /* 0 or GAP_ENOMETA */
void gap__checker_destroy(struct gap__checker *);
/* The source that looks at a simulated card. */
struct gap__checker_source gap__checker_sim(struct gap__dev *);

/* [addr, addr + bytes) belongs to a live block from now on, and no longer. */
int gap__checker_alloc(struct gap__checker *, gap_addr, uint64_t bytes); /* 0 or GAP_ENOMETA */
int gap__checker_free(struct gap__checker *, gap_addr);
/* 0, GAP_ENOMETA, or GAP_EMISMATCH with the first violation in `text`. `cap_bytes` 0: none. */
int gap__checker_check(struct gap__checker *, uint64_t cap_bytes, char *text, size_t bytes);

#endif
