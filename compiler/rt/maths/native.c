// SPDX-License-Identifier: MIT OR Apache-2.0
// The functions for OpenCL.std's native_ and half_ functions: exp, exp2, exp10, log, log2, log10, powr,
// sin, cos, tan, rsqrt, and divide, which is also recip. Square roots are the processor's instruction.
//
// OpenCL allows half_ functions 8192 ulp, and those of angles only arguments up to 2^16; the accuracy
// of native_ functions is the implementation's choice, here the same. Results are good to about 2^-17
// and take few steps. Infinities, NaN, logarithms of 0 and powers of 0 have the results of the exact
// functions; subnormal arguments and results count as zero. Beyond 2^23 the sine, the cosine and the
// tangent are meaningless, but stay bounded.

#include "lanes.h"
#ifdef TALLY_AVX512
#include "logs.h"
#include "powers.h"
#endif

#define NATIVE_LN_2 0x1.62e42fefa39efp-1f
#define NATIVE_LOG2_OF_E 0x1.71547652b82fep0f
#define NATIVE_LOG2_OF_10 0x1.a934f0979a371p1f
#define SQRT_HALF_BITS 0x3f3504f3
// Adding it rounds a float below 2^22 to an integer, in the low bits.
#define ROUNDER 0x1.8p23f

// For the instruction that gives fractions: rounded down, without telling of inexact results.
#define TO_FLOOR 9

#define POLYNOMIAL(coefficients, x)                                                                          \
  horner32(coefficients, sizeof(coefficients) / sizeof(coefficients)[0], x)

#ifdef TALLY_FMA
// The estimate y has 14 or 12 bits; x y^2 - 1 says how many parts of it are missing, twice. That is no number, or infinite,
// where the estimate is the result: for 0 it is infinite, for infinity 0, and for a negative number NaN.
static inline F32 native_rsqrt(F32 x) {
  F32 y = rough_inverse_root_above32(x), off = fma32(x * y, y, -1);
  return off < 1 ? fma32(minus_half32(y), off, y) : y;
}

WHOLE32(native_rsqrt, native_rsqrt(x))
#else
WHOLE32(native_rsqrt, 1 / __builtin_elementwise_sqrt(x))
#endif

#ifdef TALLY_AVX512
// About 1 / x, to 2^-14 of it; infinite for 0 and for numbers whose inverse is.
static inline F32 rough_inverse32(F32 x) {
#if LANES == 1
  four32 in = {x, x, x, x};
  return __builtin_ia32_rcp14ss_mask(in, in, in, -1)[0];
#elif LANES == 8
  return __builtin_ia32_rcp14ps256_mask(x, x, -1);
#else
  return __builtin_ia32_rcp14ps512_mask(x, x, -1);
#endif
}

// A division takes as long as six other instructions on some processors and as ten on others.
static inline F32 native_divide(F32 x, F32 y) {
  F32 inverse = rough_inverse32(y), quotient = x * inverse;
  F32 better = fma32(fma32(-quotient, y, x), inverse, quotient);
  // Of 0 and infinities a Newton step makes NaN, and of a quotient that is -0 it makes 0, which compares as equal.
  return ((better < quotient) | (better > quotient)) ? better : quotient;
}
#else
// Estimates of other processors are 0 where the inverse is subnormal, and so would be quotients that are not.
static inline F32 native_divide(F32 x, F32 y) { return x / y; }
#endif

// A call would cost more than the instructions.
__attribute__((always_inline)) F32 SHAPED(__tally_native_divide_f32)(F32 x, F32 y) { return native_divide(x, y); }

#ifdef TALLY_AVX512
// x less the next lower integer, and for infinities 0.
static inline F32 above_floor32(F32 x) {
#if LANES == 1
  four32 in = {x, x, x, x};
  return __builtin_ia32_reducess_mask(in, in, in, -1, TO_FLOOR, CURRENT_ROUNDING)[0];
#elif LANES == 8
  return __builtin_ia32_reduceps256_mask(x, TO_FLOOR, x, -1);
#else
  return __builtin_ia32_reduceps512_mask(x, TO_FLOOR, x, -1, CURRENT_ROUNDING);
#endif
}

