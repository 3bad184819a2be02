// SPDX-License-Identifier: MIT OR Apache-2.0
// Mathematical functions of one number or of a vector of numbers.
//
// A file that includes this is compiled for one number (LANES is 1) and for vectors of 8 and of 16
// numbers; vectors of doubles have 8. Its source means the same for all widths: comparisons give masks,
// `mask ? a : b` selects per element, `&` and `|` combine masks, and a constant stands for a vector of
// it. The result for a number does not depend on the width.
//
// The *near* form of each function handles the arguments that programs usually have, without a branch.
// Arguments that are *far* (infinite, NaN, subnormal, out of range) have simple code for vectors too
// (FUNCTION32_OR), or are left to functions of doubles that are compiled beforehand (`far/`) and take one
// number at a time.
//
// There are three forms: for any processor; with TALLY_FMA, for processors with fused multiply-add; and
// with TALLY_AVX512, for those with registers of 512 bits, which have estimates of reciprocals and
// table lookups in registers.
//
// Unless a comment names another source, coefficients are those of minimax approximations on the stated
// interval (Sollya's fpminimax), and constants are correctly rounded. The code needs IEEE arithmetic as
// written: no contraction except in `fma64` and `fma32`, no reassociation.

#ifndef LANES_H
#define LANES_H

#include <stdbool.h>
#include <stdint.h>

#include "../bits.h"

#if LANES == 1
typedef double F64;
typedef uint64_t U64;
typedef bool M64;
typedef float F32;
typedef int32_t I32;
typedef uint32_t U32;
typedef bool M32;
#define SHAPED(name) name
static inline U64 bits64(F64 x) { return bits_of_double(x); }
static inline F64 of_bits64(U64 x) { return double_of_bits(x); }
static inline U32 bits32(F32 x) { return bits_of_float(x); }
static inline F32 of_bits32(U32 x) { return float_of_bits(x); }
static inline F32 float_of_int(I32 x) { return (F32)x; }
static inline I32 int_of_float(F32 x) { return (I32)x; }
static inline F64 wide(F32 x) { return (F64)x; }
static inline F32 narrow(F64 x) { return (F32)x; }
static inline F64 wide_of_int(I32 x) { return (F64)x; }
static inline M32 narrow_mask(M64 x) { return x; }
static inline M64 wide_mask(M32 x) { return x; }
#else
typedef double F64 __attribute__((ext_vector_type(LANES)));
typedef uint64_t U64 __attribute__((ext_vector_type(LANES)));
typedef int64_t M64 __attribute__((ext_vector_type(LANES)));
typedef float F32 __attribute__((ext_vector_type(LANES)));
typedef int32_t I32 __attribute__((ext_vector_type(LANES)));
typedef uint32_t U32 __attribute__((ext_vector_type(LANES)));
typedef int32_t M32 __attribute__((ext_vector_type(LANES)));
#define SHAPED_OF(name, lanes) name##x##lanes
#define SHAPED_WITH(name, lanes) SHAPED_OF(name, lanes)
#define SHAPED(name) SHAPED_WITH(name, LANES)
static inline U64 bits64(F64 x) { return (U64)x; }
static inline F64 of_bits64(U64 x) { return (F64)x; }
static inline U32 bits32(F32 x) { return (U32)x; }
static inline F32 of_bits32(U32 x) { return (F32)x; }
static inline F32 float_of_int(I32 x) { return __builtin_convertvector(x, F32); }
static inline I32 int_of_float(F32 x) { return __builtin_convertvector(x, I32); }
static inline F64 wide(F32 x) { return __builtin_convertvector(x, F64); }
static inline F32 narrow(F64 x) { return __builtin_convertvector(x, F32); }
static inline F64 wide_of_int(I32 x) { return __builtin_convertvector(x, F64); }
static inline M32 narrow_mask(M64 x) { return __builtin_convertvector(x, M32); }
static inline M64 wide_mask(M32 x) { return __builtin_convertvector(x, M64); }
#endif

// a * b + c; on processors without fused multiply-add the product is rounded.
static inline F64 fma64(F64 a, F64 b, F64 c) {
#ifdef TALLY_FMA
  return __builtin_elementwise_fma(a, b, c);
#else
  return a * b + c;
#endif
}

static inline F32 fma32(F32 a, F32 b, F32 c) {
#ifdef TALLY_FMA
  return __builtin_elementwise_fma(a, b, c);
#else
  return a * b + c;
#endif
}

