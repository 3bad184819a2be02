// SPDX-License-Identifier: MIT OR Apache-2.0
// Accesses by several items to words in a row, or reads of the same words: the common ones are looked at a block of
// memory at a time.

#ifndef TALLY_STRIPES_H
#define TALLY_STRIPES_H

#include "cells.h"

// What a kernel's code passes on.
#define PLACE                                                                                             \
  const struct Context *ctx, uint64_t lx, uint64_t ly, uint64_t lz, struct Watch *watch, uint64_t launch, \
      uint32_t site

// What an item does, but for the item's number.
INLINE uint64_t entry_of(const struct Races *races, uint32_t site, uint64_t kind) {
  uint64_t number = site < LAST_SITE ? site : LAST_SITE;
  return (uint64_t)races->run << RUN | number << SITE | (uint64_t)races->time << TIME | kind;
}

// Accesses of items without gaps to words without gaps: the items from `lane` on access `bytes` each. Whether it was
// looked at: it must lie in one kind of memory.
INLINE bool touch_stripe(PLACE, uint32_t lane, uint32_t count, uint64_t address, uint32_t bytes, bool writes) {
  struct Races *races = races_at(ctx);
  uint64_t end = address + (uint64_t)bytes * count;
  bool local = address - races->local < races->local_bytes;
  if (races->run == 0 || address & 3)
    return false;
  if (local ? end - races->local > races->local_bytes
            : address - watch->start > watch->mask || end - 1 - watch->start > watch->mask ||
                  address - races->scratch < races->scratch_bytes ||
                  end - 1 - races->scratch < races->scratch_bytes)
    return false;
  uint64_t item = lx + lane + races->nx * (ly + races->ny * lz);
  uint64_t mine = entry_of(races, site, (writes ? WRITES : 0) | MASK | item << ITEM);
  const uint64_t *values = writes && races->value_items != 0 ? races->values + lane : 0;
  struct Release *held = 0;
  uint32_t per_item = bytes / 4, word = 0;
  while (address < end) {
    uint64_t next = ((address >> BLOCK) + 1) << BLOCK;
    next = next < end ? next : end;
    bool enough = !writes && enough_was_read(races, watch, address, next - 1);
    if (!local && !enough)
      hold(watch, &held, address);
    Cell *cell = (Cell *)(races->cells + ((address & watch->mask) << 3));
    for (; address < next; address += 4, cell++) {
      uint64_t value = 0;
      if (values)
        value = (uint32_t)(*values >> 32 * word) | MASK << 32;
      if (!enough && (writes || !adds_nothing(races, (*cell)[0], mine)) &&
          !touch_whole(races, watch, address, cell, mine, local, false, value)) {
        const struct Place place = {ctx, lx, ly, lz, watch, launch, site};
        touch_remembered(races, &place, item_of(mine) - (uint32_t)(item - lane), address, mine, local, value);
      }
      if (++word < per_item)
        continue;
      word = 0;
      mine += 1ull << ITEM;
      if (values)
        values++;
    }
  }
  if (held)
    leave(held);
  if (writes)
    races->value_items = 0;
  return true;
}

// Reads of one address by several items. Any two of them tell as much as all.
INLINE bool read_together(PLACE, uint32_t lane, uint32_t last_lane, uint64_t address, uint32_t bytes) {
  struct Races *races = races_at(ctx);
  (void)launch;
  bool local = address - races->local < races->local_bytes;
  if (races->run == 0 || address & 3 || (address & 63) + bytes > 64 || lane == last_lane ||
      races->flags & (SUBGROUPS | ATOMICS_ORDER | WAITS_FOR_GROUPS))
    return false;
  if (!local && (address - watch->start > watch->mask || address - races->scratch < races->scratch_bytes))
    return false;
  uint64_t item = lx + lane + races->nx * (ly + races->ny * lz);
  uint64_t mine = entry_of(races, site, MASK | item << ITEM), last = mine + ((uint64_t)(last_lane - lane) << ITEM);
  Cell *cell = (Cell *)(races->cells + ((address & watch->mask) << 3));
  struct Release *held = 0;
  if (!local)
    hold(watch, &held, address);
  bool easy = true;
  for (uint64_t end = address + bytes; address < end && easy; address += 4, cell++) {
    easy = touch_whole(races, watch, address, cell, last, local, true, 0);
    if (!easy)
      break;
    store((uint64_t *)cell + 2, mine);
    store((uint64_t *)cell, last | ENOUGH_FOR_GROUP);
    stamp(races, watch, address, bit_of(address), ENOUGH_FOR_GROUP);
  }
  if (held)
    leave(held);
  return easy;
}

#endif
