/* What driver calls cost, by chunk size. */
#include "dev/sim/state.h"

/* One H200, driver 580, medians, a process doing nothing else. */
const struct gap__sim_prices gap__sim_prices_idle = {
    .create = {12, 11, 12, 18, 112},
    .map = {1.3, 1.0, 1.1, 1.5, 2.3},
    .access = {26, 26, 43, 49, 89},
    .unmap = {18, 17, 25, 26, 39},
    .release = {12, 28, 64, 143, 558},
    .segment_alloc = {43, 42, 51, 80, 210},
    .segment_free = {35, 51, 90, 190, 605},
    .event_record_us = 0.37,
    .event_query_us = 0.28,
    .event_create_us = 0.27,
};

#define SCALED(factor, us_2m, us_20m, us_64m, us_256m, us_1g) \
  { (factor) * (us_2m), (factor) * (us_20m), (factor) * (us_64m), (factor) * (us_256m), (factor) * (us_1g) }

/* Inside a busy process: means over the recorded histories driven through the library (bench/predict.py, one H200, driver 580),
 * for 2 MiB: create 19, map 2.8, access 40, unmap 27 us; other sizes in the same proportion to the idle ones.  Release was
 * measured rarely: as unmap.  A segment is made by create, map and access and goes by unmap and release, so it scales as their
 * sums do.  The calls of events are rarer there, and cost more, than in a loop of nothing else. */
const struct gap__sim_prices gap__sim_prices_live = {
    .create = SCALED(19.0 / 12.0, 12, 11, 12, 18, 112),
    .map = SCALED(2.8 / 1.3, 1.3, 1.0, 1.1, 1.5, 2.3),
    .access = SCALED(40.0 / 26.0, 26, 26, 43, 49, 89),
    .unmap = SCALED(27.0 / 18.0, 18, 17, 25, 26, 39),
    .release = SCALED(1.5, 12, 28, 64, 143, 558),
    .segment_alloc = SCALED(61.8 / 39.3, 43, 42, 51, 80, 210),
    .segment_free = SCALED(1.5, 35, 51, 90, 190, 605),
    .event_record_us = 2.7,
    .event_query_us = 2.4,
    .event_create_us = 2.0,
};

double gap__sim_cost(const struct gap__sim_price *price, uint64_t bytes) {
  static const double mib[] = {2, 20, 64, 256, 1024};
  const double us[] = {price->us_2m, price->us_20m, price->us_64m, price->us_256m, price->us_1g};
  double size = (double)bytes / (1 << 20);
  if (size <= mib[0]) return us[0];
  unsigned i = 1;
  while (i < 4 && size > mib[i]) i++; /* beyond the last column its slope goes on */
  return us[i - 1] + (us[i] - us[i - 1]) * (size - mib[i - 1]) / (mib[i] - mib[i - 1]);
}
