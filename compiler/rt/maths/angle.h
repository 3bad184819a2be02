// SPDX-License-Identifier: MIT OR Apache-2.0
// The angle of a vector, of doubles or floats.

#include "names.h"

#if BITS == 64
// (atan(t) - t) / t^3 as a polynomial of t^2, for |t| <= tan(pi/8) to 2^-57.
static const double ATAN64[] = {
    -0x1.5555555555555p-2, 0x1.999999999945ep-3,  -0x1.24924924402ecp-3, 0x1.c71c718a5eed9p-4,
    -0x1.745d0bdb3ccccp-4, 0x1.3b127155339f7p-4,  -0x1.10fb2d1c2db29p-4, 0x1.dff1851fdefaap-5,
    -0x1.a0cfc7283b30bp-5, 0x1.41f4126570a84p-5,  -0x1.3b7e4bc43ce09p-6,
};
#define TAN_EIGHTH 0x1.a827999fcef32p-2
#else
// For t <= 1, good to 2^-26.
static const float ATAN32[] = {
    -0x1.555554p-2f, 0x1.99984cp-3f,  -0x1.246f74p-3f, 0x1.c423eep-4f, -0x1.636dfp-4f,
    0x1.01e50ap-4f,  -0x1.2a7576p-5f, 0x1.c62e36p-7f,  -0x1.449996p-9f,
};
#endif

// The angle of the vector (right, up), from 0 to pi, for up from 0 to 2^1000 or 2^120, and right of such a size: that of a
// smaller number t, plus a multiple of a quarter turn. `zeros` says that both may be 0: then the result is 0 or pi.
static inline D OF(angle)(F up, F right, bool zeros) {
  F size = abs(right), none = 0, turn = OF(PI_);
  M is_steep = up > size, is_left = (M)(bits(right) >> (BITS - 1) != 0);
  F large = is_steep ? up : size, small = is_steep ? size : up;
  if (zeros)
    large = large == 0 ? (F)1 : large;
#if BITS == 64
  // Relative to the middle of the half of the quarter turn that contains the vector, the quotient is small.
  M is_middle = small > TAN_EIGHTH * large;
  F over = is_middle ? small - large : small, under = is_middle ? small + large : large;
  F near = is_middle ? (F)(0.25 * PI_64) : none;
#else
  F over = small, under = large, near = none;
#endif
  // Multiples of a quarter of the first part of pi are exact.
  F whole = is_steep ? (NUMBER)0.5 * OF(PI_) - near : near;
  whole = is_left ? turn - whole : whole;
  over = is_steep ? -over : over;
  F t = over / under;
  t = is_left ? -t : t;
  F square = t * t;
  D total = sum(whole, t);
  total.lo = fma(whole, (NUMBER)(OF(PI_LOW_) / OF(PI_)), total.lo);
  return (D){total.hi, fma(t * square, POLYNOMIAL(OF(ATAN), square, square * square), total.lo)};
}

#include "names_end.h"
