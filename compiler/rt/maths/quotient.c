// SPDX-License-Identifier: MIT OR Apache-2.0
// Quotients of doubles that are normal numbers, as are their quotients, up to one unit in the last place off: those of
// integers need no more. With registers of 512 bits an estimate of the inverse is four times as fast as a division.

#include "lanes.h"

#if LANES == 8
// A call would cost more than the instructions.
__attribute__((always_inline)) F64 SHAPED(__tally_near_quotient_f64)(F64 a, F64 b) {
#ifdef TALLY_AVX512
  F64 rough = __builtin_ia32_rcp14pd512_mask(b, b, -1);
  // y (1 - e)^-1, three times as many digits as the estimate has.
  F64 e = fma64(-b, rough, 1), inverse = fma64(rough, fma64(e, e, e), rough), quotient = a * inverse;
  return fma64(fma64(-quotient, b, a), inverse, quotient);
#else
  return a / b;
#endif
}
#endif
