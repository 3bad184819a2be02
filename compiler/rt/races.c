// SPDX-License-Identifier: MIT OR Apache-2.0
// Finds accesses of work-items to the same memory that nothing orders, and barriers that not all items of a
// group reach. The layouts are in protocol/src/checks.rs, and so is what an entry of a cell stands for.
//
// One thread runs a group, one item (or vector of items) after the other from barrier to barrier, in the order of
// their numbers. So the group's time is one number, and an access is ordered before the current item's if
//
// - the same item has made it, or
// - an item of the group, before the group's last barrier (`phase`), or
// - an item of the sub-group, before its last barrier (`sub_start`), or
// - an atomic has released it to this item, directly or by way of others (`known`), or
// - it belongs to another execution, and the driver says so.

#include "releases.h"
#include "stripes.h"

// The items of which an access to whole words may add something. `kind`: reads, or atomics that write.
INLINE uint32_t that_add(const struct Races *races, const struct Watch *watch, uint32_t items,
                         uint32_t bytes, uint64_t kind, uint64_t (*address_of)(const void *, uint32_t),
                         const void *addresses) {
  uint32_t some = 0;
  for (uint32_t left = items; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    uint64_t address = address_of(addresses, lane);
    // What is no memory of ours has the cell of some address that is.
    const unsigned char *cell = races->cells + ((address & watch->mask & ~3ull) << 3);
    bool nothing = (address & 3) == 0 && (address & watch->mask) + bytes <= watch->mask;
    for (uint32_t word = 0; word < bytes && nothing; word += 4)
      nothing = adds_nothing(races, load((const uint64_t *)(cell + 8 * word)), kind);
    if (!nothing && kind == 0)
      nothing = enough_was_read(races, watch, address, address + bytes - 1);
    some |= (uint32_t)!nothing << lane;
  }
  return some;
}

INLINE void touch(struct Races *races, const struct Place *place, uint32_t lane, uint64_t address,
                  uint32_t size, uint64_t mine, bool valued, uint32_t **held) {
  bool local = address - races->local < races->local_bytes;
  if (!local && (address - place->watch->start > place->watch->mask ||
                 address - races->scratch < races->scratch_bytes))
    return;
  if (size == ANY_SIZE) {
    uint64_t bytes = races->values[lane];
    size = bytes < MOST_BYTES ? (uint32_t)bytes : MOST_BYTES;
    valued = false;
  }
  for (uint64_t word = address & ~3ull; word < address + size; word += 4) {
    uint64_t mask = MASK, value = 0;
    if (word < address)
      mask &= MASK << (address - word);
    if (word + 4 > address + size)
      mask &= MASK >> (word + 4 - address - size);
    if (valued) {
      uint64_t all = races->values[lane];
      value = (uint32_t)(word < address ? all << 8 * (address - word) : all >> 8 * (word - address));
      value |= mask << 32;
    }
    // A group's local memory is one thread's.
    if (!local)
      hold(races, place->watch, held, word);
    use_cells(races, place->watch, word, local, mine, mask << (word & (BLOCK_BYTES - 1)));
    touch_word(races, place, lane, word, mine | mask, local, value);
  }
}

// Reads or writes of words by items in no order. `mine`: the entry of the first item, but for its bytes.
INLINE void touch_apart(struct Races *races, const struct Place *place, uint32_t items, uint64_t mine, bool valued,
                        uint64_t (*address_of)(const void *, uint32_t), const void *addresses) {
  const struct Watch *watch = place->watch;
  uint32_t *held = 0;
  for (uint32_t left = items; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    uint64_t address = address_of(addresses, lane), entry = mine + ((uint64_t)lane << ITEM);
    bool local = address - races->local < races->local_bytes;
    if (address & 3) {
      touch(races, place, lane, address, 4, entry, valued, &held);
      continue;
    }
    if (!local && (address - watch->start > watch->mask || address - races->scratch < races->scratch_bytes))
      continue;
    if (!(mine & WRITES) && stamped(races, load(stamp_at(races, watch, address))) & bit_of(address))
      continue;
    uint64_t value = valued ? (uint32_t)races->values[lane] | MASK << 32 : 0;
    // A group's local memory is one thread's.
    if (!local)
      hold(races, watch, &held, address);
    use_cells(races, watch, address, local, entry, MASK << (address & (BLOCK_BYTES - 1)));
    touch_word(races, place, lane, address, entry | MASK, local, value);
  }
  if (held)
    leave(held);
}

