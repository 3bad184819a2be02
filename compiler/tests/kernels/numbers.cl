// SPDX-License-Identifier: MIT OR Apache-2.0
// Numbers of all widths, and vectors of them.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#define INTEGER(T, U)                                                       \
  kernel void ops_##T(global const T *a, global const T *b, global T *out) { \
    size_t i = get_global_id(0);                                            \
    T x = a[i], y = b[i];                                                   \
    U ux = (U)x, uy = (U)y;                                                 \
    global T *o = out + i * 40;                                             \
    *o++ = (T)(ux + uy);                                                    \
    *o++ = (T)(ux - uy);                                                    \
    *o++ = (T)(ux * uy);                                                    \
    *o++ = (y == 0 || y == -1) ? 0 : x / y;                                 \
    *o++ = (y == 0 || y == -1) ? 0 : x % y;                                 \
    *o++ = uy == 0 ? 0 : (T)(ux / uy);                                      \
    *o++ = uy == 0 ? 0 : (T)(ux % uy);                                      \
    *o++ = x & y;                                                           \
    *o++ = x | y;                                                           \
    *o++ = x ^ y;                                                           \
    *o++ = (T)(ux << (uy & (sizeof(T) * 8 - 1)));                           \
    *o++ = x >> (y & (T)(sizeof(T) * 8 - 1));                               \
    *o++ = (T)(ux >> (uy & (sizeof(T) * 8 - 1)));                           \
    *o++ = min(x, y);                                                       \
    *o++ = max(x, y);                                                       \
    *o++ = (T)min(ux, uy);                                                  \
    *o++ = (T)max(ux, uy);                                                  \
    *o++ = add_sat(x, y);                                                   \
    *o++ = sub_sat(x, y);                                                   \
    *o++ = (T)add_sat(ux, uy);                                              \
    *o++ = (T)sub_sat(ux, uy);                                              \
    *o++ = hadd(x, y);                                                      \
    *o++ = rhadd(x, y);                                                     \
    *o++ = (T)hadd(ux, uy);                                                 \
    *o++ = (T)rhadd(ux, uy);                                                \
    *o++ = mul_hi(x, y);                                                    \
    *o++ = (T)mul_hi(ux, uy);                                               \
    *o++ = (T)abs(x);                                                       \
    *o++ = (T)abs_diff(x, y);                                               \
    *o++ = (T)abs_diff(ux, uy);                                             \
    *o++ = clz(x);                                                          \
    *o++ = ctz(x);                                                          \
    *o++ = popcount(x);                                                     \
    *o++ = rotate(x, y);                                                    \
    *o++ = mad_sat(x, y, x);                                                \
    *o++ = (T)mad_sat(ux, uy, ux);                                          \
    *o++ = x < y;                                                           \
    *o++ = ux < uy;                                                         \
    *o++ = x == y;                                                          \
    *o++ = ~x;                                                              \
  }
INTEGER(char, uchar)
INTEGER(short, ushort)
INTEGER(int, uint)
INTEGER(long, ulong)

kernel void divide_by_zero(global const int *a, global const int *b, global int *out) {
  size_t i = get_global_id(0);
  out[i] = (a[i] / b[i]) ^ (a[i] % b[i]);
  out[i] = (int)((uint)a[i] / (uint)b[i]) == 12345 ? 0 : 1;
}

#define FLOAT(T)                                                            \
  kernel void fops_##T(global const T *a, global const T *b, global T *out) { \
    size_t i = get_global_id(0);                                            \
    T x = a[i], y = b[i];                                                   \
    global T *o = out + i * 20;                                             \
    *o++ = x + y;                                                           \
    *o++ = x - y;                                                           \
    *o++ = x * y;                                                           \
    *o++ = x / y;                                                           \
    *o++ = -x;                                                              \
    *o++ = fabs(x);                                                         \
    *o++ = sqrt(fabs(x));                                                   \
    *o++ = floor(x);                                                        \
    *o++ = ceil(x);                                                         \
    *o++ = trunc(x);                                                        \
    *o++ = rint(x);                                                         \
    *o++ = round(x);                                                        \
    *o++ = fmin(x, y);                                                      \
    *o++ = fmax(x, y);                                                      \
    *o++ = copysign(x, y);                                                  \
    *o++ = fma(x, y, x);                                                    \
    *o++ = x < y;                                                           \
    *o++ = x == y;                                                          \
    *o++ = isnan(x) + 2 * isinf(x) + 4 * isfinite(x) + 8 * isnormal(x);      \
    *o++ = signbit(x) ? 1 : 0;                                              \
  }
FLOAT(half)
FLOAT(float)
FLOAT(double)

kernel void converts(global const double *in, global long *out) {
  size_t i = get_global_id(0);
  double x = in[i];
  global long *o = out + i * 16;
  *o++ = convert_char_sat(x);
  *o++ = convert_uchar_sat(x);
  *o++ = convert_short_sat((float)x);
  *o++ = convert_ushort_sat(x);
  *o++ = convert_int_sat(x);
  *o++ = convert_uint_sat(x);
  *o++ = convert_long_sat(x);
  *o++ = (long)convert_ulong_sat(x);
  *o++ = as_int((float)x);
  *o++ = as_short((half)x);
  *o++ = as_short((half)(float)x);
  *o++ = as_long((double)(half)x);
  *o++ = as_long((double)convert_int_sat(x));
  *o++ = as_int((float)convert_long_sat(x));
  *o++ = as_int((float)convert_ulong_sat(x));
  *o++ = convert_int_sat_rte(x);
}

kernel void vectors(global const int *in, global int *out, int pick) {
  size_t i = get_global_id(0);
  int4 a = vload4(i, in);
  int3 b = a.zyx + (int3)(1, 2, 3);
  int8 c = (int8)(a, a.wzyx);
  c.odd = c.even * b.xxyz;
  c.s3 = pick;
  int16 d = (int16)(c, c.s76543210);
  d = select(d, -d, d > 5);
  char3 e = convert_char3_sat(convert_float3(b) * 40);
  float4 f = convert_float4(a) * 0.5f;
  int2 g = (a > 3).xy;
  global int *o = out + i * 32;
  vstore16(d, 0, o);
  vstore3(b, 0, o + 16);
  o[19] = e.x + 10 * e.y + 100 * e.z;
  vstore4(convert_int4(f), 0, o + 20);
  vstore2(g, 0, o + 24);
  int arr[4] = {a.x, a.y, a.z, a.w};
  o[26] = arr[pick & 3];
  o[27] = ((private int *)&a)[pick & 3];
  uchar4 h = as_uchar4(a.x);
  o[28] = h.x + h.w;
  o[29] = (int)dot(f, (float4)(1, 2, 3, 4));
  o[30] = shuffle(a, (uint4)(3, 2, 1, 0)).x;
  o[31] = a.x > pick && a.y < pick;
}

kernel void fused(global const double *a, global const double *b, global const double *c,
                  global double *d, global float *f) {
  size_t i = get_global_id(0);
  d[i] = fma(a[i], b[i], c[i]);
  f[i] = fma((float)a[i], (float)b[i], (float)c[i]);
}

kernel void halves(global const half *h, global float *f, global const double *d, global half *h1,
                   global half *h2) {
  size_t i = get_global_id(0);
  f[i] = h[i];
  h1[i] = (half)d[i];
  h2[i] = (half)(float)d[i];
}
