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

#define BITS 64
#include "angle.h"
#undef BITS
#define BITS 32
#include "angle.h"
#undef BITS

static inline D64 atan64(F64 x) { return angle64(abs64(x), (F64)1, false); }
static inline D32 atan32(F32 x) { return angle32(abs32(x), (F32)1, false); }

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

#define ANGLE64 angle64(abs64(x), y, true)
#define ANGLE32 angle32(abs32(x), y, true)
FUNCTION64_OF_TWO(atan2, has_angle64(x, y), with_sign64(joined64(ANGLE64), x))
FUNCTION32_OF_TWO(atan2, has_angle32(x, y), with_sign32(joined32(ANGLE32), x))
FUNCTION64_OF_TWO(atan2pi, has_angle64(x, y), with_sign64(in_half_turns64(ANGLE64), x))
FUNCTION32_OF_TWO(atan2pi, has_angle32(x, y), with_sign32(in_half_turns32(ANGLE32), x))
