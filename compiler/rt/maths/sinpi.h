// SPDX-License-Identifier: MIT OR Apache-2.0
// sinpi and cospi of doubles or floats, for all numbers.

#include "names.h"

#if BITS == 64
// sin(pi t) / t as a polynomial of t^2 for |t| <= 1/2. The first coefficient is pi, as a double or a float, and the
// error, at most 2^-54.5 or 2^-25.0, is nearly that of rounding it.
static const double SINPI64[] = {
    0x1.921fb54442d18p1,   -0x1.4abbce625be39p2,  0x1.466bc67759fccp1,   -0x1.32d2cce5e66ebp-1, 0x1.5078346ab756fp-4,
    -0x1.e30741a6ba9a8p-8, 0x1.e8f023f73b57cp-12, -0x1.6f0536efc7126p-16, 0x1.8f9e5a085c7aap-21,
};
// From here on all numbers are integers. Added to a smaller number it rounds to an integer, whose lowest bit is that
// of the sum; twice as much rounds to even integers.
#define INTEGERS 0x1p52
#else
static const float SINPI32[] = {0x1.921fb6p1f, -0x1.4abbd8p2f, 0x1.466b26p1f, -0x1.328004p-1f, 0x1.407998p-4f};
#define INTEGERS 0x1p23f
#endif

// x, but at most `most`; NaN stays NaN.
static inline F OF(at_most)(F x, NUMBER most) {
  F limit = most;
  return x > limit ? limit : x;
}

// 0 for finite numbers; infinities and NaN give NaN.
#define PLUS_NOTHING(size, value) fma(size, 0, value)

// t sin(pi t) / t, where the quotient is that of a t with this square.
static inline F OF(sinpi_of_rest)(F t, F square) { return OF(bounded)(t * HORNER(OF(SINPI), square)); }

// The sine of the distance from the nearest integer, negated if that is odd. The sine of an integer has the sign of x.
static inline F OF(sinpi_whole)(F x) {
  F size = abs(x), near = OF(at_most)(size, INTEGERS), shifted = near + INTEGERS;
  F t = near - (shifted - INTEGERS), sign_of_t = of_bits(bits(t) ^ (bits(shifted) << (BITS - 1)));
  return OF(odd)(x, OF(sinpi_of_rest)(PLUS_NOTHING(size, sign_of_t), t * t));
}

// With a distance u from the nearest even integer it is the sine of 1/2 - |u|.
static inline F OF(cospi_whole)(F x) {
  F size = abs(x), near = OF(at_most)(size, 2 * INTEGERS);
  F u = near - ((near + 2 * INTEGERS) - 2 * INTEGERS), t = PLUS_NOTHING(size, (NUMBER)0.5 - abs(u));
  return OF(sinpi_of_rest)(t, t * t);
}

#undef INTEGERS
#undef PLUS_NOTHING
#include "names_end.h"