// The rounding error of a product.
static inline F64 lost64(F64 a, F64 b, F64 product) {
#ifdef TALLY_FMA
  return __builtin_elementwise_fma(a, b, -product);
#else
  // Dekker, "A floating-point technique for extending the available precision", 1971.
  F64 a_scaled = a * 0x1.0000002p27, b_scaled = b * 0x1.0000002p27;
  F64 a_high = a_scaled - (a_scaled - a), b_high = b_scaled - (b_scaled - b);
  F64 a_low = a - a_high, b_low = b - b_high;
  return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low);
#endif
}

static inline F32 lost32(F32 a, F32 b, F32 product) {
#ifdef TALLY_FMA
  return __builtin_elementwise_fma(a, b, -product);
#else
  F32 a_scaled = a * 0x1.002p12f, b_scaled = b * 0x1.002p12f;
  F32 a_high = a_scaled - (a_scaled - a), b_high = b_scaled - (b_scaled - b);
  F32 a_low = a - a_high, b_low = b - b_high;
  return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low);
#endif
}

static inline F64 abs64(F64 x) { return __builtin_elementwise_abs(x); }
static inline F32 abs32(F32 x) { return __builtin_elementwise_abs(x); }

// Whether numbers are positive and normal.
static inline M64 is_usual64(F64 x) { return (x >= 0x1p-1022) & (x <= 0x1.fffffffffffffp1023); }
static inline M32 is_usual32(F32 x) { return (x >= 0x1p-126f) & (x <= 0x1.fffffep127f); }

// The magnitude of one number with the sign of another.
static inline F64 with_sign64(F64 x, F64 sign) { return __builtin_elementwise_copysign(x, sign); }
static inline F32 with_sign32(F32 x, F32 sign) { return __builtin_elementwise_copysign(x, sign); }

// A number as the sum of two; `hi` is nearly all of it.
typedef struct {
  F64 hi, lo;
} D64;

typedef struct {
  F32 hi, lo;
} D32;

// a + b exactly, if |a| >= |b| or a is 0.
static inline D64 sum64(F64 a, F64 b) {
  F64 sum = a + b;
  return (D64){sum, b - (sum - a)};
}

static inline D32 sum32(F32 a, F32 b) {
  F32 sum = a + b;
  return (D32){sum, b - (sum - a)};
}

// a + b exactly.
static inline D64 any_sum64(F64 a, F64 b) {
  F64 sum = a + b, part = sum - a;
  return (D64){sum, (a - (sum - part)) + (b - part)};
}

static inline D32 any_sum32(F32 a, F32 b) {
  F32 sum = a + b, part = sum - a;
  return (D32){sum, (a - (sum - part)) + (b - part)};
}

// a * b exactly.
static inline D64 product64(F64 a, F64 b) {
  F64 product = a * b;
  return (D64){product, lost64(a, b, product)};
}

static inline D32 product32(F32 a, F32 b) {
  F32 product = a * b;
  return (D32){product, lost32(a, b, product)};
}

// A polynomial, the constant coefficient first: Horner's scheme for even and for odd powers.
static inline F64 polynomial64(const double *c, int count, F64 x, F64 square) {
  F64 even = c[(count - 1) & ~1], odd = count > 1 ? c[(count - 2) | 1] : 0;
#pragma clang loop unroll(full)
  for (int i = ((count - 1) & ~1) - 2; i >= 0; i -= 2)
    even = fma64(even, square, c[i]);
#pragma clang loop unroll(full)
  for (int i = ((count - 2) | 1) - 2; i >= 1; i -= 2)
    odd = fma64(odd, square, c[i]);
  return fma64(odd, x, even);
}

static inline F32 polynomial32(const float *c, int count, F32 x, F32 square) {
  F32 even = c[(count - 1) & ~1], odd = count > 1 ? c[(count - 2) | 1] : 0;
#pragma clang loop unroll(full)
  for (int i = ((count - 1) & ~1) - 2; i >= 0; i -= 2)
    even = fma32(even, square, c[i]);
#pragma clang loop unroll(full)
  for (int i = ((count - 2) | 1) - 2; i >= 1; i -= 2)
    odd = fma32(odd, square, c[i]);
  return fma32(odd, x, even);
}

// The same by Horner's scheme alone, which takes the fewest instructions and the most time until the result is there.
static inline F64 horner64(const double *c, int count, F64 x) {
  F64 sum = c[count - 1];
#pragma clang loop unroll(full)
  for (int i = count - 2; i >= 0; i--)
    sum = fma64(sum, x, c[i]);
  return sum;
}

