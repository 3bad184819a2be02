// SPDX-License-Identifier: MIT OR Apache-2.0
// Exponentials: exp, exp2, exp10, expm1.

#include "exponential.h"
#ifdef TALLY_AVX512
#include "powers.h"
#endif

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

#ifndef TALLY_AVX512
FUNCTION64_OR(exp, abs64(x) <= 708, near64(exp_of(x)), exp_far(x))
FUNCTION64_OR(exp2, abs64(x) <= 1021, near64(exp2_of(x)), FAR64(exp2_of, x, -1076, 1025))
FUNCTION64_OR(exp10, abs64(x) <= 307, near64(exp10_of(x)), FAR64(exp10_of, x, -325, 309))
#elif LANES != 16
// The same for the bases 2 and 10.
static const double EXP2_TAIL_64[] = {
    0x1.ebfbdff82c59p-3, 0x1.c6b08d704a0c2p-5, 0x1.3b2ab6fb418fap-7, 0x1.5d87fe782737p-10,
    0x1.430a1ce75e149p-13, 0x1.ffcdae03da1f9p-17,
};
static const double EXP10_TAIL_64[] = {
    0x1.53524c73cea69p1, 0x1.0470591de2ca6p1, 0x1.2bd7609f850a2p0, 0x1.1429ffd168884p-1,
    0x1.a7eec27db3a48p-3, 0x1.16e5d3d5a42bep-4,
};

// log10(2), the first part with 32 bits.
#define LOG10_2_HIGH 0x1.3441350800000p-2
#define LOG10_2_REST 0x1.f79fef311f12bp-34

static inline F64 least64(F64 x, F64 most) { return x > most ? most : x; }

static inline F64 exp_whole(F64 x) {
  F64 to = least64(x, 710), shifted = fma64(to, LOG2_E, SIXTEENTHS64), count = shifted - SIXTEENTHS64;
  F64 r = fma64(-count, LN_2_REST, fma64(-count, LN_2_HIGH, to));
  return power64(1, r, shifted, 1, EXP_TAIL_64, not_below64(x, -746));
}

static inline F64 exp2_whole(F64 x) {
  F64 to = least64(x, 1025), shifted = to + SIXTEENTHS64;
  return power64(1, to - (shifted - SIXTEENTHS64), shifted, LN_2, EXP2_TAIL_64, not_below64(x, -1076));
}

static inline F64 exp10_whole(F64 x) {
  F64 to = least64(x, 309), shifted = fma64(to, LOG2_10, SIXTEENTHS64), count = shifted - SIXTEENTHS64;
  F64 r = fma64(-count, LOG10_2_REST, fma64(-count, LOG10_2_HIGH, to));
  return power64(1, r, shifted, LN_10, EXP10_TAIL_64, not_below64(x, -325));
}

WHOLE64(exp, exp_whole(x))
WHOLE64(exp2, exp2_whole(x))
WHOLE64(exp10, exp10_whole(x))
#endif

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

#ifndef TALLY_AVX512
FUNCTION32_OR(exp, abs32(x) <= 87, near32(exp_of_32(x)), exp_far_32(x))
FUNCTION32_OR(exp2, abs32(x) <= 125, near32(exp2_of_32(x)), FAR32(exp2_of_32, x, -151, 129))
FUNCTION32_OR(exp10, abs32(x) <= 37, near32(exp10_of_32(x)), FAR32(exp10_of_32, x, -46, 39))
#else
// The same for floats, to 2^-27, for the bases 2 and 10.
static const float EXP2_SHORT_32[] = {0x1.ebfe58p-3f, 0x1.c6b34ap-5f};
static const float EXP10_SHORT_32[] = {0x1.5354p1f, 0x1.0471eap1f};

static inline F32 least32(F32 x, F32 most) { return x > most ? most : x; }

static inline F32 exp_whole_32(F32 x) {
  F32 to = least32(x, 89), shifted = fma32(to, LOG2_E_32, SIXTEENTHS32), count = shifted - SIXTEENTHS32;
  F32 r = fma32(-count, LN_2_LOW_32, fma32(-count, LN_2_HIGH_32, to));
  return power32(1, r, shifted, 1, EXP_SHORT_32, not_below32(x, -104));
}

static inline F32 exp2_whole_32(F32 x) {
  F32 to = least32(x, 129), shifted = to + SIXTEENTHS32;
  return power32(1, to - (shifted - SIXTEENTHS32), shifted, LN_2_32, EXP2_SHORT_32, not_below32(x, -151));
}

static inline F32 exp10_whole_32(F32 x) {
  F32 to = least32(x, 39), shifted = fma32(to, 0x1.a934fp1f, SIXTEENTHS32), count = shifted - SIXTEENTHS32;
  F32 r = fma32(-count, 0x1.3509f8p-18f, fma32(-count, 0x1.344p-2f, to));
  return power32(1, r, shifted, 0x1.26bb1cp1f, EXP10_SHORT_32, not_below32(x, -46));
}

WHOLE32(exp, exp_whole_32(x))
WHOLE32(exp2, exp2_whole_32(x))
WHOLE32(exp10, exp10_whole_32(x))
#endif

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
