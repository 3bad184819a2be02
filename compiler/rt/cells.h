// SPDX-License-Identifier: MIT OR Apache-2.0
// Accesses to a word: what its cell remembers, and which of those race with a new one.

#ifndef TALLY_CELLS_H
#define TALLY_CELLS_H

#include "races.h"

INLINE bool owns(const struct Races *races, uint32_t owner, uint32_t item) {
  return owner == OF_GROUP || owner == item || owner == (OF_SUBGROUP | item >> races->shift);
}

__attribute__((noinline)) static bool knows(const struct Races *races, uint64_t entry,
                                            uint32_t item) {
  if (races->all_known)
    return true;
  for (uint32_t i = 0; i < races->known_count; i++) {
    const struct Known *it = &races->known[i];
    const struct Point *point = &it->point;
    if (it->state != HOLDS || point->run != run_of(entry) || !owns(races, it->owner, item))
      continue;
    bool sub = item_of(entry) >> races->shift == (uint32_t)point->item >> races->shift;
    if (time_of(entry) < point->all || (item_of(entry) == point->item && time_of(entry) < point->own) ||
        (sub && time_of(entry) < point->sub))
      return true;
  }
  return false;
}

INLINE bool is_before(struct Races *races, const struct Watch *watch, uint64_t entry, uint32_t item) {
  uint32_t run = run_of(entry);
  if (run == races->run) {
    if (item_of(entry) == item || time_of(entry) < races->phase)
      return true;
    if (races->flags & SUBGROUPS && item_of(entry) >> races->shift == item >> races->shift &&
        time_of(entry) < races->sub_start[item >> races->shift])
      return true;
  } else if (!in_launch(races, run)) {
    return is_earlier(races, watch, run);
  } else if (races->flags & WAITS_FOR_GROUPS) {
    return true;
  }
  return (races->known_count | races->all_known) != 0 && knows(races, entry, item);
}

// Tells that an access races with another one, unless both store the same.
__attribute__((noinline, cold)) static void race(const struct Place *place, uint32_t lane,
                                                 uint64_t address, uint64_t mine, uint64_t other,
                                                 bool same) {
  uint64_t number;
  if (same && !(place->watch->flags & 1))
    return;
  struct Record *record = count(place, 1u << lane, KEPT, &number);
  if (!record)
    return;
  fill(record, place, 1u << lane, address + (uint64_t)__builtin_ctzll(mine & other & MASK));
  record->states = other;
  record->run = run_of(mine) | (uint64_t)same << 63;
  told(record, number);
}

// The entry that a new access takes, if all are in use and none is covered; or none, if the new access adds
// nothing: what conflicts with it races with one of two accesses like it, of different groups, or of different
// items of one group in one phase. (Unless atomics order it behind both.)
__attribute__((noinline)) static int replaced(struct Races *races, const struct Watch *watch,
                                              const uint64_t *entries, uint64_t mine) {
  int like = -1, other = -1;
  for (int i = 0; i < ENTRIES; i++) {
    bool is_old = run_of(entries[i]) == races->run && time_of(entries[i]) < races->phase;
    if (is_old || !in_launch(races, run_of(entries[i])) || !covers(entries[i], mine))
      continue;
    if (like < 0) {
      like = i;
      continue;
    }
    if (races->flags & ATOMICS_ORDER)
      drop(watch);
    uint64_t a = entries[like], b = entries[i];
    if (run_of(a) != run_of(b))
      return -1;
    uint32_t sub = item_of(a) >> races->shift;
    bool alike = run_of(a) != races->run || (races->flags & SUBGROUPS && sub == item_of(b) >> races->shift &&
                                             sub != item_of(mine) >> races->shift);
    if (!alike)
      return -1;
    // The two may do more than the new one: what goes must be what another one stands for.
    if (covers(mine, b) || covers(a, b))
      return i;
    if (!covers(b, a))
      drop(watch);
    return like;
  }
  // Of other executions, first one that comes before this one: it races with least of what follows.
  for (int i = 0; i < ENTRIES; i++) {
    uint32_t run = run_of(entries[i]);
    if (run == 0 || in_launch(races, run))
      continue;
    drop(watch);
    if (is_earlier(races, watch, run))
      return i;
    other = other < 0 ? i : other;
  }
  if (other >= 0)
    return other;
  // Bytes of one word that belong to several items need the place of the value.
  if (run_of(entries[VALUE_AT]) == 0 && (mine & MASK) != MASK)
    return VALUE_AT;
  // Another group may race with what comes before this group's last barrier.
  drop(watch);
  for (int i = 0; i < ENTRIES; i++)
    if (run_of(entries[i]) == races->run && time_of(entries[i]) < races->phase)
      return i;
  if (!(mine & WRITES) && like >= 0)
    return -1;
  for (int i = 0; i < ENTRIES; i++)
    if (run_of(entries[i]) != 0 && !(entries[i] & WRITES))
      return i;
  return mine & WRITES ? VALUE_AT - 1 : -1;
}

