// SPDX-License-Identifier: MIT OR Apache-2.0
// Floating-point numbers as their bits, and back.

#ifndef TALLY_BITS_H
#define TALLY_BITS_H

#include <stdint.h>

static inline uint32_t bits_of_float(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float float_of_bits(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

static inline uint64_t bits_of_double(double x) {
  uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline double double_of_bits(uint64_t bits) {
  double x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

#endif