static void depart(struct Races *races, const struct Watch *watch, uint32_t item, uint32_t scope) {
  uint32_t sub = item >> races->shift;
  if (scope == WORKGROUP) {
    // Items continue in the order of their numbers: one that does not come after the last one is the first.
    bool first = item <= races->last;
    races->last = item;
    if (!first)
      return;
    tick(races, watch);
    races->phase = races->time;
    begin_phase(races);
    for (uint32_t i = 0; races->flags & SUBGROUPS && i <= (races->items - 1) >> races->shift; i++)
      races->sub_last[i] = UINT16_MAX;
    for (uint32_t i = 0; i < races->known_count; i++)
      if (races->known[i].state == HOLDS)
        races->known[i].owner = OF_GROUP;
    return;
  }
  bool first = item <= races->sub_last[sub];
  races->sub_last[sub] = (uint16_t)item;
  if (!first)
    return;
  tick(races, watch);
  races->sub_start[sub] = (uint16_t)races->time;
  for (uint32_t i = 0; i < races->known_count; i++) {
    struct Known *it = &races->known[i];
    if (it->state == HOLDS && it->owner < OF_SUBGROUP && it->owner >> races->shift == sub)
      it->owner = (uint16_t)(OF_SUBGROUP | sub);
  }
}

// Tells that not all items of the group have reached the barrier where one waits.
__attribute__((noinline, cold)) static void parted(const struct Place *place, uint32_t other_site,
                                                   uint64_t other_item) {
  struct Races *races = races_of(place);
  struct Place at = *place;
  uint64_t number;
  at.lx = races->arrived_item[0], at.ly = races->arrived_item[1], at.lz = races->arrived_item[2];
  at.site = races->arrived_site;
  struct Record *record = count(&at, 1, KEPT, &number);
  if (!record)
    return;
  fill(record, &at, 1, other_site);
  record->states = other_item;
  record->run = races->run;
  told(record, number);
}

static void arrive(struct Races *races, const struct Place *place, uint32_t items, bool ends) {
  uint32_t first = (uint32_t)__builtin_ctz(items), some = (uint32_t)__builtin_popcount(items);
  if (ends) {
    races->ended += some;
    races->ended_site = place->site;
    races->ended_item = (uint32_t)linear(races, place) + first;
  } else {
    if (races->arrived != 0 && races->arrived_site != place->site)
      parted(place, place->site, linear(races, place) + first);
    if (races->arrived == 0) {
      races->arrived_site = place->site;
      races->arrived_item[0] = place->lx + first;
      races->arrived_item[1] = place->ly;
      races->arrived_item[2] = place->lz;
    }
    races->arrived += some;
  }
  if (races->arrived == 0 || races->arrived + races->ended < races->items)
    return;
  if (races->ended != 0)
    parted(place, races->ended_site, races->ended_item);
  races->arrived = 0;
}

// What is not an access.
__attribute__((noinline)) static void other(const struct Place *place, uint32_t size, uint32_t items,
                                            uint64_t (*address_of)(const void *, uint32_t),
                                            const void *addresses) {
  struct Races *races = races_of(place);
  uint32_t how = size & 0xffffff, kind = size >> KIND & 0x7f;
  uint32_t first = (uint32_t)linear(races, place);
  if (kind == ARRIVE || kind == END) {
    arrive(races, place, items, kind == END);
    return;
  }
  if (races->run == 0)
    return;
  if (kind == DEPART) {
    depart(races, place->watch, first + (uint32_t)__builtin_ctz(items), how);
    return;
  }
  for (uint32_t left = items; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    if (kind == FENCE)
      fence(races, place->watch, first + lane, how);
    else if (kind == RELEASE)
      release(races, place->watch, first + lane, address_of(addresses, lane), how);
    else
      acquire(races, place->watch, first + lane, address_of(addresses, lane), how);
  }
}

