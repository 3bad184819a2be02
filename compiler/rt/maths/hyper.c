// SPDX-License-Identifier: MIT OR Apache-2.0
// Hyperbolic functions and their inverses: sinh, cosh, tanh, asinh, acosh, atanh.
//
// With x = n ln 2 + r the hyperbolic functions of x are sums of those of r, times half the sum and half the
// difference of 2^n and 2^-n. Nothing cancels, and around 0 n is 0.

#include "logarithm.h"
#ifdef TALLY_AVX512
#include "hyper_pieces.h"
#endif

// (sinh(r) - r) / r^3 and (cosh(r) - 1 - r^2/2) / r^4 as polynomials of r^2 for |r| <= ln(2)/2, to 2^-60 and
// 2^-68.
static const double SINH64[] = {
    0x1.5555555555556p-3, 0x1.1111111110707p-7, 0x1.a01a01a905befp-13, 0x1.71de0a2ea4fbp-19, 0x1.af3f288e2aa39p-26,
};
static const double COSH64[] = {
    0x1.5555555555556p-5, 0x1.6c16c16c15ff6p-10, 0x1.a01a01a81b77cp-16, 0x1.27e4d80e2ffddp-22, 0x1.1f78f68385c0bp-29,
};

// The hyperbolic sine and cosine of x.
struct hyperbolic64 {
  D64 sine, cosine;
};

// For x from 0 to 680.
static inline struct hyperbolic64 hyperbolic64(F64 x) {
  struct reduced64 e = reduce64(x, 0);
  // A half of 2^n and of 2^-n.
  F64 up = of_bits64((bits64(e.shifted) << 52) + 0x3fe0000000000000);
  F64 down = of_bits64(0x3fe0000000000000 - (bits64(e.shifted) << 52));
  F64 sum = up + down, difference = up - down;
  F64 square = e.r * e.r, fourth = square * square;
  F64 cosh = fma64(square, 0.5, fma64(fourth, POLYNOMIAL64(COSH64, square, fourth), e.r * e.rest));
  F64 sinh = fma64(e.r * square, POLYNOMIAL64(SINH64, square, fourth), e.rest);
  F64 product = sum * e.r;
  D64 most = sum64(difference, product);
  F64 low = fma64(difference, cosh, fma64(sum, sinh, most.lo + lost64(sum, e.r, product)));
  D64 cosine = sum64(sum, fma64(sum, cosh, difference * (e.r + sinh)));
  return (struct hyperbolic64){{most.hi, low}, cosine};
}

static inline F64 sinh_near(F64 x) {
  struct hyperbolic64 it = hyperbolic64(abs64(x));
  return with_sign64(it.sine.hi + it.sine.lo, x);
}

// The quotient of the sine and the cosine, with its rounding error.
static inline F64 tanh_near(F64 x) {
  F64 size = abs64(x);
  struct hyperbolic64 it = hyperbolic64(size < 20 ? size : (F64)20);
  D64 over = sum64(it.sine.hi, it.sine.lo), under = it.cosine;
  F64 inverse = 1 / under.hi, quotient = over.hi * inverse;
  F64 left = fma64(-quotient, under.lo, over.lo - lost64(quotient, under.hi, over.hi));
  F64 result = with_sign64(fma64(left, inverse, quotient), x);
  return x != x ? x : result;
}

// For larger numbers both are 2 cosh(x / 2)^2, which overflows as it should. NaN stays NaN.
static inline F64 hyperbolic_far64(F64 x) {
  F64 most = 356, half = 0.5 * abs64(x);
  D64 cosine = hyperbolic64(half > most ? most : half).cosine;
  F64 twice = cosine.hi + cosine.hi;
  return fma64(twice, cosine.hi, twice * (cosine.lo + cosine.lo));
}

FUNCTION64_OR(sinh, abs64(x) <= 680, sinh_near(x), with_sign64(hyperbolic_far64(x), x))
FUNCTION64_OR(cosh, abs64(x) <= 680, hyperbolic64(abs64(x)).cosine.hi, hyperbolic_far64(x))
WHOLE64(tanh, tanh_near(x))

// The same for floats: to 2^-33 and 2^-32.
static const float SINH32[] = {0x1.555556p-3f, 0x1.110f88p-7f, 0x1.a3639p-13f};
static const float COSH32[] = {0x1p-1f, 0x1.555502p-5f, 0x1.6d2e06p-10f};

struct hyperbolic32 {
  D32 sine, cosine;
};

