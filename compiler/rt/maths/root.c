// SPDX-License-Identifier: MIT OR Apache-2.0
// Roots and lengths: rsqrt, cbrt, hypot.

#include "lanes.h"

#ifdef TALLY_FMA
// The inverse root with hardly any error besides the last rounding.
static inline F64 rsqrt_near(F64 x) {
  F64 y = inverse_root64(x), product = x * y;
  F64 e = fma64(-lost64(x, y, product), y, fma64(-product, y, 1));
  return fma64(0.5 * y, e, y);
}

static inline F32 rsqrt_near_32(F32 x) {
  F32 y = rough_inverse_root_above32(x), product = x * y;
  F32 e = fma32(lost32(x, y, product), y, fma32(product, y, -1));
  // y (1 + e)^(-1/2), but for 2^-29 of it.
  return fma32(y * e, fma32(e, 0.375f, -0.5f), y);
}

FUNCTION64_OR(rsqrt, (x >= 0x1p-960) & (x <= 0x1p960), rsqrt_near(x), 1 / __builtin_elementwise_sqrt(x))
#ifdef TALLY_AVX512
// The estimate has 14 bits, so that a step of the first order is enough, and knows subnormal numbers. 0, infinity and
// negative numbers have the estimate as their result, and make `e` NaN.
static inline F32 rsqrt_whole_32(F32 x) {
  F32 y = rough_inverse_root_above32(x), product = x * y;
  F32 e = fma32(lost32(x, y, product), y, fma32(product, y, -1));
  return e < 1 ? fma32(minus_half32(y), e, y) : y;
}

WHOLE32(rsqrt, rsqrt_whole_32(x))
#else
FUNCTION32_OR(rsqrt, (x >= 0x1p-100f) & (x <= 0x1p100f), rsqrt_near_32(x), 1 / __builtin_elementwise_sqrt(x))
#endif
#else
WHOLE64(rsqrt, 1 / __builtin_elementwise_sqrt(x))
WHOLE32(rsqrt, 1 / __builtin_elementwise_sqrt(x))
#endif

// For an inverse cubic root y, 1 - x y^3 is e: three times e y are added, y (1 - e)^(-1/3).
static inline F64 better64(F64 x, F64 y) {
  F64 e = fma64(-(x * y), y * y, 1);
  F64 factor = fma64(fma64(e, 0x1.61f9add3c0ca4p-3, 0x1.c71c71c71c71cp-3), e, 0x1.5555555555555p-2);
  return fma64(y * e, factor, y);
}

static inline F32 better32(F32 x, F32 y) {
  F32 e = fma32(-(x * y), y * y, 1);
  F32 factor = fma32(fma32(e, 0x1.61f9aep-3f, 0x1.c71c72p-3f), e, 0x1.555556p-2f);
  return fma32(y * e, factor, y);
}

// The cube root of a positive number or 0. A third of the exponent, negated, gives the first estimate
// (Kahan); each step has four times as many right digits.
static inline F64 cbrt_near(F64 x) {
  // The upper half of the bits, as an integer below 2^52.
  F64 upper = of_bits64((bits64(x) >> 32) | 0x4330000000000000) - 0x1p52;
  F64 guess = fma64(upper, -0x1.5555555555555p-2, 0x1.54fb96p30 + 0x1p52);
  F64 y = better64(x, better64(x, of_bits64(bits64(guess) << 32)));
  F64 root = x * y * y;
  D64 square = product64(root, root);
  F64 more = fma64(square.lo, root, fma64(square.hi, root, -x));
  return fma64(more * y, y * -0x1.5555555555555p-2, root);
}

static inline F32 cbrt_near_32(F32 x) {
  F32 guess = fma32(float_of_int((I32)bits32(x)), -0x1.555556p-2f, 0x1.52875cp30f);
  F32 y = better32(x, better32(x, of_bits32((U32)int_of_float(guess))));
  F32 root = x * y * y;
  D32 square = product32(root, root);
  F32 more = fma32(square.lo, root, fma32(square.hi, root, -x));
  return fma32(more * y, y * -0x1.555556p-2f, root);
}

static inline M64 has_cbrt64(F64 size) { return (size <= 0x1p1000) & ((size >= 0x1p-1000) | (size == 0)); }
static inline M32 has_cbrt32(F32 size) { return (size <= 0x1p120f) & ((size >= 0x1p-120f) | (size == 0)); }
FUNCTION64(cbrt, has_cbrt64(abs64(x)), with_sign64(cbrt_near(abs64(x)), x))
FUNCTION32(cbrt, has_cbrt32(abs32(x)), with_sign32(cbrt_near_32(abs32(x)), x))

// Whether no square overflowed or underflowed; where the larger one is right, the other one may be 0.
static inline M64 has_hypot64(F64 squares) { return (squares >= 0x1p-900) & (squares <= 0x1p900); }
static inline M32 has_hypot32(F32 squares) { return (squares >= 0x1p-80f) & (squares <= 0x1p80f); }

static inline F64 squares64(F64 x, F64 y) { return fma64(x, x, y * y); }
static inline F32 squares32(F32 x, F32 y) { return fma32(x, x, y * y); }

// Brings the numbers to a size whose squares are normal. An infinity takes precedence over a NaN.
static inline F64 hypot_far(F64 x, F64 y) {
  F64 a = abs64(x), b = abs64(y), infinity = __builtin_inf(), up = 0x1p600, down = 0x1p-600;
  M64 large = (a > 1) | (b > 1);
  F64 to = large ? down : up, back = large ? up : down;
  F64 result = __builtin_elementwise_sqrt(squares64(a * to, b * to)) * back;
  return ((a == infinity) | (b == infinity)) ? infinity : result;
}

// Squares of floats never overflow or underflow as doubles.
static inline F32 hypot_far_32(F32 x, F32 y) {
  F64 a = wide(x), b = wide(y);
  F32 result = narrow(__builtin_elementwise_sqrt(a * a + b * b));
  F32 infinity = __builtin_inff();
  return ((abs32(x) == infinity) | (abs32(y) == infinity)) ? infinity : result;
}

FUNCTION64_OF_TWO_OR(hypot, has_hypot64(squares64(x, y)), root64(squares64(x, y)), hypot_far(x, y))
FUNCTION32_OF_TWO_OR(hypot, has_hypot32(squares32(x, y)), root32(squares32(x, y)).hi, hypot_far_32(x, y))