INLINE void follow(const struct Place *place, uint32_t size, uint32_t items, bool same,
                   uint64_t (*address_of)(const void *, uint32_t), const void *addresses) {
  uint32_t kind = size >> KIND & 0x7f, bytes = size & 0xffffff;
  struct Races *races = races_of(place);
  if (items == 0)
    return;
  if (kind > VALUE) {
    other(place, size, items, address_of, addresses);
    return;
  }
  if (races->run == 0)
    return;
  if (kind == VALUE) {
    races->value_items = items;
    for (uint32_t i = 0; i < 32 - (uint32_t)__builtin_clz(items); i++)
      races->values[i] = address_of(addresses, i);
    return;
  }
  bool writes = kind & KIND_WRITES, valued = writes && races->value_items != 0;
  // Of items that read at one address any two tell as much as all.
  if (same && !writes && items & (items - 1) && !(races->flags & SUBGROUPS))
    items = 1u << __builtin_ctz(items) | 1u << (31 - __builtin_clz(items));
  bool words = bytes == 4 && kind <= KIND_WRITES;
  if (!words && writes == ((kind & KIND_ATOMIC) != 0) && bytes % 4 == 0 && bytes <= 16)
    items = that_add(races, place->watch, items, bytes, writes ? WRITES | ATOMIC : 0, address_of, addresses);
  uint64_t site = place->site < LAST_SITE ? place->site : LAST_SITE, number = linear(races, place);
  uint64_t mine = (uint64_t)races->run << RUN | site << SITE | (uint64_t)races->time << TIME |
                  (writes ? WRITES : 0) | (kind & KIND_ATOMIC ? ATOMIC : 0);
  uint32_t *held = 0;
  if (words)
    touch_apart(races, place, items, mine | number << ITEM, valued, address_of, addresses);
  for (uint32_t left = words ? 0 : items; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    touch(races, place, lane, address_of(addresses, lane), bytes, mine | (number + lane) << ITEM,
          valued, &held);
  }
  if (held)
    leave(held);
  if (writes || bytes == ANY_SIZE)
    races->value_items = 0;
}

enum { MOST_PIECES = 3 };

struct Steps {
  uint64_t first, step;
};

INLINE uint64_t in_steps(const void *addresses, uint32_t item) {
  const struct Steps *steps = addresses;
  return steps->first + steps->step * item;
}

INLINE uint64_t apart(const void *addresses, uint32_t item) {
  return ((const uint64_t *)addresses)[item];
}

INLINE uint32_t first_of(uint32_t items) {
  return (uint32_t)__builtin_ctz(items);
}

INLINE uint32_t last_of(uint32_t items) {
  return 31 - (uint32_t)__builtin_clz(items);
}

// Accesses by items with a step, from an address on: those of items that follow each other at a time. Returns whether
// they were looked at.
INLINE bool touch_items(PLACE, uint32_t bytes, uint32_t items, uint64_t from, uint32_t step, bool writes) {
  uint64_t first = from - (uint64_t)step * first_of(items);
  for (uint64_t left = items; left != 0;) {
    uint32_t lane = (uint32_t)__builtin_ctzll(left), count = (uint32_t)__builtin_ctzll(~(left >> lane));
    if (!touch_stripe(ctx, lx, ly, lz, watch, launch, site, lane, count, first + (uint64_t)step * lane, bytes, step,
                      writes))
      return false;
    left = left >> (lane + count) << (lane + count);
  }
  if (writes)
    races_at(ctx)->value_items = 0;
  return true;
}

__attribute__((noinline)) static bool read_stripe(PLACE, uint32_t bytes, uint32_t items, uint64_t from) {
  return touch_items(ctx, lx, ly, lz, watch, launch, site, bytes, items, from, bytes, false);
}

__attribute__((noinline)) static bool write_stripe(PLACE, uint32_t bytes, uint32_t items, uint64_t from) {
  return touch_items(ctx, lx, ly, lz, watch, launch, site, bytes, items, from, bytes, true);
}

__attribute__((noinline)) static bool touch_steps(PLACE, uint32_t bytes, uint32_t items, uint64_t from, uint32_t step,
                                                  bool writes) {
  return touch_items(ctx, lx, ly, lz, watch, launch, site, bytes, items, from, step, writes);
}

