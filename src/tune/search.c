#include "tune/search.h"

#include "dev/dev.h"

/* The least cap lies above step `fails` and at most at `fits`; fits == grid_count: none is known to fit. */
struct search {
  struct gap__tuned *tuned;
  uint32_t index;
  int64_t fails, fits;
  uint64_t least_bytes; /* at `fits`, or less */
  bool exact;           /* a run that fitted would have gone the same way under no more than it held */
};

static int64_t step_of(const struct gap__tuned *tuned, uint64_t bytes) {
  int64_t low = 0, high = tuned->grid_count - 1;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (tuned->grid[middle] >= bytes) high = middle;
    else low = middle + 1;
  }
  return low;
}

/* It fits under `cap`, and has held at most `peak` there.  Every request refused under the cap is refused under the peak too,
 * and none of those served took more than it. */
static void fits_under(struct search *search, uint64_t cap, uint64_t peak) {
  uint64_t ideal = gap__tuned_ideal(search->tuned), bytes = search->exact && peak < cap ? peak : cap;
  if (bytes < ideal) bytes = ideal;
  int64_t step = step_of(search->tuned, bytes);
  if (bytes < search->least_bytes) search->least_bytes = bytes;
  if (step < search->fits) search->fits = step;
}

static int attempt(struct search *search, int64_t step) {
  const struct gap__trial *trial;
  uint64_t cap = search->tuned->grid[step];
  int rc = gap__tuned_try(search->tuned, search->index, cap, &trial);
  if (rc != 0) return rc;
  if (trial->fitted) fits_under(search, cap, trial->peak_reserved_bytes);
  else search->fails = step;
  return 0;
}

/* From where a similar one ended, in ever longer strides away from it, until one step fits and one fails. */
static int gallop(struct search *search, int64_t from) {
  int64_t stride = 1, top = search->tuned->grid_count;
  int rc = 0;
  if (from > search->fails && from < search->fits) rc = attempt(search, from);
  bool down = search->fits <= from;
  while (rc == 0 && search->fits - search->fails > 1) {
    int64_t next = down ? search->fits - stride : search->fails + stride;
    if (down ? next <= search->fails : next >= search->fits || next >= top) return 0;
    int64_t before = down ? search->fails : search->fits;
    rc = attempt(search, next);
    if ((down ? search->fails : search->fits) != before) return rc; /* turned: the rest is bisection */
    stride *= 2;
  }
  return rc;
}

static int bisect(struct search *search) {
  int rc = 0;
  while (rc == 0 && search->fits - search->fails > 1) rc = attempt(search, (search->fits + search->fails) / 2);
  return rc;
}

static void conclude(const struct search *search) {
  struct gap__tuned *tuned = search->tuned;
  struct gap__tried *tried = &tuned->tried[search->index];
  bool found = search->fits < tuned->grid_count && search->least_bytes != UINT64_MAX;
  tried->known = true;
  tried->step = found ? (uint32_t)search->fits : GAP__STEP_UNKNOWN;
  tried->least_bytes = found ? search->least_bytes : 0;
  tried->fails_bytes = search->fails >= 0 ? tuned->grid[search->fails] : tuned->grid[0] - GAP__PAGE;
}

int gap__search_coarse(struct gap__tuned *tuned, uint32_t index, uint32_t hint) {
  struct search search = {.tuned = tuned,
                          .index = index,
                          .fails = -1,
                          .fits = tuned->grid_count,
                          .least_bytes = UINT64_MAX,
                          .exact = !gap__tuned_minds_limit(tuned, index)};
  const struct gap__trial *free_run;
  int rc = gap__tuned_try(tuned, index, 0, &free_run);
  if (rc != 0) return rc;
  uint64_t peak = free_run->peak_reserved_bytes;
  bool fitted = free_run->fitted;
  if (fitted && search.exact) fits_under(&search, UINT64_MAX, peak);
  if (fitted)
    rc = gallop(&search, hint != GAP__STEP_UNKNOWN ? hint : search.exact ? search.fits : step_of(tuned, peak));
  if (fitted && rc == 0) rc = bisect(&search);
  if (rc == 0) conclude(&search);
  return rc;
}

int gap__search_ask(struct gap__tuned *tuned, uint32_t index, uint64_t cap_bytes) {
  struct gap__tried *tried = &tuned->tried[index];
  const struct gap__trial *trial;
  if (cap_bytes <= tried->fails_bytes || cap_bytes >= tried->least_bytes) return 0;
  int rc = gap__tuned_try(tuned, index, cap_bytes, &trial);
  if (rc != 0) return rc;
  if (trial->fitted) tried->least_bytes = cap_bytes;
  else tried->fails_bytes = cap_bytes;
  return 0;
}

int gap__search_fine(struct gap__tuned *tuned, uint32_t index) {
  struct gap__tried *tried = &tuned->tried[index];
  uint64_t step = gap__tuned_fine(tuned);
  int rc = 0;
  while (rc == 0 && tried->least_bytes - tried->fails_bytes > step) {
    uint64_t middle = tried->fails_bytes + (tried->least_bytes - tried->fails_bytes) / 2;
    middle = (middle + GAP__PAGE - 1) / GAP__PAGE * GAP__PAGE;
    if (middle >= tried->least_bytes) break;
    rc = gap__search_ask(tuned, index, middle);
  }
  return rc;
}