// (2^f - 1) / f from 0 to 1, so that 2^f is good to 2^-23.3.
static const float NATIVE_EXP2[] = {0x1.62e4bap-1f, 0x1.ebdb56p-3f, 0x1.c91ce6p-5f, 0x1.277856p-7f, 0x1.e974fap-10f};

// The instruction that multiplies by a power of two takes the floor of the exponent, and overflows as it should.
static inline F32 native_exp2(F32 t) {
  F32 f = above_floor32(t);
  return raised_or_zero32(fma32(f, POLYNOMIAL(NATIVE_EXP2, f), 1), t, not_below32(t, -126));
}
#else
// (2^f - 1) / f for |f| <= 1/2, so that 2^f is good to 2^-18.1.
static const float NATIVE_EXP2[] = {0x1.62dfcap-1f, 0x1.ebf1b4p-3f, 0x1.ca900ap-5f, 0x1.409108p-7f};

static inline F32 native_exp2(F32 t) {
  F32 shifted = t + ROUNDER;
  F32 f = t - (shifted - ROUNDER);
  F32 power = fma32(f, POLYNOMIAL(NATIVE_EXP2, f), 1);
  F32 result = of_bits32(bits32(power) + (bits32(shifted) << 23));
  F32 none = 0, most = __builtin_inff();
  result = t < -126 ? none : result;
  // This also handles NaN.
  return t < 128 ? result : t + most;
}
#endif

WHOLE32(native_exp, native_exp2(x * NATIVE_LOG2_OF_E))
WHOLE32(native_exp2, native_exp2(x))
WHOLE32(native_exp10, native_exp2(x * NATIVE_LOG2_OF_10))

#ifdef TALLY_AVX512
// log(1 + f) / f from -1/4 to 1/2 for the bases e, 2 and 10, to 2^-19.6 of it.
static const float NATIVE_LOG[] = {
    0x1.00000ep0f,  -0x1.fffc6ap-2f, 0x1.5523dep-2f, -0x1.00a354p-2f,
    0x1.a76da4p-3f, -0x1.5835d8p-3f, 0x1.5391c2p-4f,
};
static const float NATIVE_LOG2[] = {
    0x1.71548cp0f,  -0x1.7151ep-1f,  0x1.ec2942p-2f, -0x1.724018p-2f,
    0x1.31706p-2f, -0x1.f0972ep-3f, 0x1.e9e522p-4f,
};
static const float NATIVE_LOG10[] = {
    0x1.bcb7ccp-2f, -0x1.bcb494p-3f, 0x1.284f8p-3f,  -0x1.bdd36cp-4f,
    0x1.6fc9p-4f,   -0x1.2afa3p-4f,  0x1.26f23ap-5f,
};

// A logarithm whose polynomial is given, where 2 has the logarithm `two`. 0, infinities and negative numbers lead to
// the right result by themselves (logs.h).
static inline F32 native_log(F32 x, float two, const float coefficients[7]) {
  struct parts32 it = parts32(x);
  F32 f = it.m - 1;
  return fma32(f, horner32(coefficients, 7, f), it.e * two);
}

#define NATIVE_LOG_E(x) native_log(x, NATIVE_LN_2, NATIVE_LOG)
#define NATIVE_LOG_2(x) native_log(x, 1, NATIVE_LOG2)
#define NATIVE_LOG_10(x) native_log(x, 0x1.344136p-2f, NATIVE_LOG10)
#else
// log(1 + f) / f for sqrt(1/2) <= 1 + f <= sqrt(2), to 2^-19.8 of it.
static const float NATIVE_LOG[] = {
    0x1.00001p0f,   -0x1.000176p-1f, 0x1.5523fcp-2f, -0x1.fe26cep-3f,
    0x1.a3c3dp-3f, -0x1.7e5152p-3f, 0x1.e7439ap-4f,
};

// The logarithm of x to the base of which 2 has the logarithm `two` and e the logarithm `e`.
static inline F32 native_log(F32 x, F32 two, F32 e) {
  U32 bits = bits32(x) - SQRT_HALF_BITS;
  F32 exponent = float_of_int((I32)bits >> 23);
  F32 f = of_bits32((bits & 0x7fffff) + SQRT_HALF_BITS) - 1;
  F32 result = fma32(f * e, POLYNOMIAL(NATIVE_LOG, f), exponent * two);
  F32 most = __builtin_inff(), none = __builtin_nanf("");
  result = x < most ? result : x;
  result = x < 0x1p-126f ? -most : result;
  return x < 0 ? none : result;
}

