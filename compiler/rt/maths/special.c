// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions that only have the complete forms: erfc, lgamma, lgamma_r, tgamma.

#include <stdint.h>

#if LANES == 1
#define COMPLETE(name)                                                                                       \
  double __tally_far_##name##_f64(double);                                                                   \
  double __tally_##name##_f64(double x) { return __tally_far_##name##_f64(x); }                              \
  float __tally_##name##_f32(float x) { return (float)__tally_far_##name##_f64((double)x); }

COMPLETE(erfc)
COMPLETE(lgamma)
COMPLETE(tgamma)

double __tally_far_lgamma_r_f64(double, int32_t *);
double __tally_lgamma_r_f64(double x, int32_t *sign) { return __tally_far_lgamma_r_f64(x, sign); }
float __tally_lgamma_r_f32(float x, int32_t *sign) { return (float)__tally_far_lgamma_r_f64((double)x, sign); }
#endif
