// SPDX-License-Identifier: MIT OR Apache-2.0
// Exponentials: exp, exp2, exp10, expm1.

#include "exact.h"

double __tally_far_exp_f64(double x) { return exp_sum(x, 0, 0); }

double __tally_far_exp2_f64(double x) {
  bool outside = __builtin_fabs(x) > 1100;
  x = outside ? __builtin_copysign(1100, x) : x;
  double shifted = x + ROUNDER;
  // The difference is exact, so that whole numbers give exact powers.
  double r = x - (shifted - ROUNDER);
  struct dd product = dd_multiply_double((struct dd){LN2, 0x1.abc9e3b39803fp-56}, r);
  double curve = product.hi * product.hi * POLYNOMIAL(EXP_COEFFICIENTS, product.hi);
  struct dd sum = quick_two_sum(1, product.hi);
  int32_t exponent = (int32_t)bits_of_double(shifted);
  return scale(sum.hi + (sum.lo + (product.lo + curve)), exponent);
}

double __tally_far_exp10_f64(double x) {
  bool outside = __builtin_fabs(x) > 340;
  x = outside ? __builtin_copysign(340, x) : x;
  // x * ln 10; the second part of ln 10 matters as much as the last bits of the first.
  struct dd product = two_product(x, 0x1.26bb1bbb55516p1);
  return exp_sum(product.hi, product.lo + x * -0x1.f48ad494ea3e9p-53, 0);
}

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
