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

#include "races.h"

#define INLINE static inline __attribute__((always_inline))

INLINE struct Races *races_of(const struct Place *place) {
  return ((const struct Checked *)place->ctx)->races;
}

INLINE uint64_t load(const uint64_t *at) {
  return __atomic_load_n(at, __ATOMIC_RELAXED);
}

INLINE void store(uint64_t *at, uint64_t value) {
  __atomic_store_n(at, value, __ATOMIC_RELAXED);
}

INLINE struct Release *bucket(const struct Watch *watch, uint64_t key) {
  return &watch->releases[(key * 0x9e3779b97f4a7c15 >> 40) % BUCKETS];
}

// A thread that has the lock may not be running: gives way to others.
INLINE void give_way(void) {
  uint64_t call = 24; // sched_yield
  __asm__ volatile("syscall" : "+a"(call) : : "rcx", "r11", "memory");
}

__attribute__((noinline)) static void wait(struct Release *at) {
  for (uint32_t i = 0; i < MOST_ROUNDS; i++) {
    if (i < FEW_ROUNDS)
      __builtin_ia32_pause();
    else
      give_way();
    if (__atomic_load_n(&at->lock, __ATOMIC_RELAXED) == 0 &&
        __atomic_exchange_n(&at->lock, 1, __ATOMIC_ACQUIRE) == 0)
      return;
  }
}

// Waits for a bucket's lock. A thread whose kernel is aborted keeps it: after a while it is taken all the same.
INLINE struct Release *enter(struct Release *at) {
  if (__builtin_expect(__atomic_exchange_n(&at->lock, 1, __ATOMIC_ACQUIRE) != 0, false))
    wait(at);
  return at;
}

INLINE void leave(struct Release *at) {
  __atomic_store_n(&at->lock, 0, __ATOMIC_RELEASE);
}

// Takes the lock of the cells of an address in place of the one that is held, or of none: of two accesses at the same
// time, one sees the other.
INLINE void hold(const struct Watch *watch, struct Release **held, uint64_t address) {
  struct Release *at = bucket(watch, address >> BLOCK);
  if (at == *held)
    return;
  if (*held)
    leave(*held);
  *held = enter(at);
}

static void drop(const struct Watch *watch) {
  if (load(&watch->ring->dropped) == 0)
    store(&watch->ring->dropped, 1);
}

INLINE uint32_t run_of(uint64_t entry) {
  return (uint32_t)(entry >> RUN);
}

INLINE uint32_t item_of(uint64_t entry) {
  return (uint32_t)(entry >> ITEM) & 0x3ff;
}

INLINE uint32_t time_of(uint64_t entry) {
  return (uint32_t)(entry >> TIME) & LAST_TIME;
}

// Whether all that conflicts with an access conflicts with another one, too.
INLINE bool covers(uint64_t one, uint64_t other) {
  return (other & ~one & (MASK | WRITES)) == 0 && (!(one & ATOMIC) || other & ATOMIC);
}

INLINE bool conflict(uint64_t one, uint64_t other) {
  return one & other & MASK && (one | other) & WRITES && !(one & other & ATOMIC);
}

INLINE bool in_launch(const struct Races *races, uint32_t run) {
  return run - races->base < races->total;
}

// Whether an access of another execution is ordered before this group. The last answers are remembered.
__attribute__((noinline)) static bool ask(struct Races *races, const struct Watch *watch, uint32_t run) {
  struct Seen found = races->seen[0];
  uint32_t i = 1;
  while (i < SEEN && run - races->seen[i].first >= races->seen[i].count)
    i++;
  if (i < SEEN) {
    found = races->seen[i];
  } else if (watch->ordered) {
    uint64_t answer = watch->ordered(run, races->run);
    found = (struct Seen){(uint32_t)answer & 0xffffff, (uint32_t)(answer >> 24) & 0xffffff, answer >> 63 != 0};
    i = SEEN - 1;
  } else {
    return true;
  }
  for (; i > 0; i--)
    races->seen[i] = races->seen[i - 1];
  races->seen[0] = found;
  return found.yes;
}

