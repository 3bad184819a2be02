// SPDX-License-Identifier: MIT OR Apache-2.0
// Accesses by items in rows. As long as the items of a group access the memory of a block in few rows, the block is
// remembered as these rows, each of them an entry of a cell and the bytes that it stands for; otherwise by the cells
// of its words. The layouts are in protocol/src/checks.rs.

#ifndef TALLY_ROWS_H
#define TALLY_ROWS_H

#include "cells.h"

// Of a row's entry: which items access which bytes, in place of the bytes of a word, and whether the values are known,
// in place of ATOMIC.
//
// - Below PAIR: one item after the other, 1 << shape bytes each; the entry has the item of the block's first bytes,
//   as if it were one.
// - PAIR: the same item and the next one, all bytes. (Of reads by more items, two tell as much.)
#define SHAPE 0xfull
enum { PAIR = 7, BLOCK_BYTES = 1 << BLOCK };
#define VALUED ATOMIC
// The row's words have places in the code of their own, beside the rows. (The compiler unrolls loops.)
#define SITES_APART ENOUGH_FOR_GROUP
// The row is the program's own, whose accesses may be atomic.
#define OF_PROGRAM ENOUGH_FOR_LAUNCH
#define ITEMS 0x3ffull
#define SITES ((uint64_t)LAST_SITE << SITE)

_Static_assert(sizeof(struct Block) == 192 && BLOCK_BYTES == 64, "protocol/src/checks.rs");

INLINE struct Block *block_at(const struct Races *races, const struct Watch *watch, uint64_t address) {
  return &races->blocks[(address & watch->mask) >> BLOCK];
}

INLINE uint16_t *sites_at(const struct Races *races, const struct Block *block, int row) {
  return races->sites[block - races->blocks][row];
}

// The item that accesses a byte of a row's block.
INLINE uint32_t item_at(uint64_t row, uint32_t byte) {
  uint32_t shape = row & SHAPE;
  return (item_of(row) + (shape == PAIR ? 0 : byte >> shape)) & ITEMS;
}

__attribute__((noinline)) static uint64_t same_bytes(uint64_t one, uint64_t other, uint64_t both) {
  uint64_t same = 0;
  for (uint64_t left = both; left != 0; left &= left - 1) {
    uint32_t byte = (uint32_t)__builtin_ctzll(left);
    same |= (uint64_t)(item_at(one, byte) == item_at(other, byte)) << byte;
  }
  return same;
}

// Of the bytes of two rows of a group, those that the same item accesses.
INLINE uint64_t by_same_item(uint64_t one, uint64_t other, uint64_t both) {
  if ((one & SHAPE) == PAIR || (other & SHAPE) == PAIR)
    return 0;
  if (((one ^ other) & SHAPE) == 0)
    return ((one ^ other) & ITEMS << ITEM) == 0 ? both : 0;
  return same_bytes(one, other, both);
}

// The words whose first bytes are in a mask, one bit each.
INLINE uint64_t first_bytes(uint64_t bytes) {
  bytes &= 0x1111111111111111;
  bytes = (bytes | bytes >> 3) & 0x0303030303030303;
  bytes = (bytes | bytes >> 6) & 0x000f000f000f000f;
  bytes = (bytes | bytes >> 12) & 0x000000ff000000ff;
  return (bytes | bytes >> 24) & 0xffff;
}

// The words of which all bytes are in a mask, and those of which any is.
INLINE uint64_t whole_words(uint64_t bytes) {
  bytes &= bytes >> 1;
  return first_bytes(bytes & bytes >> 2);
}

INLINE uint64_t words_of(uint64_t bytes) {
  bytes |= bytes >> 1;
  return first_bytes(bytes | bytes >> 2);
}

