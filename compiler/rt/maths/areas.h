// SPDX-License-Identifier: MIT OR Apache-2.0
// The inverse hyperbolic functions of doubles or floats: asinh, acosh, atanh.

#include "names.h"

#if BITS == 64
// (atanh(s) - s) / s^3 as a polynomial of s^2 for |s| <= 0.264, so that the area is good to 2^-59.
static const double AREA64[] = {
    0x1.5555555555556p-2, 0x1.999999999918fp-3, 0x1.249249253e3bbp-3, 0x1.c71c710c24acbp-4, 0x1.745d4b2815802p-4,
    0x1.3b0b8ca107bdcp-4, 0x1.11d14294da005p-4, 0x1.cd62b15b6867ap-5, 0x1.2118b88fad5dbp-4,
};
// Numbers below are their own sines and areas.
#define ITSELF 0x1p-28
#define NOTHING __builtin_nan("")
#define EXPONENTS 0xfff0000000000000
// A bit less than half of an exponent's lowest bit.
#define ROUNDS_UP 0x43d70a3d70a3d
#else
// The same for floats, to 2^-29.
static const float AREA32[] = {0x1.555554p-2f, 0x1.999e4p-3f, 0x1.234bbp-3f, 0x1.ffd424p-4f};
#define ITSELF 0x1p-13f
#define NOTHING __builtin_nanf("")
#define EXPONENTS 0xff800000
#define ROUNDS_UP 0x21eb85
#endif

// The logarithm of the root of hi + lo plus a number; `first` is whether that is at least the root.
static inline F OF(log_with_root)(F hi, F lo, F x, bool first) {
  F inverse = OF(inverse_root)(hi), root = hi * inverse;
  D both = {root, (lo - lost(root, root, hi)) * ((NUMBER)0.5 * inverse)};
#if BITS == 64 && defined(TALLY_AVX512)
  // This logarithm needs a second part that is below half of the last place of the first.
  both = sum(both.hi, both.lo);
#endif
  D whole = first ? sum(x, both.hi) : sum(both.hi, x);
  return OF(log_of_sum)((D){whole.hi, whole.lo + both.lo});
}

// log(x + sqrt(x^2 + 1)). Beyond 1 the rest of the square is not exact, but counts less.
static inline F OF(asinh_near)(F x) {
  F size = abs(x), square = fma(size, size, 1);
  F result = OF(log_with_root)(square, fma(size, size, 1 - square), size, false);
  return size < ITSELF ? x : OF(with_sign)(result, x);
}

// log(x + sqrt(x^2 - 1)), which numbers below 1 do not have; with d = x - 1 the square is 2 d + d^2.
static inline F OF(acosh_near)(F x) {
  F d = x - 1, twice = d + d, square = fma(d, d, twice);
  F result = OF(log_with_root)(square, fma(d, d, twice - square), x, true);
#ifndef TALLY_AVX512
  // The inverse root of 0 is not finite.
  result = x == 1 ? (F)0 : result;
#endif
  F none = NOTHING;
  return x < 1 ? none : result;
}

// Half the logarithm of (1 + x) / (1 - x), for x from 0 to 1, beyond which there is none: that is 2^k m with m from 0.82 to 1.72, and log(m) / 2 is
// the area of the sine (1 + x - 2^k (1 - x)) / (1 + x + 2^k (1 - x)). Up to 0.245 k is 0 and the sine x: the others have
// larger areas, whose last place is not below those of their terms.
static inline F OF(atanh_near)(F x) {
  F size = abs(x);
  D more = sum(1, size), less = sum(1, -size);
  U difference = bits(more.hi) - bits(less.hi) + ROUNDS_UP;
  F exponent = OF(exponent_of)(difference), power = of_bits((difference & EXPONENTS) + bits((F)1));
  // Products with powers are exact, and so is the difference of the first parts.
  F part = power * less.hi, over = (more.hi - part) + (more.lo - power * less.lo);
  F quotient = over / (more.hi + part), s = exponent == 0 ? size : quotient, square = s * s;
  F low = s * square * POLYNOMIAL(OF(AREA), square, square * square);
  F result = OF(with_exponent)((D){s, low}, (NUMBER)0.5 * exponent);
  F none = NOTHING;
  result = size < ITSELF ? x : OF(with_sign)(result, x);
  return size > 1 ? none : result;
}

#undef ITSELF
#undef NOTHING
#undef EXPONENTS
#undef ROUNDS_UP
#include "names_end.h"
