#include "explain/growth.h"

#include <math.h>
#include <stdlib.h>

#include "gapless/gapless.h"

enum { STEPS_MIN = 4, NOISE_PART = 1000 }; /* growth below a thousandth of the peak a step is noise */

/* ---- growth -------------------------------------------------------------------------------------------------------- */

static double slope_of_floors(const struct gap__steps *steps, uint32_t first, uint32_t count) {
  double n = count, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  for (uint32_t i = 0; i < count; i++) {
    double x = i, y = (double)steps->at[first + i].floor_bytes;
    sum_x += x;
    sum_y += y;
    sum_xx += x * x;
    sum_xy += x * y;
  }
  return (n * sum_xy - sum_x * sum_y) / (n * sum_xx - sum_x * sum_x);
}

static uint32_t rises(const struct gap__steps *steps, uint32_t first, uint32_t count) {
  uint32_t rises = 0;
  for (uint32_t i = 1; i < count; i++) rises += steps->at[first + i].floor_bytes > steps->at[first + i - 1].floor_bytes;
  return rises;
}

/* What each call site leaves behind: blocks made after the first two steps that outlive two more. */
static int find_leaver(const struct gap__lives *lives, const struct gap__sites *sites, const struct gap__steps *steps,
                       struct gap__growth *growth) {
  uint64_t *left = calloc(sites->count, sizeof *left);
  if (!left) return GAP_ENOMETA;
  for (uint32_t i = 0; i < lives->count; i++) {
    const struct gap__life *life = &lives->at[i];
    uint32_t born = gap__steps_of(steps, life->born);
    bool stays = life->gone == GAP__LIFE_NEVER || gap__steps_of(steps, life->gone) > born + 2;
    if (life->before || born < 2 || !stays) continue;
    left[sites->of_stack[life->stack]] += life->bytes;
  }
  for (uint32_t i = 1; i < sites->count; i++)
    if (left[i] > growth->site_bytes) {
      growth->site_bytes = left[i];
      growth->site = i;
    }
  growth->site_bytes /= growth->steps;
  free(left);
  return 0;
}

int gap__growth_find(const struct gap__lives *lives, const struct gap__sites *sites, const struct gap__steps *steps,
                     struct gap__growth *growth) {
  *growth = (struct gap__growth){0};
  if (steps->count < STEPS_MIN + 2) return 0;
  uint32_t first = 1, count = steps->count - 2; /* the last is cut off somewhere */
  growth->steps = count;
  growth->per_step = (int64_t)slope_of_floors(steps, first, count);
  growth->grows =
      growth->per_step > (int64_t)(lives->peak_bytes / NOISE_PART) && rises(steps, first, count) > count / 2;
  return growth->grows ? find_leaver(lives, sites, steps, growth) : 0;
}

/* ---- who holds the peak -------------------------------------------------------------------------------------------- */

struct tally {
  uint64_t bytes;
  uint32_t blocks, key; /* site x category */
};

static int by_bytes(const void *left, const void *right) {
  const struct tally *a = left, *b = right;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
  return a->key < b->key ? -1 : a->key > b->key;
}

static uint32_t key_of(const struct gap__sites *sites, const struct gap__life *life) {
  return sites->of_stack[life->stack] * GAP__CAT_COUNT + life->category;
}

static void collect(const struct gap__lives *lives, const struct gap__sites *sites, struct tally *tallies,
                    struct gap__holders *holders) {
  for (uint32_t i = 0; i < lives->count; i++) {
    const struct gap__life *life = &lives->at[i];
    if (!gap__life_covers(life, lives->peak_event)) continue;
    tallies[key_of(sites, life)].bytes += life->bytes;
    tallies[key_of(sites, life)].blocks++;
    if (life->category == GAP__CAT_ACTIVATIONS || life->category == GAP__CAT_TEMPORARY)
      holders->scaling_bytes += life->bytes;
  }
}

