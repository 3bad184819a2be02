// SPDX-License-Identifier: MIT OR Apache-2.0
// Exponentials on processors with registers of 512 bits: a power is 2^n * 2^(j/16) * (1 + p), where 2^(j/16) is
// looked up in a register and p is a short polynomial. One instruction multiplies by 2^n, and overflows or
// becomes subnormal as it should, so these forms are good for all numbers.

#ifndef POWERS_H
#define POWERS_H

#include "lanes.h"

// Adding and subtracting it rounds to a multiple of 1/16; the low bits of the sum are the number of sixteenths.
#define SIXTEENTHS64 0x1.8p48
#define SIXTEENTHS32 0x1.8p19f

// A comparison that holds for NaN (_CMP_NLT_UQ).
#define NOT_LESS 21

#if LANES != 16
// 2^(j/16), rounded, and how much of it is missing, as a part of it.
static const double POWERS64[16] = {
    0x1p0, 0x1.0b5586cf9890fp0, 0x1.172b83c7d517bp0, 0x1.2387a6e756238p0,
    0x1.306fe0a31b715p0, 0x1.3dea64c123422p0, 0x1.4bfdad5362a27p0, 0x1.5ab07dd485429p0,
    0x1.6a09e667f3bcdp0, 0x1.7a11473eb0187p0, 0x1.8ace5422aa0dbp0, 0x1.9c49182a3f09p0,
    0x1.ae89f995ad3adp0, 0x1.c199bdd85529cp0, 0x1.d5818dcfba487p0, 0x1.ea4afa2a490dap0,
};
static const double POWERS_REST64[16] = {
    0x0p0, 0x1.79aa65d837b6dp-54, -0x1.01b15eaa59348p-55, 0x1.68efde3a8a894p-54,
    0x1.34d754db0abb6p-55, 0x1.59f48a72a4c6dp-55, 0x1.690cebb7aafbp-56, 0x1.063e1e21c5409p-54,
    -0x1.3b3efbf5e2228p-54, -0x1.b32dcb94da51dp-56, 0x1.db72fc1f0eab4p-55, 0x1.1affc2b91ce27p-56,
    0x1.c1a7792cb3387p-55, 0x1.36eae30af0cb3p-56, 0x1.4a385a63d07a7p-56, -0x1.ff7128fd391fp-55,
};

// The lanes in which x is not below a limit. NaN is not.
#if LANES == 1
typedef bool KEPT64;
static inline KEPT64 not_below64(F64 x, F64 least) { return !(x < least); }
// x times 2^floor(count) in those lanes, 0 in the others: a product that underflows takes a hundred times as long.
static inline F64 raised_or_zero64(F64 x, F64 count, KEPT64 kept) {
  pair64 number = {x, x}, power = {count, count}, zero = {0, 0};
  return __builtin_ia32_scalefsd_round_mask(number, power, zero, kept, CURRENT_ROUNDING)[0];
}
#else
typedef uint8_t KEPT64;
static inline KEPT64 not_below64(F64 x, F64 least) {
  return __builtin_ia32_cmppd512_mask(x, least, NOT_LESS, -1, CURRENT_ROUNDING);
}
static inline F64 raised_or_zero64(F64 x, F64 count, KEPT64 kept) {
  F64 zero = 0;
  return __builtin_ia32_scalefpd512_mask(x, count, zero, kept, CURRENT_ROUNDING);
}
#endif

// (b^r - 1 - r log b) / r^2 for b^r up to 2^(1/32) and its inverse, to 2^-64, for the base e.
static const double EXP_TAIL_64[] = {
    0x1.0000000000001p-1, 0x1.5555555555557p-3, 0x1.55555554dfb75p-5, 0x1.11111110b286ep-7,
    0x1.6c17f57ba0643p-10, 0x1.a01b5add15e81p-13,
};

#define BITS 64
#include "powers_of.h"
#undef BITS
#endif

static const float POWERS32[16] = {
    0x1p0f, 0x1.0b5586p0f, 0x1.172b84p0f, 0x1.2387a6p0f, 0x1.306fep0f, 0x1.3dea64p0f, 0x1.4bfdaep0f,
    0x1.5ab07ep0f, 0x1.6a09e6p0f, 0x1.7a1148p0f, 0x1.8ace54p0f, 0x1.9c4918p0f, 0x1.ae89fap0f, 0x1.c199bep0f,
    0x1.d5818ep0f, 0x1.ea4afap0f,
};
static const float POWERS_REST32[16] = {
    0x0p0f, 0x1.8d96d4p-25f, -0x1.9c0c22p-27f, 0x1.964904p-25f, 0x1.125002p-25f, 0x1.370be4p-25f,
    -0x1.0a3550p-25f, -0x1.00d8acp-27f, 0x1.26055cp-26f, -0x1.05cb44p-25f, 0x1.67a1cap-28f, 0x1.a3b5e4p-28f,
    -0x1.f9c304p-27f, -0x1.6961b4p-28f, -0x1.a5217cp-28f, 0x1.61428ep-28f,
};

#if LANES == 1
typedef bool KEPT32;
static inline KEPT32 not_below32(F32 x, F32 least) { return !(x < least); }
static inline F32 raised_or_zero32(F32 x, F32 count, KEPT32 kept) {
  four32 number = {x, x, x, x}, power = {count, count, count, count}, zero = {0, 0, 0, 0};
  return __builtin_ia32_scalefss_round_mask(number, power, zero, kept, CURRENT_ROUNDING)[0];
}
#elif LANES == 8
typedef uint8_t KEPT32;
static inline KEPT32 not_below32(F32 x, F32 least) {
  return __builtin_ia32_cmpps256_mask(x, least, NOT_LESS, -1);
}
static inline F32 raised_or_zero32(F32 x, F32 count, KEPT32 kept) {
  F32 zero = 0;
  return __builtin_ia32_scalefps256_mask(x, count, zero, kept);
}
#else
typedef uint16_t KEPT32;
static inline KEPT32 not_below32(F32 x, F32 least) {
  return __builtin_ia32_cmpps512_mask(x, least, NOT_LESS, -1, CURRENT_ROUNDING);
}
static inline F32 raised_or_zero32(F32 x, F32 count, KEPT32 kept) {
  F32 zero = 0;
  return __builtin_ia32_scalefps512_mask(x, count, zero, kept, CURRENT_ROUNDING);
}
#endif

// The same for floats, to 2^-27.
static const float EXP_SHORT_32[] = {0x1.000148p-1f, 0x1.555764p-3f};

#define BITS 32
#include "powers_of.h"
#undef BITS

#endif
