// SPDX-License-Identifier: MIT OR Apache-2.0
// Exponentials: exp, exp2, exp10, expm1.

#include "exponential.h"

// ln 10 in two parts.
#define LN_10 0x1.26bb1bbb55516p1
#define LN_10_LOW -0x1.f48ad494ea3e9p-53

// A power as a number around 1 and an exponent of two, in the low bits of `shifted`.
struct power64 {
  F64 m, shifted;
};

static inline struct power64 exp_of(F64 x) {
  struct reduced64 e = reduce64(x, 0);
  return (struct power64){exp64(e.r, e.rest), e.shifted};
}

static inline struct power64 exp2_of(F64 x) {
  F64 shifted = x + ROUNDER64, t = x - (shifted - ROUNDER64);
  D64 r = product64(t, LN_2);
  return (struct power64){exp64(r.hi, fma64(t, LN_2_LOW, r.lo)), shifted};
}

static inline struct power64 exp10_of(F64 x) {
  D64 product = product64(x, LN_10);
  struct reduced64 e = reduce64(product.hi, fma64(x, LN_10_LOW, product.lo));
  return (struct power64){exp64(e.r, e.rest), e.shifted};
}

static inline F64 near64(struct power64 it) { return scaled64(it.m, it.shifted); }

// Beyond these limits the result is 0 or infinite.
#define FAR64(of, x, least, most)                                                                            \
  or_zero64(x, least, scaled_far64(of(within64(x, least, most)).m, of(within64(x, least, most)).shifted))
static inline F64 exp_far(F64 x) { return FAR64(exp_of, x, -746, 710); }

FUNCTION64_OR(exp, abs64(x) <= 708, near64(exp_of(x)), exp_far(x))
FUNCTION64_OR(exp2, abs64(x) <= 1021, near64(exp2_of(x)), FAR64(exp2_of, x, -1076, 1025))
FUNCTION64_OR(exp10, abs64(x) <= 307, near64(exp10_of(x)), FAR64(exp10_of, x, -325, 309))

// (e^r - 1 - r - r^2/2) / r^3 for |r| <= ln(2)/2, to 2^-62 of e^r - 1.
static const double EXPM1_TAIL[] = {
    0x1.5555555555555p-3, 0x1.5555555555555p-5, 0x1.111111111137ep-7, 0x1.6c16c16c15feap-10, 0x1.a01a019ea92ddp-13,
    0x1.a01a01a823d1ep-16, 0x1.71de4053e0408p-19, 0x1.27e4d7f1b1d17p-22, 0x1.ae4da02d61accp-26, 0x1.1f793361cff07p-29,
    0x1.816ef62e3b104p-33,
};

// 2^n (1 + r + r^2/2 + ...) - 1, with each term added separately.
static inline F64 expm1_near(F64 x) {
  struct reduced64 e = reduce64(x, 0);
  F64 r = e.r, power = scaled64(1, e.shifted);
  D64 square = product64(r, 0.5 * r);
  F64 cube = r * (square.hi + square.hi);
  F64 rest = fma64(cube, POLYNOMIAL64(EXPM1_TAIL, r, r * r), fma64(e.rest, r, e.rest) + square.lo);
  D64 whole = any_sum64(power, -1);
  D64 first = sum64(whole.hi, power * r);
  D64 second = sum64(first.hi, power * square.hi);
  F64 result = second.hi + (fma64(power, rest, whole.lo) + (first.lo + second.lo));
  // A product that is subnormal is less than half of the last place.
  return abs64(x) < 0x1p-54 ? x : result;
}

// The far form of e^x - 1: the 1 is less than half of the last place of e^x, or e^x of the 1.
static inline F64 expm1_far(F64 x) {
  F64 least = -1;
  return x < 0 ? least : exp_far(x);
}

FUNCTION64_OR(expm1, abs64(x) <= 708, expm1_near(x), expm1_far(x))

struct power32 {
  F32 m, shifted;
};

static inline struct power32 exp_of_32(F32 x) {
  F32 shifted = fma32(x, LOG2_E_32, ROUNDER32), count = shifted - ROUNDER32;
  F32 high = fma32(-count, LN_2_HIGH_32, x), low = count * LN_2_LOW_32;
  F32 r = high - low;
  return (struct power32){exp32(r, (high - r) - low), shifted};
}

