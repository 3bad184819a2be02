// SPDX-License-Identifier: MIT OR Apache-2.0
// Powers: pow, powr, pown, rootn.
//
// A factor c from a table brings the mantissa m close to 1: log(m) = log(m c) - log(c). Powers of
// doubles need eight more bits of the logarithm than a double has; those of floats are computed in
// doubles.

#include "exponential.h"

#ifdef TALLY_AVX512

#include "logs.h"
#include "powers.h"

#if LANES != 16
#define BITS 64
#include "pow_whole.h"
#undef BITS

static inline D64 parts_of_int64(I32 n) { return (D64){wide_of_int(n), 0}; }
static inline U64 low_bits64(I32 n) { return bits64(wide_of_int(n) + ROUNDER64); }
#endif

#define BITS 32
#include "pow_whole.h"
#undef BITS

static inline D32 parts_of_int32(I32 n) {
  F32 hi = float_of_int(n);
  return (D32){hi, narrow(wide_of_int(n) - wide(hi))};
}
static inline U32 low_bits32(I32 n) { return (U32)n; }

// Defines a function as `near` where that is right, else as `rest`, and else as the far function. Both name a function
// of x and y with `raised` as its result.
#if LANES == 1
#define POWER(F, M, type, name, suffix, raised, near, rest)                                                  \
  CONST double FAR(name)(double, double);                                                                    \
  F __tally_##name##_##suffix(F x, F y) {                                                                    \
    struct raised it = near(x, y), other = rest(x, y);                                                       \
    return it.inside ? it.result : other.inside ? other.result : (F)FAR(name)((double)x, (double)y);         \
  }
#else
#define POWER(F, M, type, name, suffix, raised, near, rest)                                                  \
  CONST double FAR(name)(double, double);                                                                    \
  RARE F name##_##suffix##_of_far(F x, F y, F result, M is_inside) {                                         \
    for (int i = 0; i < LANES; i++)                                                                          \
      if (!is_inside[i])                                                                                     \
        result[i] = (type)FAR(name)((double)x[i], (double)y[i]);                                             \
    return result;                                                                                           \
  }                                                                                                          \
  F SHAPED(__tally_##name##_##suffix)(F x, F y) {                                                            \
    struct raised it = near(x, y);                                                                           \
    if (__builtin_expect(!ALL(it.inside), 0)) {                                                              \
      it = rest(x, y);                                                                                       \
      if (__builtin_expect(!ALL(it.inside), 0))                                                              \
        it.result = name##_##suffix##_of_far(x, y, it.result, it.inside);                                    \
    }                                                                                                        \
    return it.result;                                                                                        \
  }
#endif

#if LANES != 16
POWER(F64, M64, double, powr, f64, raised64, powr_near64, powr_with_rest64)
POWER(F64, M64, double, pow, f64, raised64, pow_near64, pow_with_rest64)
#endif
POWER(F32, M32, float, powr, f32, raised32, powr_near32, powr_with_rest32)
POWER(F32, M32, float, pow, f32, raised32, pow_near32, pow_with_rest32)
#define WITH_INT(name, bits) name##_near##bits(x, parts_of_int##bits(n), low_bits##bits(n))
FUNCTION64_WITH_INT(pown, WITH_INT(pown, 64).inside, WITH_INT(pown, 64).result)
FUNCTION64_WITH_INT(rootn, WITH_INT(rootn, 64).inside, WITH_INT(rootn, 64).result)
FUNCTION32_WITH_INT(pown, WITH_INT(pown, 32).inside, WITH_INT(pown, 32).result)
FUNCTION32_WITH_INT(rootn, WITH_INT(rootn, 32).inside, WITH_INT(rootn, 32).result)

#else