static inline F32 horner32(const float *c, int count, F32 x) {
  F32 sum = c[count - 1];
#pragma clang loop unroll(full)
  for (int i = count - 2; i >= 0; i--)
    sum = fma32(sum, x, c[i]);
  return sum;
}

#define HORNER64(c, x) horner64(c, sizeof(c) / sizeof(c)[0], x)
#define HORNER32(c, x) horner32(c, sizeof(c) / sizeof(c)[0], x)
#define POLYNOMIAL64(c, x, square) polynomial64(c, sizeof(c) / sizeof(c)[0], x, square)
#define POLYNOMIAL32(c, x, square) polynomial32(c, sizeof(c) / sizeof(c)[0], x, square)

// What instructions of 512 bits are told about their rounding (_MM_FROUND_CUR_DIRECTION).
#define CURRENT_ROUNDING 4

#if defined(TALLY_FMA) && LANES == 1
typedef double pair64 __attribute__((vector_size(16)));
typedef float four32 __attribute__((vector_size(16)));
#endif

#ifdef TALLY_AVX512
// About 1 / sqrt(x), to 2^-14 of it, for positive normal numbers; 0 for 0.
#if LANES != 16
static inline F64 rough_inverse_root64(F64 x) {
#if LANES == 1
  pair64 in = {x, x}, zero = {0, 0};
  return __builtin_ia32_rsqrt14sd_mask(in, in, zero, x != 0)[0];
#else
  F64 zero = 0;
  return __builtin_ia32_rsqrt14pd512_mask(x, zero, __builtin_ia32_cmppd512_mask(x, zero, 4, -1, 4));
#endif
}
#endif

static inline F32 rough_inverse_root32(F32 x) {
#if LANES == 1
  four32 in = {x, x, x, x}, zero = {0, 0, 0, 0};
  return __builtin_ia32_rsqrt14ss_mask(in, in, zero, x != 0)[0];
#elif LANES == 8
  F32 zero = 0;
  return __builtin_ia32_rsqrt14ps256_mask(x, zero, __builtin_ia32_cmpps256_mask(x, zero, 4, -1));
#else
  F32 zero = 0;
  return __builtin_ia32_rsqrt14ps512_mask(x, zero, __builtin_ia32_cmpps512_mask(x, zero, 4, -1, 4));
#endif
}
#endif

// About 1 / sqrt(x), to 2^-42 and 2^-27 of it, for positive numbers that are neither subnormal nor so
// large that the result is; 0 for 0 on processors that have an instruction for it.
static inline F64 inverse_root64(F64 x) {
#if defined(TALLY_AVX512) && LANES != 16
  F64 y = rough_inverse_root64(x);
#else
  // Halving and negating the exponent gives an estimate good to 2^-4.8.
  F64 y = of_bits64(0x5fe6eb50c7b537a9 - (bits64(x) >> 1)), rough = fma64(-x * y, y, 1);
  y = fma64(y * rough, fma64(fma64(rough, 0.3125, 0.375), rough, 0.5), y);
#endif
  // y (1 - e)^(-1/2), three times as many digits as y has.
  F64 e = fma64(-x * y, y, 1);
  return fma64(y * e, fma64(e, 0.375, 0.5), y);
}

// About 1 / sqrt(x), to 2^-10 of it, for positive normal numbers. The processors' estimates are infinite for 0, 0 for
// infinity and NaN for negative numbers.
static inline F32 rough_inverse_root_above32(F32 x) {
#if defined(TALLY_AVX512) && LANES == 8
  return __builtin_ia32_rsqrt14ps256_mask(x, x, -1);
#elif defined(TALLY_AVX512) && LANES == 16
  return __builtin_ia32_rsqrt14ps512_mask(x, x, -1);
#elif defined(TALLY_AVX512)
  four32 in = {x, x, x, x};
  return __builtin_ia32_rsqrt14ss_mask(in, in, in, -1)[0];
#elif defined(TALLY_FMA) && LANES == 1
  return __builtin_ia32_rsqrtss((four32){x, x, x, x})[0];
#elif defined(TALLY_FMA) && LANES == 8
  return __builtin_ia32_rsqrtps256(x);
#elif defined(TALLY_FMA) && LANES == 16
  F32 y;
  y.lo = __builtin_ia32_rsqrtps256(x.lo);
  y.hi = __builtin_ia32_rsqrtps256(x.hi);
  return y;
#else
  F32 y = of_bits32(0x5f375a86 - (bits32(x) >> 1)), rough = fma32(-x * y, y, 1);
  return fma32(y * rough, fma32(fma32(rough, 0.3125f, 0.375f), rough, 0.5f), y);
#endif
}

