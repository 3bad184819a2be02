// SPDX-License-Identifier: MIT OR Apache-2.0
// The error functions. Around 0 erf is x plus a fraction of x; beyond, 1 - erf(x) is e^-p with a polynomial p, or erf is
// polynomials on intervals. For positive numbers erfc(x) is e^(-x^2) times a function that falls like 1 / x.

#include "exponential.h"
#ifdef TALLY_AVX512

#include "erf_pieces.h"
#include "powers.h"

// From the limits on erf rounds to 1. NaN stays NaN.
static inline F32 erf_whole32(F32 x) {
  F32 most = 3.93f, nothing = 0, size = abs32(x);
  F32 result = PIECES32(ERF_PIECES32, piece32(size > most ? most : size, ERF_LENGTH32));
  return with_sign32(result + (size <= 0.5f * ERF_LENGTH32 ? size : nothing), x);
}

#define BITS 32
#include "erfc_whole.h"
#undef BITS
WHOLE32(erf, erf_whole32(x))
WHOLE32(erfc, erfc_whole32(x))

#if LANES != 16
static inline F64 erf_whole64(F64 x) {
  F64 most = 5.93, size = abs64(x);
  return with_sign64(PIECES64(ERF_PIECES64, piece64(size > most ? most : size, ERF_LENGTH64)), x);
}

#define BITS 64
#include "erfc_whole.h"
#undef BITS
WHOLE64(erf, erf_whole64(x))
WHOLE64(erfc, erfc_whole64(x))
#endif

#else

// erf(x) / x - 1 as a polynomial of x^2 for |x| <= 1, so that the result is good to 2^-56.
static const double ERF_SMALL64[] = {
    0x1.06eba8214db69p-3, -0x1.812746b037a02p-2, 0x1.ce2f21a043b39p-4, -0x1.b82ce312c9046p-6, 0x1.565bcd17e7affp-8,
    -0x1.c02db5bf4fdf2p-11, 0x1.f9a35d6366c6dp-14, -0x1.f4d6e3d73802p-17, 0x1.ba29d49a8d0f7p-20, -0x1.622497fd12df8p-23,
    0x1.112a309b72beap-26, -0x1.fbbb16912a4f1p-30, 0x1.46ec34a1d4291p-32, -0x1.3737f2eb81f88p-35,
};
// -log(1 - erf(2 + t)) as a polynomial of t for 1 <= 2 + t <= 5.93, so that the result is good to 2^-55.
static const double ERF_LARGE64[] = {
    0x1.575b329b1f516p2, 0x1.1ac3258a8dc2bp2, 0x1.d8f5dece9234cp-1, 0x1.0dc3b5fb1194dp-6, -0x1.d406b373824afp-9,
    0x1.7ffcfb45f3d13p-11, -0x1.1bc3a60d73846p-13, 0x1.5b656ff14f97bp-16, -0x1.060455477fbbbp-19, -0x1.b54a30769dc65p-23,
    0x1.73e620f8e65fep-23, -0x1.f0aceadae5e43p-25, 0x1.e043e10ca4e6ep-27, -0x1.5a4db639f6412p-29, 0x1.18fea2348fdd4p-32,
    0x1.3e1091623f17bp-35, -0x1.0179e2d741d92p-35, 0x1.60d9d52319192p-37, -0x1.616492b42e219p-39, 0x1.180a370d9fadcp-41,
    -0x1.61b758744536dp-44, 0x1.5cea26f85a2b5p-47, -0x1.023cf38be487bp-50, 0x1.0c6b54e3debddp-54, -0x1.5b677d4ec3313p-59,
    0x1.a29db724f056ap-65,
};
// From here on erf rounds to 1.
#define ERF_MOST64 5.93

static inline F64 erf_near(F64 x) {
  F64 size = abs64(x), square = x * x;
  F64 small = fma64(size, POLYNOMIAL64(ERF_SMALL64, square, square * square), size);
  F64 t = (size < ERF_MOST64 ? size : (F64)ERF_MOST64) - 2;
  struct reduced64 e = reduce64(-POLYNOMIAL64(ERF_LARGE64, t, t * t), 0);
  F64 large = 1 - scaled64(exp64(e.r, e.rest), e.shifted);
  F64 result = with_sign64(size < 1 ? small : large, x);
  return x != x ? x : result;
}

WHOLE64(erf, erf_near(x))

// The same for floats: for |x| <= 0.94, to 2^-30; from there to 4, the exponent to 2^-27.
static const float ERF_SMALL32[] = {
    0x1.06eba8p-3f, -0x1.812742p-2f, 0x1.ce2de2p-4f, -0x1.b80b68p-6f, 0x1.54a912p-8f,
    -0x1.a92772p-11f, 0x1.592406p-14f,
};
static const float ERF_LARGE32[] = {
    -0x1.6b70dep-12f, 0x1.215fcp0f, 0x1.43591p-1f, 0x1.c44bfap-4f, -0x1.b50bacp-6f,
    0x1.3fcfp-8f, -0x1.4c1aep-11f, 0x1.bc8e34p-15f, -0x1.3f7ab4p-19f, 0x1.2782c4p-25f,
};

static inline F32 erf_near_32(F32 x) {
  F32 size = abs32(x), square = x * x;
  F32 small = fma32(size, POLYNOMIAL32(ERF_SMALL32, square, square * square), size);
  F32 t = size < 4 ? size : (F32)4;
  F32 exponent = -POLYNOMIAL32(ERF_LARGE32, t, t * t);
  F32 shifted = fma32(exponent, LOG2_E_32, ROUNDER32), count = shifted - ROUNDER32;
  F32 r = fma32(-count, LN_2_32, exponent);
  F32 large = 1 - scaled32(exp32(r, 0), shifted);
  F32 result = with_sign32(size < 0.9475f ? small : large, x);
  return x != x ? x : result;
}

