// SPDX-License-Identifier: MIT OR Apache-2.0
// The core of the exponential functions: an argument is a multiple of ln 2 and a rest, e^x = 2^n e^r.

#ifndef EXPONENTIAL_H
#define EXPONENTIAL_H

#include "lanes.h"

// Adding and subtracting it rounds to an integer, ties to even, if the magnitude is below 2^51. The low bits
// of the sum are that integer.
#define ROUNDER64 0x1.8p52
#define ROUNDER64_BITS 0x4338000000000000
// The same for floats below 2^22.
#define ROUNDER32 0x1.8p23f
#define ROUNDER32_BITS 0x4b400000

#define LOG2_E 0x1.71547652b82fep0
#define LOG2_10 0x1.a934f0979a371p1
// ln 2 in two parts; and with a first part of 33 bits, so that its products with exponents are exact.
#define LN_2 0x1.62e42fefa39efp-1
#define LN_2_LOW 0x1.abc9e3b39803fp-56
#define LN_2_HIGH 0x1.62e42fefp-1
#define LN_2_REST 0x1.473de6af278edp-34

#define LOG2_E_32 0x1.715476p0f
// With a first part of 15 bits.
#define LN_2_32 0x1.62e43p-1f
#define LN_2_REST_32 -0x1.05c61p-29f
#define LN_2_HIGH_32 0x1.62e4p-1f
#define LN_2_LOW_32 0x1.7f7d1cp-20f

// x is r + rest plus a multiple of ln 2; the count is in the low bits of `shifted`.
struct reduced64 {
  F64 r, rest, shifted;
};

// Reduces hi + lo, for |hi| <= 800.
static inline struct reduced64 reduce64(F64 hi, F64 lo) {
  F64 shifted = fma64(hi, LOG2_E, ROUNDER64), count = shifted - ROUNDER64;
  F64 high = fma64(-count, LN_2_HIGH, hi), low = fma64(count, LN_2_REST, -lo);
  F64 r = high - low;
  return (struct reduced64){r, (high - r) - low, shifted};
}

// (e^r - 1 - r) / r^2 for |r| <= ln(2)/2, so that e^r is good to 2^-61.
static const double EXP64[] = {
    0x1p-1,
    0x1.5555555555557p-3,
    0x1.5555555555557p-5,
    0x1.111111111003ep-7,
    0x1.6c16c16c15698p-10,
    0x1.a01a01ac2cb21p-13,
    0x1.a01a01aba0b8cp-16,
    0x1.71de01765f04p-19,
    0x1.27e4cf95375f4p-22,
    0x1.af4f466cdff47p-26,
    0x1.1f87243b6487bp-29,
};

// e^(r + rest) for |r| <= ln(2)/2 and a small rest.
static inline F64 exp64(F64 r, F64 rest) {
  F64 square = r * r;
  D64 most = sum64(1, r);
  F64 curve = fma64(square, POLYNOMIAL64(EXP64, r, square), rest * most.hi);
  return most.hi + (curve + most.lo);
}

// x times a power of two, whose exponent is in the low bits of `shifted`, provided that the result is
// normal.
static inline F64 scaled64(F64 x, F64 shifted) {
  return of_bits64(bits64(x) + (bits64(shifted) << 52));
}

// The same for any exponent from -1,100 to 1,100. The power of two comes in two parts, so that the last
// product overflows or becomes subnormal as it should.
static inline F64 scaled_far64(F64 x, F64 shifted) {
  U64 count = bits64(shifted) - ROUNDER64_BITS, half = ((count + 2048) >> 1) - 1024;
  return x * of_bits64((half + 1023) << 52) * of_bits64((count - half + 1023) << 52);
}

// x, but at most `most`, and 0 below `least`; NaN stays NaN.
static inline F64 within64(F64 x, F64 least, F64 most) {
  F64 none = 0;
  x = x < least ? none : x;
  return x > most ? most : x;
}

// A result, or 0 for an x below `least`. Processors take a hundred times as long for a product that underflows, so
// the 0 is not left to one.
static inline F64 or_zero64(F64 x, F64 least, F64 result) {
  F64 none = 0;
  return x < least ? none : result;
}

// The same for floats; e^r is good to 2^-29.
static const float EXP32[] = {
    0x1p-1f, 0x1.555556p-3f, 0x1.5555p-5f, 0x1.110fc2p-7f, 0x1.6d30a2p-10f, 0x1.a2d93p-13f,
};

static inline F32 exp32(F32 r, F32 rest) {
  F32 square = r * r;
  D32 most = sum32(1, r);
  F32 curve = fma32(square, POLYNOMIAL32(EXP32, r, square), rest * most.hi);
  return most.hi + (curve + most.lo);
}

static inline F32 scaled32(F32 x, F32 shifted) {
  return of_bits32(bits32(x) + (bits32(shifted) << 23));
}

// For any exponent from -160 to 160.
static inline F32 scaled_far32(F32 x, F32 shifted) {
  U32 count = bits32(shifted) - ROUNDER32_BITS, half = ((count + 256) >> 1) - 128;
  return x * of_bits32((half + 127) << 23) * of_bits32((count - half + 127) << 23);
}

static inline F32 within32(F32 x, F32 least, F32 most) {
  F32 none = 0;
  x = x < least ? none : x;
  return x > most ? most : x;
}

static inline F32 or_zero32(F32 x, F32 least, F32 result) {
  F32 none = 0;
  return x < least ? none : result;
}

#endif