// The numbers from 0.6875 to 1.375 fall into sixteen intervals of equal size in their bits. Each has a
// factor; around 1 it is 1.
#define FIRST_BITS 0x3fe6000000000000
static const double FACTORS[16] = {
    0x1.6cp0, 0x1.5dp0, 0x1.4ep0, 0x1.41p0,
    0x1.35p0, 0x1.2ap0, 0x1.1fp0, 0x1.16p0,
    0x1.0dp0, 0x1p0, 0x1p0, 0x1.d4p-1,
    0x1.bap-1, 0x1.a4p-1, 0x1.9p-1, 0x1.7ep-1,
};
// -log(c) in two parts, the first a multiple of 2^-42.
static const double LOGS[16] = {
    -0x1.686c81e9b1p-2, -0x1.3d54fa5c1fp-2, -0x1.1058bf9ae5p-2, -0x1.cf6354e09cp-3,
    -0x1.815c0a1436p-3, -0x1.371fc201e8p-3, -0x1.d4313d66ccp-4, -0x1.51b073f06p-4,
    -0x1.95c830ec9p-5, 0x0p0, 0x0p0, 0x1.700d30aeacp-4,
    0x1.2d1610c868p-3, 0x1.95a5adcf7p-3, 0x1.f991c6cb3cp-3, 0x1.2bef07cdc9p-2,
};
static const double LOGS_LOW[16] = {
    -0x1.2bb110af84054p-44, -0x1.c3e1cd9a395e3p-44, 0x1.4ab9d817d52cdp-44, -0x1.771239a07d55bp-45,
    0x1.02a52f9201ce8p-44, -0x1.ee8779b2d8abcp-44, 0x1.9454379135713p-45, -0x1.83f69278e686ap-44,
    0x1.c148297c5feb8p-45, 0x0p0, 0x0p0, 0x1.c1e8da99ded32p-49,
    0x1.39d6ccb81b4a1p-47, 0x1.7f22858a0ff6fp-47, -0x1.90d04cd7cc834p-44, 0x1.a9cfa4a5004f4p-45,
};

// x = m * 2^exponent, and m's index in the tables.
struct place {
  F64 m, exponent;
  U64 index;
};

// The parts of a positive normal x.
static inline struct place place_of(F64 x) {
  U64 bits = bits64(x) - FIRST_BITS;
  F64 exponent = of_bits64((bits >> 52 ^ 0x800) | 0x4330000000000000) - (0x1p52 + 0x800);
  F64 m = of_bits64((bits & 0xfffffffffffff) + FIRST_BITS);
  return (struct place){m, exponent, bits >> 48 & 15};
}

// (log(1 + r) - r + r^2/2) / r^3 for r from -0.0312 to 0.0625, to 2^-65 of the logarithm.
static const double LOG_TAIL[] = {
    0x1.5555555555555p-2, -0x1.0000000000006p-2, 0x1.999999999bcb4p-3, -0x1.555555554e72ap-3, 0x1.2492490781ccfp-3,
    -0x1.fffffe2b331c4p-4, 0x1.c71d853b7f876p-4, -0x1.99ac922ec5435p-4, 0x1.72f669d736db9p-4, -0x1.29109b3451045p-4,
};

// The natural logarithm of a positive normal number, to 2^-61 of it.
static inline D64 log_close(F64 x) {
  struct place it = place_of(x);
  F64 factor = lookup64(FACTORS, it.index);
  // The rounded product less 1 is exact.
  D64 product = product64(it.m, factor);
  F64 r = product.hi - 1;
  D64 square = product64(r, 0.5 * r);
  F64 whole = fma64(it.exponent, LN_2_HIGH, lookup64(LOGS, it.index));
  D64 first = sum64(whole, r), second = sum64(first.hi, -square.hi);
  F64 low = fma64(it.exponent, LN_2_REST, lookup64(LOGS_LOW, it.index)) + (product.lo - square.lo);
  F64 whole_square = square.hi + square.hi, cube = r * whole_square;
  low = fma64(cube, POLYNOMIAL64(LOG_TAIL, r, whole_square), low + (first.lo + second.lo));
  // The rest of the rounded product has the weight 1 / (1 + r).
  return sum64(second.hi, fma64(whole_square - r, product.lo, low));
}

struct power {
  F64 result;
  // Whether it is normal, and the exponent finite.
  M64 inside;
};

// x^(y + more) of a positive normal x.
static inline struct power power(F64 x, F64 y, F64 more) {
  D64 log = log_close(x);
  F64 hi = log.hi * y, lo = fma64(log.lo, y, fma64(log.hi, more, lost64(log.hi, y, hi)));
  F64 shifted = fma64(hi, LOG2_E, ROUNDER64), count = shifted - ROUNDER64;
  F64 r = fma64(-count, LN_2_HIGH, hi), low = fma64(-count, LN_2_REST, lo);
  D64 rest = any_sum64(r, low);
  return (struct power){scaled64(exp64(rest.hi, rest.lo), shifted), abs64(hi) <= 700};
}

