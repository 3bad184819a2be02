// SPDX-License-Identifier: MIT OR Apache-2.0
// Ends what names.h begins.

#undef OF_WITH
#undef OF_AT
#undef OF
#undef NUMBER
#undef F
#undef U
#undef M
#undef D
#undef HORNER
#undef PIECES
#undef POLYNOMIAL
#undef ROUNDER
#undef SIXTEENTHS
#undef abs
#undef bits
#undef fma
#undef lookup
#undef lost
#undef of_bits
#undef polynomial
#undef product
#undef sum
