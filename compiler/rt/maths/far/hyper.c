// SPDX-License-Identifier: MIT OR Apache-2.0
// Inverse hyperbolic functions: asinh, acosh, atanh.

#include "exact.h"

double __tally_far_asinh_f64(double x) {
  double a = __builtin_fabs(x);
  if (a < 0x1p-28 || is_inf(x) || is_nan(x))
    return x;
  struct dd log;
  if (a > 0x1p60) {
    // asinh(a) = log(2a); after the split the exponent has room for the factor.
    struct logarithm l = log_split(a);
    log = log_join(l.exponent + 1, log_mantissa((struct dd){l.mantissa, 0}));
  } else {
    struct dd root = dd_sqrt(dd_add_double(two_product(a, a), 1));
    struct dd sum = dd_add_double(root, a);
    log = log_sum(sum.hi, sum.lo);
  }
  return __builtin_copysign(log.hi + log.lo, x);
}

double __tally_far_acosh_f64(double x) {
  if (!(x >= 1))
    return __builtin_nan("");
  if (is_inf(x))
    return x;
  struct dd log;
  if (x > 0x1p60) {
    struct logarithm l = log_split(x);
    log = log_join(l.exponent + 1, log_mantissa((struct dd){l.mantissa, 0}));
  } else {
    struct dd root = dd_sqrt(dd_add_double(two_product(x, x), -1));
    struct dd sum = dd_add_double(root, x);
    log = log_sum(sum.hi, sum.lo);
  }
  return log.hi + log.lo;
}

double __tally_far_atanh_f64(double x) {
  double a = __builtin_fabs(x);
  if (a < 0x1p-28)
    return x;
  if (!(a < 1))
    return a == 1 ? __builtin_copysign(__builtin_inf(), x) : __builtin_nan("");
  struct dd ratio = dd_divide(two_sum(1, a), two_sum(1, -a));
  struct dd log = log_sum(ratio.hi, ratio.lo);
  return __builtin_copysign(0.5 * (log.hi + log.lo), x);
}