// y / -2 of a positive normal number by its bits: processors add integers beside what they multiply.
static inline F32 minus_half32(F32 y) { return of_bits32(bits32(y) + 0x7f800000); }

static inline F32 inverse_root32(F32 x) {
#ifdef TALLY_AVX512
  F32 y = rough_inverse_root32(x);
#else
  F32 y = rough_inverse_root_above32(x);
#endif
  F32 e = fma32(-x * y, y, 1);
  return fma32(y * e, 0.5f, y);
}

// The square root of such a number, or of 0; for floats with what it lacks. On processors with long registers the
// instruction is slower than this: what the root lacks only needs an estimate of the inverse root.
static inline F64 root64(F64 x) {
#if defined(TALLY_AVX512) && LANES != 16
  F64 y = rough_inverse_root64(x), rough = x * y, e = fma64(-rough, y, 1);
  F64 root = fma64(rough * e, fma64(e, 0.375, 0.5), rough);
  return fma64(fma64(-root, root, x), 0.5 * y, root);
#else
  return __builtin_elementwise_sqrt(x);
#endif
}

static inline D32 root32(F32 x) {
#ifdef TALLY_AVX512
  F32 y = rough_inverse_root32(x), rough = x * y;
  return sum32(rough, fma32(-rough, rough, x) * (0.5f * y));
#else
  return (D32){__builtin_elementwise_sqrt(x), 0};
#endif
}

// The numbers of a table of 16 at the given indices, of which only the low four bits count.
static inline F64 lookup64(const double table[16], U64 index) {
#if LANES == 1
  return table[index & 15];
#elif defined(TALLY_AVX512) && LANES == 8
  F64 low, high;
  __builtin_memcpy(&low, table, sizeof low);
  __builtin_memcpy(&high, table + 8, sizeof high);
  return __builtin_ia32_vpermi2varpd512(low, (M64)index, high);
#else
  F64 found;
#pragma clang loop unroll(full)
  for (int i = 0; i < LANES; i++)
    found[i] = table[index[i] & 15];
  return found;
#endif
}

static inline F32 lookup32(const float table[16], U32 index) {
#if LANES == 1
  return table[index & 15];
#elif defined(TALLY_AVX512) && LANES == 16
  F32 all;
  __builtin_memcpy(&all, table, sizeof all);
  return __builtin_ia32_permvarsf512(all, (M32)index);
#elif defined(TALLY_AVX512) && LANES == 8
  F32 low, high;
  __builtin_memcpy(&low, table, sizeof low);
  __builtin_memcpy(&high, table + 8, sizeof high);
  return __builtin_ia32_vpermi2varps256(low, (M32)index, high);
#else
  F32 found;
#pragma clang loop unroll(full)
  for (int i = 0; i < LANES; i++)
    found[i] = table[index[i] & 15];
  return found;
#endif
}

// Defines the function `name` as `near` where `inside` holds, both in terms of x (and of y, or the
// place of the second result). The far functions compute the rest, one number at a time. LLVM takes those for
// functions of their arguments alone, so that it moves calls with the same arguments out of loops.
#define FAR(name) __tally_far_##name##_f64
#define CONST __attribute__((const))
#if LANES == 1
#define DEFINE(F, name, suffix, inside, near)                                                                \
  CONST double FAR(name)(double);                                                                            \
  F __tally_##name##_##suffix(F x) { return (inside) ? near : (F)FAR(name)((double)x); }
#define DEFINE_OF_TWO(F, name, suffix, inside, near)                                                         \
  CONST double FAR(name)(double, double);                                                                    \
  F __tally_##name##_##suffix(F x, F y) { return (inside) ? near : (F)FAR(name)((double)x, (double)y); }
#define DEFINE_WITH_SECOND(F, name, suffix, inside, near)                                                    \
  double FAR(name)(double, double *);                                                                        \
  F __tally_##name##_##suffix(F x, F *second) {                                                              \
    if (inside)                                                                                              \
      return near;                                                                                           \
    double far, result = FAR(name)((double)x, &far);                                                         \
    *second = (F)far;                                                                                        \
    return (F)result;                                                                                        \
  }
