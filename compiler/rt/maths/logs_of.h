// SPDX-License-Identifier: MIT OR Apache-2.0
// The logarithm of doubles or floats, from the tables of logs.h.

#include "names.h"

#if BITS == 64
#define LN_2_FIRST LN_2_HIGH
#define LN_2_SECOND LN_2_REST
#else
#define LN_2_FIRST LN_2_HIGH_32
#define LN_2_SECOND LN_2_LOW_32
#endif

struct OF(constant) {
  NUMBER hi, lo;
};

// The logarithm to a base b: log_b(e), log_b(2) and log_b(1 / c) in two parts each.
static inline F OF(log_whole)(F x, struct OF(constant) one, struct OF(constant) two, const NUMBER high[16],
                              const NUMBER low[16]) {
  struct OF(parts) it = OF(parts)(x);
  U index = OF(index_of)(it.m);
  F r = OF(less_one)(it.m, lookup(OF(FACTORS), index)), square = r * r;
  F whole = fma(it.e, two.hi, lookup(high, index)), rest = lookup(low, index);
  rest = two.lo == 0 ? rest : fma(it.e, two.lo, rest);
  D first = {r, 0};
  if (one.hi != 1) {
    first = product(r, one.hi);
    first.lo = fma(r, one.lo, first.lo);
    square *= one.hi;
  }
  D total = sum(whole, first.hi);
  F result = total.hi + fma(square, POLYNOMIAL(OF(LOG_TAIL), r, r * r), total.lo + (rest + first.lo));
  // Infinite sums have no remainder.
  return result != result ? total.hi : result;
}

// log(m + rest), for an m from 0.75 to 1.5 and a small rest. m times the factor, less 1, is exact.
static inline D OF(log_around_one)(F m, F rest) {
  U index = OF(index_of)(m);
  F factor = lookup(OF(FACTORS), index), r = OF(less_one)(m, factor), left = rest * factor, square = r * r;
  F low = fma(square, POLYNOMIAL(OF(LOG_TAIL), r, square), fma(-left, r, left));
  D total = sum(lookup(OF(LN), index), r);
  return (D){total.hi, total.lo + (low + lookup(OF(LN_LOW), index))};
}

// The logarithm of a sum of two parts, the first of which is positive and normal.
static inline F OF(log_of_sum)(D whole) {
  struct OF(parts) it = OF(parts)(whole.hi);
  U index = OF(index_of)(it.m);
  F factor = lookup(OF(FACTORS), index), r = OF(less_one)(it.m, factor), square = r * r;
  // The second part divided by the power of two, and times the factor; it has the weight 1 / (1 + r).
  F left = whole.lo * of_bits(bits(it.m) + bits((F)1) - bits(whole.hi)) * factor;
  F rest = fma(-left, r, fma(it.e, LN_2_SECOND, lookup(OF(LN_LOW), index))) + left;
  D total = sum(fma(it.e, LN_2_FIRST, lookup(OF(LN), index)), r);
  return total.hi + fma(square, POLYNOMIAL(OF(LOG_TAIL), r, square), total.lo + rest);
}

#undef LN_2_FIRST
#undef LN_2_SECOND
#include "names_end.h"
