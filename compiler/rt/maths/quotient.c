// SPDX-License-Identifier: MIT OR Apache-2.0
// Quotients of doubles for the compiler's own use: those of integers need no more.

#include "lanes.h"

#if LANES == 8
// A call would cost more than the instructions.
__attribute__((always_inline)) F64 SHAPED(__tally_near_quotient_f64)(F64 a, F64 b) { return near_quotient64(a, b); }
#endif