static inline F32 near32(struct power32 it) { return scaled32(it.m, it.shifted); }
#define FAR32(of, x, least, most)                                                                            \
  or_zero32(x, least, scaled_far32(of(within32(x, least, most)).m, of(within32(x, least, most)).shifted))
static inline F32 exp_far_32(F32 x) { return FAR32(exp_of_32, x, -104, 89); }

// (e^r - 1 - r - r^2/2) / r^3 for |r| <= ln(2)/2, so that e^r - 1 is good to 2^-29.
static const float EXP_TAIL_32[] = {
    0x1.555556p-3f, 0x1.555518p-5f, 0x1.110f7ep-7f, 0x1.6d12cap-10f, 0x1.a37bc6p-13f,
};

// The remainder of e^(r + rest) - 1 after r + rest and r^2/2, which is given in two parts.
static inline F32 exp_rest_32(F32 r, F32 rest, D32 square) {
  F32 cube = r * (square.hi + square.hi);
  return fma32(cube, POLYNOMIAL32(EXP_TAIL_32, r, r * r), fma32(rest, r, rest) + square.lo);
}

// Like exp32, but with hardly any error besides the last rounding.
static inline F32 exp_close_32(F32 r, F32 rest) {
  D32 square = product32(r, 0.5f * r);
  D32 first = sum32(1, r), second = sum32(first.hi, square.hi);
  return second.hi + (exp_rest_32(r, rest, square) + (first.lo + second.lo));
}

static inline struct power32 exp2_of_32(F32 x) {
  F32 shifted = x + ROUNDER32, t = x - (shifted - ROUNDER32);
  D32 r = product32(t, LN_2_32);
  return (struct power32){exp_close_32(r.hi, fma32(t, LN_2_REST_32, r.lo)), shifted};
}

#define LOG2_10_32 0x1.a934fp1f
// log10(2) in two parts, the first of 12 bits.
#define LOG10_2_HIGH_32 0x1.344p-2f
#define LOG10_2_LOW_32 0x1.3509f8p-18f

static inline struct power32 exp10_of_32(F32 x) {
  F32 shifted = fma32(x, LOG2_10_32, ROUNDER32), count = shifted - ROUNDER32;
  F32 high = fma32(-count, LOG10_2_HIGH_32, x), low = count * LOG10_2_LOW_32;
  F32 t = high - low, t_low = (high - t) - low;
  D32 r = product32(t, 0x1.26bb1cp1f);
  F32 rest = r.lo + fma32(t, -0x1.12aabap-25f, t_low * 0x1.26bb1cp1f);
  return (struct power32){exp_close_32(r.hi, rest), shifted};
}

#ifdef TALLY_AVX512
// Where tables lie in registers, the exponent is counted in sixteenths, so that what is left is small.

// Adding and subtracting it rounds to a sixteenth. The low bits of the sum are the number of sixteenths.
#define ROUNDER_16TH_32 0x1.8p19f

// 2^(i/16) in two parts.
static const float POWERS_32[] = {
    1, 0x1.0b5586p0f, 0x1.172b84p0f, 0x1.2387a6p0f, 0x1.306fep0f, 0x1.3dea64p0f, 0x1.4bfdaep0f, 0x1.5ab07ep0f,
    0x1.6a09e6p0f, 0x1.7a1148p0f, 0x1.8ace54p0f, 0x1.9c4918p0f, 0x1.ae89fap0f, 0x1.c199bep0f, 0x1.d5818ep0f,
    0x1.ea4afap0f,
};
static const float POWER_RESTS_32[] = {
    0, 0x1.9f3122p-25f, -0x1.c15742p-27f, 0x1.ceac48p-25f, 0x1.4636e2p-25f, 0x1.824684p-25f, -0x1.593abcp-25f,
    -0x1.5bd5ecp-27f, 0x1.9fcef4p-26f, -0x1.829fdp-25f, 0x1.15506ep-27f, 0x1.51f848p-27f, -0x1.a94b14p-26f,
    -0x1.3d56b2p-27f, -0x1.822dbcp-27f, 0x1.52486cp-27f,
};

