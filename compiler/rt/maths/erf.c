// SPDX-License-Identifier: MIT OR Apache-2.0
// The error functions. erf is polynomials on intervals. For positive numbers erfc(x) is e^(-x^2) times a function that
// falls like 1 / x, which is polynomials on intervals, too. Without registers of 512 bits, floats have other forms: around
// 0 erf is x plus a fraction of x; beyond, 1 - erf(x) is e^-p with a polynomial p.

#include "erf_pieces.h"
#ifdef TALLY_AVX512
#include "powers.h"
#endif

#if LANES != 16
#define BITS 64
#include "erfc_whole.h"
#undef BITS

// From the limit on erf rounds to 1. NaN stays NaN.
static inline F64 erf_whole64(F64 x) {
  F64 most = 5.93, size = abs64(x);
  return with_sign64(PIECES64(ERF_PIECES64, piece64(size > most ? most : size, ERF_LENGTH64)), x);
}

WHOLE64(erf, erf_whole64(x))
#ifdef TALLY_AVX512
WHOLE64(erfc, erfc_of64(x, true))
#else
FUNCTION64_OR(erfc, abs64(x) <= 26, erfc_of64(x, false), erfc_of64(x, true))
#endif
#endif

#ifdef TALLY_AVX512

static inline F32 erf_whole32(F32 x) {
  F32 most = 3.93f, nothing = 0, size = abs32(x);
  F32 result = PIECES32(ERF_PIECES32, piece32(size > most ? most : size, ERF_LENGTH32));
  return with_sign32(result + (size <= 0.5f * ERF_LENGTH32 ? size : nothing), x);
}

#define BITS 32
#include "erfc_whole.h"
#undef BITS
WHOLE32(erf, erf_whole32(x))
WHOLE32(erfc, erfc_of32(x, true))

#else

// erf(x) / x - 1 as a polynomial of x^2 for |x| <= 0.94, so that the result is good to 2^-30; and -log(1 - erf(x)) as a
// polynomial of x from there to 4, to 2^-27.
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

// (1 + 2 x) e^(x^2) erfc(x) as a polynomial of (x - 4) / (x + 4) for 0 <= x <= 9.2, to 2^-26 of it; coefficients of the
// Chebyshev interpolation.
static const float ERFC32[] = {
    0x1.3ba592p0f, -0x1.1df1b4p-3f, 0x1.f7e6b2p-7f, 0x1.16ee64p-4f, -0x1.9daafap-4f, 0x1.8009f2p-4f,
    -0x1.113c22p-4f, 0x1.2baba2p-5f, -0x1.fa7ba4p-7f, 0x1.e43934p-8f, 0x1.03bb94p-10f,
};
// Below, the polynomial's terms cancel each other, and 1 - erf(x) is more exact.
#define ERFC_SMALL32 0.46875f
// From here on erfc is subnormal or nearly so; of negative numbers it rounds to 2 long before.
#define ERFC_MOST32 9.0f

// With `far`, the result may be subnormal.
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
  return size < (F32)ERFC_SMALL32 ? 1 - small : x < 0 ? 2 - tail : tail;
}

// Beyond 10.5 the result is 0 or 2.
static inline F32 erfc_far_32(F32 x) {
  F32 none = 0, both = 2, limit = x < 0 ? both : none;
  M32 gone = abs32(x) > 10.5f;
  F32 near = gone ? none : x;
  F32 result = erfc_of_32(near, true);
  return gone ? limit : result;
}

FUNCTION32_OR(erfc, abs32(x) <= ERFC_MOST32, erfc_of_32(x, false), erfc_far_32(x))

#endif
