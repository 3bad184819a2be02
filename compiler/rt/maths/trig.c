// SPDX-License-Identifier: MIT OR Apache-2.0
// Circular functions: sin, cos, tan, sincos, sinpi, cospi, tanpi.
//
// An argument is reduced to an angle and a count of half turns, or of quarter turns where both sine and
// cosine of the angle are needed; the count selects one of them and its sign.

#include "exponential.h"
#ifdef TALLY_AVX512
#include "tan_pieces.h"
#endif

// pi in three parts, as doubles; with FMA only the last rounding loses bits.
#define PI_64 0x1.921fb54442d18p1
#define PI_LOW_64 0x1.1a62633145c07p-53
#define PI_REST_64 -0x1.f1976b7ed8fbcp-109
#define PI_32 0x1.921fb6p1f
#define PI_LOW_32 -0x1.777a5cp-24f
#define ONE_OVER_PI 0x1.45f306dc9c883p-2
#define TWO_OVER_PI 0x1.45f306dc9c883p-1

// The near forms are accurate up to here.
#ifdef TALLY_FMA
#define NEAR_64 0x1p30
#else
#define NEAR_64 0x1p20
#endif
#define NEAR_32 0x1p20f

// x less `count` times pi, where the count is a multiple of 1/2, or with FMA of 1/16.
static inline D64 less_half_turns64(F64 x, F64 count) {
#ifdef TALLY_FMA
  // The first difference is exact: it has no more digits than a double.
  F64 rest = fma64(-count, PI_64, x), high = fma64(-count, PI_LOW_64, rest);
  return (D64){high, fma64(-count, PI_REST_64, fma64(-count, PI_LOW_64, rest - high))};
#else
  // Three parts of 33 bits, so that their products are exact (Cody and Waite, "Software manual for the
  // elementary functions", 1980).
  D64 part = any_sum64(x - count * 0x1.921fb544p1, -(count * 0x1.0b4611a6p-33));
  D64 next = any_sum64(part.hi, -(count * 0x1.3198a2ep-68));
  return sum64(next.hi, (part.lo + next.lo) - count * 0x1.b839a252049c1p-103);
#endif
}

// (sin(r) - r) / r^3 as a polynomial of r^2 for |r| <= pi/2, so that the sine is good to 2^-59.
static const double SIN_HALF64[] = {
    -0x1.5555555555555p-3,  0x1.11111111110b9p-7,  -0x1.a01a01a013538p-13, 0x1.71de3a51c2546p-19,
    -0x1.ae64545abc4e7p-26, 0x1.6123aa9068ca2p-33, -0x1.ae39c48eb59d2p-41, 0x1.871b8e5fd9ab1p-49,
};

// x with its sign changed if a bit is set; that is the lowest bit of `odd`, or the second.
static inline F64 signed64(F64 x, U64 odd) { return of_bits64(bits64(x) ^ (odd << 63)); }
static inline F64 second_signed64(F64 x, U64 quarters) {
  return of_bits64(bits64(x) ^ ((quarters & 2) << 62));
}
static inline F32 signed32(F32 x, U32 odd) { return of_bits32(bits32(x) ^ (odd << 31)); }
static inline F32 second_signed32(F32 x, U32 quarters) {
  return of_bits32(bits32(x) ^ ((quarters & 2) << 30));
}

// Keeps the last rounding from making a sine larger than 1.
static inline F64 bounded64(F64 x) {
  x = x > 1 ? (F64)1 : x;
  return x < -1 ? (F64)-1 : x;
}
static inline F32 bounded32(F32 x) {
  x = x > 1 ? (F32)1 : x;
  return x < -1 ? (F32)-1 : x;
}

// An odd function of x, for its value at the magnitude of x: so that zeros keep their sign.
static inline F64 odd64(F64 x, F64 value) { return of_bits64(bits64(value) ^ (bits64(x) & 0x8000000000000000)); }
static inline F32 odd32(F32 x, F32 value) { return of_bits32(bits32(value) ^ (bits32(x) & 0x80000000)); }

// The sine of r, negated for odd numbers of half turns.
static inline F64 sine_of_rest64(D64 r, U64 half_turns) {
  F64 square = r.hi * r.hi;
  F64 low = fma64(r.hi * square, POLYNOMIAL64(SIN_HALF64, square, square * square),
                  fma64(square * r.lo, -0.5, r.lo));
  return signed64(bounded64(r.hi + low), half_turns);
}

// A small number is its own sine: the bits that the computation loses would matter if it is 0 or
// subnormal. Its cosine is 1.
static inline F64 or_small64(F64 x, F64 result) { return abs64(x) < 0x1p-27 ? x : result; }
static inline F32 or_one32(F32 x, F32 result) { return abs32(x) < 0x1p-13f ? (F32)1 : result; }

static inline F64 sin_near(F64 x) {
  F64 size = abs64(x), shifted = fma64(size, ONE_OVER_PI, ROUNDER64);
  return odd64(x, sine_of_rest64(less_half_turns64(size, shifted - ROUNDER64), bits64(shifted)));
}

