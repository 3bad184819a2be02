// SPDX-License-Identifier: MIT OR Apache-2.0
// Gamma functions: lgamma, lgamma_r, tgamma.
//
// Intervals and coefficients of lgamma are those of FreeBSD's msun (e_lgamma_r.c, 1993 by Sun Microsystems);
// those of tgamma are in gamma.h. Floats use the functions on doubles.

#include "../gamma.h"
#include "exact.h"

double __tally_far_log_f64(double x);
double __tally_far_sinpi_f64(double x);

#define PI 0x1.921fb54442d18p1

// lgamma(2 - y) + y/2 for 0 <= y <= 0.27, as y times a polynomial of y.
static const double LGAMMA_TWO[] = {
    0x1.3c467e37db0c8p-4, 0x1.4a34cc4a60fadp-2, 0x1.13e001a5562a7p-4, 0x1.51322ac92547bp-6,
    0x1.e404fb68fefe8p-8, 0x1.7add8ccb7926bp-9, 0x1.38a94116f3f5dp-10, 0x1.0b6c689b99cp-11,
    0x1.cf2eced10e54dp-13, 0x1.c5088987dfb07p-14, 0x1.a7074428cfa52p-16, 0x1.7858e90a45837p-15,
};

// lgamma near its minimum: lgamma(LGAMMA_AT + y) - LGAMMA_LEAST as y^2 times a polynomial of y.
#define LGAMMA_AT 0x1.762d86356be3fp+0
#define LGAMMA_LEAST -0x1.f19b9bcc38a42p-4
#define LGAMMA_LEAST_LOW -0x1.0c7caa48a971fp-58
static const double LGAMMA_MINIMUM[] = {
    0x1.ef72bc8ee38a2p-2, -0x1.2e4278dc6c509p-3, 0x1.08b4294d5419bp-4, -0x1.0c9a8df35b713p-5,
    0x1.266e7970af9ecp-6, -0x1.51f9fba91ec6ap-7, 0x1.8fce0e370e344p-8, -0x1.e2effb3e914d7p-9,
    0x1.282d32e15c915p-9, -0x1.6fe8ebf2d1af1p-10, 0x1.cdf0cef61a8e9p-11, -0x1.1a6109c73e0ecp-11,
    0x1.4af6d6c0ebbf7p-12, -0x1.47f24ecc38c38p-12, 0x1.5fd3ee8c2d3f4p-12,
};

// lgamma(1 + y) + y/2 for |y| <= 0.23, as y times a ratio.
static const double LGAMMA_ONE_NUM[] = {
    -0x1.3c467e37db0c8p-4, 0x1.4401e8b005dffp-1, 0x1.7475cd119bd6fp0, 0x1.f497644ea845p-1,
    0x1.d4eaef6010924p-3, 0x1.b678bbf2bab09p-7,
};
static const double LGAMMA_ONE_DEN[] = {
    0x1p0, 0x1.3a5d7c2bd619cp1, 0x1.10725a42b18f5p1, 0x1.89dfbe45050afp-1, 0x1.aae55d6537c88p-4,
    0x1.a5abb57d0cf61p-9,
};

// lgamma(2 + y) - y/2 for 0 <= y <= 1, as y times a ratio.
static const double LGAMMA_MIDDLE_NUM[] = {
    -0x1.3c467e37db0c8p-4, 0x1.b848b36e20878p-3, 0x1.4d98f4f139f59p-2, 0x1.2bb9cbee5f2f7p-3,
    0x1.b481c7e939961p-6, 0x1.e26b67368f239p-10, 0x1.0bfecdd17e945p-15,
};
static const double LGAMMA_MIDDLE_DEN[] = {
    0x1p0, 0x1.645a762c4ab74p0, 0x1.71a1893d3dcdcp-1, 0x1.601edccfbdf27p-3, 0x1.317ea742ed475p-6,
    0x1.97ddaca41a95bp-11, 0x1.ebaf7a5b3814p-18,
};

// Stirling's series: lgamma(x) - (x - 1/2) (log(x) - 1), the constant and then odd powers of 1/x.
static const double LGAMMA_LARGE[] = {
    0x1.acfe390c97d69p-2, 0x1.555555555553bp-4, -0x1.6c16c16b02e5cp-9, 0x1.a019f98cf38b6p-11,
    -0x1.380cb8c0fe741p-11, 0x1.b67ba4cdad5d1p-11, -0x1.ab89d0b9e43e4p-10,
};

static inline double lgamma_near_two(double y) { return y * POLYNOMIAL(LGAMMA_TWO, y) - 0.5 * y; }

