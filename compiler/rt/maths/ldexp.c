// SPDX-License-Identifier: MIT OR Apache-2.0
// ldexp: a number times a power of two, rounded once.

#ifdef TALLY_AVX512
#include "powers.h"

// One instruction, which is good for all numbers.
#if LANES != 16
F64 SHAPED(__tally_ldexp_f64)(F64 x, I32 n) { return raised_or_zero64(x, wide_of_int(n), (KEPT64)-1); }
#endif
F32 SHAPED(__tally_ldexp_f32)(F32 x, I32 n) { return raised_or_zero32(x, float_of_int(n), (KEPT32)-1); }
#else
#include "lanes.h"

static inline I32 between(I32 n, int32_t least, int32_t most) {
  I32 low = least, high = most;
  n = n < low ? low : n;
  return n > high ? high : n;
}

// 2^n for -1,022 to 1,023.
static inline F64 power_of_two(I32 n) { return of_bits64(bits64(wide_of_int(n) + 0x1.80000000003ffp52) << 52); }

// The power comes in two parts. What is normal in the end was normal in between, or exact.
static inline F64 ldexp_near(F64 x, I32 n) {
  I32 half = n >> 1;
  return x * power_of_two(half) * power_of_two(n - half);
}

static inline M64 is_normal(F64 result, I32 n) {
  return (abs64(result) >= 0x1p-1022) & (abs64(wide_of_int(n)) <= 2044);
}

#define RESULT ldexp_near(x, between(n, -2044, 2044))
FUNCTION64_WITH_INT(ldexp, is_normal(RESULT, n), RESULT)

// A double has room for all bits of a float's result.
F32 SHAPED(__tally_ldexp_f32)(F32 x, I32 n) { return narrow(wide(x) * power_of_two(between(n, -500, 500))); }
#endif
