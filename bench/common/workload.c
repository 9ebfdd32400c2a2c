/* Churn and hit pairs: see workload.h. */
#include "workload.h"

#include <math.h>
#include <stdlib.h>

#include "harness.h"

enum { WARM_ROUNDS_MAX = 20, WARM_STEPS_PLAIN = 50000, WARM_PAIRS = 2000 };

/* splitmix64 */
static uint64_t next_random(uint64_t *state) {
  uint64_t x = *state += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

static uint32_t draw_size(uint64_t *state, uint32_t least, uint32_t most) {
  double part = (double)(next_random(state) >> 11) / (double)(1ull << 53);
  return (uint32_t)((double)least * exp(part * log((double)most / (double)least)));
}

struct bench_script bench_script_make(uint32_t live_count, uint32_t least, uint32_t most, uint32_t step_count) {
  struct bench_script script = {.live_count = live_count, .step_count = step_count};
  uint64_t state = 2026;
  script.first = bench_alloc(live_count * sizeof *script.first);
  script.steps = bench_alloc(step_count * sizeof *script.steps);
  for (uint32_t i = 0; i < live_count; i++) script.first[i] = draw_size(&state, least, most);
  for (uint32_t i = 0; i < step_count; i++) {
    script.steps[i].slot = (uint32_t)((next_random(&state) >> 32) * live_count >> 32);
    script.steps[i].bytes = draw_size(&state, least, most);
  }
  return script;
}

void bench_script_free(struct bench_script *script) {
  free(script->first);
  free(script->steps);
}

void bench_user_start(struct bench_user *user, struct bench_subject *subject, const struct bench_script *script,
                      gap_stream stream) {
  *user = (struct bench_user){.subject = subject, .script = script, .stream = stream};
  user->live = bench_alloc(script->live_count * sizeof *user->live);
  for (uint32_t i = 0; i < script->live_count; i++)
    user->live[i] = subject->alloc(subject, stream, script->first[i] >> subject->shift);
}

void bench_user_end(struct bench_user *user) {
  for (uint32_t i = 0; i < user->script->live_count; i++) user->subject->free(user->subject, user->live[i]);
  free(user->live);
}

/* One block as large as all that live together: its memory stays when it is freed, and peak and held rise alike. */
static void make_plenty(struct bench_user *user) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < user->script->live_count; i++) bytes += user->script->first[i];
  user->subject->free(user->subject, user->subject->alloc(user->subject, user->stream, bytes));
}

void bench_user_warm(struct bench_user *user) {
  uint32_t round = user->script->step_count;
  if (!user->subject->heap) { /* nothing to see there, and mimalloc takes microseconds a step at these sizes */
    bench_churn(user, round < WARM_STEPS_PLAIN ? round : WARM_STEPS_PLAIN);
    return;
  }
  make_plenty(user);
  for (int i = 0; i < WARM_ROUNDS_MAX; i++) {
    uint64_t before = bench_subject_calls(user->subject).memory;
    bench_churn(user, round);
    if (bench_subject_calls(user->subject).memory == before) break;
  }
}

void bench_churn(struct bench_user *user, uint32_t count) {
  struct bench_subject *subject = user->subject;
  const struct bench_script *script = user->script;
  uint32_t at = user->at;
  for (uint32_t i = 0; i < count; i++) {
    const struct bench_step *step = &script->steps[at];
    subject->free(subject, user->live[step->slot]);
    user->live[step->slot] = subject->alloc(subject, user->stream, step->bytes >> subject->shift);
    if (++at == script->step_count) at = 0;
  }
  user->at = at;
}

void bench_pairs(struct bench_user *user, uint32_t count, uint64_t bytes) {
  struct bench_subject *subject = user->subject;
  bytes >>= subject->shift;
  for (uint32_t i = 0; i < count; i++) subject->free(subject, subject->alloc(subject, user->stream, bytes));
}

void bench_play(struct bench_user *user, uint32_t count, uint64_t pair_bytes) {
  if (pair_bytes) bench_pairs(user, count, pair_bytes);
  else bench_churn(user, count);
}

uint32_t bench_calibrate(struct bench_user *user, uint64_t pair_bytes, uint64_t target_ns, uint32_t most) {
  bench_play(user, WARM_PAIRS, pair_bytes);
  uint64_t start = bench_thread_ns();
  bench_play(user, WARM_PAIRS, pair_bytes);
  uint64_t count = target_ns * WARM_PAIRS / (bench_thread_ns() - start + 1);
  return count < WARM_PAIRS ? WARM_PAIRS : count < most ? (uint32_t)count : most;
}
