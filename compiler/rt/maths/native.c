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

#include "../bits.h"

// Short enough for LLVM's vectoriser, which makes vector code of loops that call them.
#if LANES == 1

#define LN_2 0x1.62e42fefa39efp-1
#define LOG2_E 0x1.71547652b82fep0
#define LOG2_10 0x1.a934f0979a371p1
#define SQRT_HALF_BITS 0x3f3504f3
// Adding it rounds a float below 2^22 to an integer, in the low bits.
#define ROUNDER 0x1.8p23f

// a * b + c where it does not matter whether the product is rounded.
static inline float madd(float a, float b, float c) {
#ifdef TALLY_FMA
  return __builtin_elementwise_fma(a, b, c);
#else
  return a * b + c;
#endif
}

// A polynomial by Horner's scheme, the constant coefficient first.
static inline float polynomial(const float *coefficients, int count, float x) {
  float sum = coefficients[count - 1];
#pragma clang loop unroll(full)
  for (int i = count - 2; i >= 0; i--)
    sum = madd(sum, x, coefficients[i]);
  return sum;
}

#define POLYNOMIAL(coefficients, x)                                                                          \
  polynomial(coefficients, sizeof(coefficients) / sizeof(coefficients)[0], x)

// (2^f - 1) / f for |f| <= 1/2, so that 2^f is good to 2^-18.1.
static const float NATIVE_EXP2[] = {0x1.62dfcap-1f, 0x1.ebf1b4p-3f, 0x1.ca900ap-5f, 0x1.409108p-7f};

static inline float native_exp2(float t) {
  float shifted = t + ROUNDER;
  float f = t - (shifted - ROUNDER);
  float power = madd(f, POLYNOMIAL(NATIVE_EXP2, f), 1);
  float result = float_of_bits(bits_of_float(power) + (bits_of_float(shifted) << 23));
  result = t < -126 ? 0 : result;
  // This also handles NaN.
  return t < 128 ? result : t + __builtin_inff();
}

float __tally_native_exp_f32(float x) { return native_exp2(x * (float)LOG2_E); }
float __tally_native_exp2_f32(float x) { return native_exp2(x); }
float __tally_native_exp10_f32(float x) { return native_exp2(x * (float)LOG2_10); }

// log(1 + f) / f for sqrt(1/2) <= 1 + f <= sqrt(2), to 2^-19.8 of it.
static const float NATIVE_LOG[] = {
    0x1.00001p0f,   -0x1.000176p-1f, 0x1.5523fcp-2f, -0x1.fe26cep-3f,
    0x1.a3c3dp-3f, -0x1.7e5152p-3f, 0x1.e7439ap-4f,
};

// The logarithm of x to the base of which 2 has the logarithm `two` and e the logarithm `e`.
static inline float native_log(float x, float two, float e) {
  uint32_t bits = bits_of_float(x) - SQRT_HALF_BITS;
  float exponent = (float)((int32_t)bits >> 23);
  float f = float_of_bits((bits & 0x7fffff) + SQRT_HALF_BITS) - 1;
  float result = madd(f * e, POLYNOMIAL(NATIVE_LOG, f), exponent * two);
  result = x < __builtin_inff() ? result : x;
  result = x < 0x1p-126f ? -__builtin_inff() : result;
  return x < 0 ? __builtin_nanf("") : result;
}

float __tally_native_log_f32(float x) { return native_log(x, (float)LN_2, 1); }
float __tally_native_log2_f32(float x) { return native_log(x, 1, (float)LOG2_E); }
float __tally_native_log10_f32(float x) { return native_log(x, 0x1.344136p-2f, 0x1.bcb7b2p-2f); }

float __tally_native_powr_f32(float x, float y) {
  return native_exp2(y * native_log(x, 1, (float)LOG2_E));
}

// x less `count` times pi; the count may be a multiple of 1/2.
static inline float native_rest(float x, float count) {
#ifdef TALLY_FMA
  // Three parts of 24 bits: close to a multiple of pi all of them matter.
  float r = madd(-count, 0x1.921fb4p1f, x);
  r = madd(-count, 0x1.4442dp-23f, r);
  return madd(-count, 0x1.84698ap-47f, r);
#else
  // The first part has 33 bits, so that its product is exact.
  double wide = (double)count;
  return (float)(((double)x - wide * 0x1.921fb544p1) - wide * 0x1.0b4611a626331p-33);
#endif
}

// The remainder of an argument that is too large may be anything, so it is bounded.
static inline float native_bounded(float r, float limit) {
  r = r > limit ? limit : r;
  return r < -limit ? -limit : r;
}

// (sin(r) - r) / r^3 as a polynomial of r^2 for |r| <= 1.572, so that the sine is good to 2^-19.8.
static const float NATIVE_SIN[] = {-0x1.55510ep-3f, 0x1.1070dep-7f, -0x1.84d4dap-13f};

// The sine of r, negated for odd numbers of half turns.
static inline float native_sin_of(float r, uint32_t half_turns) {
  r = native_bounded(r, 0x1.ap0f);
  float square = r * r;
  float sine = r * madd(square, POLYNOMIAL(NATIVE_SIN, square), 1);
  return float_of_bits(bits_of_float(sine) ^ half_turns << 31);
}

float __tally_native_sin_f32(float x) {
  float shifted = madd(x, 0x1.45f306p-2f, ROUNDER);
  return native_sin_of(native_rest(x, shifted - ROUNDER), bits_of_float(shifted));
}

// cos((n + 1/2) pi + r) is sin(r) for odd n, else -sin(r).
float __tally_native_cos_f32(float x) {
  float shifted = madd(x, 0x1.45f306p-2f, -0.5f) + ROUNDER;
  float count = (shifted - ROUNDER) + 0.5f;
  return native_sin_of(native_rest(x, count), bits_of_float(shifted) + 1);
}

// (tan(r) - r) / r^3 as a polynomial of r^2 for |r| <= 0.786, so that the tangent is good to 2^-18.1.
static const float NATIVE_TAN[] = {0x1.5525f6p-2f, 0x1.16b408p-3f, 0x1.529594p-5f, 0x1.61851p-5f};

float __tally_native_tan_f32(float x) {
  float shifted = madd(x, 0x1.45f306p-1f, ROUNDER);
  float r = native_bounded(native_rest(x, 0.5f * (shifted - ROUNDER)), 0x1.ap-1f);
  float square = r * r;
  float tangent = r * madd(square, POLYNOMIAL(NATIVE_TAN, square), 1);
  return bits_of_float(shifted) & 1 ? -1 / tangent : tangent;
}

#endif
