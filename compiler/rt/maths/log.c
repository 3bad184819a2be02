// SPDX-License-Identifier: MIT OR Apache-2.0
// Logarithms: log, log2, log10, log1p.

#include "logarithm.h"

// log2(e) and log10(e) in two parts; log10(2) with a first part of 40 bits, or of 12.
#define LOG2_E_LOW 0x1.777d0ffda0d24p-56
#define LOG10_E 0x1.bcb7b1526e50ep-2
#define LOG10_E_LOW 0x1.95355baaafad3p-57
#define LOG10_2_HIGH 0x1.34413509f6p-2
#define LOG10_2_REST 0x1.9fef311f12b36p-42
#define LOG2_E_LOW_32 0x1.4ae0cp-26f
#define LOG10_E_32 0x1.bcb7b2p-2f
#define LOG10_E_LOW_32 -0x1.5b235ep-27f
#define LOG10_2_HIGH_32 0x1.344p-2f
#define LOG10_2_REST_32 0x1.3509f8p-18f

// log * factor, where the factor is in two parts, + more.
static inline D64 times64(D64 log, double factor, double factor_low, F64 more) {
  D64 product = product64(log.hi, factor);
  product.lo += fma64(log.hi, factor_low, fma64(log.lo, factor, more));
  return product;
}

static inline D32 times32(D32 log, float factor, float factor_low, F32 more) {
  D32 product = product32(log.hi, factor);
  product.lo += fma32(log.hi, factor_low, fma32(log.lo, factor, more));
  return product;
}

static inline F64 log_of(struct split64 it) {
  return with_exponent64(log_around_one64(it.m, 0), it.exponent);
}

static inline F64 log2_of(struct split64 it) {
  return joined64(it.exponent, times64(log_around_one64(it.m, 0), LOG2_E, LOG2_E_LOW, 0));
}

static inline F64 log10_of(struct split64 it) {
  D64 log = times64(log_around_one64(it.m, 0), LOG10_E, LOG10_E_LOW, it.exponent * LOG10_2_REST);
  return joined64(it.exponent * LOG10_2_HIGH, log);
}

static inline F64 log1p_near(F64 x) { return abs64(x) < 0x1p-53 ? x : log_of_sum64(any_sum64(1, x)); }

#ifndef TALLY_AVX512
FUNCTION64_OR(log, is_usual64(x), log_of(split64(x)), log_of_far64(x, log_of(split_subnormal64(x))))
FUNCTION64_OR(log2, is_usual64(x), log2_of(split64(x)), log_of_far64(x, log2_of(split_subnormal64(x))))
FUNCTION64_OR(log10, is_usual64(x), log10_of(split64(x)), log_of_far64(x, log10_of(split_subnormal64(x))))
#elif LANES != 16
#define LOG_WHOLE64(x, one, one_low, two, two_low, table)                                                    \
  log_whole64(x, (struct constant64){one, one_low}, (struct constant64){two, two_low}, table##64, table##_LOW64)
WHOLE64(log, LOG_WHOLE64(x, 1, 0, LN_2_HIGH, LN_2_REST, LN))
WHOLE64(log2, LOG_WHOLE64(x, LOG2_E, LOG2_E_LOW, 1, 0, LOG2))
WHOLE64(log10, LOG_WHOLE64(x, LOG10_E, LOG10_E_LOW, LOG10_2_HIGH, LOG10_2_REST, LOG10))
#endif
FUNCTION64(log1p, (x > -1) & (x <= 0x1p1000), log1p_near(x))

static inline F32 log_of_32(struct split32 it) {
  return with_exponent32(log_around_one32(it.m, 0), it.exponent);
}

static inline F32 log2_of_32(struct split32 it) {
  return joined32(it.exponent, times32(log_around_one32(it.m, 0), (float)LOG2_E, LOG2_E_LOW_32, 0));
}

static inline F32 log10_of_32(struct split32 it) {
  F32 more = it.exponent * LOG10_2_REST_32;
  D32 log = times32(log_around_one32(it.m, 0), LOG10_E_32, LOG10_E_LOW_32, more);
  return joined32(it.exponent * LOG10_2_HIGH_32, log);
}

static inline F32 log1p_near_32(F32 x) {
  return abs32(x) < 0x1p-24f ? x : log_of_sum32(any_sum32(1, x));
}

#ifndef TALLY_AVX512
FUNCTION32_OR(log, is_usual32(x), log_of_32(split32(x)), log_of_far32(x, log_of_32(split_subnormal32(x))))
FUNCTION32_OR(log2, is_usual32(x), log2_of_32(split32(x)), log_of_far32(x, log2_of_32(split_subnormal32(x))))
FUNCTION32_OR(log10, is_usual32(x), log10_of_32(split32(x)), log_of_far32(x, log10_of_32(split_subnormal32(x))))
#else
#define LOG_WHOLE32(x, one, one_low, two, two_low, table)                                                    \
  log_whole32(x, (struct constant32){one, one_low}, (struct constant32){two, two_low}, table##32, table##_LOW32)
WHOLE32(log, LOG_WHOLE32(x, 1, 0, LN_2_HIGH_32, LN_2_LOW_32, LN))
WHOLE32(log2, LOG_WHOLE32(x, (float)LOG2_E, LOG2_E_LOW_32, 1, 0, LOG2))
WHOLE32(log10, LOG_WHOLE32(x, LOG10_E_32, LOG10_E_LOW_32, LOG10_2_HIGH_32, LOG10_2_REST_32, LOG10))
#endif
FUNCTION32(log1p, (x > -1) & (x <= 0x1p120f), log1p_near_32(x))
