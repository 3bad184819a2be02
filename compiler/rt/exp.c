// SPDX-License-Identifier: MIT OR Apache-2.0
// Exponentials: exp, exp2, exp10, expm1.

#include "tally_rt.h"

// (e^r - 1 - r) / r^2 for |r| <= ln(2)/2, to 2^-23.
static const float FLOAT_COEFFICIENTS[] = {
    0x1p-1f, 0x1.5554dap-3f, 0x1.555518p-5f, 0x1.120de4p-7f, 0x1.6d138p-10f,
};

// Adding it rounds a small float to an integer, in the low bits.
#define FLOAT_ROUNDER 0x1.8p23f

// e^r * 2^k, where k is in the low bits of a sum with the rounder.
static inline float exp_scaled(float r, float shifted) {
  float sum = 1 + madd_float(r * r, POLYNOMIAL_FLOAT(FLOAT_COEFFICIENTS, r), r);
  int32_t k = (int32_t)(bits_of_float(shifted) - bits_of_float(FLOAT_ROUNDER));
  // In two steps, as the power itself may be out of range.
  int32_t half = k >> 1;
  float first = float_of_bits((uint32_t)(127 + half) << 23);
  float second = float_of_bits((uint32_t)(127 + k - half) << 23);
  return sum * first * second;
}

float __tally_exp_f32(float x) {
  x = x > 105 ? 105 : x;
  x = x < -105 ? -105 : x;
  float shifted = madd_float(x, (float)LOG2_E, FLOAT_ROUNDER);
  float count = shifted - FLOAT_ROUNDER;
  float r = madd_float(-count, LN2_LOW_FLOAT, x - count * LN2_HIGH_FLOAT);
  return exp_scaled(r, shifted);
}

float __tally_exp2_f32(float x) {
  x = x > 152 ? 152 : x;
  x = x < -152 ? -152 : x;
  float shifted = x + FLOAT_ROUNDER;
  return exp_scaled((x - (shifted - FLOAT_ROUNDER)) * (float)LN2, shifted);
}

float __tally_exp10_f32(float x) {
  struct narrow_exponential e = narrow_exp2((double)x * LOG2_10);
  return (float)madd(e.power, e.fraction, e.power);
}

float __tally_expm1_f32(float x) {
  float result = (float)narrow_exp2m1((double)x * LOG2_E);
  return x == 0 ? x : result;
}

double __tally_exp_f64(double x) { return exp_sum(x, 0, 0); }

double __tally_exp2_f64(double x) {
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

double __tally_exp10_f64(double x) {
  bool outside = __builtin_fabs(x) > 340;
  x = outside ? __builtin_copysign(340, x) : x;
  // x * ln 10; its second part matters as much as the first's last bits.
  struct dd product = two_product(x, 0x1.26bb1bbb55516p1);
  return exp_sum(product.hi, product.lo + x * -0x1.f48ad494ea3e9p-53, 0);
}

double __tally_expm1_f64(double x) {
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
