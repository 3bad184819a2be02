// SPDX-License-Identifier: MIT OR Apache-2.0
// Inverse circular functions: atan, atan2, asin, acos, and the same in units of pi.
//
// On doubles all of them are the angle of a vector, atan2 of two double-doubles.

#include "tally_rt.h"

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

// atan(y / x) for x, y >= 0, not both 0, neither infinite nor extreme. As in FreeBSD's msun,
// s_atan.c, the angle of the nearest of (1, 0), (1, 1/2), (1, 1), (1, 3/2), (0, 1) comes off first.
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

// An angle, or it in units of pi.
static inline double in_unit(struct dd angle, bool of_pi) {
  if (of_pi)
    angle = dd_multiply(angle, (struct dd){ONE_OVER_PI, -0x1.6b01ec5417056p-56});
  return angle.hi + angle.lo;
}

static inline double atan_in(double x, bool of_pi) {
  double magnitude = __builtin_fabs(x);
  if (magnitude < 0x1p-28)
    return of_pi ? x * ONE_OVER_PI : x;
  if (is_nan(x))
    return x;
  // Beyond, the angle is pi/2 to the last bit.
  double bounded = magnitude > 0x1p100 ? 0x1p100 : magnitude;
  double angle = in_unit(first_quadrant((struct dd){bounded, 0}, (struct dd){1, 0}), of_pi);
  return __builtin_copysign(angle, x);
}

// The base-2 exponent of a finite number that is not 0, and low enough for subnormal ones.
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
    // The angle is the ratio, which may be less than a double can tell.
    struct logarithm u = log_split(up), r = log_split(right);
    double ratio = u.mantissa / r.mantissa * (of_pi ? ONE_OVER_PI : 1);
    int32_t exponent = u.exponent - r.exponent;
    return __builtin_copysign(scale(ratio, exponent < -1200 ? -1200 : exponent), y);
  }
  if (difference < -70 || difference > 70) {
    // Pi or pi/2 to the last bit.
    right = difference < 0 ? 1 : 0;
    up = difference < 0 ? 0 : 1;
  } else {
    // Both near 1, which is exact: neither comes near underflow.
    int32_t down = -exponent_of(right);
    up = scale(up, down);
    right = scale(right, down);
  }
  struct dd horizontal = {left ? -right : right, 0};
  double angle = in_unit(upper_half((struct dd){up, 0}, horizontal), of_pi);
  return __builtin_copysign(angle, y);
}

// sqrt(1 - x^2) for |x| <= 1.
static inline struct dd complement(double x) {
  struct dd square = two_product(x, x);
  return dd_sqrt(dd_add_double(dd_negate(square), 1));
}

static inline double asin_in(double x, bool of_pi) {
  double magnitude = __builtin_fabs(x);
  if (!(magnitude <= 1))
    return __builtin_nan("");
  if (magnitude < 0x1p-28)
    return of_pi ? x * ONE_OVER_PI : x;
  struct dd angle = first_quadrant((struct dd){magnitude, 0}, complement(x));
  return __builtin_copysign(in_unit(angle, of_pi), x);
}

static inline double acos_in(double x, bool of_pi) {
  if (!(__builtin_fabs(x) <= 1))
    return __builtin_nan("");
  if (x == 1)
    return 0;
  // Below, the square would lose bits; the angle is a quarter turn all the same.
  x = __builtin_fabs(x) < 0x1p-100 ? 0 : x;
  return in_unit(upper_half(complement(x), (struct dd){x, 0}), of_pi);
}

double __tally_atan_f64(double x) { return atan_in(x, false); }
double __tally_atanpi_f64(double x) { return atan_in(x, true); }
double __tally_atan2_f64(double y, double x) { return atan2_in(y, x, false); }
double __tally_atan2pi_f64(double y, double x) { return atan2_in(y, x, true); }
double __tally_asin_f64(double x) { return asin_in(x, false); }
double __tally_asinpi_f64(double x) { return asin_in(x, true); }
double __tally_acos_f64(double x) { return acos_in(x, false); }
double __tally_acospi_f64(double x) { return acos_in(x, true); }