#define DEFINE_WITH_INT(F, name, suffix, inside, near)                                                       \
  CONST double FAR(name)(double, int32_t);                                                                   \
  F __tally_##name##_##suffix(F x, int32_t n) { return (inside) ? near : (F)FAR(name)((double)x, n); }
#define FUNCTION64(name, inside, near) DEFINE(double, name, f64, inside, near)
#define FUNCTION32(name, inside, near) DEFINE(float, name, f32, inside, near)
#define FUNCTION64_OF_TWO(name, inside, near) DEFINE_OF_TWO(double, name, f64, inside, near)
#define FUNCTION32_OF_TWO(name, inside, near) DEFINE_OF_TWO(float, name, f32, inside, near)
#define FUNCTION64_WITH_SECOND(name, inside, near) DEFINE_WITH_SECOND(double, name, f64, inside, near)
#define FUNCTION32_WITH_SECOND(name, inside, near) DEFINE_WITH_SECOND(float, name, f32, inside, near)
#define FUNCTION64_WITH_INT(name, inside, near) DEFINE_WITH_INT(double, name, f64, inside, near)
#define FUNCTION32_WITH_INT(name, inside, near) DEFINE_WITH_INT(float, name, f32, inside, near)
#else
#define RARE static __attribute__((noinline, cold))
#define DEFINE(F, M, type, name, suffix, inside, near)                                                       \
  CONST double FAR(name)(double);                                                                            \
  RARE F name##_##suffix##_of_far(F x, F result, M is_inside) {                                              \
    for (int i = 0; i < LANES; i++)                                                                          \
      if (!is_inside[i])                                                                                     \
        result[i] = (type)FAR(name)((double)x[i]);                                                           \
    return result;                                                                                           \
  }                                                                                                          \
  F SHAPED(__tally_##name##_##suffix)(F x) {                                                                 \
    F result = near;                                                                                         \
    M is_inside = inside;                                                                                    \
    if (__builtin_expect(!__builtin_reduce_and(is_inside), 0))                                               \
      result = name##_##suffix##_of_far(x, result, is_inside);                                               \
    return result;                                                                                           \
  }
#define DEFINE_OF_TWO(F, M, type, name, suffix, inside, near)                                                \
  CONST double FAR(name)(double, double);                                                                    \
  RARE F name##_##suffix##_of_far(F x, F y, F result, M is_inside) {                                         \
    for (int i = 0; i < LANES; i++)                                                                          \
      if (!is_inside[i])                                                                                     \
        result[i] = (type)FAR(name)((double)x[i], (double)y[i]);                                             \
    return result;                                                                                           \
  }                                                                                                          \
  F SHAPED(__tally_##name##_##suffix)(F x, F y) {                                                            \
    F result = near;                                                                                         \
    M is_inside = inside;                                                                                    \
    if (__builtin_expect(!__builtin_reduce_and(is_inside), 0))                                               \
      result = name##_##suffix##_of_far(x, y, result, is_inside);                                            \
    return result;                                                                                           \
  }
#define DEFINE_WITH_SECOND(F, M, type, name, suffix, inside, near)                                           \
  double FAR(name)(double, double *);                                                                        \
  RARE F name##_##suffix##_of_far(F x, F result, F *second, M is_inside) {                                   \
    for (int i = 0; i < LANES; i++)                                                                          \
      if (!is_inside[i]) {                                                                                   \
        double far;                                                                                          \
        result[i] = (type)FAR(name)((double)x[i], &far);                                                     \
        (*second)[i] = (type)far;                                                                            \
      }                                                                                                      \
    return result;                                                                                           \
  }                                                                                                          \
  F SHAPED(__tally_##name##_##suffix)(F x, F *to) {                                                          \
    F other, *second = &other, result = near;                                                                \
    M is_inside = inside;                                                                                    \
    *to = other;                                                                                             \
    if (__builtin_expect(!__builtin_reduce_and(is_inside), 0))                                               \
      result = name##_##suffix##_of_far(x, result, to, is_inside);                                           \
    return result;                                                                                           \
  }
#define DEFINE_WITH_INT(F, M, type, name, suffix, inside, near)                                              \
  CONST double FAR(name)(double, int32_t);                                                                   \
  RARE F name##_##suffix##_of_far(F x, I32 n, F result, M is_inside) {                                       \
    for (int i = 0; i < LANES; i++)                                                                          \
      if (!is_inside[i])                                                                                     \
        result[i] = (type)FAR(name)((double)x[i], n[i]);                                                     \
    return result;                                                                                           \
  }                                                                                                          \
  F SHAPED(__tally_##name##_##suffix)(F x, I32 n) {                                                          \
    F result = near;                                                                                         \
    M is_inside = inside;                                                                                    \
    if (__builtin_expect(!__builtin_reduce_and(is_inside), 0))                                               \
      result = name##_##suffix##_of_far(x, n, result, is_inside);                                            \
    return result;                                                                                           \
  }