INLINE bool is_earlier(struct Races *races, const struct Watch *watch, uint32_t run) {
  if (__builtin_expect(run - races->seen[0].first < races->seen[0].count, true))
    return races->seen[0].yes;
  return ask(races, watch, run);
}

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
__attribute__((noinline)) static int replaced(const struct Races *races, const struct Watch *watch,
                                              const uint64_t *entries, uint64_t mine) {
  int like = -1;
  for (int i = 0; i < ENTRIES; i++)
    if (run_of(entries[i]) != 0 && !in_launch(races, run_of(entries[i])))
      return i;
  for (int i = 0; i < ENTRIES; i++) {
    bool is_old = run_of(entries[i]) == races->run && time_of(entries[i]) < races->phase;
    if (is_old || !covers(entries[i], mine))
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
    if (run_of(a) != races->run)
      return i;
    uint32_t sub = item_of(a) >> races->shift;
    if (!(races->flags & SUBGROUPS) || sub != item_of(b) >> races->shift)
      return -1;
    return sub == item_of(mine) >> races->shift ? -1 : i;
  }
  // Bytes of one word that belong to several items need the place of the value.
  if (run_of(entries[VALUE_AT]) == 0 && (mine & MASK) != MASK)
    return VALUE_AT;
  for (int i = 0; i < ENTRIES; i++)
    if (run_of(entries[i]) == races->run && time_of(entries[i]) < races->phase)
      return i;
  drop(watch);
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

// Whether a read of a word adds nothing to what its first entry says.
INLINE bool adds_nothing(const struct Races *races, uint64_t entry) {
  return (entry & ENOUGH_FOR_GROUP && entry - races->own <= races->own_size) ||
         (entry & ENOUGH_FOR_LAUNCH && entry - races->launch <= races->launch_size);
}

// What two reads that are remembered are enough for. `safe`: what no write among the entries stands against.
INLINE uint64_t enough(const struct Races *races, uint64_t one, uint64_t other, uint64_t safe) {
  if (run_of(one) != run_of(other))
    return safe & ENOUGH_FOR_LAUNCH;
  bool apart = !(races->flags & SUBGROUPS) || item_of(one) >> races->shift != item_of(other) >> races->shift;
  return run_of(one) == races->run && apart ? safe & ENOUGH_FOR_GROUP : 0;
}

// The most common accesses: nothing that is remembered of the word matters any more, or one read of it.
// Whether it was one of these.
INLINE bool touch_easily(struct Races *races, const struct Watch *watch, uint64_t *cell,
                         const uint64_t *entries, uint64_t mine, bool local, uint64_t value) {
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
  return true;
}

// An access to some bytes of a word. `value`: what is stored, with a bit for each byte in bits 32 to 35.
INLINE void touch_word(struct Races *races, const struct Place *place, uint32_t lane,
                       uint64_t address, uint64_t mine, bool local, uint64_t value) {
  const struct Watch *watch = place->watch;
  uint64_t *cell = (uint64_t *)(races->cells + ((address & watch->mask & ~3ull) << 3));
  uint64_t last = load(cell + VALUE_AT);
  uint64_t entries[ENTRIES] = {load(cell), load(cell + 1), load(cell + 2), last};
  if (touch_easily(races, watch, cell, entries, mine, local, value))
    return;
  uint32_t item = item_of(mine);
  // Of the reads that are remembered and not ordered before this one, two.
  uint64_t reads[2] = {0, 0}, safe = ENOUGH;
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
      if (entry & WRITES)
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
    } else if ((entry & (MASK | WRITES | ATOMIC)) == MASK && in_launch(races, run)) {
      reads[reads[0] != 0] = entry;
    } else {
      safe = 0;
    }
  }
  if (!is_there) {
    slot = slot >= 0 ? slot : free >= 0 ? free : replaced(races, watch, entries, mine);
    uint64_t flags = 0;
    if ((mine & (MASK | WRITES | ATOMIC)) == MASK && reads[0] != 0 &&
        !(races->flags & (ATOMICS_ORDER | WAITS_FOR_GROUPS))) {
      if (slot >= 0)
        flags = enough(races, mine, reads[0], safe);
      else if (reads[1] != 0 && entries[0] == reads[0])
        flags = enough(races, reads[0], reads[1], safe);
    }
    if (flags != 0 && slot > 0) {
      store(&cell[slot], entries[0] & ~ENOUGH);
      slot = 0;
    }
    if (slot >= 0)
      store(&cell[slot], mine | flags);
    else if (flags != 0)
      store(&cell[0], entries[0] | flags);
  }
  if (!is_write)
    return;
  if (slot != 0 && entries[0] & ENOUGH)
    store(&cell[0], entries[0] & ~ENOUGH);
  if (slot != VALUE_AT && run_of(last) == 0) {
    uint64_t bytes = (mine & MASK) << 32 | spread(mine);
    store(&cell[VALUE_AT], (last & ~bytes) | (value & bytes));
  }
}