__attribute__((noinline)) static bool read_same(PLACE, uint32_t bytes, uint32_t items, uint64_t from) {
  return read_together(ctx, lx, ly, lz, watch, launch, site, items, from, bytes);
}

// Any access with a step.
__attribute__((noinline)) static void access(PLACE, uint32_t size, uint32_t items, uint64_t first, uint64_t step) {
  uint32_t bytes = size & 0xffffff, kind = size >> KIND & 0x7f;
  const struct Place place = {ctx, lx, ly, lz, watch, launch, site};
  const struct Steps steps = {first, step};
  uint64_t from = in_steps(&steps, first_of(items));
  // A single item has any step.
  uint64_t apart = (items & (items - 1)) == 0 ? bytes : step;
  bool fits = apart >= bytes && apart <= 32 && (apart & (apart - 1)) == 0;
  if (kind <= KIND_WRITES && is_even(bytes) && fits &&
      touch_steps(ctx, lx, ly, lz, watch, launch, site, bytes, items, from, (uint32_t)apart, kind != 0))
    return;
  follow(&place, size, items, step == 0, in_steps, &steps);
}

// Accesses at addresses with a step. The size and the step are constants, so little of this stays when it is inlined
// into a kernel.
__attribute__((always_inline)) void __tally_access(PLACE, uint32_t size, uint32_t items, uint64_t first,
                                                   uint64_t step) {
  if (items == 0)
    return;
  uint32_t bytes = size & 0xffffff, kind = size >> KIND & 0x7f;
  uint64_t from = first + step * first_of(items), last = first + step * last_of(items) + bytes - 1;
  bool even = is_even(bytes);
  if (kind == 0 && even && step <= 16) {
    // A single word.
    if (step == 0 && bytes == 4 && (from & 3) == 0)
      last = from;
    if (__builtin_expect(enough_was_read(races_at(ctx), watch, from, last), true))
      return;
  }
  if (kind == 0 && even && step == bytes && read_stripe(ctx, lx, ly, lz, watch, launch, site, bytes, items, from))
    return;
  if (kind == KIND_WRITES && even && step == bytes &&
      write_stripe(ctx, lx, ly, lz, watch, launch, site, bytes, items, from))
    return;
  if (kind == 0 && even && step == 0 && read_same(ctx, lx, ly, lz, watch, launch, site, bytes, items, from))
    return;
  access(ctx, lx, ly, lz, watch, launch, site, size, items, first, step);
}

// The items of a vector after which addresses go on elsewhere than behind the bytes of the item before, one bit each.
INLINE uint32_t breaks_of(const uint64_t *at, uint32_t items, uint32_t bytes) {
  uint32_t breaks = 0, last = last_of(items);
  for (uint32_t i = first_of(items); i < last; i++)
    breaks |= (uint32_t)(at[i + 1] - at[i] != bytes) << i;
  return breaks | 1u << last;
}

// Accesses at any addresses. Often they lie in few pieces without gaps, which the compiler does not know.
__attribute__((noinline)) void __tally_access_apart(PLACE, uint32_t size, uint32_t items, const uint64_t *at) {
  if (items == 0)
    return;
  uint32_t kind = size >> KIND & 0x7f, bytes = size & 0xffffff;
  if (kind == VALUE) {
    struct Races *races = races_at(ctx);
    races->value_items = items;
    for (uint32_t i = 0; i <= last_of(items); i++)
      races->values[i] = at[i];
    return;
  }
  uint32_t breaks = kind <= KIND_WRITES && is_even(bytes) ? breaks_of(at, items, bytes) : ~0u;
  if (__builtin_popcount(breaks) <= MOST_PIECES) {
    struct Races *races = races_at(ctx);
    uint32_t valued = races->value_items, rest = items, done = 0;
    for (; breaks != 0; breaks &= breaks - 1) {
      uint32_t these = rest & (breaks ^ (breaks - 1));
      if (these == 0)
        continue;
      uint64_t from = at[first_of(these)], end = at[last_of(these)] + bytes;
      races->value_items = valued;
      if (kind != 0 ? write_stripe(ctx, lx, ly, lz, watch, launch, site, bytes, these, from)
                    : enough_was_read(races, watch, from, end - 1) ||
                          read_stripe(ctx, lx, ly, lz, watch, launch, site, bytes, these, from))
        done |= these;
      rest &= ~these;
    }
    items &= ~done;
    if (items == 0)
      return;
    races->value_items = valued;
  }
  const struct Place place = {ctx, lx, ly, lz, watch, launch, site};
  follow(&place, size, items, false, apart, at);
}