// The bytes of a mask as bits.
INLINE uint32_t spread(uint64_t mask) {
  return (uint32_t)((mask & 1) * 0xff | (mask & 2) * 0x7f80 | (mask & 4) * 0x3fc000 |
                    (mask & 8) * 0x1fe00000);
}

// Whether an access to a whole word adds nothing to what its first entry says: a read, or an atomic that writes.
INLINE bool adds_nothing(const struct Races *races, uint64_t entry, uint64_t mine) {
  return ((entry ^ mine) & (WRITES | ATOMIC)) == 0 &&
         ((entry & ENOUGH_FOR_GROUP && entry - races->own <= races->own_size) ||
          (entry & ENOUGH_FOR_LAUNCH && entry - races->launch <= races->launch_size));
}

INLINE uint64_t *stamp_at(const struct Races *races, const struct Watch *watch, uint64_t address) {
  return &races->stamps[(address & watch->mask) >> BLOCK];
}

INLINE bool is_same_stamp(uint64_t one, uint64_t other) {
  return ((one ^ other) & ~IN_CELLS) >> STAMP_BITS == 0;
}

// A word is written, or what was remembered of its reads goes.
INLINE void unstamp(const struct Races *races, const struct Watch *watch, uint64_t address) {
  uint64_t *stamp = stamp_at(races, watch, address), old = load(stamp);
  if ((old & ~IN_CELLS) != 0)
    store(stamp, old & IN_CELLS);
}

// Further reads of some words of a block add nothing. `flags`: of their cells.
INLINE void stamp(const struct Races *races, const struct Watch *watch, uint64_t address, uint64_t words,
                  uint64_t flags) {
  uint64_t *stamp = stamp_at(races, watch, address), old = load(stamp);
  uint64_t key = flags & ENOUGH_FOR_LAUNCH ? races->launch_stamp : races->group_stamp;
  if (is_same_stamp(old, key))
    store(stamp, old | words);
  else if (flags & ENOUGH_FOR_LAUNCH || !is_same_stamp(old, races->launch_stamp))
    store(stamp, key | words | (old & IN_CELLS));
}

// The stamp's bits that hold now.
INLINE uint64_t stamped(const struct Races *races, uint64_t stamp) {
  bool holds = is_same_stamp(stamp, races->group_stamp) || is_same_stamp(stamp, races->launch_stamp);
  return holds ? stamp & ((1 << STAMP_BITS) - 1) : 0;
}

// Whether reads of all words between two bytes, at most 17 of them, add nothing.
INLINE bool enough_was_read(const struct Races *races, const struct Watch *watch, uint64_t first,
                            uint64_t last) {
  uint64_t words = (last >> 2) - (first >> 2);
  if (words > 16 || !races->stamps)
    return false;
  uint64_t need = ((2ull << words) - 1) << (first >> 2 & 15);
  uint64_t have = stamped(races, load(stamp_at(races, watch, first))) |
                  stamped(races, load(stamp_at(races, watch, last))) << STAMP_BITS;
  return (need & ~have) == 0;
}

INLINE uint64_t bit_of(uint64_t address) {
  return 1ull << (address >> 2 & 15);
}

// What two accesses that are remembered are enough for, both reads or both atomics. `safe`: what no other entry stands
// against.
INLINE uint64_t enough(const struct Races *races, uint64_t one, uint64_t other, uint64_t safe) {
  if (run_of(one) != run_of(other))
    return safe & ENOUGH_FOR_LAUNCH;
  bool apart = !(races->flags & SUBGROUPS) || item_of(one) >> races->shift != item_of(other) >> races->shift;
  return run_of(one) == races->run && apart ? safe & ENOUGH_FOR_GROUP : 0;
}

