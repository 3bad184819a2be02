// SPDX-License-Identifier: MIT OR Apache-2.0
// Error and gamma functions: erfc, lgamma, lgamma_r, tgamma.
//
// Intervals and coefficients of the error functions and of lgamma are those of FreeBSD's msun
// (s_erf.c, e_lgamma_r.c, 1993 by Sun Microsystems); those of tgamma are in gamma.h. Floats use the functions
// on doubles.

#include "../gamma.h"
#include "exact.h"

double __tally_far_log_f64(double x);
double __tally_far_sinpi_f64(double x);

#define PI 0x1.921fb54442d18p1

// (erf(x) - x) / x for |x| < 0.84375, as a function of x^2.
static const double ERF_SMALL_NUM[] = {
    0x1.06eba8214db68p-3, -0x1.4cd7d691cb913p-2, -0x1.d2a51dbd7194fp-6, -0x1.7a291236668e4p-8,
    -0x1.8ead6120016acp-16,
};
static const double ERF_SMALL_DEN[] = {
    0x1p0, 0x1.97779cddadc09p-2, 0x1.0a54c5536cebap-4, 0x1.4d022c4d36b0fp-8, 0x1.15dc9221c1a1p-13,
    -0x1.09c4342a2612p-18,
};

// erf(1 + s) - ERF_NEAR_ONE for 0.84375 <= |x| < 1.25.
#define ERF_NEAR_ONE 0x1.b0ac160000000p-1
static const double ERF_ONE_NUM[] = {
    -0x1.359b8bef77538p-9, 0x1.a8d00ad92b34dp-2, -0x1.7d240fbb8c3f1p-2, 0x1.45fca805120e4p-2,
    -0x1.c63983d3e28ecp-4, 0x1.22a36599795ebp-5, -0x1.1bf380a96073fp-9,
};
static const double ERF_ONE_DEN[] = {
    0x1p0, 0x1.b3e6618eee323p-4, 0x1.14af092eb6f33p-1, 0x1.2635cd99fe9a7p-4, 0x1.02660e763351fp-3,
    0x1.bedc26b51dd1cp-7, 0x1.88b545735151dp-7,
};

// log(x erfc(x)) + x^2 + 0.5625 for 1.25 <= x < 1/0.35, as a function of 1/x^2.
static const double ERFC_MIDDLE_NUM[] = {
    -0x1.43412600d6435p-7, -0x1.63416e4ba736p-1, -0x1.51e0441b0e726p3, -0x1.f300ae4cba38dp5,
    -0x1.44cb184282266p7, -0x1.7135cebccabb2p7, -0x1.4526557e4d2f2p6, -0x1.3a0efc69ac25cp3,
};
static const double ERFC_MIDDLE_DEN[] = {
    0x1p0, 0x1.3a6b9bd707687p4, 0x1.1350c526ae721p7, 0x1.b290dd58a1a71p8, 0x1.42b1921ec2868p9,
    0x1.ad02157700314p8, 0x1.b28a3ee48ae2cp6, 0x1.a47ef8e484a93p2, -0x1.eeff2ee749a62p-5,
};

// The same for larger x.
static const double ERFC_LARGE_NUM[] = {
    -0x1.4341239e86f4ap-7, -0x1.993ba70c285dep-1, -0x1.1c209555f995ap4, -0x1.4145d43c5ed98p7,
    -0x1.3ec881375f228p9, -0x1.004616a2e5992p10, -0x1.e384e9bdc383fp8,
};
static const double ERFC_LARGE_DEN[] = {
    0x1p0, 0x1.e568b261d519p4, 0x1.45cae221b9f0ap8, 0x1.802eb189d5118p10, 0x1.8ffb7688c246ap11,
    0x1.3f219cedf3be6p11, 0x1.da874e79fe763p8, -0x1.670e242712d62p4,
};

static inline double erf_small(double x) {
  double square = x * x;
  return x * (POLYNOMIAL(ERF_SMALL_NUM, square) / POLYNOMIAL(ERF_SMALL_DEN, square));
}

static inline double erf_near_one(double a) {
  double s = a - 1;
  return POLYNOMIAL(ERF_ONE_NUM, s) / POLYNOMIAL(ERF_ONE_DEN, s);
}

// erfc(a) for 1.25 <= a < 28.
static inline double erfc_tail(double a) {
  double inverse = 1 / (a * a);
  double ratio;
  if (a < 1 / 0.35)
    ratio = POLYNOMIAL(ERFC_MIDDLE_NUM, inverse) / POLYNOMIAL(ERFC_MIDDLE_DEN, inverse);
  else
    ratio = POLYNOMIAL(ERFC_LARGE_NUM, inverse) / POLYNOMIAL(ERFC_LARGE_DEN, inverse);
  struct dd square = two_product(a, a);
  struct dd exponent = dd_add(two_sum(-0.5625, ratio), dd_negate(square));
  // Scaled up by 2^100, so that only the last product may be subnormal.
  return exp_sum(exponent.hi, exponent.lo, 100) / a * 0x1p-100;
}

double __tally_far_erfc_f64(double x) {
  double a = __builtin_fabs(x);
  if (is_nan(x))
    return x;
  if (a < 0.84375)
    return x < 0.25 ? 1 - (x + erf_small(x)) : 0.5 - ((x - 0.5) + erf_small(x));
  if (a < 1.25) {
    double rest = erf_near_one(a);
    return x > 0 ? (1 - ERF_NEAR_ONE) - rest : 1 + (ERF_NEAR_ONE + rest);
  }
  if (x <= -6)
    return 2;
  if (x >= 28)
    return 0;
  double tail = erfc_tail(a);
  return x > 0 ? tail : 2 - tail;
}

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
