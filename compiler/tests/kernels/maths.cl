// SPDX-License-Identifier: MIT OR Apache-2.0
// Every function of the maths library, one after the other: out[k * n + i] = f_k(x[i], y[i]).
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#define MATHS(T, TI)                                                              \
  kernel void maths_##T(global const T *xs, global const T *ys, global T *out) {  \
    size_t i = get_global_id(0), n = get_global_size(0);                          \
    T x = xs[i], y = ys[i], r;                                                    \
    TI k;                                                                         \
    global T *o = out + i;                                                        \
    *o = acos(x), o += n;                                                         \
    *o = acosh(x), o += n;                                                        \
    *o = acospi(x), o += n;                                                       \
    *o = asin(x), o += n;                                                         \
    *o = asinh(x), o += n;                                                        \
    *o = asinpi(x), o += n;                                                       \
    *o = atan(x), o += n;                                                         \
    *o = atan2(x, y), o += n;                                                     \
    *o = atanh(x), o += n;                                                        \
    *o = atanpi(x), o += n;                                                       \
    *o = atan2pi(x, y), o += n;                                                   \
    *o = cbrt(x), o += n;                                                         \
    *o = cos(x), o += n;                                                          \
    *o = cosh(x), o += n;                                                         \
    *o = cospi(x), o += n;                                                        \
    *o = erf(x), o += n;                                                          \
    *o = erfc(x), o += n;                                                         \
    *o = exp(x), o += n;                                                          \
    *o = exp2(x), o += n;                                                         \
    *o = exp10(x), o += n;                                                        \
    *o = expm1(x), o += n;                                                        \
    *o = fmod(x, y), o += n;                                                      \
    *o = fract(x, &r), o += n;                                                    \
    *o = r, o += n;                                                               \
    *o = frexp(x, &k), o += n;                                                    \
    *o = k, o += n;                                                               \
    *o = hypot(x, y), o += n;                                                     \
    *o = ilogb(x), o += n;                                                        \
    *o = ldexp(x, convert_int_sat(y)), o += n;                                                \
    *o = lgamma(x), o += n;                                                       \
    *o = lgamma_r(x, &k), o += n;                                                 \
    *o = k, o += n;                                                               \
    *o = log(x), o += n;                                                          \
    *o = log2(x), o += n;                                                         \
    *o = log10(x), o += n;                                                        \
    *o = log1p(x), o += n;                                                        \
    *o = logb(x), o += n;                                                         \
    *o = modf(x, &r), o += n;                                                     \
    *o = r, o += n;                                                               \
    *o = nextafter(x, y), o += n;                                                 \
    *o = pow(x, y), o += n;                                                       \
    *o = pown(x, convert_int_sat(y)), o += n;                                                 \
    *o = powr(x, y), o += n;                                                      \
    *o = remainder(x, y), o += n;                                                 \
    *o = remquo(x, y, &k), o += n;                                                \
    *o = rootn(x, convert_int_sat(y)), o += n;                                                \
    *o = rsqrt(x), o += n;                                                        \
    *o = sin(x), o += n;                                                          \
    *o = sincos(x, &r), o += n;                                                   \
    *o = r, o += n;                                                               \
    *o = sinh(x), o += n;                                                         \
    *o = sinpi(x), o += n;                                                        \
    *o = tan(x), o += n;                                                          \
    *o = tanh(x), o += n;                                                         \
    *o = tanpi(x), o += n;                                                        \
    *o = tgamma(x), o += n;                                                       \
  }

MATHS(float, int)
MATHS(double, int)

kernel void vector_maths(global const float *xs, global float *out) {
  size_t i = get_global_id(0);
  float4 x = vload4(i, xs), c, s = sincos(x, &c);
  int4 e;
  float4 m = frexp(x, &e);
  vstore4(s, 4 * i, out);
  vstore4(c, 4 * i + 1, out);
  vstore4(m * convert_float4(e), 4 * i + 2, out);
  vstore4(pown(x, (int4)(0, 1, 2, 3)) + native_exp(x) + half_sqrt(fabs(x)), 4 * i + 3, out);
}

// The native_ and half_ functions that have forms of their own: out[k * n + i] = f_k(x[i]).
kernel void native_maths(global const float *xs, global float *out) {
  size_t i = get_global_id(0), n = get_global_size(0);
  float x = xs[i];
  global float *o = out + i;
  *o = native_cos(x), o += n;
  *o = half_exp(x), o += n;
  *o = native_exp2(x), o += n;
  *o = half_exp10(x), o += n;
  *o = native_log(x), o += n;
  *o = half_log2(x), o += n;
  *o = native_log10(x), o += n;
  *o = native_powr(x, 1.5f), o += n;
  *o = half_rsqrt(x), o += n;
  *o = native_sin(x), o += n;
  *o = half_tan(x), o += n;
}
