// SPDX-License-Identifier: MIT OR Apache-2.0
// The functions for OpenCL.std's native_ and half_ functions: exp, exp2, exp10, log, log2, log10, powr,
// sin, cos, tan. Divisions and roots are the processor's instructions: an estimate, a Newton step and
// the handling of zero and infinity would take longer.
//
// OpenCL allows half_ functions 8192 ulp, and those of angles only arguments up to 2^16; the accuracy
// of native_ functions is the implementation's choice, here the same. Results are good to about 2^-17
// and take few steps. Infinities, NaN, logarithms of 0 and powers of 0 have the results of the exact
// functions; subnormal arguments and results count as zero. Beyond 2^23 the sine, the cosine and the
// tangent are meaningless, but stay bounded.

#include "lanes.h"

#define LN_2 0x1.62e42fefa39efp-1f
#define LOG2_E 0x1.71547652b82fep0f
#define LOG2_10 0x1.a934f0979a371p1f
#define SQRT_HALF_BITS 0x3f3504f3
// Adding it rounds a float below 2^22 to an integer, in the low bits.
#define ROUNDER 0x1.8p23f

#define POLYNOMIAL(coefficients, x)                                                                          \
  horner32(coefficients, sizeof(coefficients) / sizeof(coefficients)[0], x)

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

WHOLE32(native_exp, native_exp2(x * LOG2_E))
WHOLE32(native_exp2, native_exp2(x))
WHOLE32(native_exp10, native_exp2(x * LOG2_10))

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

WHOLE32(native_log, native_log(x, LN_2, 1))
WHOLE32(native_log2, native_log(x, 1, LOG2_E))
WHOLE32(native_log10, native_log(x, 0x1.344136p-2f, 0x1.bcb7b2p-2f))

WHOLE32_OF_TWO(native_powr, native_exp2(y * native_log(x, 1, LOG2_E)))

// x less `count` times pi; the count may be a multiple of 1/2.
static inline F32 native_rest(F32 x, F32 count) {
#ifdef TALLY_FMA
  // Three parts of 24 bits: close to a multiple of pi all of them matter.
  F32 r = fma32(-count, 0x1.921fb4p1f, x);
  r = fma32(-count, 0x1.4442dp-23f, r);
  return fma32(-count, 0x1.84698ap-47f, r);
#else
  // The first part has 33 bits, so that its product is exact.
  F64 turns = wide(count);
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
  return native_sin_of(native_rest(x, shifted - ROUNDER), bits32(shifted));
}

// cos((n + 1/2) pi + r) is sin(r) for odd n, else -sin(r).
F32 SHAPED(__tally_native_cos_f32)(F32 x) {
  F32 shifted = fma32(x, 0x1.45f306p-2f, -0.5f) + ROUNDER;
  F32 count = (shifted - ROUNDER) + 0.5f;
  return native_sin_of(native_rest(x, count), bits32(shifted) + 1);
}

// (tan(r) - r) / r^3 as a polynomial of r^2 for |r| <= 0.786, so that the tangent is good to 2^-18.1.
static const float NATIVE_TAN[] = {0x1.5525f6p-2f, 0x1.16b408p-3f, 0x1.529594p-5f, 0x1.61851p-5f};

F32 SHAPED(__tally_native_tan_f32)(F32 x) {
  F32 shifted = fma32(x, 0x1.45f306p-1f, ROUNDER);
  F32 r = native_bounded(native_rest(x, 0.5f * (shifted - ROUNDER)), 0x1.ap-1f);
  F32 square = r * r;
  F32 tangent = r * fma32(square, POLYNOMIAL(NATIVE_TAN, square), 1);
  return (bits32(shifted) & 1) != 0 ? -1 / tangent : tangent;
}

