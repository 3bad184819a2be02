// SPDX-License-Identifier: MIT OR Apache-2.0
// The error function, erf. Around 0 it is x plus a fraction of x; beyond, 1 - erf(x) is e^-p with a
// polynomial p.

#include "exponential.h"

// erf(x) / x - 1 as a polynomial of x^2 for |x| <= 1, so that the result is good to 2^-56.
static const double ERF_SMALL64[] = {
    0x1.06eba8214db69p-3, -0x1.812746b037a02p-2, 0x1.ce2f21a043b39p-4, -0x1.b82ce312c9046p-6, 0x1.565bcd17e7affp-8,
    -0x1.c02db5bf4fdf2p-11, 0x1.f9a35d6366c6dp-14, -0x1.f4d6e3d73802p-17, 0x1.ba29d49a8d0f7p-20, -0x1.622497fd12df8p-23,
    0x1.112a309b72beap-26, -0x1.fbbb16912a4f1p-30, 0x1.46ec34a1d4291p-32, -0x1.3737f2eb81f88p-35,
};
// -log(1 - erf(2 + t)) as a polynomial of t for 1 <= 2 + t <= 5.93, so that the result is good to 2^-55.
static const double ERF_LARGE64[] = {
    0x1.575b329b1f516p2, 0x1.1ac3258a8dc2bp2, 0x1.d8f5dece9234cp-1, 0x1.0dc3b5fb1194dp-6, -0x1.d406b373824afp-9,
    0x1.7ffcfb45f3d13p-11, -0x1.1bc3a60d73846p-13, 0x1.5b656ff14f97bp-16, -0x1.060455477fbbbp-19, -0x1.b54a30769dc65p-23,
    0x1.73e620f8e65fep-23, -0x1.f0aceadae5e43p-25, 0x1.e043e10ca4e6ep-27, -0x1.5a4db639f6412p-29, 0x1.18fea2348fdd4p-32,
    0x1.3e1091623f17bp-35, -0x1.0179e2d741d92p-35, 0x1.60d9d52319192p-37, -0x1.616492b42e219p-39, 0x1.180a370d9fadcp-41,
    -0x1.61b758744536dp-44, 0x1.5cea26f85a2b5p-47, -0x1.023cf38be487bp-50, 0x1.0c6b54e3debddp-54, -0x1.5b677d4ec3313p-59,
    0x1.a29db724f056ap-65,
};
// From here on erf rounds to 1.
#define ERF_MOST64 5.93

static inline F64 erf_near(F64 x) {
  F64 size = abs64(x), square = x * x;
  F64 small = fma64(size, POLYNOMIAL64(ERF_SMALL64, square, square * square), size);
  F64 t = (size < ERF_MOST64 ? size : (F64)ERF_MOST64) - 2;
  struct reduced64 e = reduce64(-POLYNOMIAL64(ERF_LARGE64, t, t * t), 0);
  F64 large = 1 - scaled64(exp64(e.r, e.rest), e.shifted);
  F64 result = with_sign64(size < 1 ? small : large, x);
  return x != x ? x : result;
}

WHOLE64(erf, erf_near(x))

// The same for floats: for |x| <= 0.94, to 2^-30; from there to 4, the exponent to 2^-27.
static const float ERF_SMALL32[] = {
    0x1.06eba8p-3f, -0x1.812742p-2f, 0x1.ce2de2p-4f, -0x1.b80b68p-6f, 0x1.54a912p-8f,
    -0x1.a92772p-11f, 0x1.592406p-14f,
};
static const float ERF_LARGE32[] = {
    -0x1.6b70dep-12f, 0x1.215fcp0f, 0x1.43591p-1f, 0x1.c44bfap-4f, -0x1.b50bacp-6f,
    0x1.3fcfp-8f, -0x1.4c1aep-11f, 0x1.bc8e34p-15f, -0x1.3f7ab4p-19f, 0x1.2782c4p-25f,
};

static inline F32 erf_near_32(F32 x) {
  F32 size = abs32(x), square = x * x;
  F32 small = fma32(size, POLYNOMIAL32(ERF_SMALL32, square, square * square), size);
  F32 t = size < 4 ? size : (F32)4;
  F32 exponent = -POLYNOMIAL32(ERF_LARGE32, t, t * t);
  F32 shifted = fma32(exponent, LOG2_E_32, ROUNDER32), count = shifted - ROUNDER32;
  F32 r = fma32(-count, LN_2_32, exponent);
  F32 large = 1 - scaled32(exp32(r, 0), shifted);
  F32 result = with_sign32(size < 0.9475f ? small : large, x);
  return x != x ? x : result;
}

WHOLE32(erf, erf_near_32(x))