// The items of which a read of whole words may add something.
INLINE uint32_t that_add(const struct Races *races, const struct Watch *watch, uint32_t items,
                         uint32_t bytes, uint64_t (*address_of)(const void *, uint32_t),
                         const void *addresses) {
  uint32_t some = 0;
  for (uint32_t left = items; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    uint64_t address = address_of(addresses, lane);
    // What is no memory of ours has the cell of some address that is.
    const unsigned char *cell = races->cells + ((address & watch->mask & ~3ull) << 3);
    bool nothing = (address & 3) == 0 && (address & watch->mask) + bytes <= watch->mask;
    for (uint32_t word = 0; word < bytes && nothing; word += 4)
      nothing = adds_nothing(races, load((const uint64_t *)(cell + 8 * word)));
    some |= (uint32_t)!nothing << lane;
  }
  return some;
}

INLINE void touch(struct Races *races, const struct Place *place, uint32_t lane, uint64_t address,
                  uint32_t size, uint64_t mine, bool valued, struct Release **held) {
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
      hold(place->watch, held, word);
    touch_word(races, place, lane, word, mine | mask, local, value);
  }
}

INLINE uint64_t linear(const struct Races *races, const struct Place *place) {
  return place->lx + races->nx * (place->ly + races->ny * place->lz);
}

// The time goes on: what has happened before differs from what comes.
static void tick(struct Races *races, const struct Watch *watch) {
  if (++races->time < LAST_TIME)
    return;
  // There are no more numbers: this group is not looked at any further.
  drop(watch);
  races->time = LAST_TIME - 1;
  races->run = 0;
}