// Writes the cells of a block, whose rows they replace: first what stands against an access to some of the bytes, in
// case that a word has more entries than its cell.
__attribute__((noinline, cold)) static void spell_out(struct Races *races, const struct Watch *watch,
                                                      uint64_t address, struct Block *block, bool local,
                                                      uint64_t mine, uint64_t bytes) {
  uint64_t start = address & watch->mask & ~(uint64_t)(BLOCK_BYTES - 1);
  uint64_t(*cells)[ENTRIES] = (uint64_t(*)[ENTRIES])(races->cells + (start << 3));
  bool against[ROWS], counts = false;
  for (int i = 0; i < ROWS; i++) {
    uint64_t row = block->entries[i];
    if (!(block->state >> i & 1) || (local && row - races->own > races->own_size))
      block->bytes[i] = 0;
    against[i] = (row | mine) & WRITES && block->bytes[i] & bytes;
    counts |= block->bytes[i] != 0;
  }
  if (!counts && block->state != 0)
    __builtin_memset(cells, 0, sizeof(uint64_t[BLOCK_BYTES / 4][ENTRIES]));
  for (uint32_t word = 0; word < BLOCK_BYTES / 4 && counts; word++) {
    uint64_t cell[ENTRIES] = {0}, known = 0;
    uint32_t used = 0;
    for (int turn = 0; turn < 2 * ROWS; turn++) {
      int i = turn % ROWS;
      uint64_t row = block->entries[i], mask = block->bytes[i] >> 4 * word & MASK;
      if (mask == 0 || against[i] != turn < ROWS)
        continue;
      if (row & WRITES && row & VALUED)
        known |= mask;
      uint64_t plain = row & ~(SHAPE | VALUED | SITES_APART | OF_PROGRAM | ITEMS << ITEM);
      plain |= row & OF_PROGRAM ? ATOMIC : 0;
      if (row & SITES_APART)
        plain |= (uint64_t)sites_at(races, block, i)[word] << SITE;
      for (uint64_t left = mask; left != 0;) {
        uint64_t its = 0, item = item_at(row, 4 * word + (uint32_t)__builtin_ctzll(left));
        for (uint32_t byte = 0; byte < 4; byte++)
          its |= (uint64_t)(item_at(row, 4 * word + byte) == item) << byte;
        its &= left;
        left &= ~its;
        for (uint32_t more = 0; more < ((row & SHAPE) == PAIR ? 2u : 1u); more++) {
          if (used < ENTRIES)
            cell[used++] = plain | its | (item + more) << ITEM;
          else
            drop(watch);
        }
      }
    }
    if (used <= VALUE_AT && known != 0) {
      uint32_t value;
      __builtin_memcpy(&value, races->stored + start + 4 * word, 4);
      cell[VALUE_AT] = known << 32 | (value & spread(known));
    }
    for (int i = 0; i < ENTRIES; i++)
      store(&cells[word][i], cell[i]);
  }
  block->state = WERE_CELLS;
  store(stamp_at(races, watch, address), IN_CELLS);
}

// From now on a block is remembered by its cells: `mine` is about to access some of the bytes.
INLINE void use_cells(struct Races *races, const struct Watch *watch, uint64_t address, bool local, uint64_t mine,
                      uint64_t bytes) {
  if (!(load(stamp_at(races, watch, address)) & IN_CELLS))
    spell_out(races, watch, address, block_at(races, watch, address), local, mine, bytes);
}

// Whether reads of some words of a block add nothing, as their stamp says, or their cells.
INLINE bool is_enough(const struct Races *races, const struct Watch *watch, uint64_t address, uint64_t words) {
  uint64_t stamp = load(stamp_at(races, watch, address));
  words &= ~stamped(races, stamp);
  if (words == 0 || !(stamp & IN_CELLS))
    return words == 0;
  uint64_t start = address & watch->mask & ~(uint64_t)(BLOCK_BYTES - 1);
  const uint64_t(*cells)[ENTRIES] = (const uint64_t(*)[ENTRIES])(races->cells + (start << 3));
  for (; words != 0; words &= words - 1)
    if (!adds_nothing(races, load(cells[__builtin_ctzll(words)]), MASK))
      return false;
  return true;
}

