// SPDX-License-Identifier: MIT OR Apache-2.0
// Logarithms from tables: x is 2^e m, and a factor c from a table, of few bits, brings m so close to 1 that a polynomial
// of r = m c - 1 is enough. Nothing is divided. With registers of 512 bits two instructions split x, also if it is
// subnormal, and give for 0, infinities and NaN what leads to the right result, and one looks a factor up. Elsewhere only
// powers of doubles are worth the lookups, and x must be positive and normal.

#ifndef LOGS_H
#define LOGS_H

#include "exponential.h"

// For the instruction that gives the mantissa: from 0.75 to 1.5, and NaN for a negative number
// (_MM_MANT_NORM_p75_1p5 and _MM_MANT_SIGN_nan).
#define MANTISSA 11

#if LANES != 16 || !defined(TALLY_AVX512)
// The factors for m from 1 to 1.5 and from 0.75 to 1, by its first four bits behind the point. Around 1 they are 1,
// so that nothing cancels there. r is from -0.0372 to 0.0625, and exact.
static const double FACTORS64[16] = {
    0x1p0, 0x1.dp-1, 0x1.cp-1, 0x1.ap-1, 0x1.9p-1, 0x1.8p-1, 0x1.7p-1, 0x1.6p-1,
    0x1.5p0, 0x1.4p0, 0x1.38p0, 0x1.28p0, 0x1.2p0, 0x1.18p0, 0x1.1p0, 0x1p0,
};

// -log(c) in two parts, the first with 42 bits behind the point; then those of log2 and log10.
static const double LN64[16] = {
    0x0p0, 0x1.9335e5d594p-4, 0x1.1178e8227ep-3, 0x1.a93ed3c8aep-3,
    0x1.f991c6cb3cp-3, 0x1.269621134ep-2, 0x1.522ae0738ap-2, 0x1.7fafa3bd81p-2,
    -0x1.1675cababap-2, -0x1.c8ff7c79aap-3, -0x1.9525a9cf46p-3, -0x1.29552f82p-3,
    -0x1.e27076e2bp-4, -0x1.6f0d28ae58p-4, -0x1.f0a30c0118p-5, 0x0p0,
};
static const double LN_LOW64[16] = {
    0x0p0, 0x1.3115c3abd47dap-45, 0x1.1ef78ce2d07f2p-45, -0x1.8724350562169p-45,
    -0x1.90d04cd7cc834p-44, -0x1.1b61f10522625p-44, 0x1.ebe708164c759p-45, 0x1.46fb79bf6d4cbp-44,
    -0x1.8380e731f55c4p-44, 0x1.7794f689f8434p-45, 0x1.297137d9f158fp-44, 0x1.5b967f4471dfcp-44,
    0x1.a342c2af0003cp-45, 0x1.4b4641b664613p-44, 0x1.d599e83368e91p-45, 0x0p0,
};
static const double LOG264[16] = {
    0x0p0, 0x1.22dadc2ab4p-3, 0x1.8a8980abfcp-3, 0x1.32bfee370fp-2,
    0x1.6cb0f6865dp-2, 0x1.a8ff971811p-2, 0x1.e7df5fe539p-2, 0x1.14c560fe688p-1,
    -0x1.91bba891f1p-2, -0x1.49a784bcd2p-2, -0x1.24407ab0ep-2, -0x1.acf5e2db4ep-3,
    -0x1.5c01a39fbep-3, -0x1.08c588cda8p-3, -0x1.663f6fac9p-4, 0x0p0,
};
static const double LOG2_LOW64[16] = {
    0x0p0, -0x1.6d25a5b8a19b2p-44, -0x1.66cccab240e9p-46, -0x1.979a5db68721dp-46,
    -0x1.c57f2495fb7fap-44, -0x1.6879fa00b120ap-44, -0x1.532c412ba94dbp-44, 0x1.7c407050799bfp-44,
    -0x1.c22d2cad415aep-44, 0x1.1d406db502403p-44, -0x1.ce60916e52e91p-44, -0x1.927dfc23d978p-44,
    0x1.2f0c0bfe9dbecp-44, 0x1.871a7610e40bdp-45, -0x1.3167ccc538261p-44, 0x0p0,
};
static const double LOG1064[16] = {
    0x0p0, 0x1.5e3966b7e8p-5, 0x1.db11ed7668p-5, 0x1.715d0ce368p-4,
    0x1.b721cd1714p-4, 0x1.ffbfc2bbc8p-4, 0x1.25ba8215bp-3, 0x1.4d43f8275ap-3,
    -0x1.e3bc1ab0ep-4, -0x1.8cf1838864p-4, -0x1.5fe80488bp-4, -0x1.02428c1f08p-4,
    -0x1.a30a9d60ap-5, -0x1.3ed1199a6p-5, -0x1.af5f92b01p-6, 0x0p0,
};
static const double LOG10_LOW64[16] = {
    0x0p0, 0x1.2951bb9cd2fb7p-45, 0x1.5fa196e1e0ddap-44, -0x1.41149840eaa65p-46,
    0x1.7e295f660b9dap-44, -0x1.ff229f20ed3d2p-46, -0x1.007bf2d8bf07ap-44, 0x1.20ca9a2bcc728p-45,
    -0x1.9fe3d562a53fp-44, -0x1.019365163f2fcp-45, 0x1.606adb567e739p-45, -0x1.5ea6bc2bc8c2cp-52,
    0x1.0163d7e67d282p-45, 0x1.bdafc8ad828b8p-45, 0x1.9f05921f59258p-46, 0x0p0,
};

