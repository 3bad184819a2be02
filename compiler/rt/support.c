// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions that LLVM's code generator calls by name where the processor has no instruction: moving
// bytes, half floats, fused multiply-add, rounding. Each function is linked only where it is called.
//
// The names and meanings are those of the C library and of compiler-rt. No function here may be
// compiled into a call of itself, so loops over bytes are hidden from the optimiser's pattern matching.

#include "bits.h"

typedef __SIZE_TYPE__ size_t;

#define EXPORT __attribute__((visibility("default")))

EXPORT void *memcpy(void *restrict to, const void *restrict from, size_t len) {
  void *result = to;
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(len) : : "memory");
  return result;
}

EXPORT void *memset(void *to, int byte, size_t len) {
  void *result = to;
  __asm__ volatile("rep stosb" : "+D"(to), "+c"(len) : "a"(byte) : "memory");
  return result;
}

EXPORT void *memmove(void *to, const void *from, size_t len) {
  unsigned char *d = to;
  const unsigned char *s = from;
  if ((uintptr_t)d - (uintptr_t)s >= len) {
    __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(len) : : "memory");
  } else {
    while (len > 0) {
      len--;
      d[len] = s[len];
      __asm__ volatile("" : : : "memory");
    }
  }
  return to;
}

static inline uint16_t bits_of_half(_Float16 x) {
  uint16_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline _Float16 half_of_bits(uint16_t bits) {
  _Float16 x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

// binary16: 1 sign bit, 5 exponent bits (bias 15), 10 fraction bits.

EXPORT float __extendhfsf2(_Float16 half) {
  uint32_t bits = bits_of_half(half);
  uint32_t sign = (bits & 0x8000) << 16;
  uint32_t exponent = (bits >> 10) & 31;
  uint32_t fraction = bits & 0x3ff;
  if (exponent == 31)
    return float_of_bits(sign | 0x7f800000 | (fraction ? 0x400000 : 0) | (fraction << 13));
  if (exponent == 0)
    // A subnormal is its fraction in units of 2^-24; both factors and the product are exact.
    return float_of_bits(sign | bits_of_float((float)fraction * 0x1p-24f));
  return float_of_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
}

// Rounds a double to half, ties to even. Floats convert to double exactly, so this serves both.
static inline _Float16 round_to_half(double x) {
  uint64_t bits = bits_of_double(x);
  uint16_t sign = (uint16_t)((bits >> 48) & 0x8000);
  uint64_t magnitude = bits & 0x7fffffffffffffff;
  if (magnitude > 0x7ff0000000000000)
    return half_of_bits(sign | 0x7e00 | (uint16_t)((magnitude >> 42) & 0x3ff));
  // From 65520 on, half a step above the largest half, the result is infinity.
  if (magnitude >= 0x40effe0000000000)
    return half_of_bits(sign | 0x7c00);
  // Below 2^-14 results are multiples of 2^-24: adding 2^28, which has that last place, rounds to them.
  if (magnitude < 0x3f10000000000000) {
    double rounded = double_of_bits(magnitude) + 0x1p28;
    return half_of_bits(sign | (uint16_t)(bits_of_double(rounded) & 0xffff));
  }
  uint64_t rebiased = magnitude - ((uint64_t)(1023 - 15) << 52);
  uint64_t rounded = rebiased + 0x1ffffffffff + ((rebiased >> 42) & 1);
  return half_of_bits(sign | (uint16_t)(rounded >> 42));
}

EXPORT _Float16 __truncsfhf2(float x) { return round_to_half((double)x); }

EXPORT _Float16 __truncdfhf2(double x) { return round_to_half(x); }

// Fused multiply-add of floats: the product is exact in a double. Rounding the sum to odd first
// makes the second rounding, to float, correct (Boldo and Melquiond, "Emulation of a FMA and
// correctly rounded sums: proved algorithms using rounding to odd", 2008).
EXPORT float fmaf(float a, float b, float c) {
  double product = (double)a * (double)b;
  double addend = (double)c;
  double sum = product + addend;
  // The error of the sum, exactly (Knuth's TwoSum).
  double part = sum - product;
  double error = (product - (sum - part)) + (addend - part);
  uint64_t bits = bits_of_double(sum);
  if (error != 0 && (bits & 1) == 0 && (bits & 0x7ff0000000000000) != 0x7ff0000000000000) {
    // Away from zero if the error has the sum's sign, else towards it: to the odd neighbour.
    bits = ((error > 0) == (sum > 0)) ? bits + 1 : bits - 1;
    sum = double_of_bits(bits);
  }
  return (float)sum;
}

typedef unsigned __int128 u128;

static inline int leading_zeros(u128 x) {
  uint64_t high = (uint64_t)(x >> 64);
  return high ? __builtin_clzll(high) : 64 + __builtin_clzll((uint64_t)x);
}

// x >> n, with the lost bits combined into one sticky bit.
static inline u128 shift_sticky(u128 x, int n) {
  if (n == 0)
    return x;
  if (n > 127)
    return x != 0;
  return (x >> n) | ((x << (128 - n)) != 0);
}

// Fused multiply-add of doubles in integers: the product has 106 bits and the addend is aligned with it
// in 128, so that the lost bits matter only as a sticky bit.
EXPORT double fma(double a, double b, double c) {
  uint64_t a_bits = bits_of_double(a), b_bits = bits_of_double(b), c_bits = bits_of_double(c);
  const uint64_t infinity = 0x7ff0000000000000, magnitude = 0x7fffffffffffffff;
  if ((a_bits & magnitude) >= infinity || (b_bits & magnitude) >= infinity ||
      (c_bits & magnitude) >= infinity)
    // Infinities and NaN: a finite product must not overflow beside an infinite addend.
    return (c_bits & magnitude) == infinity && (a_bits & magnitude) < infinity &&
                   (b_bits & magnitude) < infinity
               ? c
               : a * b + c;
  if ((a_bits & magnitude) == 0 || (b_bits & magnitude) == 0)
    return a * b + c;
  if ((c_bits & magnitude) == 0)
    return a * b; // A product that vanishes keeps its sign: it was not zero.
  uint64_t product_sign = (a_bits ^ b_bits) >> 63;
  uint64_t addend_sign = c_bits >> 63;
  struct integer pa = integer_of(a), pb = integer_of(b), pc = integer_of(c);
  u128 product = (u128)pa.fraction * pb.fraction;
  int product_exponent = pa.exponent + pb.exponent;
  u128 addend = pc.fraction;
  int addend_exponent = pc.exponent;
  // Shift both to the top of the word less two bits: one for the sum's carry, one as a margin.
  int shift = leading_zeros(product) - 2;
  product <<= shift;
  product_exponent -= shift;
  if (addend != 0) {
    shift = leading_zeros(addend) - 2;
    addend <<= shift;
    addend_exponent -= shift;
    if (addend_exponent > product_exponent) {
      product = shift_sticky(product, addend_exponent - product_exponent);
      product_exponent = addend_exponent;
    } else {
      addend = shift_sticky(addend, product_exponent - addend_exponent);
    }
  }
  u128 sum;
  uint64_t sign = product_sign;
  if (product_sign == addend_sign) {
    sum = product + addend;
  } else if (product >= addend) {
    sum = product - addend;
  } else {
    sum = addend - product;
    sign = addend_sign;
  }
  if (sum == 0)
    return 0.0;
  // Normalise to 55 bits: 53, a rounding bit and a sticky bit; fewer for a subnormal result.
  int exponent = product_exponent;
  int drop = (128 - leading_zeros(sum)) - 55;
  if (exponent + drop < -1076)
    drop = -1076 - exponent;
  uint64_t fraction = drop >= 0 ? (uint64_t)shift_sticky(sum, drop) : (uint64_t)(sum << -drop);
  exponent += drop;
  // Ties to even.
  uint64_t rounded = (fraction >> 2) + ((fraction >> 1) & 1 & ((fraction & 1) | (fraction >> 2)));
  exponent += 2;
  uint64_t bits;
  if (rounded < 0x10000000000000) {
    bits = rounded; // Subnormal; the exponent is -1074 here.
  } else {
    uint64_t biased = (uint64_t)(exponent + 1075);
    if (rounded == 0x20000000000000) {
      rounded >>= 1;
      biased++;
    }
    bits = biased >= 2047 ? infinity : (biased << 52) | (rounded & 0xfffffffffffff);
  }
  return double_of_bits(bits | (sign << 63));
}

// The other operand if one is NaN; half floats are compared as floats.
EXPORT float fminf(float a, float b) { return a != a || b < a ? b : a; }
EXPORT float fmaxf(float a, float b) { return a != a || b > a ? b : a; }

// Rounding, for processors without SSE4.1. At 2^52 (2^23) and beyond every value is integral.

EXPORT double rint(double x) {
  double magnitude = __builtin_fabs(x);
  if (!(magnitude < 0x1p52))
    return x;
  double rounded = magnitude + 0x1p52;
  __asm__ volatile("" : "+x"(rounded));
  return __builtin_copysign(rounded - 0x1p52, x);
}

EXPORT double trunc(double x) {
  if (!(__builtin_fabs(x) < 0x1p52))
    return x;
  return __builtin_copysign((double)(int64_t)x, x);
}

EXPORT double floor(double x) {
  if (!(__builtin_fabs(x) < 0x1p52))
    return x;
  double whole = (double)(int64_t)x;
  return __builtin_copysign(whole > x ? whole - 1 : whole, x);
}

EXPORT double ceil(double x) {
  if (!(__builtin_fabs(x) < 0x1p52))
    return x;
  double whole = (double)(int64_t)x;
  return __builtin_copysign(whole < x ? whole + 1 : whole, x);
}

EXPORT double round(double x) {
  double magnitude = __builtin_fabs(x);
  if (!(magnitude < 0x1p52))
    return x;
  double whole = (double)(int64_t)magnitude;
  return __builtin_copysign(magnitude - whole >= 0.5 ? whole + 1 : whole, x);
}

EXPORT float rintf(float x) { return (float)rint((double)x); }
EXPORT float truncf(float x) { return (float)trunc((double)x); }
EXPORT float floorf(float x) { return (float)floor((double)x); }
EXPORT float ceilf(float x) { return (float)ceil((double)x); }
EXPORT float roundf(float x) { return (float)round((double)x); }
