// SPDX-License-Identifier: MIT OR Apache-2.0
// Shared parts of the complete forms of the mathematical functions: double-double numbers, and the
// cores of the exponential and the logarithm.
//
// The complete forms take any argument, keep intermediate results as the unevaluated sum of two doubles
// where that saves the last bits, and are compiled once, for any processor.

#ifndef EXACT_H
#define EXACT_H

#include <limits.h>
#include <stdbool.h>

#include "../../bits.h"

// The rounding unit: adding and subtracting it rounds to an integer, ties to even, if the
// magnitude is below 2^51. The low bits of the sum are that integer.
#define ROUNDER 0x1.8p52

#define LOG2_E 0x1.71547652b82fep0
// ln 2 in three parts; the first two have 33 bits, so that their products with exponents are exact.
#define LN2_HIGH 0x1.62e42fefp-1
#define LN2_MIDDLE 0x1.473de6afp-34
#define LN2_LOW 0x1.3c7673007e5edp-69
#define SQRT_HALF_BITS 0x3fe6a09e667f3bcd

static inline bool is_nan(double x) { return x != x; }
static inline bool is_inf(double x) { return __builtin_fabs(x) == __builtin_inf(); }
static inline bool sign_of(double x) { return bits_of_double(x) >> 63; }

// 2^k for -1022 <= k <= 1023.
static inline double pow2(int32_t k) { return double_of_bits((uint64_t)(1023 + (int64_t)k) << 52); }

// x * 2^k rounded once, for |k| <= 2044 and |x| in [2^-2, 2^2], or an exact result of any size.
static inline double scale(double x, int32_t k) {
  int32_t half = k >> 1;
  return x * pow2(half) * pow2(k - half);
}

// Rounds to an integer, ties to even.
static inline double round_even(double x) {
  double rounder = __builtin_copysign(0x1p52, x);
  return __builtin_fabs(x) < 0x1p52 ? __builtin_copysign((x + rounder) - rounder, x) : x;
}

// Rounds towards zero.
static inline double truncate(double x) {
  double magnitude = __builtin_fabs(x);
  if (!(magnitude < 0x1p52))
    return x;
  double rounded = (magnitude + 0x1p52) - 0x1p52;
  return __builtin_copysign(rounded > magnitude ? rounded - 1 : rounded, x);
}

// A polynomial by Horner's scheme, the constant coefficient first.
static inline double polynomial(const double *coefficients, int count, double x) {
  double sum = coefficients[count - 1];
#pragma clang loop unroll(full)
  for (int i = count - 2; i >= 0; i--)
    sum = sum * x + coefficients[i];
  return sum;
}

#define POLYNOMIAL(coefficients, x)                                                                \
  polynomial(coefficients, sizeof(coefficients) / sizeof(coefficients)[0], x)

// Double-double arithmetic (Dekker, "A floating-point technique for extending the available
// precision", 1971; Joldes, Muller and Popescu, "Tight and rigorous error bounds for basic building
// blocks of double-word arithmetic", 2017). The value is hi + lo and hi is its rounding.
struct dd {
  double hi, lo;
};

// a + b exactly, if |a| >= |b| or a is 0.
static inline struct dd quick_two_sum(double a, double b) {
  double sum = a + b;
  return (struct dd){sum, b - (sum - a)};
}

// a + b exactly.
static inline struct dd two_sum(double a, double b) {
  double sum = a + b;
  double part = sum - a;
  return (struct dd){sum, (a - (sum - part)) + (b - part)};
}

// a * b exactly, if both are below 2^996 and the product's low bits do not vanish.
static inline struct dd two_product(double a, double b) {
  double product = a * b;
  double a_scaled = a * 0x1.0000002p27, b_scaled = b * 0x1.0000002p27;
  double a_high = a_scaled - (a_scaled - a), b_high = b_scaled - (b_scaled - b);
  double a_low = a - a_high, b_low = b - b_high;
  double error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low);
  return (struct dd){product, error};
}

static inline struct dd dd_add(struct dd a, struct dd b) {
  struct dd high = two_sum(a.hi, b.hi), low = two_sum(a.lo, b.lo);
  high = quick_two_sum(high.hi, high.lo + low.hi);
  return quick_two_sum(high.hi, high.lo + low.lo);
}

static inline struct dd dd_negate(struct dd a) { return (struct dd){-a.hi, -a.lo}; }

static inline struct dd dd_add_double(struct dd a, double b) {
  struct dd sum = two_sum(a.hi, b);
  return quick_two_sum(sum.hi, sum.lo + a.lo);
}

static inline struct dd dd_multiply(struct dd a, struct dd b) {
  struct dd product = two_product(a.hi, b.hi);
  return quick_two_sum(product.hi, product.lo + (a.hi * b.lo + a.lo * b.hi));
}

static inline struct dd dd_multiply_double(struct dd a, double b) {
  struct dd product = two_product(a.hi, b);
  return quick_two_sum(product.hi, product.lo + a.lo * b);
}

static inline struct dd dd_divide(struct dd a, struct dd b) {
  double quotient = a.hi / b.hi;
  struct dd product = two_product(quotient, b.hi);
  double rest = ((a.hi - product.hi) - product.lo) + (a.lo - quotient * b.lo);
  return quick_two_sum(quotient, rest / b.hi);
}

