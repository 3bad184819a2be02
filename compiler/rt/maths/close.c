// SPDX-License-Identifier: MIT OR Apache-2.0
// Items that access places close to each other: in one aligned block of memory, which lies in one page. Where any byte
// of it may be read, all may be. Processors with registers of 512 bits load the block and pick each item's element, and
// where the places ascend they write the elements with what the items leave out in between. Both are quicker than
// gathers and scatters, which access memory for each item.

#include "lanes.h"

#if LANES == 16

#define INLINE __attribute__((always_inline))

typedef uint64_t U8 __attribute__((ext_vector_type(8)));
typedef uint32_t W __attribute__((ext_vector_type(16)));
typedef int32_t I __attribute__((ext_vector_type(16)));
typedef uint64_t LONGS __attribute__((ext_vector_type(16)));
typedef bool MASK __attribute__((ext_vector_type(16)));

enum { LINE = 64, PAGE = 4096, LAST = 1 << 15, ALL = 0xffff };

#ifdef TALLY_AVX512
static inline uint32_t bits_of(MASK mask) {
  uint16_t bits;
  __builtin_memcpy(&bits, &mask, sizeof bits);
  return bits;
}

static inline LONGS joined(U8 low, U8 high) {
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// The block in which the first item's place lies.
static inline uint64_t block_of(LONGS at, uint64_t bytes) {
  return at[0] & -bytes;
}

static inline bool is_close(LONGS at, uint32_t items, uint64_t bytes) {
  uint32_t apart = bits_of(__builtin_convertvector(at - block_of(at, bytes) >= bytes, MASK));
  return (apart & items) == 0;
}

typedef I UNALIGNED __attribute__((aligned(1)));

// Words by their numbers, of so many bytes.
static inline W words_of(const UNALIGNED *line, W number, uint64_t bytes) {
  I index = (I)number;
  if (bytes <= LINE)
    return (W)__builtin_ia32_permvarsi512(line[0], index);
  I found = __builtin_ia32_vpermi2vard512(line[0], index, line[1]);
  if (bytes <= 2 * LINE)
    return (W)found;
  I more = __builtin_ia32_vpermi2vard512(line[2], index, line[3]);
  found = (index & 32) != 0 ? more : found;
  if (bytes <= 4 * LINE)
    return (W)found;
  more = (I)words_of(line + 4, number, 4 * LINE);
  return (W)((index & 64) != 0 ? more : found);
}

static inline W words_from(LONGS at) {
  return __builtin_convertvector(at, W) >> 2;
}
#endif

// Whether the places of these items lie in one block. If no item runs, nothing may be read there.
INLINE bool __tally_close(U8 low, U8 high, uint32_t items, uint64_t bytes) {
#ifdef TALLY_AVX512
  return items != 0 && is_close(joined(low, high), items, bytes);
#else
  (void)low, (void)high, (void)items, (void)bytes;
  return false;
#endif
}

// The words at an offset from the items' places, which are close: in a block of two or four lines.
INLINE W __tally_gather_close(U8 low, U8 high, uint64_t bytes, uint64_t offset) {
#ifdef TALLY_AVX512
  LONGS at = joined(low, high);
  return words_of((const UNALIGNED *)block_of(at, bytes), words_from(at + offset), bytes);
#else
  (void)low, (void)high, (void)bytes, (void)offset;
  return (W)0;
#endif
}

// Whether so many bytes lie in one page.
INLINE bool __tally_table(const void *at, uint64_t bytes) {
#ifdef TALLY_AVX512
  return ((uint64_t)at & (PAGE - 1)) <= PAGE - bytes;
#else
  (void)at, (void)bytes;
  return false;
#endif
}

// The words of a table of so many bytes that hold the bytes at these distances.
INLINE W __tally_look_up(const void *at, W place, uint64_t bytes) {
#ifdef TALLY_AVX512
  return words_of(at, place >> 2, bytes);
#else
  (void)at, (void)bytes;
  return place;
#endif
}

// Writes words to the items' places if these are close and ascend; otherwise the result is false.
INLINE bool __tally_scatter_close(U8 low, U8 high, W value, uint32_t items) {
#ifdef TALLY_AVX512
  enum { BYTES = 2 * LINE };
  LONGS at = joined(low, high);
  W index = words_from(at) & 31;
  W next = __builtin_shufflevector(index, index, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 15);
  uint32_t ascends = bits_of(__builtin_convertvector(index < next, MASK)) | LAST;
  if (!is_close(at, items, BYTES) || ascends != ALL)
    return false;
  MASK runs;
  uint16_t bits = (uint16_t)items;
  __builtin_memcpy(&runs, &bits, sizeof runs);
  I here = __builtin_convertvector(runs, I) != 0 ? (I)((W)1 << index) : (I)0;
  uint32_t taken = (uint32_t)__builtin_reduce_or(here);
  I none = (I)0;
  I packed = __builtin_ia32_compresssi512_mask((I)value, none, bits);
  I number = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  I rest = __builtin_ia32_permvarsi512(packed, number + __builtin_popcount(taken & ALL));
  I *line = (I *)block_of(at, BYTES);
  uint16_t masks[] = {(uint16_t)taken, (uint16_t)(taken >> 16)};
  __builtin_ia32_storedqusi512_mask((int *)line, __builtin_ia32_expandsi512_mask(packed, none, masks[0]), masks[0]);
  __builtin_ia32_storedqusi512_mask((int *)(line + 1), __builtin_ia32_expandsi512_mask(rest, none, masks[1]), masks[1]);
  return true;
#else
  (void)low, (void)high, (void)value, (void)items;
  return false;
#endif
}

#endif
