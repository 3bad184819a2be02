// SPDX-License-Identifier: MIT OR Apache-2.0
// Exact functions: parts of a number, quotients, neighbours.
//
// Exact operations give the same result for floats as for the same values as doubles.

#include "maths/far/division.h"

// The remainder of the nearest quotient, and that quotient's low seven bits with its sign, as OpenCL defines them.
double __tally_remquo_f64(double x, double y, int32_t *quotient) {
  double a = __builtin_fabs(x), b = __builtin_fabs(y), rest;
  int32_t low;
  if (a <= b * 0x1p20 && a <= 0x1p900 && b >= 0x1p-900 && b <= 0x1p900) {
    // If the quotient was rounded to half an integer, this may be a little more than half of y.
    double nearest = round_even(a / b);
    struct dd product = two_product(nearest, b);
    rest = (a - product.hi) - product.lo;
    double more = rest > 0.5 * b ? 1 : rest < -0.5 * b ? -1 : 0;
    rest -= more * b;
    low = (int32_t)(nearest + more) & 0x7f;
    rest = sign_of(x) ? -rest : rest;
  } else {
    struct division d = divide(x, y, true);
    low = (int32_t)(d.quotient & 0x7f);
    rest = d.remainder;
  }
  *quotient = sign_of(x) != sign_of(y) ? -low : low;
  return rest;
}

float __tally_remquo_f32(float x, float y, int32_t *quotient) {
  double a = __builtin_fabs((double)x), b = __builtin_fabs((double)y);
  if (!(a <= b * 0x1p28 && b > 0 && b < __builtin_inf()))
    return (float)__tally_remquo_f64((double)x, (double)y, quotient);
  // A quotient of two floats that is below 2^28 is half an integer, or more than 2^-25 of an integer away from one: a
  // double's rounding does not change the nearest integer. Its product with a float is exact.
  double nearest = round_even(a / b), rest = a - nearest * b;
  int32_t low = (int32_t)nearest & 0x7f;
  *quotient = sign_of((double)x) != sign_of((double)y) ? -low : low;
  return (float)(sign_of((double)x) ? -rest : rest);
}

double __tally_modf_f64(double x, double *whole) {
  *whole = truncate(x);
  double rest = is_inf(x) ? 0 : x - *whole;
  return is_nan(x) ? x : __builtin_copysign(rest, x);
}

float __tally_modf_f32(float x, float *whole) {
  double wide, rest = __tally_modf_f64((double)x, &wide);
  *whole = (float)wide;
  return (float)rest;
}

static inline double round_down(double x) {
  double whole = truncate(x);
  return whole > x ? whole - 1 : whole;
}

// The fraction above the floor; it stays below 1 even where rounding would make it 1.
double __tally_fract_f64(double x, double *floor) {
  *floor = round_down(x);
  double rest = is_inf(x) ? __builtin_copysign(0, x) : x - *floor;
  rest = rest < 0x1.fffffffffffffp-1 || is_nan(x) ? rest : 0x1.fffffffffffffp-1;
  // The floor of -0 is -0, and so is the fraction.
  return x == 0 ? x : rest;
}

float __tally_fract_f32(float x, float *floor) {
  *floor = (float)round_down((double)x);
  float rest = is_inf((double)x) ? __builtin_copysignf(0, x) : x - *floor;
  rest = rest < 0x1.fffffep-1f || is_nan((double)x) ? rest : 0x1.fffffep-1f;
  return x == 0 ? x : rest;
}

double __tally_frexp_f64(double x, int32_t *exponent) {
  if (x == 0 || is_inf(x) || is_nan(x)) {
    *exponent = 0;
    return x;
  }
  bool subnormal = __builtin_fabs(x) < 0x1p-1022;
  uint64_t bits = bits_of_double(subnormal ? x * 0x1p54 : x);
  *exponent = (int32_t)((bits >> 52) & 0x7ff) - 1022 - (subnormal ? 54 : 0);
  return double_of_bits((bits & 0x800fffffffffffff) | 0x3fe0000000000000);
}

float __tally_frexp_f32(float x, int32_t *exponent) {
  return (float)__tally_frexp_f64((double)x, exponent);
}

// OpenCL leaves the results for zero and NaN to the implementation; they are those of the headers
// that kernels are compiled with (FP_ILOGB0 and FP_ILOGBNAN).
int32_t __tally_ilogb_f64(double x) {
  if (x == 0)
    return INT_MIN;
  if (is_inf(x) || is_nan(x))
    return INT_MAX;
  int32_t exponent;
  __tally_frexp_f64(x, &exponent);
  return exponent - 1;
}

// The exponent of a float other than 0; 128 where it is no number.
static inline int32_t exponent_of_float(float x) {
  uint32_t size = bits_of_float(x) & 0x7fffffff;
  uint32_t scaled = bits_of_float(float_of_bits(size) * 0x1p24f);
  return size < 0x800000 ? (int32_t)(scaled >> 23) - 151 : (int32_t)(size >> 23) - 127;
}

int32_t __tally_ilogb_f32(float x) {
  int32_t exponent = exponent_of_float(x);
  exponent = exponent > 127 ? INT_MAX : exponent;
  return x == 0 ? INT_MIN : exponent;
}

double __tally_logb_f64(double x) {
  if (x == 0)
    return -__builtin_inf();
  if (is_inf(x) || is_nan(x))
    return x * x;
  return __tally_ilogb_f64(x);
}

float __tally_logb_f32(float x) {
  int32_t exponent = exponent_of_float(x);
  float result = exponent > 127 ? x * x : (float)exponent;
  return x == 0 ? -__builtin_inff() : result;
}

double __tally_nextafter_f64(double x, double y) {
  if (is_nan(x) || is_nan(y))
    return x + y;
  if (x == y)
    return y;
  if (x == 0)
    return __builtin_copysign(0x1p-1074, y);
  uint64_t bits = bits_of_double(x);
  return double_of_bits((x < y) == (x > 0) ? bits + 1 : bits - 1);
}

float __tally_nextafter_f32(float x, float y) {
  if (is_nan((double)x) || is_nan((double)y))
    return x + y;
  if (x == y)
    return y;
  if (x == 0)
    return __builtin_copysignf(0x1p-149f, y);
  uint32_t bits = bits_of_float(x);
  return float_of_bits((x < y) == (x > 0) ? bits + 1 : bits - 1);
}
