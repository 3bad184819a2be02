// SPDX-License-Identifier: MIT OR Apache-2.0
// Exact functions: parts of a number, remainders, neighbours, scaling.
//
// Exact operations give the same result for floats as for the same values as doubles.

#include "maths/far/exact.h"

// A positive finite number as an integer times 2^exponent.
struct integer {
  uint64_t value;
  int32_t exponent;
};

static inline struct integer integer_of(double x) {
  uint64_t bits = bits_of_double(x) & 0x7fffffffffffffff;
  int32_t exponent = (int32_t)(bits >> 52);
  uint64_t fraction = bits & 0xfffffffffffff;
  if (exponent == 0)
    return (struct integer){fraction, -1074};
  return (struct integer){fraction | 0x10000000000000, exponent - 1075};
}

struct division {
  double remainder;
  // The low bits of the quotient, which is not negative.
  uint32_t quotient;
};

// |x| divided by |y|; the remainder belongs to the quotient rounded towards zero, or to the nearest one,
// and its sign is multiplied by that of x. NaN if there is none.
static inline struct division divide(double x, double y, bool nearest) {
  if (is_nan(x) || is_nan(y) || is_inf(x) || y == 0)
    return (struct division){__builtin_nan(""), 0};
  if (is_inf(y) || x == 0)
    return (struct division){x, 0};
  struct integer a = integer_of(x), b = integer_of(y);
  if (a.exponent < b.exponent) {
    // Less than half of y, unless the exponents are neighbours.
    if (a.exponent < b.exponent - 1)
      return (struct division){x, 0};
    b = (struct integer){b.value << 1, a.exponent};
  }
  uint64_t quotient = a.value / b.value, rest = a.value % b.value;
  // Long division, each step with as many bits as fit above the 53 of the remainder.
  for (int32_t left = a.exponent - b.exponent; left > 0;) {
    if (rest == 0) {
      quotient = left < 64 ? quotient << left : 0;
      break;
    }
    int32_t step = left < 11 ? left : 11;
    quotient = (quotient << step) + (rest << step) / b.value;
    rest = (rest << step) % b.value;
    left -= step;
  }
  bool up = nearest && (2 * rest > b.value || (2 * rest == b.value && (quotient & 1)));
  quotient += up;
  double size = up ? -(double)(b.value - rest) : (double)rest;
  double remainder = scale(size, b.exponent);
  remainder = rest == 0 ? 0 : remainder;
  return (struct division){sign_of(x) ? -remainder : remainder, (uint32_t)quotient};
}

double __tally_fmod_f64(double x, double y) { return divide(x, y, false).remainder; }

float __tally_fmod_f32(float x, float y) {
  return (float)divide((double)x, (double)y, false).remainder;
}

double __tally_remainder_f64(double x, double y) { return divide(x, y, true).remainder; }

float __tally_remainder_f32(float x, float y) {
  return (float)divide((double)x, (double)y, true).remainder;
}

// The quotient's low seven bits with its sign, as OpenCL defines them.
double __tally_remquo_f64(double x, double y, int32_t *quotient) {
  struct division d = divide(x, y, true);
  int32_t low = (int32_t)(d.quotient & 0x7f);
  *quotient = sign_of(x) != sign_of(y) ? -low : low;
  return d.remainder;
}

float __tally_remquo_f32(float x, float y, int32_t *quotient) {
  return (float)__tally_remquo_f64((double)x, (double)y, quotient);
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

int32_t __tally_ilogb_f32(float x) { return __tally_ilogb_f64((double)x); }

double __tally_logb_f64(double x) {
  if (x == 0)
    return -__builtin_inf();
  if (is_inf(x) || is_nan(x))
    return x * x;
  return __tally_ilogb_f64(x);
}

float __tally_logb_f32(float x) { return (float)__tally_logb_f64((double)x); }

double __tally_ldexp_f64(double x, int32_t n) {
  n = n > 2100 ? 2100 : n;
  n = n < -2100 ? -2100 : n;
  int32_t exponent;
  // Near 1 nothing is rounded before the last factor.
  double fraction = __tally_frexp_f64(x, &exponent);
  if (x == 0 || is_inf(x) || is_nan(x))
    return x;
  n += exponent;
  n = n > 1100 ? 1100 : n;
  n = n < -1200 ? -1200 : n;
  return scale(fraction, n);
}

float __tally_ldexp_f32(float x, int32_t n) {
  n = n > 500 ? 500 : n;
  n = n < -500 ? -500 : n;
  return (float)((double)x * pow2(n));
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
