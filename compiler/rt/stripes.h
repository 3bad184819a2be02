// SPDX-License-Identifier: MIT OR Apache-2.0
// Accesses by several items to memory without gaps, or reads of the same memory: they are looked at a block at a time.

#ifndef TALLY_STRIPES_H
#define TALLY_STRIPES_H

#include "rows.h"

// What a kernel's code passes on.
#define PLACE                                                                                             \
  const struct Context *ctx, uint64_t lx, uint64_t ly, uint64_t lz, struct Watch *watch, uint64_t launch, \
      uint32_t site

// What an item does, but for the item's number.
INLINE uint64_t entry_of(const struct Races *races, uint32_t site, uint64_t kind) {
  uint64_t number = site < LAST_SITE ? site : LAST_SITE;
  return (uint64_t)races->run << RUN | number << SITE | (uint64_t)races->time << TIME | kind;
}

// Whether accesses of so many bytes may be remembered as rows.
INLINE bool is_even(uint32_t bytes) {
  return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
}

// The bytes of a block between two addresses.
INLINE uint64_t between(uint64_t address, uint64_t end) {
  return ~0ull >> (BLOCK_BYTES - (end - address)) << (address & (BLOCK_BYTES - 1));
}

// Items store `bytes` bytes each, at addresses with a step.
INLINE void keep_values(unsigned char *at, const uint64_t *values, uint32_t count, uint32_t bytes, uint32_t step) {
  // The compiler makes vectors of this alone.
  if (bytes == 4 && step == 4) {
    for (uint32_t i = 0; i < count; i++)
      ((uint32_t *)at)[i] = (uint32_t)values[i];
    return;
  }
  for (uint32_t i = 0; i < count; i++, at += step) {
    if (bytes == 1)
      *at = (unsigned char)values[i];
    else if (bytes == 2)
      *(uint16_t *)at = (uint16_t)values[i];
    else if (bytes == 4)
      *(uint32_t *)at = (uint32_t)values[i];
    else
      *(uint64_t *)at = values[i];
  }
}

// An item's access, word by word.
__attribute__((noinline)) static void touch_words(struct Races *races, const struct Place *place, uint32_t lane,
                                                  uint64_t address, uint32_t bytes, uint64_t mine, bool local,
                                                  const uint64_t *values) {
  uint32_t first = address & 3, count = bytes < 4 ? bytes : 4;
  for (uint32_t offset = 0; offset < bytes; offset += 4) {
    uint64_t mask = MASK >> (4 - count) << first, value = 0;
    if (values)
      value = (uint32_t)(*values >> 8 * offset << 8 * first) | mask << 32;
    touch_word(races, place, lane, (address + offset) & ~3ull, mine | mask, local, value);
  }
}

// Whether memory is local, or global memory that is looked at.
INLINE bool is_watched(const struct Races *races, const struct Watch *watch, uint64_t address, uint64_t last) {
  if (races->run == 0)
    return false;
  if (address - races->local < races->local_bytes)
    return last - races->local < races->local_bytes;
  return address - watch->start <= watch->mask && last - watch->start <= watch->mask &&
         address - races->scratch >= races->scratch_bytes && last - races->scratch >= races->scratch_bytes;
}

// Accesses by the items from `lane` on, to `bytes` bytes each, at addresses with a step: both are powers of two, and
// the bytes lie between two multiples of the step. Whether it was looked at: it must lie in one kind of memory.
INLINE bool touch_stripe(PLACE, uint32_t lane, uint32_t count, uint64_t address, uint32_t bytes, uint32_t step,
                         bool writes) {
  struct Races *races = races_at(ctx);
  uint64_t offset = address & (step - 1);
  if (address & (bytes - 1) || offset + bytes > step ||
      !is_watched(races, watch, address, address + (uint64_t)step * (count - 1) + bytes - 1))
    return false;
  bool local = address - races->local < races->local_bytes;
  const uint64_t *values = writes && races->value_items != 0 ? races->values + lane : 0;
  uint64_t entry = entry_of(races, site, writes ? WRITES : 0), item = lx + lane + races->nx * (ly + races->ny * lz);
  uint32_t shape = (uint32_t)__builtin_ctz(step);
  // The bytes of all items of a block.
  uint64_t pattern = step == bytes ? ~0ull : ~0ull / ((1ull << step) - 1) * ((1ull << bytes) - 1) << offset;
  uint32_t *held = 0;
  // The stamp of a single block was looked at before.
  bool is_single = (address & (BLOCK_BYTES - 1)) + ((uint64_t)count << shape) <= BLOCK_BYTES;
  while (count != 0) {
    uint32_t before = (uint32_t)(address & (BLOCK_BYTES - 1)) >> shape, items = (BLOCK_BYTES >> shape) - before;
    items = items < count ? items : count;
    uint64_t start = address - offset, these = pattern & between(start, start + ((uint64_t)items << shape));
    if (writes || !is_enough(races, watch, address, these, is_single)) {
      if (!local)
        hold(races, watch, &held, address);
      uint64_t row = entry | shape | (values ? VALUED : 0) | ((item - before) & ITEMS) << ITEM;
      if (races->in_rows && touch_row(races, watch, address, row, these, local)) {
        if (values)
          keep_values(races->stored + (address & watch->mask), values, items, bytes, step);
      } else {
        const struct Place place = {ctx, lx, ly, lz, watch, launch, site};
        use_cells(races, watch, address, local, entry, these);
        for (uint32_t i = 0; i < items; i++)
          touch_words(races, &place, lane + i, address + ((uint64_t)i << shape), bytes, entry | (item + i) << ITEM,
                      local, values ? &values[i] : 0);
      }
    }
    address += (uint64_t)items << shape;
    count -= items;
    item += items;
    lane += items;
    if (values)
      values += items;
  }
  if (held)
    leave(held);
  return true;
}

// Reads of one address by several items. Any two of them tell as much as all: one and the next.
INLINE bool read_together(PLACE, uint32_t items, uint64_t address, uint32_t bytes) {
  struct Races *races = races_at(ctx);
  (void)launch;
  uint32_t pairs = items & items >> 1;
  if (pairs == 0 || (address & (BLOCK_BYTES - 1)) + bytes > BLOCK_BYTES || !races->in_rows ||
      !is_watched(races, watch, address, address + bytes - 1))
    return false;
  bool local = address - races->local < races->local_bytes;
  uint64_t item = lx + (uint32_t)__builtin_ctz(pairs) + races->nx * (ly + races->ny * lz);
  uint64_t row = entry_of(races, site, PAIR | item << ITEM), these = between(address, address + bytes);
  uint32_t *held = 0;
  if (!local)
    hold(races, watch, &held, address);
  bool easy = touch_row(races, watch, address, row, these, local);
  if (!easy)
    use_cells(races, watch, address, local, row, these);
  if (held)
    leave(held);
  return easy;
}

#endif