static void take_largest(struct tally *tallies, uint32_t count, struct gap__holders *holders) {
  for (uint32_t i = 0; i < count; i++) tallies[i].key = i;
  qsort(tallies, count, sizeof *tallies, by_bytes);
  while (holders->sites < count && tallies[holders->sites].bytes) holders->sites++;
  holders->count = holders->sites < GAP__HOLDERS_MAX ? holders->sites : GAP__HOLDERS_MAX;
  for (uint32_t i = 0; i < holders->count; i++)
    holders->at[i] = (struct gap__holder){.site = tallies[i].key / GAP__CAT_COUNT,
                                          .category = (uint8_t)(tallies[i].key % GAP__CAT_COUNT),
                                          .blocks = tallies[i].blocks,
                                          .bytes = tallies[i].bytes};
}

/* Bytes that the holders, and all activations together, have at the peak of each whole step. */
static void measure_steps(const struct gap__lives *lives, const struct gap__sites *sites,
                          const struct gap__steps *steps, const struct gap__holders *holders,
                          double (*at)[GAP__HOLDERS_MAX + 1]) {
  for (uint32_t i = 0; i < lives->count; i++) {
    const struct gap__life *life = &lives->at[i];
    if (life->before || life->category != GAP__CAT_ACTIVATIONS) continue;
    uint32_t key = key_of(sites, life);
    for (uint32_t s = gap__steps_of(steps, life->born); s < steps->count && steps->at[s].first < life->gone; s++) {
      if (!gap__life_covers(life, steps->at[s].peak_event)) continue;
      at[s][GAP__HOLDERS_MAX] += (double)life->bytes;
      for (uint32_t h = 0; h < holders->count; h++)
        if (holders->at[h].site * GAP__CAT_COUNT + holders->at[h].category == key) at[s][h] += (double)life->bytes;
    }
  }
}

/* How fast a holder grows with all activations: the exponent of a power law through the steps. */
static enum gap__scaling scaling_of(const struct gap__steps *steps, double (*at)[GAP__HOLDERS_MAX + 1], uint32_t h) {
  double n = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  for (uint32_t s = 0; s < steps->count; s++) {
    if (at[s][h] <= 0 || at[s][GAP__HOLDERS_MAX] <= 0) continue;
    double x = log(at[s][GAP__HOLDERS_MAX]), y = log(at[s][h]);
    n++;
    sum_x += x;
    sum_y += y;
    sum_xx += x * x;
    sum_xy += x * y;
  }
  double spread = n > 0 ? sqrt(fmax(0, sum_xx / n - sum_x / n * (sum_x / n))) : 0;
  if (n < 3 || spread < 0.05) return GAP__SCALES_UNKNOWN;
  double slope = (n * sum_xy - sum_x * sum_y) / (n * sum_xx - sum_x * sum_x);
  if (slope < 0.2) return GAP__SCALES_NOT;
  if (slope < 0.8) return GAP__SCALES_LESS;
  return slope <= 1.25 ? GAP__SCALES_LINEAR : GAP__SCALES_MORE;
}

static int find_scaling(const struct gap__lives *lives, const struct gap__sites *sites, const struct gap__steps *steps,
                        struct gap__holders *holders) {
  if (steps->count < 3 || !steps->trains) return 0;
  double(*at)[GAP__HOLDERS_MAX + 1] = calloc(steps->count, sizeof *at);
  if (!at) return GAP_ENOMETA;
  measure_steps(lives, sites, steps, holders, at);
  for (uint32_t h = 0; h < holders->count; h++)
    if (holders->at[h].category == GAP__CAT_ACTIVATIONS) holders->at[h].scaling = scaling_of(steps, at, h);
  free(at);
  return 0;
}

int gap__holders_find(const struct gap__lives *lives, const struct gap__sites *sites, const struct gap__steps *steps,
                      struct gap__holders *holders) {
  uint32_t count = sites->count * GAP__CAT_COUNT;
  struct tally *tallies = calloc(count, sizeof *tallies);
  *holders = (struct gap__holders){0};
  if (!tallies) return GAP_ENOMETA;
  collect(lives, sites, tallies, holders);
  take_largest(tallies, count, holders);
  free(tallies);
  return find_scaling(lives, sites, steps, holders);
}
