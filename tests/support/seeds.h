/* Random scripts, seed after seed for a while: a stress test's one case. */
#ifndef GAP_TESTS_SEEDS_H
#define GAP_TESTS_SEEDS_H

#include <stdint.h>

/* Plays seeds from 1 on for 10 s; with GAP_SEED in the environment that one alone. */
void seeds_play(void (*play)(uint64_t seed));
/* A case's teardown: says which seed was the last. */
int seeds_tell(void **state);

#endif
