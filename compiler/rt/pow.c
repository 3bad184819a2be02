// SPDX-License-Identifier: MIT OR Apache-2.0
// Powers and roots by logarithms: pow, powr, pown, rootn.

#include "tally_rt.h"

static inline bool is_integer(double x) { return truncate(x) == x; }

static inline bool is_odd(double x) {
  return __builtin_fabs(x) < 0x1p53 && is_integer(x) && !is_integer(0.5 * x);
}

// The power of a number with the magnitude given, whose sign and exponent make it what OpenCL says.
// Operators that always evaluate both sides leave no branch.
static inline double with_sign(double magnitude, double x, bool whole, bool odd) {
  double result = (odd & sign_of(x)) ? -magnitude : magnitude;
  return ((x < 0) & !is_inf(x) & !whole) ? __builtin_nan("") : result;
}

// a^(n/d) for a >= 0, d != 0 and n/d != 0. An infinite exponent wins except beside 1.
static inline double power(double a, double n, double d) {
  if (is_nan(a) || is_nan(n))
    return __builtin_nan("");
  if (a == 1)
    return 1;
  bool negative = (n < 0) != (d < 0);
  if (a == 0 || is_inf(a))
    return (a == 0) == negative ? __builtin_inf() : 0;
  struct dd log = log_sum(a, 0);
  // The logarithm is at least 2^-54, so that this much is out of range anyhow.
  double bounded = __builtin_fabs(n) > 0x1p66 ? __builtin_copysign(0x1p66, n) : n;
  struct dd product = dd_multiply_double(log, bounded);
  if (d != 1)
    product = dd_divide(product, (struct dd){d, 0});
  return exp_sum(product.hi, product.lo, 0);
}

double __tally_pow_f64(double x, double y) {
  if (x == 1 || y == 0)
    return 1;
  bool whole = is_inf(y) || is_integer(y);
  return with_sign(power(__builtin_fabs(x), y, 1), x, whole, is_odd(y));
}

// Whether powr has no value for the arguments: it is defined by exp(y * log(x)).
static inline bool powr_undefined(double x, double y) {
  return !(x >= 0) || is_nan(y) || (y == 0 && (x == 0 || is_inf(x))) || (x == 1 && is_inf(y));
}

double __tally_powr_f64(double x, double y) {
  if (powr_undefined(x, y))
    return __builtin_nan("");
  return y == 0 ? 1 : power(__builtin_fabs(x), y, 1);
}

double __tally_pown_f64(double x, int32_t n) {
  if (n == 0)
    return 1;
  return with_sign(power(__builtin_fabs(x), n, 1), x, true, n & 1);
}

double __tally_rootn_f64(double x, int32_t n) {
  bool odd = n & 1;
  if (n == 0 || (x < 0 && !odd))
    return __builtin_nan("");
  return with_sign(power(__builtin_fabs(x), 1, n), x, true, odd);
}

// The same for a float's precision. Zero and infinity go through the logarithm.
static inline double narrow_power(double a, double exponent) {
  struct narrow_exponential e = narrow_exp2(narrow_log(a) * LOG2_E * exponent);
  double result = madd(e.power, e.fraction, e.power);
  return ((a == 1) & !is_nan(exponent)) ? 1 : result;
}

float __tally_pow_f32(float base, float exponent) {
  double x = (double)base, y = (double)exponent;
  // Floats from 2^24 on are even.
  bool large = __builtin_fabs(y) >= 0x1p24;
  double small = large ? 0 : y;
  double rounded = (small + ROUNDER) - ROUNDER;
  bool whole = rounded == small;
  bool odd = whole & (bits_of_double(small + ROUNDER) & 1);
  double result = with_sign(narrow_power(__builtin_fabs(x), y), x, whole, odd);
  return ((x == 1) | (y == 0)) ? 1 : (float)result;
}

float __tally_powr_f32(float base, float exponent) {
  double x = (double)base, y = (double)exponent;
  double result = narrow_power(__builtin_fabs(x), y);
  result = y == 0 ? 1 : result;
  return powr_undefined(x, y) ? __builtin_nanf("") : (float)result;
}

float __tally_pown_f32(float base, int32_t n) {
  double x = (double)base;
  double result = with_sign(narrow_power(__builtin_fabs(x), n), x, true, n & 1);
  return n == 0 ? 1 : (float)result;
}

float __tally_rootn_f32(float base, int32_t n) {
  double x = (double)base;
  bool odd = n & 1;
  double result = with_sign(narrow_power(__builtin_fabs(x), 1.0 / n), x, true, odd);
  return n == 0 || (x < 0 && !odd) ? __builtin_nanf("") : (float)result;
}