// The same, precise enough for floats.

// -log2(c).
static const double LOGS2[16] = {
    -0x1.03fda8b97997fp-1, -0x1.c9d02f6ca47b4p-2, -0x1.88e9c72e0b226p-2, -0x1.4e43880e8fb6ap-2,
    -0x1.15fa676bb08ffp-2, -0x1.c0db6cdd94deep-3, -0x1.51bab907a5c8ap-3, -0x1.e72ec117fa5b2p-4,
    -0x1.24b5b7e135a3dp-4, 0x0p0, 0x0p0, 0x1.097e38ce60649p-3,
    0x1.b2602497d5346p-3, 0x1.249cd2b13cd6cp-2, 0x1.6cb0f6865c8eap-2, 0x1.b0b67f4f4681p-2,
};
// log2(1 + r) / r for r from -0.0312 to 0.0625, to 2^-40.
static const double LOG2_NARROW[] = {
    0x1.71547652b92fcp0,  -0x1.7154765182dfep-1, 0x1.ec709cf58ad36p-2,  -0x1.715496843c7e7p-2,
    0x1.277e1a9a2b3b2p-2, -0x1.ec153b955f1d9p-3, 0x1.812ec6301ad92p-3,
};
// (2^t - 1) / t for |t| <= 1/2, to 2^-33.
static const double EXP2_NARROW[] = {
    0x1.62e42fef95e68p-1,  0x1.ebfbe04610fa5p-3,  0x1.c6b08dc5fde47p-5,  0x1.3b2a1b4d335d9p-7,
    0x1.5d874c5572c1dp-10, 0x1.4440230eec58ap-13, 0x1.00dc679e110ddp-16,
};

// x^y of a positive float that is not infinite, by a number that is not.
static inline F32 power_narrow(F64 x, F64 y) {
  struct place it = place_of(x);
  F64 r = fma64(it.m, lookup64(FACTORS, it.index), -1);
  F64 log = it.exponent + lookup64(LOGS2, it.index);
  // Floats end at 2^128 and 2^-149.
  F64 least = -1000, most = 1000, z = y * fma64(r, POLYNOMIAL64(LOG2_NARROW, r, r * r), log);
  z = z < least ? least : z > most ? most : z;
  F64 shifted = z + ROUNDER64, t = z - (shifted - ROUNDER64);
  F64 result = fma64(t, POLYNOMIAL64(EXP2_NARROW, t, t * t), 1);
  return narrow(scaled64(result, shifted));
}

// Adds the powers of 0 by positive numbers, where `plain` says that it is +0 or y an integer.
static inline struct power with_zero(struct power it, F64 x, F64 y, M64 plain) {
  M64 zero = (x == 0) & (y > 0);
  F64 nothing = 0;
  return (struct power){zero ? nothing : it.result, it.inside | (zero & plain)};
}

// Whether a number is +0 or positive. NaN may be either.
static inline M64 has_no_sign(F64 x) { return bits64(x) < 0x8000000000000000; }

// OpenCL's functions. A negative number has a power by an integer, which is negative if the integer is odd.

struct integer64 {
  M64 is_integer;
  U64 low_bits;
};

// Splits a number below 2^51.
static inline struct integer64 integer64(F64 y) {
  F64 shifted = y + ROUNDER64;
  return (struct integer64){shifted - ROUNDER64 == y, bits64(shifted)};
}

// x with the sign of `sign` if the integer is odd.
static inline F64 signed_power(F64 x, F64 sign, U64 low_bits) {
  return of_bits64(bits64(x) ^ (bits64(sign) & (low_bits << 63)));
}

static inline struct power powr_near(F64 x, F64 y) {
  struct power it = power(x, y, 0);
  it.inside &= is_usual64(x) & (abs64(y) < 0x1p900);
  return with_zero(it, x, y, y < 0x1p900);
}