// cos((n + 1/2) pi + r) is sin(r) for odd n, else -sin(r).
static inline F64 cos_near(F64 x) {
  F64 shifted = fma64(x, ONE_OVER_PI, -0.5) + ROUNDER64;
  F64 count = (shifted - ROUNDER64) + 0.5;
  return sine_of_rest64(less_half_turns64(x, count), bits64(shifted) + 1);
}

// The same for |r| <= pi/4, and (cos(r) - 1 + r^2/2) / r^4, to 2^-55 and 2^-59.
static const double SIN64[] = {
    -0x1.5555555555555p-3,  0x1.1111111110babp-7,  -0x1.a01a019e820aep-13,
    0x1.71de37946ed6dp-19, -0x1.ae6008d114485p-26, 0x1.5e0a4fc16be59p-33,
};
static const double COS64[] = {
    0x1.5555555555555p-5,   -0x1.6c16c16c16963p-10, 0x1.a01a019f4ddfdp-16,
    -0x1.27e4fa16cc2d1p-22, 0x1.1eeb67d026ec6p-29,  -0x1.907cd8ff5ede7p-37,
};

struct quarter64 {
  F64 sine, cosine;
  U64 quarters;
};

// Sine and cosine of an angle, with the number of quarter turns that were subtracted.
static inline struct quarter64 quarter_of64(D64 r, U64 quarters) {
  F64 square = r.hi * r.hi;
  F64 sine = fma64(r.hi * square, POLYNOMIAL64(SIN64, square, square * square),
                   fma64(square * r.lo, -0.5, r.lo));
  F64 half = 0.5 * square;
  D64 most = sum64(1, -half);
  F64 curve = fma64(square * square, POLYNOMIAL64(COS64, square, square * square), -(r.hi * r.lo));
  F64 cosine = most.hi + (most.lo + curve);
  return (struct quarter64){r.hi + sine, cosine, quarters};
}

static inline struct quarter64 quarter64(F64 x) {
  F64 shifted = fma64(x, TWO_OVER_PI, ROUNDER64);
  return quarter_of64(less_half_turns64(x, 0.5 * (shifted - ROUNDER64)), bits64(shifted));
}

static inline M64 is_odd64(U64 x) { return (x & 1) != 0; }
static inline M32 is_odd32(U32 x) { return (x & 1) != 0; }

static inline F64 sincos_near(F64 x, F64 *cosine) {
  struct quarter64 it = quarter64(x);
  M64 odd = is_odd64(it.quarters);
  *cosine = second_signed64(odd ? it.sine : it.cosine, it.quarters + 1);
  return or_small64(x, second_signed64(odd ? it.cosine : it.sine, it.quarters));
}

static inline F64 tan_of64(struct quarter64 it) {
  M64 odd = is_odd64(it.quarters);
  F64 over = odd ? -it.cosine : it.sine, under = odd ? it.sine : it.cosine;
  return over / under;
}

#if defined(TALLY_AVX512) && LANES != 16
static inline F64 tan_near(F64 x) {
  F64 size = abs64(x), shifted = fma64(size, ONE_OVER_PI, SIXTEENTHS64);
  return odd64(x, tan_of_rest64(less_half_turns64(size, shifted - SIXTEENTHS64), bits64(shifted)));
}
#else
static inline F64 tan_near(F64 x) { return or_small64(x, tan_of64(quarter64(x))); }
#endif

FUNCTION64(sin, abs64(x) < NEAR_64, sin_near(x))
FUNCTION64(cos, abs64(x) < NEAR_64, cos_near(x))
FUNCTION64(tan, abs64(x) < NEAR_64, tan_near(x))
FUNCTION64_WITH_SECOND(sincos, abs64(x) < NEAR_64, sincos_near(x, second))

#if LANES != 16
#define BITS 64
#include "sinpi.h"
#undef BITS
WHOLE64(sinpi, sinpi_whole64(x))
WHOLE64(cospi, cospi_whole64(x))
#endif

static inline F64 tanpi_near(F64 x) {
  F64 shifted = 2 * x + ROUNDER64, t = x - 0.5 * (shifted - ROUNDER64);
  D64 angle = product64(t, PI_64);
  angle.lo = fma64(t, PI_LOW_64, angle.lo);
  return tan_of64(quarter_of64(angle, bits64(shifted)));
}

// Half integers have zeros and infinities with signs of their own.
static inline M64 has_tanpi64(F64 x) {
  F64 twice = 2 * x, whole = (twice + ROUNDER64) - ROUNDER64;
  return (abs64(x) < 0x1p49) & (twice != whole) & (abs64(x) > 0x1p-500);
}

FUNCTION64(tanpi, has_tanpi64(x), tanpi_near(x))

// Floats.

// (sin(r) - r) / r^3 as a polynomial of r^2 for |r| <= 1.62, so that the sine is good to 2^-26.8.
static const float SIN_HALF32[] = {-0x1.55554ap-3f, 0x1.110e7ap-7f, -0x1.9f5dbp-13f, 0x1.5ca808p-19f};

