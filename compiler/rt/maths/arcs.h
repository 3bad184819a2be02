// SPDX-License-Identifier: MIT OR Apache-2.0
// The angles of a sine and of a cosine, of doubles or floats: asin and acos as sums of two numbers.
//
// For a size up to 1/2 that of the sine is s + s^3 p(s^2). For larger ones it is a quarter turn less twice the
// angle of the sine s = sqrt((1 - size) / 2). Numbers above 1 have the root of a negative number, which is NaN.

#include "names.h"

#if BITS == 64
// (asin(s) - s) / s^3 as a polynomial of s^2 for s <= 1/2, so that the angle is good to 2^-58.
static const double ASIN64[] = {
    0x1.5555555555556p-3, 0x1.3333333332dap-4, 0x1.6db6db6e48ad1p-5, 0x1.f1c71c11a5885p-6, 0x1.6e8bb37f58a69p-6,
    0x1.1c4d1024c2d7bp-6, 0x1.c9d32bd644ad4p-7, 0x1.77ffaa7006755p-7, 0x1.5333c6a7a698cp-7, 0x1.5dd6507cfd388p-8,
    0x1.223fdd6e02a8ep-6, -0x1.f64a161f2a4d8p-7, 0x1.dc5b057ad804bp-6,
};
#else
// The same for floats, good to 2^-30.
static const float ASIN32[] = {
    0x1.555554p-3f, 0x1.3334cep-4f, 0x1.6d3e74p-5f, 0x1.ffbd92p-6f, 0x1.0fec3ap-6f, 0x1.1ac0e4p-5f,
};
#endif

// The parts for a size: whether it is above 1/2, s and its square.
struct OF(arc) {
  M is_large;
  F s, square;
};

// For large sizes 2 s instead of s.
static inline struct OF(arc) OF(arc)(F size) {
  M is_large = size > (NUMBER)0.5;
  F square = is_large ? fma(size, -(NUMBER)0.5, (NUMBER)0.5) : size * size;
  return (struct OF(arc)){is_large, is_large ? 2 * OF(root_of)(square) : size, square};
}

// The rest of an angle of which s is the larger part, plus `more`.
static inline F OF(arc_rest)(F s, F square, F more) { return fma(s * square, POLYNOMIAL(OF(ASIN), square, square * square), more); }

static inline D OF(asin)(F size) {
  struct OF(arc) it = OF(arc)(size);
  F none = 0, s = it.is_large ? -it.s : it.s, hi = it.is_large ? s + (NUMBER)0.5 * OF(PI_) : s;
  return (D){hi, OF(arc_rest)(s, it.square, it.is_large ? (F)((NUMBER)0.5 * OF(PI_LOW_)) : none)};
}

// A quarter turn less the angle of the sine; for large sizes twice the angle of s, or half a turn less that.
static inline D OF(acos)(F x) {
  struct OF(arc) it = OF(arc)(abs(x));
  F none = 0, turn = x < 0 ? (F)OF(PI_) : none, whole = it.is_large ? turn : (F)((NUMBER)0.5 * OF(PI_));
  F s = it.is_large ? OF(with_sign)(it.s, x) : -x;
  return (D){whole + s, OF(arc_rest)(s, it.square, whole * (NUMBER)(OF(PI_LOW_) / OF(PI_)))};
}

#include "names_end.h"