// Whether nothing that the cells of a block remember matters any more, when all of it is written, or of local memory
// by the group since its last barrier.
__attribute__((noinline)) static bool is_over(struct Races *races, const struct Watch *watch, uint64_t address,
                                              bool local) {
  const Cell *cells = (const Cell *)(races->cells + ((address & watch->mask & ~(uint64_t)(BLOCK_BYTES - 1)) << 3));
  uint32_t run = run_of(cells[0][0]);
  // Makes `old` the execution that comes into question.
  if (!local && (in_launch(races, run) || (run != 0 && !is_earlier(races, watch, run))))
    return false;
  Truth counts = {0};
  for (uint32_t word = 0; word < BLOCK_BYTES / 4; word++)
    counts |= counting(races, cells[word], local);
  return !any(counts);
}

// The entry of a row that also stands for an access to some bytes; 0 if it can't.
INLINE uint64_t continued(uint64_t row, uint64_t mine, uint64_t bytes) {
  uint64_t differs = row ^ mine;
  if ((differs & ~(SITES | SITES_APART)) != 0)
    return 0;
  if (differs == 0)
    return row;
  // Places of whole words can be told apart.
  uint64_t low = bytes & 0x1111111111111111;
  return low * MASK == bytes ? (row & ~SITES) | SITES_APART : 0;
}

// Notes the place of an access to some words of a row.
__attribute__((noinline)) static void part_sites(uint16_t *sites, uint64_t before, uint64_t mine, uint64_t bytes) {
  for (uint32_t word = 0; word < BLOCK_BYTES / 4; word++) {
    if (!(before & SITES_APART))
      sites[word] = before >> SITE & LAST_SITE;
    if (bytes >> 4 * word & 1)
      sites[word] = mine >> SITE & LAST_SITE;
  }
}

// An access that continues the only row of a block. Returns whether it was one.
INLINE bool touch_only_row(struct Races *races, const struct Watch *watch, struct Block *block, uint64_t address,
                           uint64_t mine, uint64_t bytes) {
  uint64_t row = block->entries[0], entry = (block->state & IN_USE) == 1 ? continued(row, mine, bytes) : 0;
  if (entry == 0)
    return false;
  if (entry & SITES_APART)
    part_sites(sites_at(races, block, 0), row, mine, bytes);
  block->entries[0] = entry;
  block->bytes[0] |= bytes;
  if (mine & WRITES)
    unstamp(races, watch, address);
  else if ((mine & SHAPE) == PAIR)
    stamp(races, watch, address, whole_words(bytes), ENOUGH_FOR_GROUP);
  return true;
}