// The square root of a number that is not negative.
static inline struct dd dd_sqrt(struct dd a) {
  double root = __builtin_sqrt(a.hi);
  struct dd square = two_product(root, root);
  double rest = ((a.hi - square.hi) - square.lo) + a.lo;
  return quick_two_sum(root, root > 0 ? rest / (2 * root) : 0);
}

// e^x - 1 = r + r^2 q(r) for |r| <= ln(2)/2, to 2^-61.
static const double EXP_COEFFICIENTS[] = {
    0x1p-1,
    0x1.5555555555557p-3,
    0x1.5555555555556p-5,
    0x1.111111110ff87p-7,
    0x1.6c16c16c16212p-10,
    0x1.a01a01aca0134p-13,
    0x1.a01a01a741b3cp-16,
    0x1.71ddffef9e7b1p-19,
    0x1.27e4da1a3bf04p-22,
    0x1.af52906239de4p-26,
    0x1.1f75aba0b1e2ep-29,
};

// An exponential in parts: e^x = (1 + fraction) * 2^exponent.
struct exponential {
  struct dd fraction;
  int32_t exponent;
};

// e^(hi + lo) for |hi| <= 800. NaN gives a NaN fraction.
static inline struct exponential exp_core(double hi, double lo) {
  double shifted = hi * LOG2_E + ROUNDER;
  double count = shifted - ROUNDER;
  double high = hi - count * LN2_HIGH;
  double low = count * (LN2_MIDDLE + LN2_LOW) - lo;
  double r = high - low;
  double rest = (high - r) - low;
  double curve = r * r * POLYNOMIAL(EXP_COEFFICIENTS, r);
  return (struct exponential){quick_two_sum(r, curve + rest), (int32_t)bits_of_double(shifted)};
}

// e^(hi + lo) * 2^more for a small |more| and any hi.
static inline double exp_sum(double hi, double lo, int32_t more) {
  bool outside = __builtin_fabs(hi) > 800;
  hi = outside ? __builtin_copysign(800, hi) : hi;
  lo = outside ? 0 : lo;
  struct exponential e = exp_core(hi, lo);
  struct dd sum = quick_two_sum(1, e.fraction.hi);
  return scale(sum.hi + (sum.lo + e.fraction.lo), e.exponent + more);
}

// x = mantissa * 2^exponent with the mantissa in [sqrt(1/2), sqrt(2)), for a positive finite x.
struct logarithm {
  double mantissa;
  int32_t exponent;
};

static inline struct logarithm log_split(double x) {
  bool subnormal = x < 0x1p-1022;
  uint64_t bits = bits_of_double(subnormal ? x * 0x1p54 : x) - SQRT_HALF_BITS;
  int32_t exponent = (int32_t)((int64_t)bits >> 52) - (subnormal ? 54 : 0);
  double mantissa = double_of_bits((bits & 0xfffffffffffff) + SQRT_HALF_BITS);
  return (struct logarithm){mantissa, exponent};
}

// The value of a logarithm at zero, negative numbers, infinity and NaN; else `result`.
static inline double log_special(double x, double result) {
  result = x == __builtin_inf() ? x : result;
  result = x == 0 ? -__builtin_inf() : result;
  return x < 0 || is_nan(x) ? __builtin_nan("") : result;
}

// (2 atanh(s) - 2s - 2/3 s^3) / s^5 as a polynomial of s^2 for |s| <= 0.1716, to 2^-73.
static const double LOG_TAIL[] = {
    0x1.999999999999ap-2, 0x1.2492492492492p-2, 0x1.c71c71c71c705p-3, 0x1.745d1745d3f5bp-3,
    0x1.3b13b138ec368p-3, 0x1.1111122126d32p-3, 0x1.e1e13eb311e4bp-4, 0x1.af46a02617d7cp-4,
    0x1.82bc0b9b7fd9bp-4, 0x1.987a178cf837p-4,
};

// The natural logarithm of a mantissa in [sqrt(1/2), sqrt(2)), to about 2^-65 of it.
static inline struct dd log_mantissa(struct dd m) {
  // log(m) = 2 atanh(s) with s = (m - 1) / (m + 1).
  struct dd s = dd_divide(dd_add_double(m, -1), dd_add_double(m, 1));
  struct dd square = dd_multiply(s, s);
  struct dd factor = two_sum(0x1.5555555555555p-1, square.hi * POLYNOMIAL(LOG_TAIL, square.hi));
  factor.lo += 0x1.5555555555555p-55;
  struct dd cube = dd_multiply(dd_multiply(s, square), factor);
  return dd_add((struct dd){2 * s.hi, 2 * s.lo}, cube);
}

// exponent * ln 2 + log.
static inline struct dd log_join(int32_t exponent, struct dd log) {
  double e = exponent;
  struct dd sum = dd_add(two_sum(e * LN2_HIGH, e * LN2_MIDDLE), log);
  return dd_add_double(sum, e * LN2_LOW);
}

// The natural logarithm of hi + lo, where hi is positive and finite and lo is 0 for hi below
// 2^-900.
static inline struct dd log_sum(double hi, double lo) {
  struct logarithm l = log_split(hi);
  lo = lo == 0 ? 0 : scale(lo, -l.exponent);
  return log_join(l.exponent, log_mantissa(quick_two_sum(l.mantissa, lo)));
}

#endif
