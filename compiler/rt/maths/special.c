// SPDX-License-Identifier: MIT OR Apache-2.0
// lgamma_r: lgamma with the sign of gamma. That of doubles only has the complete form.

#include <stdbool.h>
#include <stdint.h>

#if LANES == 1
double __tally_far_lgamma_r_f64(double, int32_t *);
float __tally_lgamma_f32(float);
double __tally_lgamma_r_f64(double x, int32_t *sign) { return __tally_far_lgamma_r_f64(x, sign); }

float __tally_lgamma_r_f32(float x, int32_t *sign) {
  // Gamma is negative between -0 and -1, between -2 and -3, and so on. Large floats are integers.
  int32_t whole = x > -0x1p24f && x < 0 ? (int32_t)x : 1;
  bool is_negative = x == 0 ? __builtin_signbit(x) : x < 0 && (float)whole != x && !(whole & 1);
  *sign = is_negative ? -1 : 1;
  return __tally_lgamma_f32(x);
}
#endif
