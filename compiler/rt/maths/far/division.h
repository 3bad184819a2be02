// SPDX-License-Identifier: MIT OR Apache-2.0
// Division of any two numbers with the exact remainder.

#ifndef DIVISION_H
#define DIVISION_H

#include "exact.h"

struct division {
  double remainder;
  // The low bits of the quotient, which is not negative.
  uint32_t quotient;
};

// |x| divided by |y|; the remainder belongs to the quotient rounded towards zero, or to the nearest one,
// and its sign is multiplied by that of x. NaN if there is none.
static inline struct division divide(double x, double y, bool nearest) {
  if (is_nan(x) || is_nan(y) || is_inf(x) || y == 0)
    return (struct division){__builtin_nan(""), 0};
  if (is_inf(y) || x == 0)
    return (struct division){x, 0};
  struct integer a = integer_of(x), b = integer_of(y);
  if (a.exponent < b.exponent) {
    // Less than half of y, unless the exponents are neighbours.
    if (a.exponent < b.exponent - 1)
      return (struct division){x, 0};
    b = (struct integer){b.fraction << 1, a.exponent};
  }
  uint64_t quotient = a.fraction / b.fraction, rest = a.fraction % b.fraction;
  // Long division, each step with as many bits as fit above the 53 of the remainder.
  for (int32_t left = a.exponent - b.exponent; left > 0;) {
    if (rest == 0) {
      quotient = left < 64 ? quotient << left : 0;
      break;
    }
    int32_t step = left < 11 ? left : 11;
    quotient = (quotient << step) + (rest << step) / b.fraction;
    rest = (rest << step) % b.fraction;
    left -= step;
  }
  bool up = nearest && (2 * rest > b.fraction || (2 * rest == b.fraction && (quotient & 1)));
  quotient += up;
  double size = up ? -(double)(b.fraction - rest) : (double)rest;
  double remainder = scale(size, b.exponent);
  remainder = rest == 0 ? 0 : remainder;
  return (struct division){sign_of(x) ? -remainder : remainder, (uint32_t)quotient};
}

#endif