// (atan(t) - t) / t^3 as a polynomial of t^2 for |t| <= 1, to 2^-33.
static const double NARROW_ATAN[] = {
    -0x1.555555543c557p-2, 0x1.9999971f594e7p-3, -0x1.2491d128f2977p-3, 0x1.c70a6be6d4163p-4,
    -0x1.73a719b0b93d9p-4, 0x1.36bfd2210f14ap-4, -0x1.ffb2b9595f5b2p-5, 0x1.837061ab40426p-5,
    -0x1.ea18af61c3e87p-6, 0x1.cd243cc325c05p-7, -0x1.14abab018547p-8,  0x1.36ecfc48d188bp-11,
};

// The angle of the vector (x, y) where neither is NaN nor infinite, and zeros have signs.
static inline double narrow_atan2(double y, double x) {
  double up = __builtin_fabs(y), right = __builtin_fabs(x);
  bool steep = up > right;
  double num = steep ? right : up, den = steep ? up : right;
  double t = den == 0 ? 0 : num / den;
  double square = t * t;
  double angle = madd(t * square, POLYNOMIAL(NARROW_ATAN, square), t);
  angle = steep ? 0.5 * PI_HIGH - angle : angle;
  angle = sign_of(x) ? PI_HIGH - angle : angle;
  return __builtin_copysign(angle, y);
}

static inline double narrow_atan(double x) {
  // NaN passes; infinity is as good as a large number.
  double bounded = __builtin_fabs(x) > 0x1p200 ? __builtin_copysign(0x1p200, x) : x;
  return narrow_atan2(bounded, 1);
}

static inline double narrow_atan2_special(double y, double x) {
  bool both = is_inf(x) && is_inf(y);
  // 2^400 is infinite beside any float.
  double size = both ? 1 : 0x1p400;
  double bounded_x = is_inf(x) ? __builtin_copysign(size, x) : x;
  double bounded_y = is_inf(y) ? __builtin_copysign(size, y) : y;
  double angle = narrow_atan2(bounded_y, bounded_x);
  return is_nan(x) || is_nan(y) ? __builtin_nan("") : angle;
}

// (asin(t) - t) / t^3 as a polynomial of t^2 for |t| <= 1/2, to 2^-31.
static const double NARROW_ASIN[] = {
    0x1.5555555c0171dp-3, 0x1.33331ecf8b70bp-4, 0x1.6dc0f007c13e8p-5, 0x1.efedf83ab6506p-6,
    0x1.82db23768c84fp-6, 0x1.5a80a068e3ee2p-7, 0x1.fb7ca379d49c6p-6,
};

// asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)) beyond 1/2. NaN beyond 1, by the square root.
static inline double narrow_asin(double x, bool *outer, double *part) {
  double magnitude = __builtin_fabs(x);
  *outer = magnitude > 0.5;
  double t = *outer ? __builtin_sqrt(0.5 - 0.5 * magnitude) : magnitude;
  double square = t * t;
  *part = madd(t * square, POLYNOMIAL(NARROW_ASIN, square), t);
  return __builtin_copysign(*outer ? 0.5 * PI_HIGH - 2 * *part : *part, x);
}

static inline double narrow_acos(double x) {
  bool outer;
  double part, sine = narrow_asin(x, &outer, &part);
  double beyond = x < 0 ? PI_HIGH - 2 * part : 2 * part;
  return outer ? beyond : 0.5 * PI_HIGH - sine;
}

float __tally_atan_f32(float x) { return (float)narrow_atan((double)x); }
float __tally_atanpi_f32(float x) { return (float)(narrow_atan((double)x) * ONE_OVER_PI); }

float __tally_atan2_f32(float y, float x) {
  return (float)narrow_atan2_special((double)y, (double)x);
}

float __tally_atan2pi_f32(float y, float x) {
  return (float)(narrow_atan2_special((double)y, (double)x) * ONE_OVER_PI);
}

float __tally_asin_f32(float x) {
  bool outer;
  double part;
  return (float)narrow_asin((double)x, &outer, &part);
}

float __tally_asinpi_f32(float x) {
  bool outer;
  double part;
  return (float)(narrow_asin((double)x, &outer, &part) * ONE_OVER_PI);
}

float __tally_acos_f32(float x) { return (float)narrow_acos((double)x); }
float __tally_acospi_f32(float x) { return (float)(narrow_acos((double)x) * ONE_OVER_PI); }
