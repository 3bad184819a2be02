// SPDX-License-Identifier: MIT OR Apache-2.0
// Names without 64 or 32, for text that is the same for doubles and for floats: a file that is included once with
// BITS as 64 and once with BITS as 32. It includes this first and names_end.h last. OF(name) is a name of its own.

#define OF_WITH(name, bits) name##bits
#define OF_AT(name, bits) OF_WITH(name, bits)
#define OF(name) OF_AT(name, BITS)

#if BITS == 64
#define NUMBER double
#else
#define NUMBER float
#endif

#define F OF(F)
#define U OF(U)
#define M OF(M)
#define D OF(D)
#define HORNER OF(HORNER)
#define PIECES OF(PIECES)
#define POLYNOMIAL OF(POLYNOMIAL)
#define ROUNDER OF(ROUNDER)
#define SIXTEENTHS OF(SIXTEENTHS)
#define abs OF(abs)
#define bits OF(bits)
#define fma OF(fma)
#define lookup OF(lookup)
#define lost OF(lost)
#define of_bits OF(of_bits)
#define polynomial OF(polynomial)
#define product OF(product)
#define sum OF(sum)