// (log(1 + r) - r) / r^2, to 2^-54 of it.
static const double LOG_TAIL64[] = {
    -0x1p-1, 0x1.5555555555537p-2, -0x1.0000000000bdfp-2, 0x1.9999999a0bddfp-3, -0x1.555555405dd04p-3,
    0x1.2492450749fdcp-3, -0x1.000048b6fdc89p-3, 0x1.c73aa6cf7fff8p-4, -0x1.99828fc9b37ap-4,
    0x1.4e92005bb06f9p-4,
};

// x = m 2^e with m from 0.75 to 1.5. 0 and infinity have the mantissa 1 and an infinite exponent, negative numbers and
// NaN have the mantissa NaN.
struct parts64 {
  F64 m, e;
};

static inline struct parts64 parts64(F64 x) {
#ifndef TALLY_AVX512
  U64 bits = bits64(x) - 0x3fe8000000000000;
  // Converts to double without a conversion of 64-bit integers: the integer is placed below 2^52.
  F64 e = of_bits64((bits >> 52 ^ 0x800) | 0x4330000000000000) - (0x1p52 + 0x800);
  return (struct parts64){of_bits64((bits & 0xfffffffffffff) + 0x3fe8000000000000), e};
#else
#if LANES == 1
  pair64 in = {x, x};
  F64 m = __builtin_ia32_getmantsd_round_mask(in, in, MANTISSA, in, -1, CURRENT_ROUNDING)[0];
  F64 e = __builtin_ia32_getexpsd128_round_mask(in, in, in, -1, CURRENT_ROUNDING)[0];
#else
  F64 m = __builtin_ia32_getmantpd512_mask(x, MANTISSA, x, -1, CURRENT_ROUNDING);
  F64 e = __builtin_ia32_getexppd512_mask(x, x, -1, CURRENT_ROUNDING);
#endif
  // The exponent is that of a mantissa from 1 to 2.
  return (struct parts64){m, m < 1 ? e + 1 : e};
#endif
}

static inline U64 index_of64(F64 m) { return bits64(m) >> 48; }

// m times a factor, less 1.
static inline F64 less_one64(F64 m, F64 factor) {
#ifdef TALLY_FMA
  return fma64(m, factor, -1);
#else
  D64 product = product64(m, factor);
  return (product.hi - 1) + product.lo;
#endif
}

#define BITS 64
#include "logs_of.h"
#undef BITS
#endif

