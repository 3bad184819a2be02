// SPDX-License-Identifier: MIT OR Apache-2.0
// Powers of doubles or floats, from the tables of powers.h.

#include "names.h"

// factor b^r 2^count, where `shifted` is the count plus what rounds it to sixteenths, and b^r - 1 is
// r log_b + r^2 tail(r); 0 in lanes that are not kept.
static inline F OF(power)(F factor, F r, F shifted, NUMBER log_b, const NUMBER tail[], OF(KEPT) kept) {
  F first = fma(r, log_b, lookup(OF(POWERS_REST), bits(shifted))), square = r * r;
  F more = fma(square, polynomial(tail, BITS == 64 ? 6 : 2, r, square), first);
  F whole = lookup(OF(POWERS), bits(shifted)) * factor;
  return OF(raised_or_zero)(fma(whole, more, whole), shifted - SIXTEENTHS, kept);
}

#include "names_end.h"
