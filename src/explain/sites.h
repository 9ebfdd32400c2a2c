/* Call sites: which line of a stack to name, and what the stack says about the phase that a program was in. */
#ifndef GAP_EXPLAIN_SITES_H
#define GAP_EXPLAIN_SITES_H

#include "trace/history.h"

enum {
  GAP__STACK_OPTIMISER = 1, /* inside an optimiser's step */
  GAP__STACK_BACKWARD = 2,  /* inside the backward pass */
  GAP__STACK_SETUP = 4,     /* inside a constructor, a conversion of a module or the loading of weights */
};

struct gap__site {
  uint32_t frame; /* + 1: the innermost Python frame outside PyTorch, else the innermost Python frame; 0 none */
  uint32_t own;   /* + 1: the innermost one outside every installed package; 0 none */
};

struct gap__sites {
  const struct gap__history *history;
  struct gap__site *at; /* [0]: no call site is known */
  uint32_t count;
  uint8_t *flags;     /* of each stack */
  uint32_t *of_stack; /* the site of each stack */
};

int gap__sites_find(const struct gap__history *, struct gap__sites *); /* 0 or GAP_ENOMETA */
void gap__sites_free(struct gap__sites *);

#define GAP__SITES_NONE "no call site recorded" /* the name of site 0 */

/* "modeling_llama.py:175 forward", followed by ", called from train.py:23 main" where that is another line. */
void gap__sites_name(const struct gap__sites *, uint32_t site, char *out, size_t bytes);

#endif
