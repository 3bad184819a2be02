// SPDX-License-Identifier: MIT OR Apache-2.0
// Exponentials: expm1, which the hyperbolic functions use.

#include "exact.h"

double __tally_far_expm1_f64(double x) {
  if (__builtin_fabs(x) < 0x1p-54)
    return x;
  if (x > 700)
    return exp_sum(x, 0, 0);
  if (x < -50)
    return -1;
  struct exponential e = exp_core(x, 0);
  double power = pow2(e.exponent);
  struct dd whole = two_sum(power, -1);
  struct dd sum = two_sum(whole.hi, power * e.fraction.hi);
  return sum.hi + (sum.lo + (whole.lo + power * e.fraction.lo));
}