static void begin_phase(struct Races *races) {
  races->own = (uint64_t)races->run << RUN | (uint64_t)races->phase << TIME;
  races->own_size = (1ull << RUN) - 1 - ((uint64_t)races->phase << TIME);
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

// More was released to items of this group than can be remembered.
static void know_all(struct Races *races, const struct Watch *watch) {
  races->all_known = 1;
  drop(watch);
}

// Remembers something that items know.
static void learn(struct Races *races, const struct Watch *watch, struct Point point, uint32_t owner,
                  uint32_t state) {
  for (uint32_t i = 0; i < races->known_count; i++) {
    struct Known *it = &races->known[i];
    bool same = it->point.run == point.run && it->point.item == point.item;
    if (!same || it->owner != owner || it->state != state)
      continue;
    if (point.own >= it->point.own) {
      it->point = point;
      it->learned = (uint16_t)races->time;
    }
    return;
  }
  if (races->known_count == KNOWN) {
    know_all(races, watch);
    return;
  }
  races->known[races->known_count++] =
      (struct Known){point, (uint16_t)owner, (uint16_t)state, (uint16_t)races->time};
}

static void publish(struct Release *at, struct Point point) {
  for (uint32_t i = 0; i < at->count; i++)
    if (at->points[i].run == point.run && at->points[i].item == point.item &&
        at->points[i].scope <= point.scope) {
      if (point.own >= at->points[i].own)
        at->points[i] = point;
      return;
    }
  if (at->count == RELEASED)
    at->over = 1;
  else
    at->points[at->count++] = point;
}

static struct Point here(struct Races *races, uint32_t item, uint32_t scope) {
  uint32_t sub = races->flags & SUBGROUPS ? races->sub_start[item >> races->shift] : 0;
  return (struct Point){races->run,           (uint16_t)item, (uint16_t)races->time,
                        (uint16_t)races->phase, (uint16_t)sub,  (uint16_t)scope, 0};
}

// Whether another launch may have taken a bucket in which this one has released something.
INLINE bool is_lost(const struct Races *races, const struct Release *at) {
  return !in_launch(races, at->base) && at->newest >= races->base;
}

// An item's atomic is about to write.
static void release(struct Races *races, const struct Watch *watch, uint32_t item, uint64_t address,
                    uint32_t how) {
  uint32_t scope = how & 0xff, until = UINT32_MAX;
  struct Point point;
  if (how & ORDERS) {
    tick(races, watch);
    point = here(races, item, scope);
  } else {
    bool fenced = false;
    for (uint32_t i = 0; i < races->known_count; i++)
      if (races->known[i].state == FENCED && races->known[i].owner == item) {
        point = races->known[i].point;
        until = races->known[i].learned;
        fenced = true;
      }
    if (!fenced)
      return;
    scope = scope < point.scope ? scope : point.scope;
    point.scope = (uint16_t)scope;
  }
  struct Release *at = enter(bucket(watch, address));
  if (at->address != address || !in_launch(races, at->base)) {
    // What was released by way of other locations of the same bucket is not told apart any more.
    at->over = in_launch(races, at->base) ? at->address != 0 : is_lost(races, at);
    at->address = address;
    at->base = races->base;
    at->count = 0;
    if (at->newest < races->base)
      at->newest = races->base;
  }
  publish(at, point);
  for (uint32_t i = 0; i < races->known_count; i++) {
    const struct Known *it = &races->known[i];
    if (it->state != HOLDS || !owns(races, it->owner, item) || it->learned >= until)
      continue;
    struct Point other = it->point;
    other.scope = (uint16_t)scope;
    publish(at, other);
  }
  at->over |= races->all_known;
  leave(at);
}

// An item's atomic has read.
static void acquire(struct Races *races, const struct Watch *watch, uint32_t item, uint64_t address,
                    uint32_t how) {
  struct Release *at = enter(bucket(watch, address));
  if (in_launch(races, at->base)) {
    for (uint32_t i = 0; at->address == address && i < at->count; i++) {
      struct Point point = at->points[i];
      bool is_mine = point.run == races->run;
      if ((is_mine && point.item == item) ||
          (!is_mine && (point.scope < DEVICE || (how & 0xff) < DEVICE)))
        continue;
      learn(races, watch, point, item, how & ORDERS ? HOLDS : PENDING);
    }
  }
  if (in_launch(races, at->base) ? at->over : is_lost(races, at)) {
    if (how & ORDERS)
      know_all(races, watch);
    else
      races->all_pending = 1;
  }
  leave(at);
}

static void fence(struct Races *races, const struct Watch *watch, uint32_t item, uint32_t how) {
  if (how & ACQUIRES && races->all_pending)
    know_all(races, watch);
  if (how & ACQUIRES)
    for (uint32_t i = 0; i < races->known_count; i++) {
      struct Known *it = &races->known[i];
      if (it->state == PENDING && it->owner == item &&
          (it->point.run == races->run || (how & 0xff) == DEVICE)) {
        it->state = HOLDS;
        it->learned = (uint16_t)races->time;
      }
    }
  if (how & RELEASES) {
    tick(races, watch);
    learn(races, watch, here(races, item, how & 0xff), item, FENCED);
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
    for (uint32_t left = items; left != 0; left &= left - 1) {
      uint32_t lane = (uint32_t)__builtin_ctz(left);
      races->values[lane] = address_of(addresses, lane);
    }
    return;
  }
  bool writes = kind & KIND_WRITES, valued = writes && races->value_items != 0;
  // Of items that read at one address any two tell as much as all.
  if (same && !writes && items & (items - 1) && !(races->flags & SUBGROUPS))
    items = 1u << __builtin_ctz(items) | 1u << (31 - __builtin_clz(items));
  if (!writes && !(kind & KIND_ATOMIC) && bytes % 4 == 0 && bytes <= 16)
    items = that_add(races, place->watch, items, bytes, address_of, addresses);
  uint64_t site = place->site < LAST_SITE ? place->site : LAST_SITE, number = linear(races, place);
  uint64_t mine = (uint64_t)races->run << RUN | site << SITE | (uint64_t)races->time << TIME |
                  (writes ? WRITES : 0) | (kind & KIND_ATOMIC ? ATOMIC : 0);
  struct Release *held = 0;
  for (uint32_t left = items; left != 0; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    touch(races, place, lane, address_of(addresses, lane), bytes, mine | (number + lane) << ITEM,
          valued, &held);
  }
  if (held)
    leave(held);
  if (writes || bytes == ANY_SIZE)
    races->value_items = 0;
}

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

// Accesses at addresses with a step.
__attribute__((noinline)) void __tally_access(const struct Context *ctx, uint64_t lx, uint64_t ly,
                                              uint64_t lz, struct Watch *watch, uint64_t launch,
                                              uint32_t site, uint32_t size, uint32_t items,
                                              uint64_t first, uint64_t step) {
  const struct Place place = {ctx, lx, ly, lz, watch, launch, site};
  const struct Steps steps = {first, step};
  follow(&place, size, items, step == 0, in_steps, &steps);
}

// The same at any addresses.
__attribute__((noinline)) void __tally_access_apart(const struct Context *ctx, uint64_t lx,
                                                    uint64_t ly, uint64_t lz, struct Watch *watch,
                                                    uint64_t launch, uint32_t site, uint32_t size,
                                                    uint32_t items, const uint64_t *at) {
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
  if (flags & SUBGROUPS) {
    __builtin_memset(races->sub_start, 0, sizeof races->sub_start);
    __builtin_memset(races->sub_last, 0xff, sizeof races->sub_last);
  }
  if (!(flags & RACES))
    return;
  races->cells = words->watch->cells;
  take_run(races, given, words);
}