// An access to some bytes of a block: `mine` is a row's entry. Returns whether it was looked at; otherwise it has to be
// by words, since it may race, or there are too many rows.
INLINE bool touch_row(struct Races *races, const struct Watch *watch, uint64_t address, uint64_t mine, uint64_t bytes,
                      bool local) {
  struct Block *block = block_at(races, watch, address);
  bool writes = mine & WRITES;
  if (load(stamp_at(races, watch, address)) & IN_CELLS) {
    if (!(local || (writes && bytes == ~0ull)) || !is_over(races, watch, address, local))
      return false;
    store(stamp_at(races, watch, address), 0);
  }
  if (touch_only_row(races, watch, block, address, mine, bytes))
    return true;
  // What is left of each row, and what the new one spares, if it stands for some of its bytes, too.
  uint64_t left[ROWS], spared[ROWS];
  // Bytes that the same item has accessed; that items of this group have read since the last barrier, and two of
  // them; that items of other groups of the launch have read, and those of several; that the launch has written, and
  // this group since the last barrier; that an earlier execution has read.
  uint64_t done = 0, own = 0, own_twice = 0, others = 0, groups = 0, written = 0, new = 0, old = 0;
  uint32_t live = (uint32_t)block->state & IN_USE, used = 0, by_others = 0;
  for (uint32_t rest = live; rest != 0; rest &= rest - 1) {
    int i = __builtin_ctz(rest);
    uint64_t row = block->entries[i], there = block->bytes[i], both = there & bytes;
    uint32_t run = run_of(row);
    left[i] = there;
    spared[i] = 0;
    if (local && row - races->own > races->own_size) {
      left[i] = 0;
    } else if (local || (run == races->run && time_of(row) >= races->phase)) {
      uint64_t same = both == 0 ? 0 : by_same_item(row, mine, both);
      if (row & WRITES) {
        new |= there;
      } else {
        spared[i] = own & there;
        own_twice |= (row & SHAPE) == PAIR ? there : own & there;
        own |= there;
      }
      if ((writes || row & WRITES) && same != both)
        return false;
      if (writes)
        left[i] = there & ~both;
      else
        done |= same;
    } else if (run != races->run && in_launch(races, run)) {
      if (both != 0 && (writes || row & WRITES))
        return false;
      if (row & WRITES) {
        written |= there;
        continue;
      }
      for (uint32_t more = by_others; more != 0; more &= more - 1) {
        int j = __builtin_ctz(more);
        if (run_of(block->entries[j]) == run)
          spared[i] |= left[j] & there;
        else
          groups |= left[j] & there;
      }
      by_others |= 1u << i;
      others |= there;
    } else {
      bool before = run == races->run || both == 0 || is_earlier(races, watch, run);
      if (!before && (writes || row & WRITES))
        return false;
      if (run == races->run && row & WRITES)
        written |= there;
      if (before && (writes || !(row & WRITES)))
        left[i] = there & ~both;
      // Executions are ordered as a whole: one read by each tells as much as all.
      if (!(row & WRITES) && row - races->old <= races->old_size) {
        left[i] &= ~old;
        old |= left[i];
      }
    }
  }
  // Any two items of a group, or of two groups, tell as much as further ones. Where two are remembered already, the
  // new one takes the place of the second, so that fewer rows are in use.
  uint64_t add = writes ? bytes : bytes & ~(done | (own & others) | groups);
  if (writes || (add & ~own_twice) != 0) {
    uint64_t entry = 0;
    int at = -1;
    for (uint32_t rest = live; rest != 0 && entry == 0; rest &= rest - 1) {
      int i = __builtin_ctz(rest);
      entry = left[i] == 0 ? 0 : continued(block->entries[i], mine, add);
      at = entry == 0 ? -1 : i;
    }
    for (uint32_t rest = live; rest != 0; rest &= rest - 1) {
      int i = __builtin_ctz(rest);
      left[i] &= ~(spared[i] & add);
      used |= (uint32_t)(left[i] != 0) << i;
    }
    if (entry == 0 && used == IN_USE)
      return false;
    if (entry == 0)
      at = __builtin_ctz(~used);
    if (entry & SITES_APART)
      part_sites(sites_at(races, block, at), block->entries[at], mine, add);
    block->entries[at] = entry == 0 ? mine : entry;
    left[at] = entry == 0 ? add : left[at] | add;
    live |= 1u << at;
    block->state |= 1u << at;
  }
  for (uint32_t rest = live; rest != 0; rest &= rest - 1) {
    int i = __builtin_ctz(rest);
    block->bytes[i] = left[i];
    if (left[i] == 0)
      block->state &= ~(1ull << i);
  }
  if (writes) {
    unstamp(races, watch, address);
    return true;
  }
  uint64_t enough = own_twice | (own & add) | ((mine & SHAPE) == PAIR ? add : 0);
  uint64_t for_launch = whole_words((groups | ((own | add) & others)) & ~(new | written));
  if (for_launch != 0)
    stamp(races, watch, address, for_launch, ENOUGH_FOR_LAUNCH);
  else if ((enough & ~new) != 0)
    stamp(races, watch, address, whole_words(enough & ~new), ENOUGH_FOR_GROUP);
  return true;
}

#endif