// For x from 0 to 75.
static inline struct hyperbolic32 hyperbolic32(F32 x) {
  F32 shifted = fma32(x, LOG2_E_32, ROUNDER32), count = shifted - ROUNDER32;
  F32 high = fma32(-count, LN_2_HIGH_32, x), rest = count * LN_2_LOW_32;
  F32 r = high - rest;
  rest = (high - r) - rest;
  F32 up = of_bits32((bits32(shifted) << 23) + 0x3f000000);
  F32 down = of_bits32(0x3f000000 - (bits32(shifted) << 23));
  F32 sum = up + down, difference = up - down;
  F32 square = r * r, fourth = square * square;
  F32 cosh = fma32(square, POLYNOMIAL32(COSH32, square, fourth), r * rest);
  F32 sinh = fma32(r * square, POLYNOMIAL32(SINH32, square, fourth), rest);
  F32 product = sum * r;
  D32 most = sum32(difference, product);
  F32 low = fma32(difference, cosh, fma32(sum, sinh, most.lo + lost32(sum, r, product)));
  D32 cosine = sum32(sum, fma32(sum, cosh, difference * (r + sinh)));
  return (struct hyperbolic32){{most.hi, low}, cosine};
}

static inline F32 sinh_near_32(F32 x) {
  struct hyperbolic32 it = hyperbolic32(abs32(x));
  return with_sign32(it.sine.hi + it.sine.lo, x);
}

#ifdef TALLY_AVX512
static inline F32 tanh_near_32(F32 x) {
  // From here on it rounds to 1. NaN stays NaN.
  F32 most = 9.1f, size = abs32(x);
  return with_sign32(PIECES32(TANH_PIECES32, piece32(size > most ? most : size, TANH_LENGTH32)), x);
}
#else
// (e^2x - 1) / (e^2x + 1). With 2x = n ln 2 + r, e^2x - 1 is 2^n (e^r - 1) + 2^n - 1, where nothing cancels for n = 0.
// For small n the quotient is x plus a smaller one, whose errors count less.
static inline F32 tanh_near_32(F32 x) {
  F32 size = abs32(x), twice = 2 * (size < 10 ? size : (F32)10), nothing = 0;
  F32 shifted = fma32(twice, LOG2_E_32, ROUNDER32), count = shifted - ROUNDER32;
  F32 r = fma32(-count, LN_2_LOW_32, fma32(-count, LN_2_HIGH_32, twice));
  F32 square = r * r, power = of_bits32((bits32(shifted) << 23) + 0x3f800000);
  F32 curve = square * POLYNOMIAL32(EXP32, r, square);
  F32 over = fma32(power, curve, fma32(power, r, power - 1));
  M32 small = count < 2;
  F32 first = small ? size : nothing, rest = small ? fma32(-size, over, over - twice) : over;
  F32 result = with_sign32(first + rest / (over + 2), x);
  return x != x ? x : result;
}
#endif

static inline F32 hyperbolic_far32(F32 x) {
  F32 most = 45, half = 0.5f * abs32(x);
  D32 cosine = hyperbolic32(half > most ? most : half).cosine;
  F32 twice = cosine.hi + cosine.hi;
  return fma32(twice, cosine.hi, twice * (cosine.lo + cosine.lo));
}

FUNCTION32_OR(sinh, abs32(x) <= 75, sinh_near_32(x), with_sign32(hyperbolic_far32(x), x))
FUNCTION32_OR(cosh, abs32(x) <= 75, hyperbolic32(abs32(x)).cosine.hi, hyperbolic_far32(x))
WHOLE32(tanh, tanh_near_32(x))

// The number in the bits of an exponent.
static inline F64 exponent_of64(U64 bits) { return of_bits64((bits >> 52) | 0x4330000000000000) - 0x1p52; }
static inline F32 exponent_of32(U32 bits) { return float_of_int((I32)(bits >> 23)); }

#define BITS 64
#include "areas.h"
#undef BITS
#define BITS 32
#include "areas.h"
#undef BITS

FUNCTION64(asinh, abs64(x) <= 0x1p400, asinh_near64(x))
FUNCTION64(acosh, x <= 0x1p400, acosh_near64(x))
FUNCTION64(atanh, abs64(x) != 1, atanh_near64(x))
FUNCTION32(asinh, abs32(x) <= 0x1p50f, asinh_near32(x))
FUNCTION32(acosh, x <= 0x1p50f, acosh_near32(x))
FUNCTION32(atanh, abs32(x) != 1, atanh_near32(x))
