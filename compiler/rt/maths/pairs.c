// SPDX-License-Identifier: MIT OR Apache-2.0
// Sums of two products of integers of 16 bits, which processors have one instruction for. LLVM does not find it
// where one factor is the same for all items.

#include "lanes.h"

#if LANES == 1
I32 __tally_pair_dot(I32 a, I32 b) {
  return (I32)((int64_t)(int16_t)a * (int16_t)b + (int64_t)(int16_t)(a >> 16) * (int16_t)(b >> 16));
}
#else

#if defined(TALLY_AVX512) && LANES == 16
#define BYTES 64
#define MULTIPLY __builtin_ia32_pmaddwd512
#elif defined(TALLY_FMA)
#define BYTES 32
#define MULTIPLY __builtin_ia32_pmaddwd256
#else
#define BYTES 16
#define MULTIPLY __builtin_ia32_pmaddwd128
#endif

typedef int16_t Halves __attribute__((vector_size(BYTES)));
typedef int32_t Piece __attribute__((vector_size(BYTES)));
enum { PIECES = LANES * 4 / BYTES };

// A call would cost more than the instruction.
__attribute__((always_inline)) I32 SHAPED(__tally_pair_dot)(I32 a, I32 b) {
  union {
    I32 whole;
    Halves halves[PIECES];
    Piece pieces[PIECES];
  } x = {a}, y = {b}, sum;
#pragma unroll
  for (int i = 0; i < PIECES; i++) sum.pieces[i] = (Piece)MULTIPLY(x.halves[i], y.halves[i]);
  return sum.whole;
}
#endif