// The words that the driver adds to the arguments.
struct Words {
  struct Watch *watch;
  uint64_t launch, local;
  uint32_t *command;
  uint64_t scratch;
};

// The run of this group. The first group of an execution to begin asks for the runs of all.
static void take_run(struct Races *races, const struct Context *given, const struct Words *words) {
  const struct Launch *launch = given->launch;
  uint64_t all = (uint64_t)launch->groups[0] * launch->groups[1] * launch->groups[2];
  struct Watch *watch = words->watch;
  uint32_t *command = words->command;
  if (all >= MOST_RUNS || !command || !watch->begin || !watch->cells) {
    drop(watch);
    return;
  }
  while (__atomic_exchange_n(&command[0], 1, __ATOMIC_ACQUIRE))
    __builtin_ia32_pause();
  if (command[1] == 0) {
    command[1] = (uint32_t)all;
    command[2] = watch->begin((uint64_t)watch, words->launch & ~REACHES_ALL, (uint32_t)all);
  }
  command[1]--;
  races->base = command[2];
  __atomic_store_n(&command[0], 0, __ATOMIC_RELEASE);
  const uint32_t *group = given->group;
  races->total = (uint32_t)all;
  races->run = races->base == 0 ? 0
                                : races->base + group[0] + launch->groups[0] *
                                      (group[1] + launch->groups[1] * group[2]);
  races->launch = (uint64_t)races->base << RUN;
  races->launch_size = (all << RUN) - 1;
  races->launch_stamp = races->launch | STAMP_OF_LAUNCH;
  begin_phase(races);
}

// A group begins: makes the context that it runs with. `shift`: the logarithm of the sub-groups' size.
__attribute__((noinline)) void __tally_group(struct Checked *out, const struct Context *given,
                                             const struct Words *words, uint32_t shift,
                                             uint32_t flags) {
  struct Races *races = &out->own;
  __builtin_memcpy(out, given, offsetof(struct Checked, races));
  out->races = races;
  __builtin_memset(races, 0, offsetof(struct Races, values));
  uint64_t size[3];
  for (int d = 0; d < 3; d++) {
    uint64_t full = given->launch->group_size[d];
    uint64_t left = given->launch->global_size[d] - given->group[d] * full;
    size[d] = left < full ? left : full;
  }
  races->nx = (uint32_t)size[0], races->ny = (uint32_t)size[1];
  races->items = (uint32_t)(size[0] * size[1] * size[2]);
  races->shift = shift, races->flags = flags;
  races->local = (uint64_t)given->local, races->local_bytes = words->local;
  races->scratch = (uint64_t)given->scratch, races->scratch_bytes = words->scratch;
  races->last = UINT32_MAX;
  races->old = ~0ull;
  if (flags & SUBGROUPS) {
    __builtin_memset(races->sub_start, 0, sizeof races->sub_start);
    __builtin_memset(races->sub_last, 0xff, sizeof races->sub_last);
  }
  if (!(flags & RACES))
    return;
  races->cells = words->watch->cells;
  // Behind the last cell (protocol/src/checks.rs).
  uint64_t addresses = words->watch->mask + 1;
  if (races->cells) {
    races->stamps = (uint64_t *)(races->cells + 8 * addresses);
    races->blocks = (struct Block *)((unsigned char *)races->stamps + addresses / 8);
    races->stored = (unsigned char *)(races->blocks + (addresses >> BLOCK));
    races->sites = (uint16_t(*)[ROWS + 1][BLOCK_BYTES / 4])(races->stored + addresses);
  }
  races->in_rows = !(flags & (SUBGROUPS | WAITS_FOR_GROUPS | ATOMICS_ORDER));
  take_run(races, given, words);
}
