// SPDX-License-Identifier: MIT OR Apache-2.0
// Inverse circular functions: asin, acos, atan, atan2, and the same in units of pi.

#include "lanes.h"

#define PI_64 0x1.921fb54442d18p1
#define PI_LOW_64 0x1.1a62633145c07p-53
#define ONE_OVER_PI 0x1.45f306dc9c883p-2
#define ONE_OVER_PI_LOW -0x1.6b01ec5417056p-56
#define PI_32 0x1.921fb6p1f
#define PI_LOW_32 -0x1.777a5cp-24f
#define ONE_OVER_PI_32 0x1.45f306p-2f
#define ONE_OVER_PI_LOW_32 0x1.b9391p-27f

static inline F64 in_half_turns64(D64 angle) {
  D64 product = product64(angle.hi, ONE_OVER_PI);
  return product.hi + fma64(angle.hi, ONE_OVER_PI_LOW, fma64(angle.lo, ONE_OVER_PI, product.lo));
}

static inline F32 in_half_turns32(D32 angle) {
  D32 product = product32(angle.hi, ONE_OVER_PI_32);
  return product.hi + fma32(angle.hi, ONE_OVER_PI_LOW_32, fma32(angle.lo, ONE_OVER_PI_32, product.lo));
}

static inline F64 root_of64(F64 x) { return root64(x); }
// The instruction takes no longer than the rest.
static inline F32 root_of32(F32 x) { return __builtin_elementwise_sqrt(x); }

#define BITS 64
#include "arcs.h"
#undef BITS
#define BITS 32
#include "arcs.h"
#undef BITS

static inline F64 joined64(D64 x) { return x.hi + x.lo; }
static inline F32 joined32(D32 x) { return x.hi + x.lo; }

WHOLE64(asin, with_sign64(joined64(asin64(abs64(x))), x))
WHOLE64(acos, joined64(acos64(x)))
WHOLE64(asinpi, with_sign64(in_half_turns64(asin64(abs64(x))), x))
WHOLE64(acospi, in_half_turns64(acos64(x)))
WHOLE32(asin, with_sign32(joined32(asin32(abs32(x))), x))
WHOLE32(acos, joined32(acos32(x)))
WHOLE32(asinpi, with_sign32(in_half_turns32(asin32(abs32(x))), x))
WHOLE32(acospi, in_half_turns32(acos32(x)))

// (atan(t) - t) / t^3 as a polynomial of t^2, for |t| <= tan(pi/8) to 2^-57.
static const double ATAN64[] = {
    -0x1.5555555555555p-2, 0x1.999999999945ep-3,  -0x1.24924924402ecp-3, 0x1.c71c718a5eed9p-4,
    -0x1.745d0bdb3ccccp-4, 0x1.3b127155339f7p-4,  -0x1.10fb2d1c2db29p-4, 0x1.dff1851fdefaap-5,
    -0x1.a0cfc7283b30bp-5, 0x1.41f4126570a84p-5,  -0x1.3b7e4bc43ce09p-6,
};
#define TAN_EIGHTH 0x1.a827999fcef32p-2
// For t <= 1, good to 2^-26.
static const float ATAN32[] = {
    -0x1.555554p-2f, 0x1.99984cp-3f,  -0x1.246f74p-3f, 0x1.c423eep-4f, -0x1.636dfp-4f,
    0x1.01e50ap-4f,  -0x1.2a7576p-5f, 0x1.c62e36p-7f,  -0x1.449996p-9f,
};