#if LANES == 8
#define FUNCTION64(name, inside, near) DEFINE(F64, M64, double, name, f64, inside, near)
#define FUNCTION64_OF_TWO(name, inside, near) DEFINE_OF_TWO(F64, M64, double, name, f64, inside, near)
#define FUNCTION64_WITH_SECOND(name, inside, near) DEFINE_WITH_SECOND(F64, M64, double, name, f64, inside, near)
#define FUNCTION64_WITH_INT(name, inside, near) DEFINE_WITH_INT(F64, M64, double, name, f64, inside, near)
#else
#define FUNCTION64(name, inside, near)
#define FUNCTION64_OF_TWO(name, inside, near)
#define FUNCTION64_WITH_SECOND(name, inside, near)
#define FUNCTION64_WITH_INT(name, inside, near)
#endif
#define FUNCTION32(name, inside, near) DEFINE(F32, M32, float, name, f32, inside, near)
#define FUNCTION32_OF_TWO(name, inside, near) DEFINE_OF_TWO(F32, M32, float, name, f32, inside, near)
#define FUNCTION32_WITH_SECOND(name, inside, near) DEFINE_WITH_SECOND(F32, M32, float, name, f32, inside, near)
#define FUNCTION32_WITH_INT(name, inside, near) DEFINE_WITH_INT(F32, M32, float, name, f32, inside, near)
#endif

// The same, with simple code for the rest.
#define DEFINE_OR(F, M, name, suffix, inside, near, otherwise)                                               \
  F SHAPED(__tally_##name##_##suffix)(F x) {                                                                 \
    F result = near;                                                                                         \
    M is_inside = inside;                                                                                    \
    if (__builtin_expect(!ALL(is_inside), 0))                                                                \
      result = is_inside ? result : otherwise;                                                               \
    return result;                                                                                           \
  }
#define DEFINE_OF_TWO_OR(F, M, name, suffix, inside, near, otherwise)                                        \
  F SHAPED(__tally_##name##_##suffix)(F x, F y) {                                                            \
    F result = near;                                                                                         \
    M is_inside = inside;                                                                                    \
    if (__builtin_expect(!ALL(is_inside), 0))                                                                \
      result = is_inside ? result : otherwise;                                                               \
    return result;                                                                                           \
  }
#if LANES == 1
#define ALL(mask) (mask)
#else
#define ALL(mask) __builtin_reduce_and(mask)
#endif
#if LANES != 16
#define FUNCTION64_OR(name, inside, near, otherwise) DEFINE_OR(F64, M64, name, f64, inside, near, otherwise)
#define FUNCTION64_OF_TWO_OR(name, inside, near, otherwise)                                                  \
  DEFINE_OF_TWO_OR(F64, M64, name, f64, inside, near, otherwise)
#else
#define FUNCTION64_OR(name, inside, near, otherwise)
#define FUNCTION64_OF_TWO_OR(name, inside, near, otherwise)
#endif
#define FUNCTION32_OR(name, inside, near, otherwise) DEFINE_OR(F32, M32, name, f32, inside, near, otherwise)
#define FUNCTION32_OF_TWO_OR(name, inside, near, otherwise)                                                  \
  DEFINE_OF_TWO_OR(F32, M32, name, f32, inside, near, otherwise)

// The same for a near form that is good for all numbers.
#define WHOLE32(name, near)                                                                                  \
  F32 SHAPED(__tally_##name##_f32)(F32 x) { return near; }
#define WHOLE32_OF_TWO(name, near)                                                                           \
  F32 SHAPED(__tally_##name##_f32)(F32 x, F32 y) { return near; }
#if LANES != 16
#define WHOLE64(name, near)                                                                                  \
  F64 SHAPED(__tally_##name##_f64)(F64 x) { return near; }
#define WHOLE64_OF_TWO(name, near)                                                                           \
  F64 SHAPED(__tally_##name##_f64)(F64 x, F64 y) { return near; }
#else
#define WHOLE64(name, near)
#define WHOLE64_OF_TWO(name, near)
#endif

#endif
