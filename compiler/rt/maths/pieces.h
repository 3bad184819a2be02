// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions on processors with registers of 512 bits as polynomials on intervals of equal length, 32 of them for floats
// and 16 for doubles. The coefficients of a number's interval are looked up in registers.

#ifndef PIECES_H
#define PIECES_H

#include "exponential.h"

// The interval of a number: its index, in the low bits, and the distance from its middle. The middle of the first is 0.
struct piece32 {
  U32 index;
  F32 t;
};

// For x from 0 to the middle of the last interval, whose length is exact in few bits.
static inline struct piece32 piece32(F32 x, float length) {
  F32 shifted = fma32(x, 1 / length, ROUNDER32);
  return (struct piece32){bits32(shifted), fma32(-(shifted - ROUNDER32), length, x)};
}

static inline F32 lookup_of32(const float table[32], U32 index) {
#if LANES == 1
  return table[index & 31];
#else
  typedef float F __attribute__((ext_vector_type(16)));
  typedef int32_t I __attribute__((ext_vector_type(16)));
  F low, high;
  __builtin_memcpy(&low, table, sizeof low);
  __builtin_memcpy(&high, table + 16, sizeof high);
#if LANES == 16
  return __builtin_ia32_vpermi2varps512(low, (I)index, high);
#else
  U32 any;
  I all = (I)__builtin_shufflevector(index, any, 0, 1, 2, 3, 4, 5, 6, 7, -1, -1, -1, -1, -1, -1, -1, -1);
  F found = __builtin_ia32_vpermi2varps512(low, all, high);
  return found.lo;
#endif
#endif
}

// The polynomial, by Horner's scheme: that takes the fewest instructions.
static inline F32 value_of32(const float table[][32], int count, struct piece32 at) {
  F32 sum = lookup_of32(table[count - 1], at.index);
#pragma clang loop unroll(full)
  for (int i = count - 2; i >= 0; i--)
    sum = fma32(sum, at.t, lookup_of32(table[i], at.index));
  return sum;
}

#define PIECES32(table, at) value_of32(table, sizeof(table) / sizeof(table)[0], at)

#if LANES != 16
struct piece64 {
  U64 index;
  F64 t;
};

static inline struct piece64 piece64(F64 x, double length) {
  F64 shifted = fma64(x, 1 / length, ROUNDER64);
  return (struct piece64){bits64(shifted), fma64(-(shifted - ROUNDER64), length, x)};
}

static inline F64 value_of64(const double table[][16], int count, struct piece64 at) {
  F64 sum = lookup64(table[count - 1], at.index);
#pragma clang loop unroll(full)
  for (int i = count - 2; i >= 0; i--)
    sum = fma64(sum, at.t, lookup64(table[i], at.index));
  return sum;
}

#define PIECES64(table, at) value_of64(table, sizeof(table) / sizeof(table)[0], at)
#endif

#endif
