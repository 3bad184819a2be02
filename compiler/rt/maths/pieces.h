// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions as polynomials on intervals of equal length, 32 of them for floats and 16 for doubles. With registers of 512
// bits the coefficients of a number's interval are looked up in registers. Without, this is done for doubles only: each
// number loads the row of its interval, and rows become columns.

#ifndef PIECES_H
#define PIECES_H

#include "exponential.h"

// The interval of a number: its index, in the low bits, and the distance from its middle. The middle of the first is 0.
#ifdef TALLY_AVX512
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

#endif

#if LANES != 16
struct piece64 {
  U64 index;
  F64 t;
};

static inline struct piece64 piece64(F64 x, double length) {
  F64 shifted = fma64(x, 1 / length, ROUNDER64);
  return (struct piece64){bits64(shifted), fma64(-(shifted - ROUNDER64), length, x)};
}

// A table of 16 rows with the coefficients of an interval, as columns or with an even number of coefficients in a row.
// `ROWS(ROW)` names the coefficients as arguments of ROW.
#ifdef TALLY_AVX512
#define PICK_0(a, ...) a,
#define PICK_1(a, b, ...) b,
#define PICK_2(a, b, c, ...) c,
#define PICK_3(a, b, c, d, ...) d,
#define PICK_4(a, b, c, d, e, ...) e,
#define PICK_5(a, b, c, d, e, f, ...) f,
#define PICK_6(a, b, c, d, e, f, g, ...) g,
#define PICK_7(a, b, c, d, e, f, g, h, ...) h,
#define PICK_8(a, b, c, d, e, f, g, h, i, ...) i,
#define PICK_9(a, b, c, d, e, f, g, h, i, j, ...) j,
#define PICK_10(a, b, c, d, e, f, g, h, i, j, k, ...) k,
#define PICK_11(a, b, c, d, e, f, g, h, i, j, k, l, ...) l,
#define PICK_12(a, b, c, d, e, f, g, h, i, j, k, l, m, ...) m,
#define PICK_13(a, b, c, d, e, f, g, h, i, j, k, l, m, n) n,
#define COLUMNS_13(ROWS)                                                                                     \
  {ROWS(PICK_0)}, {ROWS(PICK_1)}, {ROWS(PICK_2)}, {ROWS(PICK_3)}, {ROWS(PICK_4)}, {ROWS(PICK_5)},            \
      {ROWS(PICK_6)}, {ROWS(PICK_7)}, {ROWS(PICK_8)}, {ROWS(PICK_9)}, {ROWS(PICK_10)}, {ROWS(PICK_11)},      \
      {ROWS(PICK_12)},
#define COLUMNS_14(ROWS) COLUMNS_13(ROWS){ROWS(PICK_13)},
#define TABLE64(name, count, ROWS) static const double name[count][16] = {COLUMNS_##count(ROWS)};

static inline F64 value_of64(const double table[][16], int count, struct piece64 at) {
  F64 sum = lookup64(table[count - 1], at.index);
#pragma clang loop unroll(full)
  for (int i = count - 2; i >= 0; i--)
    sum = fma64(sum, at.t, lookup64(table[i], at.index));
  return sum;
}

#define PIECES64(table, at) value_of64(table, sizeof(table) / sizeof(table)[0], at)
#else
#define AS_ROW(...) {__VA_ARGS__},
#define TABLE64(name, count, ROWS) static const double name[16][((count) + 1) / 2 * 2] = {ROWS(AS_ROW)};

// Two neighbouring coefficients of each number's row.
struct two64 {
  F64 first, second;
};

static inline struct two64 two_of64(const double *table, int count, U64 index) {
#if LANES == 1
  const double *row = table + (index & 15) * count;
  return (struct two64){row[0], row[1]};
#else
  typedef double Two __attribute__((ext_vector_type(2)));
  typedef double Four __attribute__((ext_vector_type(4)));
  Four first[2], second[2];
#pragma clang loop unroll(full)
  for (int half = 0; half < 2; half++) {
    Two each[4];
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; i++)
      __builtin_memcpy(&each[i], table + (index[4 * half + i] & 15) * count, sizeof each[i]);
    // Halves of registers are loaded at once; only the interleaving needs instructions of its own.
    Four even = __builtin_shufflevector(each[0], each[2], 0, 1, 2, 3);
    Four odd = __builtin_shufflevector(each[1], each[3], 0, 1, 2, 3);
    first[half] = __builtin_shufflevector(even, odd, 0, 4, 2, 6);
    second[half] = __builtin_shufflevector(even, odd, 1, 5, 3, 7);
  }
  return (struct two64){__builtin_shufflevector(first[0], first[1], 0, 1, 2, 3, 4, 5, 6, 7),
                        __builtin_shufflevector(second[0], second[1], 0, 1, 2, 3, 4, 5, 6, 7)};
#endif
}

// The polynomial, by Horner's scheme for the square, and for the number itself in the end, where roundings count.
static inline F64 value_of64(const double *table, int count, struct piece64 at) {
  F64 sum = 0, square = at.t * at.t;
#pragma clang loop unroll(full)
  for (int i = count - 2; i >= 0; i -= 2) {
    struct two64 two = two_of64(table + i, count, at.index);
    if (i == count - 2)
      sum = fma64(two.second, at.t, two.first);
    else if (i != 0)
      sum = fma64(sum, square, fma64(two.second, at.t, two.first));
    else
      sum = fma64(fma64(sum, at.t, two.second), at.t, two.first);
  }
  return sum;
}

#define PIECES64(table, at) value_of64(table[0], sizeof(table)[0] / sizeof(table)[0][0], at)
#endif
#endif

#endif
