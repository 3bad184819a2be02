// SPDX-License-Identifier: MIT OR Apache-2.0
// Reports of checked kernels: writes a record to the ring that the driver reads, and counts. The layouts
// are in protocol/src/checks.rs.

#include "record.h"

// Places that are told of those that a kernel reaches, and the words that remember them.
enum { REACHED = 256, SEEN = 1024 };

// In the place of a size: it is told that the address is reached, whatever its states are.
#define REACH UINT32_MAX

// Counts a mistake, and reports the first ones at a site.
static void tell(const struct Place *place, uint32_t items, uint64_t address, uint64_t most) {
  uint64_t number;
  struct Record *record = count(place, items, most, &number);
  if (!record)
    return;
  fill(record, place, items, address);
  told(record, number);
}

// Whether an address has a state. For an address without one, the states that were found belong to
// another: there is no mistake, unless there is no memory. In that case the access faults now, and the
// driver finds its description here.
static bool has_state(const struct Place *place, uint32_t item, uint64_t address) {
  const struct Watch *watch = place->watch;
  if (address - watch->start <= watch->mask)
    return true;
  fill(&watch->ring->outside[(address >> 4 ^ address >> 12) % OUTSIDE], place, 1u << item, address);
  return false;
}

// Marks reported bytes as defined, so that later reads do not report them again.
static void define(const struct Place *place, uint32_t size, uint64_t address) {
  struct Watch *watch = place->watch;
  uint64_t at = address & watch->mask;
  for (uint64_t i = 0; i < size && at + i <= watch->mask; i++)
    if (watch->shadow[at + i] & ACCESSIBLE)
      watch->shadow[at + i] = DEFINED;
}

// Tells the granules of 64 KiB that a launch reaches, once each. What is forgotten is told again.
static void reach(const struct Place *place, uint32_t items,
                  uint64_t (*address_of)(const void *, uint32_t), const void *addresses) {
  const struct Watch *watch = place->watch;
  bool all = place->launch & REACHES_ALL;
  for (uint32_t left = items; left != 0; left &= left - 1) {
    uint32_t item = (uint32_t)__builtin_ctz(left);
    uint64_t address = address_of(addresses, item);
    if (all && address - watch->start <= watch->mask)
      continue;
    uint64_t key = (address & ~0xffffull) | (place->launch & 0xffff);
    uint64_t *seen = &watch->seen[(address >> 16 ^ place->launch << 4) % SEEN];
    if (__atomic_load_n(seen, __ATOMIC_RELAXED) == key)
      continue;
    __atomic_store_n(seen, key, __ATOMIC_RELAXED);
    tell(place, 1u << item, address, REACHED);
  }
}

// `size`: the number of bytes at each address with wrong states; 0 if the mistake is not about states.
static inline void report(const struct Place *place, uint32_t items, uint32_t size,
                          uint64_t (*address_of)(const void *, uint32_t), const void *addresses) {
  if (size == REACH) {
    reach(place, items, address_of, addresses);
    return;
  }
  uint32_t wrong = 0;
  for (uint32_t left = items; left != 0; left &= left - 1) {
    uint32_t item = (uint32_t)__builtin_ctz(left);
    if (size == 0 || has_state(place, item, address_of(addresses, item)))
      wrong |= 1u << item;
  }
  if (wrong == 0)
    return;
  tell(place, wrong, address_of(addresses, (uint32_t)__builtin_ctz(wrong)), KEPT);
  for (uint32_t left = size == 0 ? 0 : wrong; left != 0; left &= left - 1)
    define(place, size, address_of(addresses, (uint32_t)__builtin_ctz(left)));
}

// The number of accessible bytes, of `size` from an address on, up to the first one that may not be
// accessed. 0 if the bytes have no states: the reporting code detects that.
uint64_t __tally_accessible(const struct Watch *watch, uint64_t address, uint64_t size) {
  const uint64_t all = 0x0101010101010101 * (uint64_t)ACCESSIBLE;
  const unsigned char *states = watch->shadow + (address & watch->mask);
  uint64_t count = at_most(watch, address, size), i = 0, word;
  for (; i + 8 <= count; i += 8) {
    __builtin_memcpy(&word, states + i, 8);
    if ((word & all) != all)
      break;
  }
  while (i < count && states[i] & ACCESSIBLE)
    i++;
  return i;
}

