// SPDX-License-Identifier: MIT OR Apache-2.0
// Angles of vectors: atan2, and the same in units of pi.

#include "exact.h"

#define PI_HIGH 0x1.921fb54442d18p1
#define PI_LOW 0x1.1a62633145c07p-53
#define ONE_OVER_PI 0x1.45f306dc9c883p-2

static const struct dd PI = {PI_HIGH, PI_LOW};
static const struct dd HALF_PI = {0.5 * PI_HIGH, 0.5 * PI_LOW};

// (atan(t) - t) / t^3 as a polynomial of t^2 for |t| <= 7/16, to 2^-57.
static const double ATAN_COEFFICIENTS[] = {
    -0x1.5555555555555p-2, 0x1.99999999998afp-3, -0x1.249249248416fp-3, 0x1.c71c71bc56e55p-4,
    -0x1.745d1527ab7a3p-4, 0x1.3b137218795ap-4,  -0x1.110c617c737d9p-4, 0x1.e16bbdb73b166p-5,
    -0x1.ab3a7312877fep-5, 0x1.6f826101cc1bap-5, -0x1.0e3f2fb6f585cp-5, 0x1.df95f1ffbbfep-7,
};

// atan(y / x) for x, y >= 0, not both 0, neither infinite nor extreme. Like FreeBSD's msun, s_atan.c,
// it first subtracts the angle of the nearest of (1, 0), (1, 1/2), (1, 1), (1, 3/2), (0, 1).
static inline struct dd first_quadrant(struct dd y, struct dd x) {
  struct dd base = {0, 0}, num = y, den = x;
  double slope = 0;
  if (y.hi >= 0.4375 * x.hi) {
    if (y.hi < 0.6875 * x.hi) {
      base = (struct dd){0x1.dac670561bb4fp-2, 0x1.a2b7f222f65e2p-56};
      slope = 0.5;
    } else if (y.hi < 1.1875 * x.hi) {
      base = (struct dd){0.25 * PI_HIGH, 0.25 * PI_LOW};
      slope = 1;
    } else if (y.hi < 2.4375 * x.hi) {
      base = (struct dd){0x1.f730bd281f69bp-1, 0x1.007887af0cbbdp-56};
      slope = 1.5;
    } else {
      base = HALF_PI;
      num = dd_negate(x);
      den = y;
    }
  }
  if (slope != 0) {
    num = dd_add(y, dd_multiply_double(x, -slope));
    den = dd_add(x, dd_multiply_double(y, slope));
  }
  struct dd t = dd_divide(num, den);
  double square = t.hi * t.hi;
  double curve = square * t.hi * POLYNOMIAL(ATAN_COEFFICIENTS, square);
  return dd_add(base, quick_two_sum(t.hi, t.lo + curve));
}

// The angle of the vector (x, y) for y >= 0; the same conditions.
static inline struct dd upper_half(struct dd y, struct dd x) {
  if (x.hi >= 0)
    return first_quadrant(y, x);
  return dd_add(PI, dd_negate(first_quadrant(y, dd_negate(x))));
}

// An angle in radians, or in units of pi.
static inline double in_unit(struct dd angle, bool of_pi) {
  if (of_pi)
    angle = dd_multiply(angle, (struct dd){ONE_OVER_PI, -0x1.6b01ec5417056p-56});
  return angle.hi + angle.lo;
}

// The base-2 exponent of a finite number that is not 0; a sufficiently low one for subnormal numbers.
static inline int32_t exponent_of(double x) {
  return (int32_t)((bits_of_double(x) >> 52) & 0x7ff) - 1023;
}

static inline double atan2_in(double y, double x, bool of_pi) {
  if (is_nan(x) || is_nan(y))
    return x + y;
  double up = __builtin_fabs(y), right = __builtin_fabs(x);
  bool left = sign_of(x);
  if (is_inf(x) && is_inf(y))
    up = right = 1;
  else if (is_inf(y))
    up = 1, right = 0;
  else if (is_inf(x))
    up = 0, right = 1;
  if (up == 0)
    return __builtin_copysign(left ? in_unit(PI, of_pi) : 0, y);
  int32_t difference = exponent_of(up) - exponent_of(right);
  if (difference < -70 && !left) {
    // The angle is the ratio, which may be below the smallest double.
    struct logarithm u = log_split(up), r = log_split(right);
    double ratio = u.mantissa / r.mantissa * (of_pi ? ONE_OVER_PI : 1);
    int32_t exponent = u.exponent - r.exponent;
    return __builtin_copysign(scale(ratio, exponent < -1200 ? -1200 : exponent), y);
  }
  if (difference < -70 || difference > 70) {
    // The result rounds to pi or pi/2.
    right = difference < 0 ? 1 : 0;
    up = difference < 0 ? 0 : 1;
  } else {
    // Scale both to near 1, which is exact: neither comes near underflow.
    int32_t down = -exponent_of(right);
    up = scale(up, down);
    right = scale(right, down);
  }
  struct dd horizontal = {left ? -right : right, 0};
  double angle = in_unit(upper_half((struct dd){up, 0}, horizontal), of_pi);
  return __builtin_copysign(angle, y);
}

double __tally_far_atan2_f64(double y, double x) { return atan2_in(y, x, false); }
double __tally_far_atan2pi_f64(double y, double x) { return atan2_in(y, x, true); }