#define NATIVE_LOG_E(x) native_log(x, NATIVE_LN_2, 1)
#define NATIVE_LOG_2(x) native_log(x, 1, NATIVE_LOG2_OF_E)
#define NATIVE_LOG_10(x) native_log(x, 0x1.344136p-2f, 0x1.bcb7b2p-2f)
#endif

WHOLE32(native_log, NATIVE_LOG_E(x))
WHOLE32(native_log2, NATIVE_LOG_2(x))
WHOLE32(native_log10, NATIVE_LOG_10(x))

WHOLE32_OF_TWO(native_powr, native_exp2(y * NATIVE_LOG_2(x)))

// x less `count` times `part`, 1 or 1/2, of pi; the count may be a multiple of 1/2.
static inline F32 native_rest(F32 x, F32 count, float part) {
#ifdef TALLY_FMA
  // Three parts of 24 bits: close to a multiple of pi all of them matter.
  F32 r = fma32(-count, part * 0x1.921fb4p1f, x);
  r = fma32(-count, part * 0x1.4442dp-23f, r);
  return fma32(-count, part * 0x1.84698ap-47f, r);
#else
  // The first part has 33 bits, so that its product is exact.
  F64 turns = wide(count) * (double)part;
  return narrow((wide(x) - turns * 0x1.921fb544p1) - turns * 0x1.0b4611a626331p-33);
#endif
}

// The remainder of an argument that is too large may be anything, so it is bounded.
static inline F32 native_bounded(F32 r, F32 limit) {
  r = r > limit ? limit : r;
  return r < -limit ? -limit : r;
}

// (sin(r) - r) / r^3 as a polynomial of r^2 for |r| <= 1.572, so that the sine is good to 2^-19.8.
static const float NATIVE_SIN[] = {-0x1.55510ep-3f, 0x1.1070dep-7f, -0x1.84d4dap-13f};

// The sine of r, negated for odd numbers of half turns.
static inline F32 native_sin_of(F32 r, U32 half_turns) {
  r = native_bounded(r, 0x1.ap0f);
  F32 square = r * r;
  F32 sine = r * fma32(square, POLYNOMIAL(NATIVE_SIN, square), 1);
  return of_bits32(bits32(sine) ^ (half_turns << 31));
}

F32 SHAPED(__tally_native_sin_f32)(F32 x) {
  F32 shifted = fma32(x, 0x1.45f306p-2f, ROUNDER);
  return native_sin_of(native_rest(x, shifted - ROUNDER, 1), bits32(shifted));
}

// cos((n + 1/2) pi + r) is sin(r) for odd n, else -sin(r).
F32 SHAPED(__tally_native_cos_f32)(F32 x) {
  F32 shifted = fma32(x, 0x1.45f306p-2f, -0.5f) + ROUNDER;
  F32 count = (shifted - ROUNDER) + 0.5f;
  return native_sin_of(native_rest(x, count, 1), bits32(shifted) + 1);
}

// (tan(r) - r) / r^3 as a polynomial of r^2 for |r| <= 0.786, so that the tangent is good to 2^-18.1.
static const float NATIVE_TAN[] = {0x1.5525f6p-2f, 0x1.16b408p-3f, 0x1.529594p-5f, 0x1.61851p-5f};

// -1 / tangent, good to as much.
static inline F32 native_minus_inverse(F32 tangent) {
#ifdef TALLY_AVX512
  F32 y = rough_inverse32(tangent);
  return fma32(y, fma32(tangent, y, -1), -y);
#else
  return -1 / tangent;
#endif
}

F32 SHAPED(__tally_native_tan_f32)(F32 x) {
  F32 shifted = fma32(x, 0x1.45f306p-1f, ROUNDER), r = native_rest(x, shifted - ROUNDER, 0.5f), most = 0.7f;
  // The square of a remainder that may be anything is bounded, so that the tangent has an inverse.
  F32 square = r * r;
  square = square > most ? most : square;
  F32 tangent = r * fma32(square, POLYNOMIAL(NATIVE_TAN, square), 1);
  return (bits32(shifted) & 1) != 0 ? native_minus_inverse(tangent) : tangent;
}