// Copies the states of bytes. If the source has none, or there is no source, the bytes are defined.
void __tally_copy_states(const struct Watch *watch, uint64_t to, uint64_t from, uint64_t size) {
  unsigned char *states = watch->shadow + (to & watch->mask);
  uint64_t count = at_most(watch, to, size), known = at_most(watch, from, count);
  __builtin_memmove(states, watch->shadow + (from & watch->mask), known);
  __builtin_memset(states + known, DEFINED, count - known);
}

// The same from states of private memory, to them, and between such.
void __tally_put_states(const struct Watch *watch, uint64_t to, const unsigned char *from, uint64_t size) {
  __builtin_memmove(watch->shadow + (to & watch->mask), from, at_most(watch, to, size));
}

void __tally_get_states(const struct Watch *watch, unsigned char *to, uint64_t from, uint64_t size) {
  uint64_t known = at_most(watch, from, size);
  __builtin_memmove(to, watch->shadow + (from & watch->mask), known);
  __builtin_memset(to + known, DEFINED, size - known);
}

void __tally_move_states(const struct Watch *watch, unsigned char *to, const unsigned char *from,
                         uint64_t size) {
  (void)watch;
  __builtin_memmove(to, from, size);
}

// The first byte of the strings among printf's arguments that may not be read or that nothing has written,
// up to each one's end; 0 if there is none. The form of the arguments is in protocol/src/printf.rs.
uint64_t __tally_strings(const struct Watch *watch, const unsigned char *args, uint32_t size) {
  enum { KIND_STRING = 4, HEADER = 8 };
  for (uint32_t at = 0; at < size;) {
    uint64_t header, text;
    __builtin_memcpy(&header, args + at, HEADER);
    __builtin_memcpy(&text, args + at + HEADER, sizeof text);
    at += HEADER + (uint32_t)((header >> 32) + 7 & ~(uint64_t)7);
    if ((header & 0xff) != KIND_STRING || text == 0)
      continue;
    for (; at_most(watch, text, 1) != 0; text++) {
      if (watch->shadow[text & watch->mask] != DEFINED)
        return text;
      if (*(const unsigned char *)text == 0)
        break;
    }
  }
  return 0;
}

// Marks bytes as not written: a group's local memory when the group begins.
void __tally_forget(const struct Watch *watch, uint64_t address, uint64_t size) {
  __builtin_memset(watch->shadow + (address & watch->mask), UNDEFINED, at_most(watch, address, size));
}

struct Steps {
  uint64_t first, step;
};

static uint64_t in_steps(const void *addresses, uint32_t item) {
  const struct Steps *steps = addresses;
  return steps->first + steps->step * item;
}

static uint64_t apart(const void *addresses, uint32_t item) {
  return ((const uint64_t *)addresses)[item];
}

// A mistake at addresses with a step.
__attribute__((noinline, cold)) void __tally_report(const struct Context *ctx, uint64_t lx, uint64_t ly,
                                                    uint64_t lz, struct Watch *watch, uint64_t launch,
                                                    uint32_t site, uint32_t size, uint32_t items,
                                                    uint64_t first, uint64_t step) {
  const struct Place place = {ctx, lx, ly, lz, watch, launch, site};
  const struct Steps steps = {first, step};
  report(&place, items, size, in_steps, &steps);
}

// The same at any addresses.
__attribute__((noinline, cold)) void __tally_report_apart(const struct Context *ctx, uint64_t lx,
                                                          uint64_t ly, uint64_t lz, struct Watch *watch,
                                                          uint64_t launch, uint32_t site, uint32_t size,
                                                          uint32_t items, const uint64_t *at) {
  const struct Place place = {ctx, lx, ly, lz, watch, launch, site};
  report(&place, items, size, apart, at);
}