// The angle of the vector (right, up), both from 0 to 2^1000. The quotient is small if it is taken
// relative to the middle of the half of the quarter turn that contains the vector. The angle of two
// zeros is 0.
static inline D64 first_quarter64(F64 up, F64 right) {
  M64 is_steep = up > right;
  F64 large = is_steep ? up : right, small = is_steep ? right : up;
  large = large == 0 ? (F64)1 : large;
  M64 is_middle = small > TAN_EIGHTH * large;
  F64 over = is_middle ? small - large : small, under = is_middle ? small + large : large;
  F64 t = over / under, square = t * t;
  F64 low = t * square * POLYNOMIAL64(ATAN64, square, square * square);
  F64 whole = is_middle ? (F64)(0.25 * PI_64) : (F64)0;
  F64 sign = is_steep ? (F64)-1 : (F64)1;
  whole = is_steep ? 0.5 * PI_64 - whole : whole;
  D64 sum = sum64(whole, sign * t);
  return (D64){sum.hi, fma64(low, sign, fma64(whole, PI_LOW_64 / PI_64, sum.lo))};
}

static inline D32 first_quarter32(F32 up, F32 right) {
  M32 is_steep = up > right;
  F32 large = is_steep ? up : right, small = is_steep ? right : up;
  large = large == 0 ? (F32)1 : large;
  F32 t = small / large, square = t * t;
  F32 low = t * square * POLYNOMIAL32(ATAN32, square, square * square);
  F32 whole = is_steep ? (F32)(0.5f * PI_32) : (F32)0, sign = is_steep ? (F32)-1 : (F32)1;
  D32 sum = sum32(whole, sign * t);
  return (D32){sum.hi, fma32(low, sign, fma32(whole, PI_LOW_32 / PI_32, sum.lo))};
}

// The same for any x: pi less the angle.
static inline D64 upper_half64(F64 up, F64 x) {
  D64 angle = first_quarter64(up, abs64(x));
  M64 left = (M64)(bits64(x) >> 63 != 0);
  D64 other = sum64((F64)PI_64, -angle.hi);
  other.lo += PI_LOW_64 - angle.lo;
  return (D64){left ? other.hi : angle.hi, left ? other.lo : angle.lo};
}

static inline D32 upper_half32(F32 up, F32 x) {
  D32 angle = first_quarter32(up, abs32(x));
  M32 left = (M32)(bits32(x) >> 31 != 0);
  D32 other = sum32((F32)PI_32, -angle.hi);
  other.lo += PI_LOW_32 - angle.lo;
  return (D32){left ? other.hi : angle.hi, left ? other.lo : angle.lo};
}

static inline D64 atan64(F64 x) { return first_quarter64(abs64(x), (F64)1); }
static inline D32 atan32(F32 x) { return first_quarter32(abs32(x), (F32)1); }

WHOLE64(atan, with_sign64(joined64(atan64(x)), x))
WHOLE64(atanpi, with_sign64(in_half_turns64(atan64(x)), x))
WHOLE32(atan, with_sign32(joined32(atan32(x)), x))
WHOLE32(atanpi, with_sign32(in_half_turns32(atan32(x)), x))

// x is OpenCL's first argument here and y its second, as in all functions of two arguments. A quotient
// of subnormal doubles says little about the angle.
static inline M64 has_angle64(F64 x, F64 y) {
  F64 size = abs64(x) + abs64(y);
  return (size <= 0x1p1000) & ((size >= 0x1p-1000) | (size == 0));
}

static inline M32 has_angle32(F32 x, F32 y) { return abs32(x) + abs32(y) <= 0x1p120f; }

#define ANGLE64 upper_half64(abs64(x), y)
#define ANGLE32 upper_half32(abs32(x), y)
FUNCTION64_OF_TWO(atan2, has_angle64(x, y), with_sign64(joined64(ANGLE64), x))
FUNCTION32_OF_TWO(atan2, has_angle32(x, y), with_sign32(joined32(ANGLE32), x))
FUNCTION64_OF_TWO(atan2pi, has_angle64(x, y), with_sign64(in_half_turns64(ANGLE64), x))
FUNCTION32_OF_TWO(atan2pi, has_angle32(x, y), with_sign32(in_half_turns32(ANGLE32), x))
