// SPDX-License-Identifier: MIT OR Apache-2.0
// Logarithms: log, which the gamma functions use, and log1p.

#include "exact.h"

// (2 atanh(s) - 2s) / s^3 as a polynomial of s^2 for |s| <= 0.1716, to 2^-58.
static const double LOG_COEFFICIENTS[] = {
    0x1.5555555555555p-1, 0x1.9999999999a39p-2, 0x1.2492492476a1ap-2, 0x1.c71c7201a55d7p-3,
    0x1.745cf8e4bba1bp-3, 0x1.3b1c3c1c81c8fp-3, 0x1.0fbde0f4ad17bp-3, 0x1.0c0aff044a97p-3,
};

// The parts of log(1 + f) = f - half + s (half + curve), as in FreeBSD's msun, e_log.c: f and f^2/2
// keep the bits that s alone would lose.
struct log_parts {
  double half, small;
};

static inline struct log_parts log_parts(double f) {
  double s = f / (f + 2);
  double square = s * s;
  double half = 0.5 * f * f;
  return (struct log_parts){half, s * (half + square * POLYNOMIAL(LOG_COEFFICIENTS, square))};
}

double __tally_far_log_f64(double x) {
  struct logarithm l = log_split(x);
  double f = l.mantissa - 1, e = l.exponent;
  struct log_parts p = log_parts(f);
  double low = p.small + e * (LN2_MIDDLE + LN2_LOW);
  return log_special(x, e * LN2_HIGH - ((p.half - low) - f));
}

double __tally_far_log1p_f64(double x) {
  struct dd sum = two_sum(1, x);
  struct logarithm l = log_split(sum.hi);
  bool near = l.exponent == 0;
  double e = l.exponent;
  // Near 1 the sum is not needed; elsewhere its rounding error is added to the low parts.
  double f = near ? x : l.mantissa - 1;
  double lost = near ? 0 : sum.lo / sum.hi;
  struct log_parts p = log_parts(f);
  double low = p.small + (e * (LN2_MIDDLE + LN2_LOW) + lost);
  double result = log_special(sum.hi, e * LN2_HIGH - ((p.half - low) - f));
  return x == 0 ? x : result;
}
