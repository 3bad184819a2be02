// SPDX-License-Identifier: MIT OR Apache-2.0
// Circular functions: sin, cos, tan, sincos, sinpi, tanpi.
//
// An argument is reduced to an angle in [-pi/4, pi/4] and a count of quarter turns; the count selects
// the sine or the cosine of the angle, and its sign.

#include "exact.h"

#define TWO_OVER_PI 0x1.45f306dc9c883p-1
#define HALF_PI_HIGH 0x1.921fb54442d18p0
#define HALF_PI_LOW 0x1.1a62633145c07p-54

// Up to here, products of the quarter turns with the first parts of pi/2 are exact.
#define SMALL 0x1p20

// The binary digits of 2/pi, 64 a word; the point stands behind the first word.
static const uint64_t TWO_OVER_PI_WORDS[20] = {
    0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041,
    0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e,
    0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
    0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab,
};

struct angle {
  struct dd value;
  uint32_t quarters; // Modulo 4.
};

typedef unsigned __int128 u128;

// Reduces a finite x of at least 2^20 (Payne and Hanek, "Radian reduction for trigonometric
// functions", 1983). x is an integer times 2^e; digits of 2/pi above 2^(2-e) make whole turns and
// are left out. 192 digits from there leave 128 right ones of the fraction of a quarter turn, 61 of
// which a double may cancel.
static __attribute__((noinline)) struct angle reduce_large(double x) {
  uint64_t bits = bits_of_double(x);
  uint64_t mantissa = (bits & 0xfffffffffffff) | 0x10000000000000;
  int e = (int)((bits >> 52) & 0x7ff) - 1075;
  // The first digit that counts; the one behind the point is digit 64.
  int first = e + 62;
  uint64_t digits[3];
  for (int i = 0; i < 3; i++) {
    int word = first / 64 + i, shift = first % 64;
    digits[i] = TWO_OVER_PI_WORDS[word] << shift;
    if (shift != 0)
      digits[i] |= TWO_OVER_PI_WORDS[word + 1] >> (64 - shift);
  }
  // The product modulo 2^192: two digits of quarter turns, then the fraction.
  u128 low = (u128)mantissa * digits[2];
  u128 middle = (u128)mantissa * digits[1] + (uint64_t)(low >> 64);
  uint64_t high = mantissa * digits[0] + (uint64_t)(middle >> 64);
  uint32_t quarters = (uint32_t)(high >> 62);
  u128 top = ((u128)high << 66) | ((u128)(uint64_t)middle << 2) | ((uint64_t)low >> 62);
  // The nearest quarter turn: the fraction as a signed number.
  bool above = top >> 127;
  quarters += above;
  u128 magnitude = above ? ~top : top;
  // To two doubles of 53 digits each, from the first one that is not 0.
  uint64_t most = (uint64_t)(magnitude >> 64);
  int zeros = most ? __builtin_clzll(most) : 64 + __builtin_clzll((uint64_t)magnitude | 1);
  magnitude <<= zeros;
  uint64_t upper = (uint64_t)(magnitude >> 64) & ~(uint64_t)0x7ff;
  uint64_t lower = (uint64_t)((magnitude - ((u128)upper << 64)) >> 11);
  struct dd fraction = quick_two_sum((double)upper * 0x1p-64, (double)lower * 0x1p-117);
  double unit = pow2(-zeros);
  fraction = (struct dd){fraction.hi * unit, fraction.lo * unit};
  fraction = above ? dd_negate(fraction) : fraction;
  struct dd value = dd_multiply(fraction, (struct dd){HALF_PI_HIGH, HALF_PI_LOW});
  if (sign_of(x))
    return (struct angle){dd_negate(value), -quarters & 3};
  return (struct angle){value, quarters & 3};
}

// Reduces |x| < SMALL by subtracting multiples of pi/2 in four parts (Cody and Waite, "Software
// manual for the elementary functions", 1980). The first three have 33 bits.
static inline struct angle reduce_near(double x) {
  double shifted = x * TWO_OVER_PI + ROUNDER;
  double count = shifted - ROUNDER;
  struct dd part = two_sum(x - count * 0x1.921fb544p0, -(count * 0x1.0b4611a6p-34));
  struct dd next = two_sum(part.hi, -(count * 0x1.3198a2ep-69));
  double low = (part.lo + next.lo) - count * 0x1.b839a252049c1p-104;
  return (struct angle){quick_two_sum(next.hi, low), (uint32_t)bits_of_double(shifted) & 3};
}

static inline struct angle reduce(double x) {
  if (__builtin_fabs(x) < SMALL)
    return reduce_near(x);
  if (is_inf(x) || is_nan(x))
    return (struct angle){{__builtin_nan(""), 0}, 0};
  return reduce_large(x);
}