// The most common accesses: nothing that is remembered of the word matters any more, or one read of it.
// Whether it was one of these.
INLINE bool touch_easily(struct Races *races, const struct Watch *watch, uint64_t address, uint64_t *cell,
                         uint64_t mine, bool local, uint64_t value) {
  uint64_t entries[ENTRIES] = {load(cell), load(cell + 1), load(cell + 2), load(cell + VALUE_AT)};
  uint64_t first = entries[0], last = entries[VALUE_AT];
  bool others = local ? entries[1] - races->own <= races->own_size ||
                            entries[2] - races->own <= races->own_size ||
                            last - races->own <= races->own_size
                      : (entries[1] | entries[2] | last >> RUN) != 0;
  if (others)
    return false;
  bool is_old = first == 0 || (local ? first - races->own > races->own_size
                                     : !in_launch(races, run_of(first)) &&
                                           is_earlier(races, watch, run_of(first)) &&
                                           covers(mine, first));
  if (is_old) {
    store(&cell[0], mine);
    if (mine & WRITES) {
      unstamp(races, watch, address);
      uint64_t bytes = (mine & MASK) << 32 | spread(mine);
      uint64_t before = run_of(last) == 0 ? last : 0;
      store(&cell[VALUE_AT], (before & ~bytes) | (value & bytes));
    }
    return true;
  }
  // The second read by the group.
  if (mine & (WRITES | ATOMIC) || first & (WRITES | ATOMIC) || (mine & first & MASK) != MASK ||
      races->flags & (SUBGROUPS | ATOMICS_ORDER | WAITS_FOR_GROUPS) || run_of(first) != races->run ||
      time_of(first) < races->phase || item_of(first) == item_of(mine))
    return false;
  store(&cell[1], first & ~ENOUGH);
  store(&cell[0], mine | ENOUGH_FOR_GROUP);
  stamp(races, watch, address, bit_of(address), ENOUGH_FOR_GROUP);
  return true;
}

// A cell, whose entries are compared at once.
typedef uint64_t Cell __attribute__((vector_size(32)));
typedef int64_t Truth __attribute__((vector_size(32)));

_Static_assert(sizeof(Cell) == ENTRIES * 8 && VALUE_AT == ENTRIES - 1, "protocol/src/checks.rs");

INLINE bool any(Truth truth) {
  return __builtin_reduce_or(truth) != 0;
}

// The entries of a cell that count: they are not ordered before this group's execution, or of local memory the group
// has made them since its last barrier.
INLINE Truth counting(const struct Races *races, Cell cell, bool local) {
  const uint64_t own = races->own, own_size = races->own_size, old = races->old, old_size = races->old_size;
  const uint64_t values = (1ull << RUN) - 1;
  if (local)
    return (cell - (Cell){own, own, own, own}) <= (Cell){own_size, own_size, own_size, own_size};
  return ((cell - (Cell){old, old, old, 0}) > (Cell){old_size, old_size, old_size, values}) &
         (cell != (Cell){0, 0, 0, 0});
}

// The most common accesses to a whole word, with a value as for `touch_word`:
//
// - All that is remembered is ordered before this access, or has the same item; of local memory, that is what the
//   group has not accessed since its last barrier. It takes the place of it, but a write that is read stays.
// - A single read is remembered that counts, by another item of the group since its last barrier, or by another group
//   of the launch. Then the two are enough.
//
// Whether it was one of these.
INLINE bool touch_whole(struct Races *races, const struct Watch *watch, uint64_t address, Cell *at, uint64_t mine,
                        bool local, uint64_t value) {
  Cell cell = *at;
  const uint64_t own = races->own, own_size = races->own_size, who = ~0ull << RUN | 0x3ffull << ITEM;
  Truth counts = counting(races, cell, local);
  Truth others = ((cell ^ (Cell){mine, mine, mine, mine}) & (Cell){who, who, who, who}) != (Cell){0, 0, 0, 0};
  others &= counts;
  if (!any(others)) {
    if (mine & WRITES) {
      unstamp(races, watch, address);
      *at = (Cell){mine, 0, 0, value};
      return true;
    }
    uint64_t write = 0;
    // Of local memory, only what the same item has written since the last barrier.
    Cell kept = local ? cell & (Cell)counts : cell;
    if (any((Truth)(kept & (Cell){WRITES, WRITES, WRITES, 0}))) {
      if ((kept[0] & WRITES) + (kept[1] & WRITES) + (kept[2] & WRITES) > WRITES)
        return false;
      write = kept[kept[0] & WRITES ? 0 : kept[1] & WRITES ? 1 : 2];
    }
    *at = (cell & (Cell){0, 0, 0, ~0ull}) | (Cell){mine, write, 0, 0};
    return true;
  }
  bool by_group = cell[0] - own <= own_size;
  if (mine & WRITES || counts[1] || counts[2] || counts[3] || (!local && cell[2] != 0) ||
      races->flags & (SUBGROUPS | ATOMICS_ORDER | WAITS_FOR_GROUPS) || cell[0] & (WRITES | ATOMIC) ||
      (cell[0] & MASK) != MASK ||
      (!by_group && (cell[0] - races->launch > races->launch_size || run_of(cell[0]) == races->run)))
    return false;
  uint64_t enough = by_group ? ENOUGH_FOR_GROUP : ENOUGH_FOR_LAUNCH;
  store((uint64_t *)at + 2, cell[0] & ~ENOUGH);
  store((uint64_t *)at, mine | enough);
  stamp(races, watch, address, bit_of(address), enough);
  return true;
}