// (e^r - 1 - r) / r^2, (2^r - 1) / r, and (10^r - 1) / r where the powers are those of up to 1/32 of a doubling, so
// that the powers are good to 2^-33.
static const float EXP_16TH_32[] = {0x1p-1f, 0x1.5556ep-3f, 0x1.555696p-5f};
static const float EXP2_16TH_32[] = {0x1.62e43p-1f, 0x1.ebfbep-3f, 0x1.c6ad64p-5f, 0x1.3b2994p-7f};
static const float EXP10_16TH_32[] = {0x1.26bb1cp1f, 0x1.53524cp1f, 0x1.0461e6p1f, 0x1.2c0898p0f};

// 1 + rest times a power of two whose number of sixteenths is in the low bits of `shifted`.
static inline F32 scaled_16th_32(F32 shifted, F32 rest) {
  U32 bits = bits32(shifted), index = bits & 15;
  F32 power = lookup32(POWERS_32, index);
  F32 sum = power + fma32(power, rest, lookup32(POWER_RESTS_32, index));
  return of_bits32(bits32(sum) + ((bits - index) << 19));
}

static inline F32 exp_near_32(F32 x) {
  F32 shifted = fma32(x, LOG2_E_32, ROUNDER_16TH_32), count = shifted - ROUNDER_16TH_32;
  F32 r = fma32(-count, LN_2_LOW_32, fma32(-count, LN_2_HIGH_32, x)), square = r * r;
  return scaled_16th_32(shifted, fma32(square, POLYNOMIAL32(EXP_16TH_32, r, square), r));
}

static inline F32 exp2_near_32(F32 x) {
  F32 shifted = x + ROUNDER_16TH_32, r = x - (shifted - ROUNDER_16TH_32);
  return scaled_16th_32(shifted, r * POLYNOMIAL32(EXP2_16TH_32, r, r * r));
}

static inline F32 exp10_near_32(F32 x) {
  F32 shifted = fma32(x, LOG2_10_32, ROUNDER_16TH_32), count = shifted - ROUNDER_16TH_32;
  F32 r = fma32(-count, LOG10_2_LOW_32, fma32(-count, LOG10_2_HIGH_32, x));
  return scaled_16th_32(shifted, r * POLYNOMIAL32(EXP10_16TH_32, r, r * r));
}
#else
static inline F32 exp_near_32(F32 x) { return near32(exp_of_32(x)); }
static inline F32 exp2_near_32(F32 x) { return near32(exp2_of_32(x)); }
static inline F32 exp10_near_32(F32 x) { return near32(exp10_of_32(x)); }
#endif

FUNCTION32_OR(exp, abs32(x) <= 87, exp_near_32(x), exp_far_32(x))
FUNCTION32_OR(exp2, abs32(x) <= 125, exp2_near_32(x), FAR32(exp2_of_32, x, -151, 129))
FUNCTION32_OR(exp10, abs32(x) <= 37, exp10_near_32(x), FAR32(exp10_of_32, x, -46, 39))

static inline F32 expm1_near_32(F32 x) {
  F32 shifted = fma32(x, LOG2_E_32, ROUNDER32), count = shifted - ROUNDER32;
  F32 high = fma32(-count, LN_2_HIGH_32, x), low = count * LN_2_LOW_32;
  F32 r = high - low, left = (high - r) - low;
  F32 power = scaled32(1, shifted);
  D32 square = product32(r, 0.5f * r);
  F32 rest = exp_rest_32(r, left, square);
  D32 whole = any_sum32(power, -1);
  D32 first = sum32(whole.hi, power * r);
  D32 second = sum32(first.hi, power * square.hi);
  F32 result = second.hi + (fma32(power, rest, whole.lo) + (first.lo + second.lo));
  return abs32(x) < 0x1p-25f ? x : result;
}

static inline F32 expm1_far_32(F32 x) {
  F32 least = -1;
  return x < 0 ? least : exp_far_32(x);
}

FUNCTION32_OR(expm1, abs32(x) <= 87, expm1_near_32(x), expm1_far_32(x))