// x less `count` times pi. The parts are positive, so that subtracting 0 parts from -0 gives -0.
static inline F32 less_half_turns32(F32 x, F32 count) {
#ifdef TALLY_FMA
  F32 r = fma32(-count, 0x1.921fb4p1f, x);
  r = fma32(-count, 0x1.4442dp-23f, r);
  return fma32(-count, 0x1.84698ap-47f, r);
#else
  F64 all = wide(count);
  return narrow((wide(x) - all * 0x1.921fb544p1) - all * 0x1.0b4611a626331p-33);
#endif
}

// The sine of r, negated for odd numbers of half turns.
static inline F32 sine_of_rest32(F32 r, U32 half_turns) {
  F32 square = r * r;
  F32 sine = fma32(r * square, POLYNOMIAL32(SIN_HALF32, square, square * square), r);
  return signed32(bounded32(sine), half_turns);
}

static inline F32 sin_near_32(F32 x) {
  F32 size = abs32(x), shifted = fma32(size, (float)ONE_OVER_PI, ROUNDER32);
  return odd32(x, sine_of_rest32(less_half_turns32(size, shifted - ROUNDER32), bits32(shifted)));
}

static inline F32 cos_near_32(F32 x) {
  F32 shifted = fma32(x, (float)ONE_OVER_PI, -0.5f) + ROUNDER32;
  F32 count = (shifted - ROUNDER32) + 0.5f;
  return or_one32(x, sine_of_rest32(less_half_turns32(x, count), bits32(shifted) + 1));
}

// The same for |r| <= pi/4, and (cos(r) - 1 + r^2/2) / r^4, to 2^-27 and 2^-29.
static const float SIN32[] = {-0x1.555552p-3f, 0x1.110be6p-7f, -0x1.9ab3cep-13f};
static const float COS32[] = {0x1.555554p-5f, -0x1.6c129ep-10f, 0x1.9bc73cp-16f};

static inline F32 sincos_near_32(F32 x, F32 *cosine) {
  F32 shifted = fma32(x, (float)TWO_OVER_PI, ROUNDER32);
  F32 r = less_half_turns32(x, 0.5f * (shifted - ROUNDER32)), square = r * r, fourth = square * square;
  F32 sine = fma32(r * square, POLYNOMIAL32(SIN32, square, fourth), r);
  sine = r == 0 ? r : sine;
  F32 other = fma32(square, fma32(square, POLYNOMIAL32(COS32, square, fourth), -0.5f), 1);
  U32 quarters = bits32(shifted);
  M32 odd = is_odd32(quarters);
  *cosine = second_signed32(odd ? sine : other, quarters + 1);
  return second_signed32(odd ? other : sine, quarters);
}

// (tan(r) - r) / r^3 as a polynomial of r^2 for |r| <= 0.82, so that the tangent is good to 2^-28.
static const float TAN32[] = {
    0x1.55556cp-2f, 0x1.110a74p-3f, 0x1.bb66c4p-5f, 0x1.572782p-6f, 0x1.7f5b6p-7f,
    -0x1.0319e4p-10f, 0x1.41155cp-8f,
};

static inline F32 tan_of32(F32 r, F32 rest, U32 quarters) {
  F32 square = r * r;
  F32 tangent = fma32(r * square, POLYNOMIAL32(TAN32, square, square * square), rest) + r;
  tangent = r == 0 ? r : tangent;
  return is_odd32(quarters) ? -1 / tangent : tangent;
}

static inline F32 tan_near_32(F32 x) {
  F32 shifted = fma32(x, (float)TWO_OVER_PI, ROUNDER32);
  return tan_of32(less_half_turns32(x, 0.5f * (shifted - ROUNDER32)), 0, bits32(shifted));
}

FUNCTION32(sin, abs32(x) < NEAR_32, sin_near_32(x))
FUNCTION32(cos, abs32(x) < NEAR_32, cos_near_32(x))
FUNCTION32(tan, abs32(x) < NEAR_32, tan_near_32(x))
FUNCTION32_WITH_SECOND(sincos, abs32(x) < NEAR_32, sincos_near_32(x, second))

#define BITS 32
#include "sinpi.h"
#undef BITS
WHOLE32(sinpi, sinpi_whole32(x))
WHOLE32(cospi, cospi_whole32(x))

static inline F32 tanpi_near_32(F32 x) {
  F32 shifted = 2 * x + ROUNDER32, t = x - 0.5f * (shifted - ROUNDER32);
  D32 angle = product32(t, PI_32);
  return tan_of32(angle.hi, fma32(t, PI_LOW_32, angle.lo), bits32(shifted));
}

static inline M32 has_tanpi32(F32 x) {
  F32 twice = 2 * x, whole = (twice + ROUNDER32) - ROUNDER32;
  return (abs32(x) < 0x1p21f) & (twice != whole) & (abs32(x) > 0x1p-90f);
}

FUNCTION32(tanpi, has_tanpi32(x), tanpi_near_32(x))