// An access to some bytes of a word, none of the common ones. `value`: what is stored, with a bit for each byte in
// bits 32 to 35.
__attribute__((noinline)) static void touch_remembered(struct Races *races, const struct Place *place, uint32_t lane,
                       uint64_t address, uint64_t mine, bool local, uint64_t value) {
  const struct Watch *watch = place->watch;
  uint64_t *cell = (uint64_t *)(races->cells + ((address & watch->mask & ~3ull) << 3));
  uint64_t last = load(cell + VALUE_AT);
  uint64_t entries[ENTRIES] = {load(cell), load(cell + 1), load(cell + 2), last};
  uint32_t item = item_of(mine);
  // Of the accesses like this one that are remembered and not ordered before it, two.
  uint64_t likes[2] = {0, 0}, safe = ENOUGH, flags = 0;
  const uint64_t kind = MASK | WRITES | ATOMIC;
  bool counts = (mine & kind) == kind || (mine & kind) == MASK;
  int slot = -1, free = -1;
  bool is_there = false, is_write = mine & WRITES;
  for (int i = 0; i < ENTRIES; i++)
    is_there |= ((entries[i] ^ mine) & SAME_ITEM) == 0 && covers(entries[i], mine);
  if (is_there && !is_write)
    return;
  for (int i = 0; i < ENTRIES && !is_there; i++) {
    uint64_t entry = entries[i];
    uint32_t run = run_of(entry);
    if (run == 0 || (local && (run != races->run || time_of(entry) < races->phase))) {
      if (free < 0 && (i != VALUE_AT || run != 0))
        free = i;
      continue;
    }
    if (is_before(races, watch, entry, item)) {
      if (conflict(mine, entry))
        safe &= run != races->run && !in_launch(races, run) ? ENOUGH
                : run == races->run && time_of(entry) < races->phase ? ENOUGH_FOR_GROUP
                                                                     : 0;
      if (!covers(mine, entry))
        continue;
      if (slot < 0)
        slot = i;
      else
        store(&cell[i], entries[i] = 0);
    } else if (conflict(mine, entry)) {
      uint64_t both = mine & entry & MASK;
      bool is_known = run_of(last) == 0;
      bool same = mine & entry & WRITES && (both & ~(value >> 32) & MASK) == 0 &&
                  (!is_known || ((both & ~(last >> 32) & MASK) == 0 &&
                                 (((uint32_t)last ^ (uint32_t)value) & spread(both)) == 0));
      safe = 0;
      race(place, lane, address, mine, entry, same);
    } else if (counts && ((entry ^ mine) & kind) == 0 && in_launch(races, run)) {
      likes[likes[0] != 0] = entry;
    } else {
      safe = 0;
    }
  }
  if (!is_there) {
    slot = slot >= 0 ? slot : free >= 0 ? free : replaced(races, watch, entries, mine);
    if (likes[0] != 0 && !(races->flags & (ATOMICS_ORDER | WAITS_FOR_GROUPS))) {
      if (slot >= 0)
        flags = enough(races, mine, likes[0], safe);
      else if (likes[1] != 0 && entries[0] == likes[0])
        flags = enough(races, likes[0], likes[1], safe);
    }
    if (flags != 0 && slot > 0) {
      store(&cell[slot], entries[0] & ~ENOUGH);
      slot = 0;
    }
    if (slot >= 0)
      store(&cell[slot], mine | flags);
    else if (flags != 0)
      store(&cell[0], entries[0] | flags);
    if (flags != 0 && !is_write)
      stamp(races, watch, address, bit_of(address), flags);
    else if (slot == 0 && entries[0] & ENOUGH)
      unstamp(races, watch, address);
  }
  if (!is_write)
    return;
  unstamp(races, watch, address);
  if (slot != 0 && flags == 0 && entries[0] & ENOUGH)
    store(&cell[0], entries[0] & ~ENOUGH);
  if (slot != VALUE_AT && run_of(last) == 0) {
    uint64_t bytes = (mine & MASK) << 32 | spread(mine);
    store(&cell[VALUE_AT], (last & ~bytes) | (value & bytes));
  }
}

// An access to some bytes of a word.
INLINE void touch_word(struct Races *races, const struct Place *place, uint32_t lane, uint64_t address,
                       uint64_t mine, bool local, uint64_t value) {
  const struct Watch *watch = place->watch;
  uint64_t *cell = (uint64_t *)(races->cells + ((address & watch->mask & ~3ull) << 3));
  bool whole = (mine & (MASK | ATOMIC)) == MASK;
  if (!(mine & (WRITES | ATOMIC)) && adds_nothing(races, load(cell), mine))
    return;
  if (whole ? touch_whole(races, watch, address, (Cell *)cell, mine, local, value)
            : touch_easily(races, watch, address, cell, mine, local, value))
    return;
  touch_remembered(races, place, lane, address, mine, local, value);
}

#endif
