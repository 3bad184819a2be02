// SPDX-License-Identifier: MIT OR Apache-2.0
// ldexp of numbers and with results that are not normal.

#include "exact.h"

double __tally_far_ldexp_f64(double x, int32_t n) {
  if (x == 0 || is_inf(x) || is_nan(x))
    return x;
  bool subnormal = __builtin_fabs(x) < 0x1p-1022;
  uint64_t bits = bits_of_double(subnormal ? x * 0x1p54 : x);
  int32_t exponent = (int32_t)((bits >> 52) & 0x7ff) - 1022 - (subnormal ? 54 : 0);
  double fraction = double_of_bits((bits & 0x800fffffffffffff) | 0x3fe0000000000000);
  n = n > 2100 ? 2100 : n;
  n = n < -2100 ? -2100 : n;
  n += exponent;
  n = n > 1100 ? 1100 : n;
  n = n < -1200 ? -1200 : n;
  // Near 1 nothing is rounded before the last factor.
  return scale(fraction, n);
}
