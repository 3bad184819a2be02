// SPDX-License-Identifier: MIT OR Apache-2.0
// The states of bytes, for checks. The layouts are in protocol/src/checks.rs.

#ifndef TALLY_STATES_H
#define TALLY_STATES_H

#include <stdint.h>

enum { ACCESSIBLE = 0x80, UNDEFINED = 0x80, DEFINED = 0xff };

struct Ring;
struct Release;

struct Watch {
  uint64_t mask;
  unsigned char *shadow;
  uint64_t start;
  struct Ring *ring;
  uint64_t *counts;
  uint64_t *seen;
  unsigned char *cells;
  uint32_t (*begin)(uint64_t, uint64_t, uint32_t);
  uint64_t (*ordered)(uint32_t, uint32_t);
  struct Release *releases;
  uint64_t flags;
};

// The number of bytes that have states, of `size` from an address on.
static inline uint64_t at_most(const struct Watch *watch, uint64_t address, uint64_t size) {
  uint64_t offset = address - watch->start;
  if (offset > watch->mask)
    return 0;
  uint64_t left = watch->mask - offset + 1;
  return size < left ? size : left;
}

#endif
