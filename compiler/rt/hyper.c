// SPDX-License-Identifier: MIT OR Apache-2.0
// Hyperbolic functions and their inverses: sinh, cosh, tanh, asinh, acosh, atanh.

#include "tally_rt.h"

double __tally_expm1_f64(double x);

// A quarter of e^x and of e^x - 1 keeps clear of infinity where the result does.

float __tally_sinh_f32(float x) {
  float a = __builtin_fabsf(x);
  struct float_exponential e = float_exp(a > 89.6f ? 89.6f : a);
  float quarter = float_pow2(e.exponent - 2);
  float g = madd_float(e.fraction, quarter, quarter - 0.25f);
  float result = __builtin_copysignf(2 * (g + 0.25f * g / (g + 0.25f)), x);
  return a < 0x1p-13f ? x : result;
}

float __tally_cosh_f32(float x) {
  float a = __builtin_fabsf(x);
  struct float_exponential e = float_exp(a > 89.6f ? 89.6f : a);
  float quarter = float_pow2(e.exponent - 2);
  float g = madd_float(e.fraction, quarter, quarter);
  return 2 * (g + 0.0625f / g);
}

float __tally_tanh_f32(float x) {
  float a = __builtin_fabsf(x);
  float half = float_half_expm1(2 * (a > 10 ? 10 : a));
  float result = __builtin_copysignf(half / (half + 1), x);
  return a < 0x1p-13f ? x : result;
}

float __tally_asinh_f32(float x) {
  double a = __builtin_fabs((double)x);
  double square = a * a;
  // Infinity over infinity must not come up.
  double more = is_inf(a) ? a : a + square / (1 + __builtin_sqrt(1 + square));
  return (float)__builtin_copysign(narrow_log1p(more), (double)x);
}

float __tally_acosh_f32(float x) {
  double a = (double)x - 1;
  double result = narrow_log1p(a + __builtin_sqrt(a * (a + 2)));
  return a < 0 ? __builtin_nanf("") : (float)result;
}

float __tally_atanh_f32(float x) {
  double a = __builtin_fabs((double)x);
  double result = 0.5 * narrow_log1p(2 * a / (1 - a));
  return a > 1 ? __builtin_nanf("") : (float)__builtin_copysign(result, (double)x);
}

// The formulas of sinh, cosh and tanh are those of FreeBSD's msun.

double __tally_sinh_f64(double x) {
  double a = __builtin_fabs(x);
  if (a < 0x1p-28)
    return x;
  double result;
  if (a > 22) {
    result = exp_sum(a, 0, -1);
  } else {
    double e = __tally_expm1_f64(a);
    result = a < 1 ? 0.5 * (2 * e - e * e / (e + 1)) : 0.5 * (e + e / (e + 1));
  }
  return __builtin_copysign(result, x);
}

double __tally_cosh_f64(double x) {
  double a = __builtin_fabs(x);
  if (a > 22)
    return exp_sum(a, 0, -1);
  if (a < 0.35) {
    double e = __tally_expm1_f64(a);
    return 1 + e * e / (2 * (1 + e));
  }
  double e = exp_sum(a, 0, 0);
  return 0.5 * e + 0.5 / e;
}

double __tally_tanh_f64(double x) {
  double a = __builtin_fabs(x);
  if (a < 0x1p-28)
    return x;
  double result;
  if (a > 22) {
    result = 1;
  } else if (a >= 1) {
    result = 1 - 2 / (__tally_expm1_f64(2 * a) + 2);
  } else {
    double e = __tally_expm1_f64(-2 * a);
    result = -e / (e + 2);
  }
  return is_nan(x) ? x : __builtin_copysign(result, x);
}

double __tally_asinh_f64(double x) {
  double a = __builtin_fabs(x);
  if (a < 0x1p-28 || is_inf(x) || is_nan(x))
    return x;
  struct dd log;
  if (a > 0x1p60) {
    // asinh(a) = log(2a); the exponent has room after the split.
    struct logarithm l = log_split(a);
    log = log_join(l.exponent + 1, log_mantissa((struct dd){l.mantissa, 0}));
  } else {
    struct dd root = dd_sqrt(dd_add_double(two_product(a, a), 1));
    struct dd sum = dd_add_double(root, a);
    log = log_sum(sum.hi, sum.lo);
  }
  return __builtin_copysign(log.hi + log.lo, x);
}

double __tally_acosh_f64(double x) {
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

double __tally_atanh_f64(double x) {
  double a = __builtin_fabs(x);
  if (a < 0x1p-28)
    return x;
  if (!(a < 1))
    return a == 1 ? __builtin_copysign(__builtin_inf(), x) : __builtin_nan("");
  struct dd ratio = dd_divide(two_sum(1, a), two_sum(1, -a));
  struct dd log = log_sum(ratio.hi, ratio.lo);
  return __builtin_copysign(0.5 * (log.hi + log.lo), x);
}
