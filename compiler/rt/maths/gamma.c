// SPDX-License-Identifier: MIT OR Apache-2.0
// The gamma function and its logarithm, tgamma and lgamma, of positive numbers. Floats are computed as doubles:
// then lgamma's terms may cancel each other around its zeros. That of doubles only has the complete form.

#include "gamma.h"
#include "logarithm.h"

// The logarithm of a sum whose first part is at least 1, in two parts.
static inline D64 log_in_two64(D64 sum) {
  struct split64 it = split64(sum.hi);
  F64 unit = of_bits64(bits64(it.m) + 0x3ff0000000000000 - bits64(sum.hi));
  D64 log = log_around_one64(it.m, sum.lo * unit), most = sum64(it.exponent * LN_2_HIGH, log.hi);
  return (D64){most.hi, most.lo + fma64(it.exponent, LN_2_REST, log.lo)};
}

struct gamma {
  F64 ratio;
  D64 t;
};

static inline struct gamma gamma_of(F64 x) {
  F64 square = x * x, below = x - 0.5;
  F64 ratio = POLYNOMIAL64(LANCZOS_NUM, x, square) / POLYNOMIAL64(LANCZOS_DEN, x, square);
  D64 base = any_sum64(x, LANCZOS_SHIFT), log = log_in_two64(base), most = product64(below, log.hi);
  D64 t = any_sum64(most.hi, -base.hi);
  t.lo += fma64(below, log.lo, most.lo) - base.lo;
  return (struct gamma){ratio, t};
}

static inline F64 tgamma_near(F64 x) {
  struct gamma it = gamma_of(x);
  struct reduced64 e = reduce64(it.t.hi, it.t.lo);
  return scaled64(exp64(e.r, e.rest) * it.ratio, e.shifted);
}

static inline F64 lgamma_near(F64 x) {
  struct gamma it = gamma_of(x);
  struct split64 ratio = split64(it.ratio);
  D64 log = log_around_one64(ratio.m, 0), most = any_sum64(it.t.hi, ratio.exponent * LN_2_HIGH);
  most = any_sum64(most.hi, log.hi + most.lo);
  return most.hi + (most.lo + (it.t.lo + fma64(ratio.exponent, LN_2_REST, log.lo)));
}

FUNCTION64(tgamma, (x >= 0x1p-50) & (x <= 170.0), tgamma_near(x))
FUNCTION32(tgamma, (x >= 0x1p-50f) & (x <= 35.0f), narrow(tgamma_near(wide(x))))
FUNCTION64(lgamma, x != x, x)
static inline F32 lgamma_near_32(F32 x) {
  F32 result = narrow(lgamma_near(wide(x)));
  return ((x == 1) | (x == 2)) ? 0 : result;
}

FUNCTION32(lgamma, (x >= 0x1p-50f) & (x <= 0x1p20f), lgamma_near_32(x))
