// SPDX-License-Identifier: MIT OR Apache-2.0
// Powers and roots by logarithms: pow, powr, pown, rootn.

#include "exact.h"

static inline bool is_integer(double x) { return truncate(x) == x; }

static inline bool is_odd(double x) {
  return __builtin_fabs(x) < 0x1p53 && is_integer(x) && !is_integer(0.5 * x);
}

// A power with the given magnitude, whose sign (or NaN) follows from the base and the exponent by
// OpenCL's rules. Operators that always evaluate both sides avoid branches.
static inline double with_sign(double magnitude, double x, bool whole, bool odd) {
  double result = (odd & sign_of(x)) ? -magnitude : magnitude;
  return ((x < 0) & !is_inf(x) & !whole) ? __builtin_nan("") : result;
}

// a^(n/d) for a >= 0, d != 0 and n/d != 0. An infinite exponent decides the result except for a = 1.
static inline double power(double a, double n, double d) {
  if (is_nan(a) || is_nan(n))
    return __builtin_nan("");
  if (a == 1)
    return 1;
  bool negative = (n < 0) != (d < 0);
  if (a == 0 || is_inf(a))
    return (a == 0) == negative ? __builtin_inf() : 0;
  struct dd log = log_sum(a, 0);
  // The logarithm is at least 2^-54, so this much is out of range anyway.
  double bounded = __builtin_fabs(n) > 0x1p66 ? __builtin_copysign(0x1p66, n) : n;
  struct dd product = dd_multiply_double(log, bounded);
  if (d != 1)
    product = dd_divide(product, (struct dd){d, 0});
  return exp_sum(product.hi, product.lo, 0);
}

double __tally_far_pow_f64(double x, double y) {
  if (x == 1 || y == 0)
    return 1;
  bool whole = is_inf(y) || is_integer(y);
  return with_sign(power(__builtin_fabs(x), y, 1), x, whole, is_odd(y));
}

// Whether powr has no value for the arguments: it is defined by exp(y * log(x)).
static inline bool powr_undefined(double x, double y) {
  return !(x >= 0) || is_nan(y) || (y == 0 && (x == 0 || is_inf(x))) || (x == 1 && is_inf(y));
}

double __tally_far_powr_f64(double x, double y) {
  if (powr_undefined(x, y))
    return __builtin_nan("");
  return y == 0 ? 1 : power(__builtin_fabs(x), y, 1);
}

double __tally_far_pown_f64(double x, int32_t n) {
  if (n == 0)
    return 1;
  return with_sign(power(__builtin_fabs(x), n, 1), x, true, n & 1);
}

double __tally_far_rootn_f64(double x, int32_t n) {
  bool odd = n & 1;
  if (n == 0 || (x < 0 && !odd))
    return __builtin_nan("");
  return with_sign(power(__builtin_fabs(x), 1, n), x, true, odd);
}