#ifdef TALLY_AVX512
// The same for floats: the first parts have 15 bits behind the point, and the polynomial is good to 2^-26.
static const float FACTORS32[16] = {
    0x1p0f, 0x1.dp-1f, 0x1.cp-1f, 0x1.ap-1f, 0x1.9p-1f, 0x1.8p-1f, 0x1.7p-1f, 0x1.6p-1f,
    0x1.5p0f, 0x1.4p0f, 0x1.38p0f, 0x1.28p0f, 0x1.2p0f, 0x1.18p0f, 0x1.1p0f, 0x1p0f,
};
static const float LN32[16] = {
    0x0p0f, 0x1.934p-4f, 0x1.118p-3f, 0x1.a94p-3f, 0x1.f99p-3f, 0x1.2698p-2f, 0x1.5228p-2f, 0x1.7fbp-2f,
    -0x1.1678p-2f, -0x1.c9p-3f, -0x1.952p-3f, -0x1.295p-3f, -0x1.e28p-4f, -0x1.6fp-4f, -0x1.f0cp-5f, 0x0p0f,
};
static const float LN_LOW32[16] = {
    0x0p0f, -0x1.43454ep-17f, -0x1.c5f76p-17f, -0x1.2c3752p-19f, 0x1.c6cb3cp-19f, -0x1.deecb2p-18f,
    0x1.7039c6p-17f, -0x1.7109fap-20f, 0x1.1aa2a2p-17f, 0x1.070cacp-20f, -0x1.6a73d2p-17f, -0x1.4be08p-17f,
    0x1.f123aap-17f, -0x1.a515cap-17f, 0x1.cf3feep-17f, 0x0p0f,
};
static const float LOG232[16] = {
    0x0p0f, 0x1.22ep-3f, 0x1.8a9p-3f, 0x1.32cp-2f, 0x1.6cbp-2f, 0x1.a9p-2f, 0x1.e7ep-2f, 0x1.14c4p-1f,
    -0x1.91b8p-2f, -0x1.49a8p-2f, -0x1.244p-2f, -0x1.acfp-3f, -0x1.5cp-3f, -0x1.08cp-3f, -0x1.664p-4f, 0x0p0f,
};
static const float LOG2_LOW32[16] = {
    0x0p0f, -0x1.48f554p-17f, -0x1.9fd502p-17f, -0x1.1c8f12p-22f, 0x1.ed0cbap-19f, -0x1.a39fbep-20f,
    -0x1.40358ep-19f, 0x1.60fe68p-17f, -0x1.d448f8p-17f, 0x1.ed0cbap-20f, -0x1.eac382p-20f,
    -0x1.78b6d4p-17f, -0x1.a39fbep-19f, -0x1.62336ap-17f, 0x1.20a6dep-21f, 0x0p0f,
};
static const float LOG1032[16] = {
    0x0p0f, 0x1.5e4p-5f, 0x1.dbp-5f, 0x1.716p-4f, 0x1.b72p-4f, 0x1.ffcp-4f, 0x1.25cp-3f, 0x1.4d4p-3f,
    -0x1.e3cp-4f, -0x1.8dp-4f, -0x1.5fep-4f, -0x1.024p-4f, -0x1.a3p-5f, -0x1.3ecp-5f, -0x1.af8p-6f, 0x0p0f,
};
static const float LOG10_LOW32[16] = {
    0x0p0f, -0x1.a65206p-19f, 0x1.1ed766p-17f, -0x1.798e4cp-19f, 0x1.cd1716p-20f, -0x1.ea21c4p-23f,
    -0x1.5f7a94p-17f, 0x1.fc13aep-18f, 0x1.f2a79p-19f, 0x1.cf8ef4p-17f, -0x1.009116p-17f, -0x1.460f84p-19f,
    -0x1.53ac14p-18f, -0x1.1199a6p-17f, 0x1.036a8p-17f, 0x0p0f,
};
static const float LOG_TAIL32[] = {
    -0x1p-1f, 0x1.55554ep-2f, -0x1.00029ep-2f, 0x1.9a1536p-3f, -0x1.45ffaap-3f,
};

struct parts32 {
  F32 m, e;
};

static inline struct parts32 parts32(F32 x) {
#if LANES == 1
  four32 in = {x, x, x, x};
  F32 m = __builtin_ia32_getmantss_round_mask(in, in, MANTISSA, in, -1, CURRENT_ROUNDING)[0];
  F32 e = __builtin_ia32_getexpss128_round_mask(in, in, in, -1, CURRENT_ROUNDING)[0];
#elif LANES == 8
  F32 m = __builtin_ia32_getmantps256_mask(x, MANTISSA, x, -1), e = __builtin_ia32_getexpps256_mask(x, x, -1);
#else
  F32 m = __builtin_ia32_getmantps512_mask(x, MANTISSA, x, -1, CURRENT_ROUNDING);
  F32 e = __builtin_ia32_getexpps512_mask(x, x, -1, CURRENT_ROUNDING);
#endif
  return (struct parts32){m, m < 1 ? e + 1 : e};
}

static inline U32 index_of32(F32 m) { return bits32(m) >> 19; }
static inline F32 less_one32(F32 m, F32 factor) { return fma32(m, factor, -1); }

#define BITS 32
#include "logs_of.h"
#undef BITS
#endif

#endif
