#include "kv/ceiling.h"

#include <math.h>

double gap__kv_ceiling_count(const unsigned char *registers) {
  const double m = KV_CEILING_REGISTERS, alpha = 0.7213 / (1 + 1.079 / m);
  double sum = 0, empty = 0;
  for (int i = 0; i < KV_CEILING_REGISTERS; i++) {
    sum += ldexp(1, -registers[i]);
    empty += registers[i] == 0;
  }
  double estimate = alpha * m * m / sum;
  return estimate <= 2.5 * m && empty > 0 ? m * log(m / empty) : estimate;
}
