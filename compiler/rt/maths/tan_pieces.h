// SPDX-License-Identifier: MIT OR Apache-2.0
// The tangent of doubles on processors with registers of 512 bits: x is a multiple of pi/16 and a rest b, and with the
// sine s and the cosine c of the multiple, from tables, tan(x) is (s + c tan(b)) / (c - s tan(b)).

#ifndef TAN_PIECES_H
#define TAN_PIECES_H

#include "powers.h"

#if LANES != 16
// Sines and cosines of the multiples, in two parts. The tangent has the period pi.
static const double SINES64[16] = {
    0x0p0, 0x1.8f8b83c69a60bp-3, 0x1.87de2a6aea963p-2, 0x1.1c73b39ae68c8p-1,
    0x1.6a09e667f3bcdp-1, 0x1.a9b66290ea1a3p-1, 0x1.d906bcf328d46p-1, 0x1.f6297cff75cbp-1,
    0x1p0, 0x1.f6297cff75cbp-1, 0x1.d906bcf328d46p-1, 0x1.a9b66290ea1a3p-1,
    0x1.6a09e667f3bcdp-1, 0x1.1c73b39ae68c8p-1, 0x1.87de2a6aea963p-2, 0x1.8f8b83c69a60bp-3,
};
static const double SINES_LOW64[16] = {
    0x0p0, -0x1.26d19b9ff8d82p-57, -0x1.72cedd3d5a61p-57, 0x1.b25dd267f66p-55,
    -0x1.bdd3413b26456p-55, 0x1.9f630e8b6dac8p-60, 0x1.457e610231ac2p-56, 0x1.562172a361fd3p-56,
    0x0p0, 0x1.562172a361fd3p-56, 0x1.457e610231ac2p-56, 0x1.9f630e8b6dac8p-60,
    -0x1.bdd3413b26456p-55, 0x1.b25dd267f66p-55, -0x1.72cedd3d5a61p-57, -0x1.26d19b9ff8d82p-57,
};
static const double COSINES64[16] = {
    0x1p0, 0x1.f6297cff75cbp-1, 0x1.d906bcf328d46p-1, 0x1.a9b66290ea1a3p-1,
    0x1.6a09e667f3bcdp-1, 0x1.1c73b39ae68c8p-1, 0x1.87de2a6aea963p-2, 0x1.8f8b83c69a60bp-3,
    0x0p0, -0x1.8f8b83c69a60bp-3, -0x1.87de2a6aea963p-2, -0x1.1c73b39ae68c8p-1,
    -0x1.6a09e667f3bcdp-1, -0x1.a9b66290ea1a3p-1, -0x1.d906bcf328d46p-1, -0x1.f6297cff75cbp-1,
};
static const double COSINES_LOW64[16] = {
    0x0p0, 0x1.562172a361fd3p-56, 0x1.457e610231ac2p-56, 0x1.9f630e8b6dac8p-60,
    -0x1.bdd3413b26456p-55, 0x1.b25dd267f66p-55, -0x1.72cedd3d5a61p-57, -0x1.26d19b9ff8d82p-57,
    0x0p0, 0x1.26d19b9ff8d82p-57, 0x1.72cedd3d5a61p-57, -0x1.b25dd267f66p-55,
    0x1.bdd3413b26456p-55, -0x1.9f630e8b6dac8p-60, -0x1.457e610231ac2p-56, -0x1.562172a361fd3p-56,
};

// (tan(b) - b) / b^3 as a polynomial of b^2 for |b| <= pi/32, so that the tangent is good to 2^-57.
static const double TAN_SMALL64[] = {
    0x1.555555555556p-2, 0x1.11111110f61c4p-3, 0x1.ba1ba3173c658p-5, 0x1.664c315dae3bdp-6, 0x1.25493ce15b83ap-7,
};

// For the rest and the number of sixteenths of half a turn, in the low bits.
static inline F64 tan_of_rest64(D64 rest, U64 sixteenths) {
  F64 square = rest.hi * rest.hi, sine = lookup64(SINES64, sixteenths), cosine = lookup64(COSINES64, sixteenths);
  F64 small = rest.hi + fma64(rest.hi * square, HORNER64(TAN_SMALL64, square), rest.lo);
  F64 over = sine + fma64(cosine, small, lookup64(SINES_LOW64, sixteenths));
  F64 under = cosine + fma64(-sine, small, lookup64(COSINES_LOW64, sixteenths));
  return over / under;
}
#endif

#endif
