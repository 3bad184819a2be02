// SPDX-License-Identifier: MIT OR Apache-2.0
// The functions on vectors (rt/maths/) as scalar functions, which use one element of a vector.
//
// The bits of the number determine its place in the vector. The other elements are common numbers, or
// one that is far from the range of all functions, so that vectors with both kinds of numbers are
// tested, too.

#include "../../rt/maths/lanes.h"

static unsigned place_of(uint64_t bits) { return (bits * 0x9e3779b97f4a7c15) >> 32 & (LANES - 1); }

static inline double other(unsigned lane, unsigned place) { return (lane ^ place) == 3 ? -1e300 : 0.5 + lane; }

#define FILLED(V, type, x)                                                                                   \
  unsigned place = place_of(double_bits(x));                                                                 \
  V vector;                                                                                                  \
  for (unsigned i = 0; i < LANES; i++)                                                                       \
    vector[i] = i == place ? x : (type)other(i, place);

static inline uint64_t double_bits(double x) { return bits_of_double(x); }

#define ONE(name, type, suffix, V)                                                                           \
  V SHAPED(__tally_##name##_##suffix)(V);                                                                    \
  type __tally_##name##_##suffix(type x) {                                                                   \
    FILLED(V, type, x)                                                                                       \
    return SHAPED(__tally_##name##_##suffix)(vector)[place];                                                 \
  }

#define TWO(name, type, suffix, V)                                                                           \
  V SHAPED(__tally_##name##_##suffix)(V, V);                                                                 \
  type __tally_##name##_##suffix(type x, type y) {                                                           \
    FILLED(V, type, x)                                                                                       \
    V second = (type)0.75;                                                                                   \
    second[place] = y;                                                                                       \
    return SHAPED(__tally_##name##_##suffix)(vector, second)[place];                                         \
  }

#define WITH_INT(name, type, suffix, V)                                                                      \
  V SHAPED(__tally_##name##_##suffix)(V, I32);                                                               \
  type __tally_##name##_##suffix(type x, int32_t n) {                                                        \
    FILLED(V, type, x)                                                                                       \
    I32 second = 3;                                                                                          \
    second[place] = n;                                                                                       \
    return SHAPED(__tally_##name##_##suffix)(vector, second)[place];                                         \
  }

#define WITH_SECOND(name, type, suffix, V)                                                                   \
  V SHAPED(__tally_##name##_##suffix)(V, V *);                                                               \
  type __tally_##name##_##suffix(type x, type *to) {                                                         \
    FILLED(V, type, x)                                                                                       \
    V second, first = SHAPED(__tally_##name##_##suffix)(vector, &second);                                    \
    *to = second[place];                                                                                     \
    return first[place];                                                                                     \
  }

#define ALL_OF(type, suffix, V)                                                                              \
  ONE(acos, type, suffix, V)                                                                                 \
  ONE(acosh, type, suffix, V)                                                                                \
  ONE(acospi, type, suffix, V)                                                                               \
  ONE(asin, type, suffix, V)                                                                                 \
  ONE(asinh, type, suffix, V)                                                                                \
  ONE(asinpi, type, suffix, V)                                                                               \
  ONE(atan, type, suffix, V)                                                                                 \
  ONE(atanh, type, suffix, V)                                                                                \
  ONE(atanpi, type, suffix, V)                                                                               \
  ONE(cbrt, type, suffix, V)                                                                                 \
  ONE(cos, type, suffix, V)                                                                                  \
  ONE(cosh, type, suffix, V)                                                                                 \
  ONE(cospi, type, suffix, V)                                                                                \
  ONE(erf, type, suffix, V)                                                                                  \
  ONE(erfc, type, suffix, V)                                                                                 \
  ONE(lgamma, type, suffix, V)                                                                               \
  ONE(tgamma, type, suffix, V)                                                                               \
  ONE(exp, type, suffix, V)                                                                                  \
  ONE(exp2, type, suffix, V)                                                                                 \
  ONE(exp10, type, suffix, V)                                                                                \
  ONE(expm1, type, suffix, V)                                                                                \
  ONE(log, type, suffix, V)                                                                                  \
  ONE(log2, type, suffix, V)                                                                                 \
  ONE(log10, type, suffix, V)                                                                                \
  ONE(log1p, type, suffix, V)                                                                                \
  ONE(rsqrt, type, suffix, V)                                                                                \
  ONE(sin, type, suffix, V)                                                                                  \
  ONE(sinh, type, suffix, V)                                                                                 \
  ONE(sinpi, type, suffix, V)                                                                                \
  ONE(tan, type, suffix, V)                                                                                  \
  ONE(tanh, type, suffix, V)                                                                                 \
  ONE(tanpi, type, suffix, V)                                                                                \
  TWO(atan2, type, suffix, V)                                                                                \
  TWO(atan2pi, type, suffix, V)                                                                              \
  TWO(fmod, type, suffix, V)                                                                                 \
  TWO(hypot, type, suffix, V)                                                                                \
  TWO(remainder, type, suffix, V)                                                                            \
  TWO(pow, type, suffix, V)                                                                                  \
  TWO(powr, type, suffix, V)                                                                                 \
  WITH_INT(pown, type, suffix, V)                                                                            \
  WITH_INT(rootn, type, suffix, V)                                                                           \
  WITH_INT(ldexp, type, suffix, V)                                                                           \
  WITH_SECOND(sincos, type, suffix, V)

ALL_OF(float, f32, F32)
ONE(native_cos, float, f32, F32)
ONE(native_exp, float, f32, F32)
ONE(native_exp2, float, f32, F32)
ONE(native_exp10, float, f32, F32)
ONE(native_log, float, f32, F32)
ONE(native_log2, float, f32, F32)
ONE(native_log10, float, f32, F32)
ONE(native_rsqrt, float, f32, F32)
ONE(native_sin, float, f32, F32)
ONE(native_tan, float, f32, F32)
TWO(native_powr, float, f32, F32)
TWO(native_divide, float, f32, F32)
#if LANES == 8
ALL_OF(double, f64, F64)
#endif
