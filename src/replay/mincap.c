/* The search for the least cap: down a ladder of factors to the first failure, then down the gap above it in ever smaller strides. */
#include "dev/dev.h"
#include "replay/cap.h"
#include "replay/replay.h"

static const double ladder[] = {64,     16,    8,     5,     4,      3,     2.5,    2,     1.75,   1.5,    1.4,  1.3,
                                1.25,   1.2,   1.15,  1.1,   1.075,  1.05,  1.03,   1.02,  1.015,  1.0125, 1.01, 1.008,
                                1.0065, 1.005, 1.004, 1.003, 1.0025, 1.002, 1.0015, 1.001, 1.0005, 1.0};
enum { LADDER_COUNT = sizeof ladder / sizeof ladder[0], USUAL_TOP = 5, STRIDES = 8 };

struct search {
  gap__mincap_try *try;
  void *arg;
  uint64_t fits, fails; /* the smallest cap that fits so far, the greatest that does not; 0: none yet */
};

static int attempt(struct search *search, uint64_t cap) {
  bool fitted = false;
  int rc = search->try(search->arg, cap, &fitted);
  if (rc == 0 && fitted) search->fits = cap;
  if (rc == 0 && !fitted) search->fails = cap;
  return rc;
}

/* Walks down from ladder[first]; stops at the first failure. */
static int descend(struct search *search, uint64_t peak, int first) {
  int rc = 0;
  for (int i = first; rc == 0 && search->fails == 0 && i < LADDER_COUNT; i++) {
    uint64_t cap = gap__cap_of(ladder[i], peak);
    if (cap >= peak && cap != search->fits) rc = attempt(search, cap);
  }
  return rc;
}

/* Between a cap that fits and the failure below it: strides of an eighth of the gap, then of an eighth of what is left. */
static int refine(struct search *search, uint64_t step) {
  int rc = 0;
  while (rc == 0 && search->fits - search->fails > step) {
    uint64_t stride = (search->fits - search->fails) / STRIDES / step * step;
    if (stride < step) stride = step;
    uint64_t floor = search->fails;
    for (search->fails = 0; rc == 0 && search->fails == 0;) {
      if (search->fits - floor <= stride) search->fails = floor;
      else rc = attempt(search, search->fits - stride);
    }
  }
  return rc;
}

int gap__mincap_search(uint64_t peak, gap__mincap_try *try, void *arg, uint64_t *out) {
  struct search search = {.try = try, .arg = arg};
  uint64_t step = peak / 2000 / GAP__PAGE * GAP__PAGE;
  if (step < GAP__PAGE) step = GAP__PAGE;
  *out = 0;
  int rc = descend(&search, peak, USUAL_TOP);
  if (rc == 0 && search.fits == 0 && peak > 0) { /* an unusually wasteful one: from the very top */
    search.fails = 0;
    rc = descend(&search, peak, 0);
  }
  if (rc != 0 || search.fits == 0) return rc;
  /* Nothing below the peak itself can fit. */
  if (search.fails == 0) search.fails = (peak - 1) / GAP__PAGE * GAP__PAGE;
  rc = refine(&search, step);
  *out = search.fits;
  return rc;
}
