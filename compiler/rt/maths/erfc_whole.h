// SPDX-License-Identifier: MIT OR Apache-2.0
// erfc of doubles, and of floats with registers of 512 bits: e^(-x^2) times a function that is a polynomial on
// intervals, whose length grows with x.

#include "names.h"

#if BITS == 64
#define FIRST_PART LN_2_HIGH
#define SECOND_PART LN_2_REST
#define EXP_TAIL EXP_TAIL_64
// From here on erfc is 0, or 2.
#define MOST 27.3
// The intervals of 2 + x: a quarter of a power of two. Bits of a number in it, and the bits in the middle.
#define INTERVAL 0x3ffffffffffff
#define MIDDLE 0x2000000000000
#define INDEX_SHIFT 50
#else
#define FIRST_PART LN_2_HIGH_32
#define SECOND_PART LN_2_LOW_32
#define EXP_TAIL EXP_SHORT_32
#define MOST 10.1f
// An eighth.
#define INTERVAL 0xfffff
#define MIDDLE 0x80000
#define INDEX_SHIFT 20
#endif

// With registers of 512 bits for all numbers; else the result may be subnormal or 0 if `far` is true.
static inline F OF(erfc_of)(F x, bool far) {
  F limit = MOST, size = abs(x), to = size > limit ? limit : size;
  U in = bits(to + 2);
  struct OF(piece) at = {in >> INDEX_SHIFT, to - (of_bits((in & ~(U)INTERVAL) | MIDDLE) - 2)};
  D square = product(to, to);
  F factor = PIECES(OF(ERFC_PIECES), at);
#ifdef TALLY_AVX512
  (void)far;
  F shifted = fma(-square.hi, (NUMBER)LOG2_E, SIXTEENTHS), count = shifted - SIXTEENTHS;
  F r = fma(-count, SECOND_PART, fma(-count, FIRST_PART, -square.hi)) - square.lo;
  F tail = OF(power)(factor, r, shifted, 1, EXP_TAIL, OF(not_below)(-size, -MOST));
#else
  struct reduced64 e = reduce64(-square.hi, -square.lo);
  F64 more = fma64(e.r * e.r, POLYNOMIAL64(EXP64, e.r, e.r * e.r), e.rest) + e.r, power = fma64(factor, more, factor);
  F64 tail = far ? scaled_far64(power, e.shifted) : scaled64(power, e.shifted);
#endif
  return x < 0 ? 2 - tail : tail;
}

#undef FIRST_PART
#undef SECOND_PART
#undef EXP_TAIL
#undef MOST
#undef INTERVAL
#undef MIDDLE
#undef INDEX_SHIFT
#include "names_end.h"
