// SPDX-License-Identifier: MIT OR Apache-2.0
// The core of the logarithms: x is a power of two times a number m around 1, whose logarithm is 2
// atanh(s) with s = (m - 1) / (m + 1), or comes from a table (logs.h).

#ifndef LOGARITHM_H
#define LOGARITHM_H

#include "exponential.h"
#ifdef TALLY_AVX512
#include "logs.h"
#endif

// x = m * 2^exponent with m from sqrt(1/2) to sqrt(2), or from 0.75 to 1.5 for the tables of logs.h.
#if defined(TALLY_AVX512) && LANES != 16
#define FIRST_BITS64 0x3fe8000000000000
#else
#define FIRST_BITS64 0x3fe6a09e667f3bcd
#endif
#ifdef TALLY_AVX512
#define FIRST_BITS32 0x3f400000
#else
#define FIRST_BITS32 0x3f3504f3
#endif

struct split64 {
  F64 m, exponent;
};

struct split32 {
  F32 m, exponent;
};

// Splits a positive normal number.
static inline struct split64 split64(F64 x) {
  U64 bits = bits64(x) - FIRST_BITS64;
  // Converts to double without a conversion of 64-bit integers: the integer is placed below 2^52.
  F64 exponent = of_bits64((bits >> 52 ^ 0x800) | 0x4330000000000000) - (0x1p52 + 0x800);
  return (struct split64){of_bits64((bits & 0xfffffffffffff) + FIRST_BITS64), exponent};
}

static inline struct split32 split32(F32 x) {
  U32 bits = bits32(x) - FIRST_BITS32;
  F32 exponent = float_of_int((I32)bits >> 23);
  return (struct split32){of_bits32((bits & 0x7fffff) + FIRST_BITS32), exponent};
}

// Splits a positive subnormal number.
static inline struct split64 split_subnormal64(F64 x) {
  struct split64 it = split64(x * 0x1p64);
  return (struct split64){it.m, it.exponent - 64};
}

static inline struct split32 split_subnormal32(F32 x) {
  struct split32 it = split32(x * 0x1p32f);
  return (struct split32){it.m, it.exponent - 32};
}

// The logarithm of a number that is not positive and normal: `log` is right if it is a subnormal one.
static inline F64 log_of_far64(F64 x, F64 log) {
  F64 most = __builtin_inf(), none = __builtin_nan("");
  log = x > 1 ? most : log;
  log = x == 0 ? -most : log;
  return x >= 0 ? log : none;
}

static inline F32 log_of_far32(F32 x, F32 log) {
  F32 most = __builtin_inff(), none = __builtin_nanf("");
  log = x > 1 ? most : log;
  log = x == 0 ? -most : log;
  return x >= 0 ? log : none;
}

// (2 atanh(s) - 2 s) / s^3 as a polynomial of s^2 for |s| <= 0.202, so that the logarithm is good to
// 2^-60. For numbers around 1, |s| is up to 0.1716.
static const double ATANH64[] = {
    0x1.5555555555555p-1, 0x1.999999999a085p-2, 0x1.24924923bc8e5p-2, 0x1.c71c7307994a3p-3,
    0x1.745ca0a19b8ddp-3, 0x1.3b2b8d61b46cfp-3, 0x1.0e6b469b2f1a6p-3, 0x1.179321d845005p-3,
};

// log(m + rest) to 2^-57 of it, for an m that a number was split into and a small rest; logs.h has another form.
#if !defined(TALLY_AVX512) || LANES == 16
static inline D64 log_around_one64(F64 m, F64 rest) {
  F64 f = m - 1, sum = m + 1;
  F64 inverse = 1 / sum, s = f * inverse;
  // The rounding error of s, with that of its divisor.
  F64 left = fma64(-s, (m - (sum - 1)) + rest, rest - lost64(s, sum, f));
  F64 square = s * s;
  F64 low = fma64(s * square, POLYNOMIAL64(ATANH64, square, square * square),
                  (left * inverse) * fma64(square, 2, 2));
  return (D64){s + s, low};
}
#endif

// The same for floats, to 2^-32.
static const float ATANH32[] = {0x1.555556p-1f, 0x1.99993ap-2f, 0x1.246574p-2f, 0x1.e059b4p-3f};

#ifndef TALLY_AVX512
static inline D32 log_around_one32(F32 m, F32 rest) {
  F32 f = m - 1, sum = m + 1;
  F32 inverse = 1 / sum, s = f * inverse;
  F32 left = fma32(-s, (m - (sum - 1)) + rest, rest - lost32(s, sum, f));
  F32 square = s * s;
  F32 low = fma32(s * square, POLYNOMIAL32(ATANH32, square, square * square),
                  (left * inverse) * fma32(square, 2, 2));
  return (D32){s + s, low};
}
#endif

// whole + log, where whole is 0 or larger.
static inline F64 joined64(F64 whole, D64 log) {
  D64 sum = sum64(whole, log.hi);
  return sum.hi + (sum.lo + log.lo);
}

static inline F32 joined32(F32 whole, D32 log) {
  D32 sum = sum32(whole, log.hi);
  return sum.hi + (sum.lo + log.lo);
}

// log + exponent * ln 2.
static inline F64 with_exponent64(D64 log, F64 exponent) {
  log.lo = fma64(exponent, LN_2_REST, log.lo);
  return joined64(exponent * LN_2_HIGH, log);
}

static inline F32 with_exponent32(D32 log, F32 exponent) {
  log.lo = fma32(exponent, LN_2_LOW_32, log.lo);
  return joined32(exponent * LN_2_HIGH_32, log);
}

// The logarithm of a sum of two parts, the first of which is positive and normal; logs.h has another form.
#if !defined(TALLY_AVX512) || LANES == 16
static inline F64 log_of_sum64(D64 sum) {
  struct split64 it = split64(sum.hi);
  // The second part divided by the power of two.
  F64 unit = of_bits64(bits64(it.m) + 0x3ff0000000000000 - bits64(sum.hi));
  return with_exponent64(log_around_one64(it.m, sum.lo * unit), it.exponent);
}
#endif

#ifndef TALLY_AVX512
static inline F32 log_of_sum32(D32 sum) {
  struct split32 it = split32(sum.hi);
  F32 unit = of_bits32(bits32(it.m) + 0x3f800000 - bits32(sum.hi));
  return with_exponent32(log_around_one32(it.m, sum.lo * unit), it.exponent);
}
#endif

#endif
