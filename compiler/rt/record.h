// SPDX-License-Identifier: MIT OR Apache-2.0
// Records of mistakes. The layouts are in protocol/src/checks.rs.

#ifndef TALLY_RECORD_H
#define TALLY_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "states.h"

struct Launch {
  uint64_t global_offset[3];
  uint64_t global_size[3];
  uint32_t groups[3];
  uint32_t group_size[3];
};

struct Context {
  const struct Launch *launch;
  const void *args;
  void *local, *scratch;
  uint32_t group[3];
};

enum { CAPACITY = 1024, OUTSIDE = 64, KEPT = 8 };
#define REACHES_ALL (1ull << 63)

struct Record {
  uint64_t ready, watch, launch, site, items, address, states, when, group, local_id, global_id[3];
  uint64_t run, size, groups;
};

struct Ring {
  _Alignas(64) uint64_t head;
  _Alignas(64) uint64_t tail;
  _Alignas(64) uint64_t lost;
  _Alignas(64) uint64_t epoch;
  uint64_t dropped;
  _Alignas(64) struct Record outside[OUTSIDE];
  struct Record records[CAPACITY];
};

_Static_assert(sizeof(struct Record) == 128, "16 words");

// The parameters that the compiler passes on: the group, the first item of the vector, and the place.
struct Place {
  const struct Context *ctx;
  uint64_t lx, ly, lz;
  struct Watch *watch;
  uint64_t launch;
  uint32_t site;
};

static inline uint64_t packed(uint64_t x, uint64_t y, uint64_t z) {
  return x | y << 21 | z << 42;
}

// The states of up to eight bytes from an address on.
static uint64_t states_at(const struct Watch *watch, uint64_t address) {
  uint64_t at = address & watch->mask, states = 0;
  if (watch->shadow == 0)
    return 0;
  for (uint64_t i = 0; i < 8 && at + i <= watch->mask; i++)
    states |= (uint64_t)watch->shadow[at + i] << 8 * i;
  return states;
}

// Fills a record, but for its number.
static inline void fill(struct Record *record, const struct Place *place, uint32_t items, uint64_t address) {
  const struct Context *ctx = place->ctx;
  uint64_t first = (uint64_t)__builtin_ctz(items);
  uint64_t local[3] = {place->lx + first, place->ly, place->lz};
  record->watch = (uint64_t)place->watch;
  record->launch = place->launch & ~REACHES_ALL;
  record->site = place->site | first << 32;
  record->items = items;
  record->address = address;
  record->states = states_at(place->watch, address);
  record->when = __atomic_load_n(&place->watch->ring->epoch, __ATOMIC_RELAXED);
  record->group = packed(ctx->group[0], ctx->group[1], ctx->group[2]);
  record->local_id = packed(local[0], local[1], local[2]);
  const uint32_t *size = ctx->launch->group_size, *groups = ctx->launch->groups;
  record->size = packed(size[0], size[1], size[2]);
  record->groups = packed(groups[0] & 0x1fffff, groups[1] & 0x1fffff, groups[2]);
  for (int d = 0; d < 3; d++) {
    uint64_t group = (uint64_t)ctx->group[d] * ctx->launch->group_size[d];
    record->global_id[d] = ctx->launch->global_offset[d] + group + local[d];
  }
}

// Counts a mistake; returns a record for it if it is one of the first at its site, and its number for
// `told`.
static inline struct Record *count(const struct Place *place, uint32_t items, uint64_t most,
                                   uint64_t *number) {
  struct Ring *ring = place->watch->ring;
  uint64_t *counts = place->watch->counts + 2 * (uint64_t)place->site;
  __atomic_fetch_add(&counts[0], (uint64_t)__builtin_popcount(items), __ATOMIC_RELAXED);
  if (__atomic_fetch_add(&counts[1], 1, __ATOMIC_RELAXED) >= most)
    return NULL;
  *number = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
  do {
    if (*number - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) >= CAPACITY) {
      __atomic_fetch_add(&ring->lost, 1, __ATOMIC_RELAXED);
      return NULL;
    }
  } while (!__atomic_compare_exchange_n(&ring->head, number, *number + 1, true, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED));
  return &ring->records[*number % CAPACITY];
}

// The record is complete.
static inline void told(struct Record *record, uint64_t number) {
  __atomic_store_n(&record->ready, number + 1, __ATOMIC_RELEASE);
}

#endif
