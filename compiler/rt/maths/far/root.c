// SPDX-License-Identifier: MIT OR Apache-2.0
// Cube roots.

#include "exact.h"

// A third of the exponent, and of the mantissa on the way from 1 to 2 (Kahan's first estimate, as in
// FreeBSD's msun, s_cbrt.c); then Halley's iteration, which triples the number of correct bits.
static inline double cbrt_guess(double x) {
  double t = double_of_bits(bits_of_double(x) / 3 + ((uint64_t)715094163 << 32));
  for (int i = 0; i < 2; i++) {
    double cube = t * t * t;
    t *= (cube + 2 * x) / (2 * cube + x);
  }
  return t;
}

double __tally_far_cbrt_f64(double x) {
  double magnitude = __builtin_fabs(x);
  if (magnitude == 0 || !(magnitude < __builtin_inf()))
    return x;
  // Scales by a power of 8 to a range in which neither the cube overflows nor its error underflows.
  double unit = 1;
  if (magnitude < 0x1p-600) {
    magnitude *= 0x1p600;
    unit = 0x1p-200;
  } else if (magnitude > 0x1p600) {
    magnitude *= 0x1p-600;
    unit = 0x1p200;
  }
  double t = cbrt_guess(magnitude);
  // One Newton step with an exact residue.
  struct dd cube = dd_multiply_double(two_product(t, t), t);
  double rest = (magnitude - cube.hi) - cube.lo;
  return __builtin_copysign((t + rest / (3 * t * t)) * unit, x);
}
