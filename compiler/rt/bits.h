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

// The magnitude of a finite double as fraction * 2^exponent.
struct integer {
  uint64_t fraction;
  int32_t exponent;
};

static inline struct integer integer_of(double x) {
  uint64_t bits = bits_of_double(x) & 0x7fffffffffffffff;
  int32_t exponent = (int32_t)(bits >> 52);
  uint64_t fraction = bits & 0xfffffffffffff;
  if (exponent == 0)
    return (struct integer){fraction, -1074};
  return (struct integer){fraction | 0x10000000000000, exponent - 1075};
}

#endif