WHOLE32(erf, erf_near_32(x))

// (1 + 2 x) e^(x^2) erfc(x) as a polynomial of (x - 4) / (x + 4) for 0 <= x <= 26, to 2^-56 of it; coefficients
// of the Chebyshev interpolation.
static const double ERFC64[] = {
    0x1.3ba5916e9fd7fp0, -0x1.1df1ad154a299p-3, 0x1.f7f5df66fdb45p-7, 0x1.16ecefcfa5d57p-4, -0x1.9ddb23c3ea818p-4,
    0x1.7fee004dfc1d1p-4, -0x1.0fb06dfe2e9bbp-4, 0x1.3079edf971ab6p-5, -0x1.0962388826858p-6,
    0x1.49c671aa49f8dp-8, -0x1.8d4a9974479dp-11, -0x1.a1de8a085213bp-13, 0x1.3be068701a283p-13,
    -0x1.996a6cd6e6c63p-16, -0x1.7897bbdea32efp-17, 0x1.7fbf853af1fb3p-18, 0x1.41295da10b7cp-22,
    -0x1.c12506025dc02p-21, 0x1.14cc2ba0ca197p-24, 0x1.f73b8145e715cp-24, -0x1.1341040f627b3p-27,
    -0x1.f2f2df3426a48p-27, -0x1.1d8ab7df4a971p-29,
};
// From here on erfc is subnormal or nearly so; of negative numbers it rounds to 2 long before.
#define ERFC_MOST64 26.0
// Below, the polynomial's terms cancel each other, and 1 - erf(x) is more exact.
#define ERFC_SMALL 0.46875

// With `far`, the result may be subnormal.
static inline F64 erfc_of(F64 x, bool far) {
  F64 size = abs64(x), t = (size - 4) / (size + 4);
  D64 square = product64(size, size);
  struct reduced64 e = reduce64(-square.hi, -square.lo);
  F64 factor = POLYNOMIAL64(ERFC64, t, t * t) / fma64(size, 2, 1);
  F64 power = exp64(e.r, e.rest) * factor, s = x * x;
  F64 tail = far ? scaled_far64(power, e.shifted) : scaled64(power, e.shifted);
  F64 small = fma64(x, POLYNOMIAL64(ERF_SMALL64, s, s * s), x);
  return size < ERFC_SMALL ? 1 - small : x < 0 ? 2 - tail : tail;
}

// Beyond 27.5 the result is 0 or 2.
static inline F64 erfc_far(F64 x) {
  F64 none = 0, both = 2, limit = x < 0 ? both : none;
  M64 gone = abs64(x) > 27.5;
  F64 near = gone ? none : x;
  F64 result = erfc_of(near, true);
  return gone ? limit : result;
}

FUNCTION64_OR(erfc, abs64(x) <= ERFC_MOST64, erfc_of(x, false), erfc_far(x))

// The same for floats: for 0 <= x <= 9.2, to 2^-26.
static const float ERFC32[] = {
    0x1.3ba592p0f, -0x1.1df1b4p-3f, 0x1.f7e6b2p-7f, 0x1.16ee64p-4f, -0x1.9daafap-4f, 0x1.8009f2p-4f,
    -0x1.113c22p-4f, 0x1.2baba2p-5f, -0x1.fa7ba4p-7f, 0x1.e43934p-8f, 0x1.03bb94p-10f,
};
#define ERFC_MOST32 9.0f

static inline F32 erfc_of_32(F32 x, bool far) {
  F32 size = abs32(x), t = (size - 4) / (size + 4);
  D32 square = product32(size, size);
  F32 shifted = fma32(-square.hi, LOG2_E_32, ROUNDER32), count = shifted - ROUNDER32;
  F32 high = fma32(-count, LN_2_HIGH_32, -square.hi), low = fma32(count, LN_2_LOW_32, square.lo);
  F32 r = high - low, more = fma32(r * r, POLYNOMIAL32(EXP32, r, r * r), ((high - r) - low) + r);
  // The quotient, and what is missing of it.
  D32 divisor = any_sum32(size + size, 1);
  F32 inverse = 1 / divisor.hi, curve = POLYNOMIAL32(ERFC32, t, t * t), factor = curve * inverse;
  D32 back = product32(factor, divisor.hi);
  F32 lost = factor * divisor.lo - ((curve - back.hi) - back.lo);
  F32 power = factor + fma32(factor, more, -lost * inverse), s = x * x;
  F32 tail = far ? scaled_far32(power, shifted) : scaled32(power, shifted);
  F32 small = fma32(x, POLYNOMIAL32(ERF_SMALL32, s, s * s), x);
  return size < (F32)ERFC_SMALL ? 1 - small : x < 0 ? 2 - tail : tail;
}

static inline F32 erfc_far_32(F32 x) {
  F32 none = 0, both = 2, limit = x < 0 ? both : none;
  M32 gone = abs32(x) > 10.5f;
  F32 near = gone ? none : x;
  F32 result = erfc_of_32(near, true);
  return gone ? limit : result;
}

FUNCTION32_OR(erfc, abs32(x) <= ERFC_MOST32, erfc_of_32(x, false), erfc_far_32(x))

#endif
