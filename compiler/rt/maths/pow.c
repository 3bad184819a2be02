// SPDX-License-Identifier: MIT OR Apache-2.0
// Powers: pow, powr, pown, rootn.

#include "exponential.h"
#include "logs.h"

#ifdef TALLY_AVX512
#include "powers.h"
#else

static inline M32 is_finite32(F32 x) { return abs32(x) < __builtin_inff(); }

// Powers that are precise enough for floats.

// -log2(c) for the factors of logs.h.
static const double LOG2_FACTORS64[16] = {
    0x0p0, 0x1.22dadc2ab3497p-3, 0x1.8a8980abfbd32p-3, 0x1.32bfee370ee68p-2,
    0x1.6cb0f6865c8eap-2, 0x1.a8ff971810a5ep-2, 0x1.e7df5fe538ab3p-2, 0x1.14c560fe68af9p-1,
    -0x1.91bba891f1709p-2, -0x1.49a784bcd1b8bp-2, -0x1.24407ab0e073ap-2, -0x1.acf5e2db4ec94p-3,
    -0x1.5c01a39fbd688p-3, -0x1.08c588cda79e4p-3, -0x1.663f6fac91316p-4, 0x0p0,
};
// log2(1 + r) / r for r from -0.0373 to 0.0626, to 2^-39.
static const double LOG2_NARROW[] = {
    0x1.71547652ba5ccp0, -0x1.7154765238a5bp-1, 0x1.ec709c5b4445ep-2, -0x1.71547b816a343p-2,
    0x1.277fc512bafeep-2, -0x1.ecdc1178bd4c1p-3, 0x1.8844f9bbe1221p-3,
};
// (2^t - 1) / t for |t| <= 1/2, to 2^-33.
static const double EXP2_NARROW[] = {
    0x1.62e42fef95e68p-1,  0x1.ebfbe04610fa5p-3,  0x1.c6b08dc5fde47p-5,  0x1.3b2a1b4d335d9p-7,
    0x1.5d874c5572c1dp-10, 0x1.4440230eec58ap-13, 0x1.00dc679e110ddp-16,
};

// x^y of a positive float that is not infinite, by a number that is not.
static inline F32 power_narrow(F64 x, F64 y) {
  struct parts64 it = parts64(x);
  U64 index = index_of64(it.m);
  F64 r = fma64(it.m, lookup64(FACTORS64, index), -1), log = it.e + lookup64(LOG2_FACTORS64, index);
  // Floats end at 2^128 and 2^-149.
  F64 least = -1000, most = 1000, z = y * fma64(r, POLYNOMIAL64(LOG2_NARROW, r, r * r), log);
  z = z < least ? least : z > most ? most : z;
  F64 shifted = z + ROUNDER64, t = z - (shifted - ROUNDER64);
  F64 result = fma64(t, POLYNOMIAL64(EXP2_NARROW, t, t * t), 1);
  return narrow(scaled64(result, shifted));
}
#endif

#if LANES != 16
#define BITS 64
#include "pow_of.h"
#undef BITS

static inline D64 parts_of_int64(I32 n) { return (D64){wide_of_int(n), 0}; }
static inline U64 low_bits64(I32 n) { return bits64(wide_of_int(n) + ROUNDER64); }
#endif

#define BITS 32
#include "pow_of.h"
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

// The largest exponent, and its number of bits, for which numbers are multiplied.
#define MOST_FACTORS 15
#define FACTOR_BITS 4

// Powers by such integers, as doubles, which round hardly ever and hold what overflows on the way.
static inline F32 pown_small(F32 x, I32 n) {
  F64 factor = wide(x), result = 1;
  U32 count = (U32)(n < 0 ? -n : n);
#pragma clang loop unroll(full)
  for (int i = 0; i < FACTOR_BITS; i++) {
    result = wide_mask((count >> i & 1) != 0) ? result * factor : result;
    factor *= factor;
  }
  if (!ALL(n >= 0))
    result = wide_mask(n < 0) ? 1 / result : result;
  return narrow(result);
}

// A number has the same power in whatever vector it is.
static inline struct raised32 pown_any(F32 x, I32 n) {
  M32 small = (n >= -MOST_FACTORS) & (n <= MOST_FACTORS), large = (n < -MOST_FACTORS) | (n > MOST_FACTORS);
  if (__builtin_expect(ALL(small), 1))
    return (struct raised32){pown_small(x, n), small};
  struct raised32 it = WITH_INT(pown, 32);
  I32 none = 0;
  if (!ALL(large)) {
    F32 result = pown_small(x, small ? n : none);
    it = (struct raised32){small ? result : it.result, small | it.inside};
  }
  return it;
}

CONST double FAR(pown)(double, int32_t);
#if LANES == 1
F32 __tally_pown_f32(F32 x, I32 n) {
  struct raised32 it = pown_any(x, n);
  return it.inside ? it.result : (F32)FAR(pown)((double)x, n);
}
#else
RARE F32 pown_of_far(F32 x, I32 n, F32 result, M32 is_inside) {
  for (int i = 0; i < LANES; i++)
    if (!is_inside[i])
      result[i] = (float)FAR(pown)((double)x[i], n[i]);
  return result;
}
F32 SHAPED(__tally_pown_f32)(F32 x, I32 n) {
  struct raised32 it = pown_any(x, n);
  return __builtin_expect(ALL(it.inside), 1) ? it.result : pown_of_far(x, n, it.result, it.inside);
}
#endif
FUNCTION32_WITH_INT(rootn, WITH_INT(rootn, 32).inside, WITH_INT(rootn, 32).result)
