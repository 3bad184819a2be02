// SPDX-License-Identifier: MIT OR Apache-2.0
// Remainders of divisions: fmod, remainder. They are exact.

#include "exponential.h"

// |x| less the nearest multiple of |y|. The quotient may have been rounded to half an integer, so this may be a
// little more than half of |y|; where it is half an integer, the division is exact, and the even one is right.
// The difference is exact: the multiple and |x| differ by at most a factor of two, or it is 0.
static inline F64 nearest_rest64(F64 a, F64 b) {
  F64 quotient = (a / b + ROUNDER64) - ROUNDER64;
  D64 product = product64(quotient, b);
  return (a - product.hi) - product.lo;
}

static inline F32 nearest_rest32(F32 a, F32 b) {
  F32 quotient = (a / b + ROUNDER32) - ROUNDER32;
  D32 product = product32(quotient, b);
  return (a - product.hi) - product.lo;
}

static inline F64 fmod_near(F64 x, F64 y) {
  F64 b = abs64(y), rest = nearest_rest64(abs64(x), b);
  return with_sign64(rest < 0 ? rest + b : rest, x);
}

static inline F32 fmod_near_32(F32 x, F32 y) {
  F32 b = abs32(y), rest = nearest_rest32(abs32(x), b);
  return with_sign32(rest < 0 ? rest + b : rest, x);
}

static inline F64 remainder_near(F64 x, F64 y) {
  F64 b = abs64(y), rest = nearest_rest64(abs64(x), b);
  rest = rest > 0.5 * b ? rest - b : rest;
  rest = rest < -0.5 * b ? rest + b : rest;
  return of_bits64(bits64(rest) ^ (bits64(x) & 0x8000000000000000));
}

static inline F32 remainder_near_32(F32 x, F32 y) {
  F32 b = abs32(y), rest = nearest_rest32(abs32(x), b);
  rest = rest > 0.5f * b ? rest - b : rest;
  rest = rest < -0.5f * b ? rest + b : rest;
  return of_bits32(bits32(rest) ^ (bits32(x) & 0x80000000));
}

// Whether the quotient is small enough, and no part of a product overflows or underflows.
static inline M64 has_rest64(F64 x, F64 y) {
  F64 a = abs64(x), b = abs64(y);
  return (b >= 0x1p-900) & (b <= 0x1p900) & (a <= 0x1p900) & (a <= b * 0x1p50);
}

static inline M32 has_rest32(F32 x, F32 y) {
  F32 a = abs32(x), b = abs32(y);
  return (b >= 0x1p-90f) & (b <= 0x1p90f) & (a <= 0x1p100f) & (a <= b * 0x1p21f);
}

FUNCTION64_OF_TWO(fmod, has_rest64(x, y), fmod_near(x, y))
FUNCTION32_OF_TWO(fmod, has_rest32(x, y), fmod_near_32(x, y))
FUNCTION64_OF_TWO(remainder, has_rest64(x, y), remainder_near(x, y))
FUNCTION32_OF_TWO(remainder, has_rest32(x, y), remainder_near_32(x, y))
