// SPDX-License-Identifier: MIT OR Apache-2.0
// lgamma_r, which only has the complete form: lgamma with the sign of gamma.

#include <stdint.h>

#if LANES == 1
double __tally_far_lgamma_r_f64(double, int32_t *);
float __tally_lgamma_f32(float);
double __tally_lgamma_r_f64(double x, int32_t *sign) { return __tally_far_lgamma_r_f64(x, sign); }
float __tally_lgamma_r_f32(float x, int32_t *sign) {
  __tally_far_lgamma_r_f64((double)x, sign);
  return __tally_lgamma_f32(x);
}
#endif
