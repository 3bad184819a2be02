// SPDX-License-Identifier: MIT OR Apache-2.0
// printf of kernels: writes a record to the ring that the host reads. The layouts and the protocol
// are in protocol/src/printf.rs.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bits.h"

struct Ring {
  _Alignas(64) uint64_t head;
  _Alignas(64) uint64_t tail;
  _Alignas(64) uint64_t refused;
  _Alignas(64) uint64_t capacity;
  _Alignas(4096) uint64_t data[];
};

enum { KIND_STRING = 4, RECORD_HEADER = 16, ARGUMENT_HEADER = 8 };

#define SKIP ((uint64_t)1 << 63)
#define NULL_STRING 0xffffffffu

static inline uint64_t padded(uint64_t bytes) { return (bytes + 7) & ~(uint64_t)7; }

static inline uint64_t word_at(const unsigned char *at) {
  uint64_t word;
  __builtin_memcpy(&word, at, sizeof word);
  return word;
}

static inline void put_word(unsigned char *at, uint64_t word) {
  __builtin_memcpy(at, &word, sizeof word);
}

static void put_bytes(unsigned char *to, const unsigned char *from, uint64_t count) {
  for (uint64_t i = 0; i < count; i++)
    to[i] = from[i];
}

// The characters of a string, at most `limit`: an unterminated text is found to be too long instead of
// being read without end.
static uint64_t length(const unsigned char *text, uint64_t limit) {
  uint64_t count = 0;
  while (count < limit && text[count] != 0)
    count++;
  return count;
}

// Reserves `size` contiguous bytes of the ring; null if they are not free.
static uint64_t *reserve(struct Ring *ring, uint64_t size) {
  uint64_t capacity = ring->capacity;
  uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
  for (;;) {
    uint64_t tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
    uint64_t at = head & (capacity - 1);
    uint64_t skipped = capacity - at < size ? capacity - at : 0;
    uint64_t end = head + skipped + size;
    if (end - tail > capacity)
      return NULL;
    if (!__atomic_compare_exchange_n(&ring->head, &head, end, true, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED))
      continue;
    uint64_t *place = ring->data + at / sizeof *place;
    if (skipped == 0)
      return place;
    __atomic_store_n(place, SKIP | skipped, __ATOMIC_RELEASE);
    return ring->data;
  }
}

__attribute__((noinline)) int __tally_printf(struct Ring *ring, const unsigned char *format,
                                             const unsigned char *args, uint32_t args_bytes) {
  if (format == NULL)
    return -1;
  uint64_t limit = ring->capacity;
  uint64_t format_bytes = length(format, limit);
  uint64_t all = 0;
  for (uint32_t at = 0; at < args_bytes && all <= limit;) {
    uint64_t header = word_at(args + at);
    uint64_t bytes = padded(header >> 32);
    at += ARGUMENT_HEADER + (uint32_t)bytes;
    if ((header & 0xff) == KIND_STRING) {
      const unsigned char *text = (const unsigned char *)word_at(args + at - 8);
      bytes = text == NULL ? 0 : padded(length(text, limit));
    }
    all += ARGUMENT_HEADER + bytes;
  }
  uint64_t size = RECORD_HEADER + padded(format_bytes) + all;
  uint64_t *first = size > limit ? NULL : reserve(ring, size);
  if (first == NULL) {
    __atomic_fetch_add(&ring->refused, 1, __ATOMIC_RELAXED);
    return -1;
  }
  unsigned char *record = (unsigned char *)first;
  put_bytes(record + RECORD_HEADER, format, format_bytes);
  unsigned char *to = record + RECORD_HEADER + padded(format_bytes);
  // If the string changes meanwhile, the output may mix both texts, and lack arguments for which there
  // is no room any more.
  uint64_t used = 0;
  for (uint32_t at = 0; at < args_bytes && all - used >= ARGUMENT_HEADER;) {
    uint64_t header = word_at(args + at);
    uint64_t bytes = header >> 32, room = all - used - ARGUMENT_HEADER;
    const unsigned char *value = args + at + ARGUMENT_HEADER;
    at += ARGUMENT_HEADER + (uint32_t)padded(bytes);
    if ((header & 0xff) == KIND_STRING) {
      value = (const unsigned char *)word_at(value);
      bytes = value == NULL ? 0 : length(value, room);
      header = (header & 0xffffffff) | (value == NULL ? (uint64_t)NULL_STRING : bytes) << 32;
    }
    if (padded(bytes) > room)
      break;
    put_word(to + used, header);
    put_bytes(to + used + ARGUMENT_HEADER, value, bytes);
    used += ARGUMENT_HEADER + padded(bytes);
  }
  put_word(record + 8, used << 32 | format_bytes);
  __atomic_store_n(first, size, __ATOMIC_RELEASE);
  return 0;
}