// (sin(r) - r) / r^3 and (cos(r) - 1 + r^2/2) / r^4 as polynomials of r^2 for |r| <= pi/4, to
// 2^-55 and 2^-59.
static const double SIN_COEFFICIENTS[] = {
    -0x1.5555555555555p-3, 0x1.1111111110babp-7,  -0x1.a01a019e820aep-13,
    0x1.71de37946ed6dp-19, -0x1.ae6008d114485p-26, 0x1.5e0a4fc16be59p-33,
};
static const double COS_COEFFICIENTS[] = {
    0x1.5555555555555p-5,   -0x1.6c16c16c16963p-10, 0x1.a01a019f4ddfdp-16,
    -0x1.27e4fa16cc2d1p-22, 0x1.1eeb67d026ec6p-29,  -0x1.907cd8ff5ede7p-37,
};

static inline struct dd sin_angle(struct dd r) {
  double square = r.hi * r.hi;
  double curve = square * r.hi * POLYNOMIAL(SIN_COEFFICIENTS, square);
  return quick_two_sum(r.hi, curve + r.lo * (1 - 0.5 * square));
}

static inline struct dd cos_angle(struct dd r) {
  struct dd square = two_product(r.hi, r.hi);
  struct dd most = quick_two_sum(1, -0.5 * square.hi);
  double curve = square.hi * square.hi * POLYNOMIAL(COS_COEFFICIENTS, square.hi);
  return quick_two_sum(most.hi, most.lo + (curve - (0.5 * square.lo + r.hi * r.lo)));
}

static inline double negate_if(double x, bool negative) { return negative ? -x : x; }

static inline double sin_of(struct angle a) {
  struct dd result = a.quarters & 1 ? cos_angle(a.value) : sin_angle(a.value);
  return negate_if(result.hi + result.lo, a.quarters & 2);
}

static inline double cos_of(struct angle a) {
  a.quarters++;
  return sin_of(a);
}

static inline double tan_of(struct angle a) {
  struct dd sine = sin_angle(a.value), cosine = cos_angle(a.value);
  struct dd result =
      a.quarters & 1 ? dd_divide(dd_negate(cosine), sine) : dd_divide(sine, cosine);
  return result.hi + result.lo;
}

static inline double sin_or_self(double x, double sine) {
  return __builtin_fabs(x) < 0x1p-27 ? x : sine;
}

static inline double sincos_of(double x, struct angle a, double *cosine) {
  *cosine = cos_of(a);
  return sin_or_self(x, sin_of(a));
}

double __tally_far_sin_f64(double x) { return sin_or_self(x, sin_of(reduce(x))); }
double __tally_far_cos_f64(double x) { return cos_of(reduce(x)); }
double __tally_far_tan_f64(double x) { return sin_or_self(x, tan_of(reduce(x))); }
double __tally_far_sincos_f64(double x, double *cosine) { return sincos_of(x, reduce(x), cosine); }

// Reduces pi * x; the half turns come off exactly.
static inline struct angle reduce_pi(double x) {
  // Numbers this large are even, so nothing is left of them; this also keeps the doubled number finite.
  double small = __builtin_fabs(x) < 0x1p53 ? x : x - x;
  double twice = 2 * small;
  double count = round_even(twice);
  double fraction = 0.5 * (twice - count);
  // The low bits of a count beyond 2^31 are needed too.
  uint32_t quarters = (uint32_t)(uint64_t)(int64_t)(count == count ? count : 0) & 3;
  struct dd pi = {2 * HALF_PI_HIGH, 2 * HALF_PI_LOW};
  return (struct angle){dd_multiply_double(pi, fraction), quarters};
}

double __tally_far_sinpi_f64(double x) {
  if (__builtin_fabs(x) < 0x1p-100)
    return x * (2 * HALF_PI_HIGH);
  double result = sin_of(reduce_pi(x));
  // Zeros have the sign of x.
  return result == 0 ? __builtin_copysign(0, x) : result;
}

// Zeros have the sign of x at even integers and the other sign at odd ones; infinities are positive at
// n + 1/2 for even n.
double __tally_far_tanpi_f64(double x) {
  if (__builtin_fabs(x) < 0x1p-100)
    return x * (2 * HALF_PI_HIGH);
  struct angle a = reduce_pi(x);
  if (a.value.hi != 0 || is_nan(x))
    return tan_of(a);
  bool second = a.quarters & 2;
  if (a.quarters & 1)
    return negate_if(__builtin_inf(), second);
  return negate_if(__builtin_copysign(0, x), second);
}
