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
                                                      uint64_t address, struct Block *block, uint64_t mine,
                                                      uint64_t bytes) {
  uint64_t start = address & watch->mask & ~(uint64_t)(BLOCK_BYTES - 1);
  uint64_t(*cells)[ENTRIES] = (uint64_t(*)[ENTRIES])(races->cells + (start << 3));
  bool against[ROWS], counts = false;
  for (int i = 0; i < ROWS; i++) {
    uint64_t row = block->rows[i].entry;
    if (!(block->state >> i & 1))
      block->rows[i].bytes = 0;
    against[i] = (row | mine) & WRITES && block->rows[i].bytes & bytes;
    counts |= block->rows[i].bytes != 0;
  }
  if (!counts && block->state != 0)
    __builtin_memset(cells, 0, sizeof(uint64_t[BLOCK_BYTES / 4][ENTRIES]));
  for (uint32_t word = 0; word < BLOCK_BYTES / 4 && counts; word++) {
    uint64_t cell[ENTRIES] = {0}, known = 0;
    uint32_t used = 0;
    for (int turn = 0; turn < 2 * ROWS; turn++) {
      int i = turn % ROWS;
      uint64_t row = block->rows[i].entry, mask = block->rows[i].bytes >> 4 * word & MASK;
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

// Whether this is the group's first access to a block of its local memory since the last barrier. Then rows from before
// do not count any more, nor do cells, by their time.
INLINE bool begins_phase(const struct Races *races, struct Block *block, bool local) {
  if (!local || block->phase == races->own)
    return false;
  block->phase = races->own;
  block->state &= ~(uint64_t)IN_USE;
  return true;
}

// From now on a block is remembered by its cells: `mine` is about to access some of the bytes.
INLINE void use_cells(struct Races *races, const struct Watch *watch, uint64_t address, bool local, uint64_t mine,
                      uint64_t bytes) {
  struct Block *block = block_at(races, watch, address);
  begins_phase(races, block, local);
  if (!(load(stamp_at(races, watch, address)) & IN_CELLS))
    spell_out(races, watch, address, block, mine, bytes);
}

// Whether reads of some bytes of a block add nothing, as its stamp says, or the cells. `asked`: the stamp does not.
INLINE bool is_enough(const struct Races *races, const struct Watch *watch, uint64_t address, uint64_t bytes,
                      bool asked) {
  uint64_t stamp = load(stamp_at(races, watch, address));
  if (asked && !(stamp & IN_CELLS))
    return false;
  uint64_t words = words_of(bytes) & ~stamped(races, stamp);
  if (words == 0 || !(stamp & IN_CELLS))
    return words == 0;
  uint64_t start = address & watch->mask & ~(uint64_t)(BLOCK_BYTES - 1);
  const uint64_t(*cells)[ENTRIES] = (const uint64_t(*)[ENTRIES])(races->cells + (start << 3));
  for (; words != 0; words &= words - 1)
    if (!adds_nothing(races, load(cells[__builtin_ctzll(words)]), MASK))
      return false;
  return true;
}

// Whether nothing that the cells of a block of global memory remember matters any more, when all of it is written.
__attribute__((noinline)) static bool is_over(struct Races *races, const struct Watch *watch, uint64_t address) {
  const Cell *cells = (const Cell *)(races->cells + ((address & watch->mask & ~(uint64_t)(BLOCK_BYTES - 1)) << 3));
  uint32_t run = run_of(cells[0][0]);
  // Makes `old` the execution that comes into question.
  if (in_launch(races, run) || (run != 0 && !is_earlier(races, watch, run)))
    return false;
  Truth counts = {0};
  for (uint32_t word = 0; word < BLOCK_BYTES / 4; word++)
    counts |= counting(races, cells[word], false);
  return !any(counts);
}

// Begins a block anew if nothing that is remembered of it counts any more. Returns whether it is remembered as rows.
INLINE bool is_in_rows(struct Races *races, const struct Watch *watch, uint64_t address, struct Block *block,
                       bool local, bool is_written) {
  uint64_t *stamp = stamp_at(races, watch, address);
  bool in_cells = load(stamp) & IN_CELLS;
  bool anew = begins_phase(races, block, local);
  if (!in_cells)
    return true;
  if (!anew && (local || !is_written || !is_over(races, watch, address)))
    return false;
  store(stamp, 0);
  return true;
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

// The places of a row's words.
typedef uint16_t Sites __attribute__((vector_size(2 * BLOCK_BYTES / 4), aligned(2)));

INLINE Sites site_of(uint64_t entry) {
  uint16_t site = (uint16_t)(entry >> SITE & LAST_SITE);
  return (Sites){0} + site;
}

// Notes the place of an access to some words of a row.
INLINE void part_sites(uint16_t *at, uint64_t before, uint64_t mine, uint64_t bytes) {
  const Sites bits = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
  Sites old = before & SITES_APART ? *(const Sites *)at : site_of(before);
  Sites theirs = (Sites)((bits & (uint16_t)first_bytes(bytes)) != 0);
  *(Sites *)at = (old & ~theirs) | (site_of(mine) & theirs);
}

// An access that continues the only row of a block. Returns whether it was one.
INLINE bool touch_only_row(struct Races *races, const struct Watch *watch, struct Block *block, uint64_t address,
                           uint64_t mine, uint64_t bytes) {
  uint64_t row = block->rows[0].entry, entry = (block->state & IN_USE) == 1 ? continued(row, mine, bytes) : 0;
  if (entry == 0)
    return false;
  if (entry & SITES_APART)
    part_sites(sites_at(races, block, 0), row, mine, bytes);
  block->rows[0].entry = entry;
  block->rows[0].bytes |= bytes;
  if (mine & WRITES)
    unstamp(races, watch, address);
  else if ((mine & SHAPE) == PAIR)
    stamp(races, watch, address, whole_words(bytes), ENOUGH_FOR_GROUP);
  return true;
}

// Whether all that a row stands for is ordered before this group, or before its last barrier.
INLINE bool is_past(struct Races *races, const struct Watch *watch, uint64_t row) {
  uint32_t run = run_of(row);
  if (row - races->old <= races->old_size)
    return true;
  return run == races->run ? time_of(row) < races->phase : !in_launch(races, run) && is_earlier(races, watch, run);
}

// An access to a block of whose rows no other one has to be compared with it. Returns whether it was one.
INLINE bool touch_alone(struct Races *races, const struct Watch *watch, struct Block *block, uint64_t address,
                        uint64_t mine, uint64_t bytes, bool local) {
  uint32_t live = (uint32_t)block->state & IN_USE, used = 0;
  if (local && live != 0)
    return false;
  for (uint32_t rest = live; rest != 0; rest &= rest - 1) {
    struct Row *row = &block->rows[__builtin_ctz(rest)];
    if (!is_past(races, watch, row->entry))
      return false;
    if (mine & WRITES || !(row->entry & WRITES))
      row->bytes &= ~bytes;
    used |= row->bytes != 0 ? rest & -rest : 0;
  }
  if (used == IN_USE)
    return false;
  uint32_t at = (uint32_t)__builtin_ctz(~used);
  block->rows[at] = (struct Row){mine, bytes};
  block->state = (block->state & ~(uint64_t)IN_USE) | used | 1u << at;
  if (mine & WRITES)
    unstamp(races, watch, address);
  else if ((mine & SHAPE) == PAIR)
    stamp(races, watch, address, whole_words(bytes), ENOUGH_FOR_GROUP);
  return true;
}

// An access to some bytes of a block, whose rows are compared with it. Returns whether that is remembered; otherwise it
// has to be by words, since it may race, or there are too many rows.
INLINE bool compare(struct Races *races, const struct Watch *watch, struct Block *block, uint64_t address,
                    uint64_t mine, uint64_t bytes, bool local, bool writes) {
  // What is left of each row, and what the new one spares, if it stands for some of its bytes, too.
  uint64_t left[ROWS], spared[ROWS];
  // Bytes that the same item has accessed; that items of this group have read since the last barrier, and two of
  // them; that items of other groups of the launch have read, and those of several; that the launch has written, and
  // this group since the last barrier; that an earlier execution has read.
  uint64_t done = 0, own = 0, own_twice = 0, others = 0, groups = 0, written = 0, new = 0, old = 0;
  uint32_t live = (uint32_t)block->state & IN_USE, used = 0, by_others = 0;
  for (uint32_t rest = live; rest != 0; rest &= rest - 1) {
    int i = __builtin_ctz(rest);
    uint64_t row = block->rows[i].entry, there = block->rows[i].bytes, both = there & bytes;
    uint32_t run = run_of(row);
    left[i] = there;
    spared[i] = 0;
    if (local || (run == races->run && time_of(row) >= races->phase)) {
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
        if (run_of(block->rows[j].entry) == run)
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
  if (!writes && (add & ~own_twice) == 0)
    add = 0;
  uint64_t entry = 0;
  int at = 0;
  for (uint32_t rest = live; rest != 0; rest &= rest - 1) {
    int i = __builtin_ctz(rest);
    uint64_t stays = left[i] & ~(spared[i] & add);
    block->rows[i].bytes = stays;
    if (stays == 0)
      continue;
    used |= rest & -rest;
    if (entry == 0 && add != 0) {
      entry = continued(block->rows[i].entry, mine, add);
      at = i;
    }
  }
  block->state = (block->state & ~(uint64_t)IN_USE) | used;
  if (entry != 0) {
    if (entry & SITES_APART)
      part_sites(sites_at(races, block, at), block->rows[at].entry, mine, add);
    block->rows[at].entry = entry;
    block->rows[at].bytes |= add;
  } else if (add != 0) {
    if (used == IN_USE)
      return false;
    at = __builtin_ctz(~used);
    block->rows[at] = (struct Row){mine, add};
    block->state |= 1u << at;
  }
  if (writes) {
    unstamp(races, watch, address);
    return true;
  }
  uint64_t enough = (own_twice | (own & add) | ((mine & SHAPE) == PAIR ? add : 0)) & ~new;
  uint64_t for_launch = (groups | ((own | add) & others)) & ~(new | written);
  if (for_launch != 0 && (for_launch = whole_words(for_launch)) != 0)
    stamp(races, watch, address, for_launch, ENOUGH_FOR_LAUNCH);
  else if (enough != 0)
    stamp(races, watch, address, whole_words(enough), ENOUGH_FOR_GROUP);
  return true;
}

__attribute__((noinline)) static bool compare_read(struct Races *races, const struct Watch *watch, struct Block *block,
                                                   uint64_t address, uint64_t mine, uint64_t bytes, bool local) {
  return compare(races, watch, block, address, mine, bytes, local, false);
}

__attribute__((noinline)) static bool compare_write(struct Races *races, const struct Watch *watch,
                                                    struct Block *block, uint64_t address, uint64_t mine,
                                                    uint64_t bytes, bool local) {
  return compare(races, watch, block, address, mine, bytes, local, true);
}

// An access to some bytes of a block: `mine` is a row's entry. Returns whether it was looked at; otherwise it has to be
// by words.
INLINE bool touch_row(struct Races *races, const struct Watch *watch, uint64_t address, uint64_t mine, uint64_t bytes,
                      bool local) {
  struct Block *block = block_at(races, watch, address);
  if (!is_in_rows(races, watch, address, block, local, mine & WRITES && bytes == ~0ull))
    return false;
  return touch_only_row(races, watch, block, address, mine, bytes) ||
         touch_alone(races, watch, block, address, mine, bytes, local) ||
         (mine & WRITES ? compare_write : compare_read)(races, watch, block, address, mine, bytes, local);
}

#endif
