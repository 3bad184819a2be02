// SPDX-License-Identifier: MIT OR Apache-2.0
// Powers of doubles or floats: logarithms from logs.h in two parts, times the exponent, and exponentials. With registers of
// 512 bits these are those of powers.h. Without, floats are computed as doubles.

#include "names.h"

#if BITS == 64
#define FIRST_PART LN_2_HIGH
#define SECOND_PART LN_2_REST
#define INTEGERS 0x1p51
#define LEAST -746
#define EXP_TAIL EXP_TAIL_64
// (log(1 + r) - r + r^2/2) / r^3 for r from -0.0373 to 0.0626, to 2^-64 of the logarithm.
static const double LOG_CUBE64[] = {
    0x1.5555555555555p-2, -0x1.fffffffffffcbp-3, 0x1.999999999bfbdp-3, -0x1.55555555beba1p-3, 0x1.2492490a5f932p-3,
    -0x1.fffff82c65493p-4, 0x1.c71d1b00f4a7cp-4, -0x1.99b699172539bp-4, 0x1.7429e45d0f51bp-4, -0x1.312639db26ca3p-4,
};
#else
#define FIRST_PART LN_2_HIGH_32
#define SECOND_PART LN_2_LOW_32
#define INTEGERS 0x1p22f
#define LEAST -104
#define EXP_TAIL EXP_SHORT_32
// The same to 2^-35.
static const float LOG_CUBE32[] = {0x1.555556p-2f, -0x1.ffffe8p-3f, 0x1.9997bcp-3f, -0x1.55dd96p-3f, 0x1.1db25cp-3f};
#endif

struct OF(raised) {
  F result;
  // Whether it is right.
  M inside;
};

#if BITS == 64 || defined(TALLY_AVX512)
// The natural logarithm of a positive number. The second part may be up to 2^-9 of it.
static inline D OF(log_close)(F x) {
  struct OF(parts) it = OF(parts)(x);
  U index = OF(index_of)(it.m);
  F r = OF(less_one)(it.m, lookup(OF(FACTORS), index));
  D square = product(r, r), first = sum(fma(it.e, FIRST_PART, lookup(OF(LN), index)), r);
  // Less half the square.
  F hi = fma(square.hi, -(NUMBER)0.5, first.hi), rest = fma(square.hi, -(NUMBER)0.5, first.hi - hi);
  F low = fma(square.lo, -(NUMBER)0.5, fma(it.e, SECOND_PART, lookup(OF(LN_LOW), index))) + (first.lo + rest);
  F curve = POLYNOMIAL(OF(LOG_CUBE), r, square.hi);
  return (D){hi, fma(r * square.hi, curve, low)};
}

#ifdef TALLY_AVX512
#define UNIT SIXTEENTHS
#else
#define UNIT ROUNDER
#endif

// e^(hi + lo) for the product of the logarithm of x and a number.
static inline struct OF(raised) OF(raised)(F x, F hi, F lo) {
  F sum = hi + lo, shifted = fma(sum, (NUMBER)LOG2_E, UNIT), count = shifted - UNIT;
  F r = fma(-count, FIRST_PART, hi) + fma(-count, SECOND_PART, lo);
#ifdef TALLY_AVX512
  (void)x;
  // Logarithms of 0 and infinity are infinite.
  F result = OF(power)(1, r, shifted, 1, EXP_TAIL, OF(not_below)(hi, LEAST));
  return (struct OF(raised)){result, abs(hi) < (NUMBER)0x1p15};
#else
  return (struct raised64){scaled64(exp64(r, 0), shifted), is_usual64(x) & (abs64(sum) <= 700)};
#endif
}

// x^y of a number that is not negative.
static inline struct OF(raised) OF(powr_near)(F x, F y) {
  D log = OF(log_close)(x), whole = product(log.hi, y);
  return OF(raised)(x, whole.hi, fma(log.lo, y, whole.lo));
}

// x^(y + more).
static inline struct OF(raised) OF(powr_close)(F x, F y, F more) {
  D log = OF(log_close)(x), whole = product(log.hi, y);
  return OF(raised)(x, whole.hi, fma(log.lo, y, fma(log.hi, more, whole.lo)));
}
#else
static inline struct raised32 powr_near32(F32 x, F32 y) {
  return (struct raised32){power_narrow(wide(x), wide(y)), is_finite32(x) & (x > 0) & is_finite32(y)};
}

static inline struct raised32 powr_close32(F32 x, F32 y, F32 more) {
  return (struct raised32){power_narrow(wide(x), wide(y) + wide(more)), is_finite32(x) & (x > 0)};
}
#endif

// Adds the powers of 0 by positive numbers.
static inline struct OF(raised) OF(powr_with_rest)(F x, F y) {
  struct OF(raised) it = OF(powr_near)(x, y);
  M zero = (x == 0) & (y > 0) & (y < (NUMBER)__builtin_inf());
  return (struct OF(raised)){zero ? (F)0 : it.result, it.inside | zero};
}

// x with the sign of `sign` if the integer is odd.
static inline F OF(with_odd_sign)(F x, F sign, U low_bits) {
  return of_bits(bits(x) ^ (bits(sign) & (low_bits << (BITS - 1))));
}

// Only positive numbers.
static inline struct OF(raised) OF(pow_near)(F x, F y) {
  struct OF(raised) it = OF(powr_near)(abs(x), y);
  it.inside &= x > 0;
  return it;
}

// Adds negative numbers, which have powers by integers, negative ones if the integer is odd; and the powers of 0 by
// positive numbers.
static inline struct OF(raised) OF(pow_with_rest)(F x, F y) {
  struct OF(raised) it = OF(powr_near)(abs(x), y);
  F shifted = y + ROUNDER, none = (NUMBER)__builtin_nan("");
  M small = abs(y) < INTEGERS, whole = shifted - ROUNDER == y, zero = (x == 0) & (y > 0) & small;
  F size = zero ? (F)0 : it.result, other = zero ? (F)0 : none;
  F result = whole ? OF(with_odd_sign)(size, x, bits(shifted)) : other;
  M positive = bits(x) >> (BITS - 1) == 0;
  return (struct OF(raised)){positive ? size : result, (it.inside | zero) & (positive | small)};
}

// x^n for an integer in two parts.
static inline struct OF(raised) OF(pown_near)(F x, D n, U low_bits) {
  struct OF(raised) it = OF(powr_close)(abs(x), n.hi, n.lo);
  it.result = OF(with_odd_sign)(it.result, x, low_bits);
  return it;
}

// An even root of a negative number is NaN, which is far.
static inline struct OF(raised) OF(rootn_near)(F x, D n, U low_bits) {
  F inverse = 1 / n.hi;
  D one = product(n.hi, inverse);
  F more = (((1 - one.hi) - one.lo) - n.lo * inverse) * inverse;
  struct OF(raised) it = OF(powr_close)(abs(x), inverse, more);
  it.inside &= ((x > 0) | ((low_bits & 1) != 0)) & (n.hi != 0);
  it.result = OF(with_odd_sign)(it.result, x, low_bits);
  return it;
}

#undef FIRST_PART
#undef SECOND_PART
#undef INTEGERS
#undef LEAST
#undef EXP_TAIL
#undef UNIT
#include "names_end.h"