static inline double lgamma_near_minimum(double y) {
  return LGAMMA_LEAST + (y * y * POLYNOMIAL(LGAMMA_MINIMUM, y) - LGAMMA_LEAST_LOW);
}

static inline double lgamma_near_one(double y) {
  return y * (POLYNOMIAL(LGAMMA_ONE_NUM, y) / POLYNOMIAL(LGAMMA_ONE_DEN, y)) - 0.5 * y;
}

// 0 < x < 2.
static inline double lgamma_small(double x) {
  if (x > 0.9) {
    if (x >= 1.7316)
      return lgamma_near_two(2 - x);
    return x >= 1.2316 ? lgamma_near_minimum(x - LGAMMA_AT) : lgamma_near_one(x - 1);
  }
  // lgamma(x) = lgamma(1 + x) - log(x).
  double log = __tally_far_log_f64(x);
  if (x >= 0.7316)
    return lgamma_near_two(1 - x) - log;
  return (x >= 0.2316 ? lgamma_near_minimum(x - (LGAMMA_AT - 1)) : lgamma_near_one(x)) - log;
}

// lgamma(x) for x > 0.
static double lgamma_positive(double x) {
  if (x == 1 || x == 2)
    return 0;
  if (x < 2)
    return lgamma_small(x);
  if (x < 8) {
    double whole = truncate(x), y = x - whole, product = 1;
    for (double factor = 2; factor < whole; factor++)
      product *= y + factor;
    double ratio = POLYNOMIAL(LGAMMA_MIDDLE_NUM, y) / POLYNOMIAL(LGAMMA_MIDDLE_DEN, y);
    return 0.5 * y + y * ratio + __tally_far_log_f64(product);
  }
  if (x >= 0x1p58)
    return is_inf(x) ? x : x * (__tally_far_log_f64(x) - 1);
  double inverse = 1 / x;
  double series = polynomial(LGAMMA_LARGE + 1, 6, inverse * inverse);
  return (x - 0.5) * (__tally_far_log_f64(x) - 1) + (LGAMMA_LARGE[0] + inverse * series);
}

double __tally_far_lgamma_r_f64(double x, int32_t *sign) {
  *sign = 1;
  if (is_nan(x))
    return x;
  if (x > 0)
    return lgamma_positive(x);
  if (is_inf(x))
    return __builtin_inf();
  double a = -x;
  if (a < 0x1p-70) {
    *sign = sign_of(x) ? -1 : 1;
    return -__tally_far_log_f64(a);
  }
  // Reflection: |gamma(-a)| = pi / (a |sin(pi a)| gamma(a)).
  double sine = __tally_far_sinpi_f64(a);
  if (sine == 0)
    return __builtin_inf();
  *sign = sine > 0 ? -1 : 1;
  return __tally_far_log_f64(PI / (__builtin_fabs(sine) * a)) - lgamma_positive(a);
}

double __tally_far_lgamma_f64(double x) {
  int32_t sign;
  return __tally_far_lgamma_r_f64(x, &sign);
}

// The ratio of the two polynomials; from 8 on by the inverse, whose powers do not overflow.
static inline double lanczos(double x) {
  if (x < 8)
    return POLYNOMIAL(LANCZOS_NUM, x) / POLYNOMIAL(LANCZOS_DEN, x);
  double inverse = 1 / x, num = 0, den = 0;
  for (int i = 0; i < 13; i++) {
    num = num * inverse + LANCZOS_NUM[i];
    den = den * inverse + LANCZOS_DEN[i];
  }
  return num / den;
}

double __tally_far_tgamma_f64(double x) {
  double a = __builtin_fabs(x);
  if (is_nan(x) || x == __builtin_inf())
    return x;
  if (a < 0x1p-54)
    return 1 / x;
  if (x > 172)
    return __builtin_inf();
  double sine = x < 0 ? __tally_far_sinpi_f64(a) : 1;
  if (sine == 0 || is_inf(x))
    return __builtin_nan("");
  if (a > 190)
    return __builtin_copysign(0, -sine);
  // gamma(a) = lanczos(a) e^t with t = (a - 1/2) log(a + shift) - (a + shift).
  struct dd base = two_sum(a, LANCZOS_SHIFT);
  struct dd log = log_sum(base.hi, base.lo);
  struct dd t = dd_add(dd_multiply(log, two_sum(a, -0.5)), dd_negate(base));
  double ratio = lanczos(a);
  if (x > 0)
    return exp_sum(t.hi, t.lo, -2) * ratio * 4;
  // Reflection, scaled so that only the last product may be subnormal.
  double inverse = exp_sum(-t.hi, -t.lo, 100);
  return -PI / (a * sine * ratio) * inverse * 0x1p-100;
}