static inline struct power pow_near(F64 x, F64 y) {
  struct integer64 whole = integer64(y);
  struct power it = power(abs64(x), y, 0);
  M64 plain = (abs64(y) < 0x1p51) & (has_no_sign(x) | whole.is_integer);
  it.inside &= is_usual64(abs64(x)) & plain;
  it = with_zero(it, x, y, plain);
  it.result = signed_power(it.result, x, whole.low_bits);
  return it;
}

static inline struct power pown_near(F64 x, F64 n) {
  struct power it = power(abs64(x), n, 0);
  it.inside &= is_usual64(abs64(x));
  it.result = signed_power(it.result, x, integer64(n).low_bits);
  return it;
}

// An even root of a negative number is NaN, which is far.
static inline struct power rootn_near(F64 x, F64 n) {
  F64 inverse = 1 / n, product = n * inverse;
  F64 more = ((1 - product) - lost64(n, inverse, product)) * inverse;
  U64 low_bits = integer64(n).low_bits;
  struct power it = power(abs64(x), inverse, more);
  it.inside &= is_usual64(abs64(x)) & ((x > 0) | ((low_bits & 1) != 0)) & (n != 0);
  it.result = signed_power(it.result, x, low_bits);
  return it;
}

FUNCTION64_OF_TWO(powr, powr_near(x, y).inside, powr_near(x, y).result)
FUNCTION64_OF_TWO(pow, pow_near(x, y).inside, pow_near(x, y).result)
FUNCTION64_WITH_INT(pown, pown_near(x, wide_of_int(n)).inside, pown_near(x, wide_of_int(n)).result)
FUNCTION64_WITH_INT(rootn, rootn_near(x, wide_of_int(n)).inside, rootn_near(x, wide_of_int(n)).result)

struct power32 {
  F32 result;
  M32 inside;
};

static inline M32 has_power32(F32 x) { return (x > 0) & (x < __builtin_inff()); }

// Adds the powers of 0 by positive numbers, where `plain` says that it is +0 or y an integer.
static inline struct power32 with_zero32(struct power32 it, F32 x, F32 y, M32 plain) {
  M32 zero = (x == 0) & (y > 0);
  F32 nothing = 0;
  return (struct power32){zero ? nothing : it.result, it.inside | (zero & plain)};
}

static inline F32 signed_power32(F32 x, F32 sign, U32 low_bits) {
  return of_bits32(bits32(x) ^ (bits32(sign) & (low_bits << 31)));
}

static inline struct power32 powr_near_32(F32 x, F32 y) {
  M32 finite = abs32(y) < __builtin_inff();
  struct power32 it = {power_narrow(wide(x), wide(y)), has_power32(x) & finite};
  return with_zero32(it, x, y, finite);
}

static inline struct power32 pow_near_32(F32 x, F32 y) {
  F32 size = abs32(x), shifted = y + ROUNDER32;
  M32 is_integer = (abs32(y) < 0x1p22f) & (shifted - ROUNDER32 == y);
  M32 plain = (abs32(y) < __builtin_inff()) & ((bits32(x) < 0x80000000) | is_integer);
  struct power32 it = {power_narrow(wide(size), wide(y)), has_power32(size) & plain};
  it = with_zero32(it, x, y, plain);
  // Where y is no integer, x has no sign to give.
  it.result = signed_power32(it.result, x, bits32(shifted));
  return it;
}

static inline struct power32 pown_near_32(F32 x, I32 n) {
  F32 size = abs32(x), result = power_narrow(wide(size), wide_of_int(n));
  return (struct power32){signed_power32(result, x, (U32)n), has_power32(size)};
}

static inline struct power32 rootn_near_32(F32 x, I32 n) {
  F32 size = abs32(x), result = power_narrow(wide(size), 1 / wide_of_int(n));
  M32 inside = has_power32(size) & ((x > 0) | (((U32)n & 1) != 0)) & (n != 0);
  return (struct power32){signed_power32(result, x, (U32)n), inside};
}

FUNCTION32_OF_TWO(powr, powr_near_32(x, y).inside, powr_near_32(x, y).result)
FUNCTION32_OF_TWO(pow, pow_near_32(x, y).inside, pow_near_32(x, y).result)
FUNCTION32_WITH_INT(pown, pown_near_32(x, n).inside, pown_near_32(x, n).result)
FUNCTION32_WITH_INT(rootn, rootn_near_32(x, n).inside, rootn_near_32(x, n).result)

#endif
