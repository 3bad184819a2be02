// SPDX-License-Identifier: MIT OR Apache-2.0
// What is remembered of a group, and the locks of memory. The layouts of what the driver shares are in
// protocol/src/checks.rs.

#ifndef TALLY_RACES_H
#define TALLY_RACES_H

#include "record.h"

enum { ENTRIES = 4, VALUE_AT = 3, ITEM = 6, SITE = 18, TIME = 29, RUN = 40 };
enum { LAST_TIME = 0x7ff, LAST_SITE = 0x7ff, MOST_RUNS = 1 << 23 };
#define MASK 0xfull
#define WRITES (1ull << 4)
#define ATOMIC (1ull << 5)
#define SAME_ITEM (~0ull << TIME | 0x3ffull << ITEM)
// Of the first entry of a cell: further reads by this group until its next barrier, or by this launch, add
// nothing.
#define ENOUGH_FOR_GROUP (1ull << 16)
#define ENOUGH_FOR_LAUNCH (1ull << 17)
#define ENOUGH (ENOUGH_FOR_GROUP | ENOUGH_FOR_LAUNCH)

// The stamp of a block of memory: of which of its words further reads add nothing, a bit each, by this group until its
// next barrier, or by this launch. Behind the bits it has these and the run and time of `own` or `launch`. A stamp may
// lack bits that the words' cells have.
#define STAMP_BITS 16
#define STAMP_OF_GROUP (1ull << STAMP_BITS)
#define STAMP_OF_LAUNCH (2ull << STAMP_BITS)
// A part of the stamp, whatever the rest is: the block is remembered by the cells of its words, not as rows (rows.h).
#define IN_CELLS (4ull << STAMP_BITS)

// Of a report's size: the kind, and the rest.
enum { KIND = 24, KIND_WRITES = 1, KIND_ATOMIC = 2, ANY_SIZE = 0xffffff, MOST_BYTES = 1 << 20 };
enum { TOUCH_END = 4, VALUE = 4, RELEASE, ACQUIRE, FENCE, DEPART, ARRIVE, END };
enum { SUBGROUP = 1, WORKGROUP = 2, DEVICE = 3, ORDERS = 0x100, RELEASES = 0x100, ACQUIRES = 0x200 };

// Of __tally_group: what the kernel does.
enum { RACES = 1, SYNC = 2, SUBGROUPS = 4, WAITS_FOR_GROUPS = 8, ATOMICS_ORDER = 16 };

enum { BUCKETS = 1024, BLOCK = 6, FEW_ROUNDS = 1 << 10, MOST_ROUNDS = 1 << 18 };
// A block of memory as rows (rows.h): which of them are in use, the entry of each, and its bytes, one bit each. (Most
// blocks have one or two, which lie in one line of the processor's cache.)
// WERE_CELLS: the cells of the block do not count, but are not empty.
enum { ROWS = 11, IN_USE = (1 << ROWS) - 1, WERE_CELLS = 1 << 16 };
struct Row {
  uint64_t entry, bytes;
};
struct Block {
  uint64_t state;
  union {
    // Of global memory: the lock of the block, its stamp and its cells. (One for several blocks would go from one
    // processor's cache to another one's, whatever memory they access.)
    uint32_t lock;
    // Of local memory: `own` of the group when it accessed the block last. Whatever is remembered from before that does
    // not count.
    uint64_t phase;
  };
  struct Row rows[ROWS];
};

enum { RELEASED = 16, KNOWN = 40, MOST_LANES = 32, MOST_SUBGROUPS = 1024 };

// What an item has released: all that its group had done before `all`, its sub-group before `sub` and itself
// before `own`.
struct Point {
  uint32_t run;
  uint16_t item, own, all, sub, scope, unused;
};

// `newest`: the highest base of the launches that have had the bucket.
struct Release {
  uint32_t lock, base, count, over;
  uint64_t address;
  uint32_t newest, unused;
  struct Point points[RELEASED];
};

_Static_assert(sizeof(struct Release) == 288 && sizeof(struct Point) == 16, "protocol/src/checks.rs");

// What items of this group know of others. `owner`: an item, a sub-group or all.
enum { OF_GROUP = 0xffff, OF_SUBGROUP = 0x8000 };
// It holds; it will hold behind a fence that acquires; a fence that released.
enum { HOLDS, PENDING, FENCED };
struct Known {
  struct Point point;
  uint16_t owner, state, learned;
};

// An answer about runs of another execution.
struct Seen {
  uint32_t first, count, yes;
};

enum { SEEN = 4 };

struct Races {
  uint32_t run, base, total, time, phase, last;
  uint32_t nx, ny, items, shift, flags;
  // Whether barriers of the group are all that orders its accesses: then they may be remembered as rows.
  bool in_rows;
  uint64_t local, local_bytes, scratch, scratch_bytes;
  unsigned char *cells;
  uint64_t *stamps;
  struct Block *blocks;
  // The values that rows have stored, with the bytes' addresses, and the places of rows' words.
  unsigned char *stored;
  uint16_t (*sites)[ROWS + 1][1 << (BLOCK - 2)];
  // Entries of this group behind its last barrier, and of this launch: the first one, and the distance of the
  // last one.
  uint64_t own, own_size, launch, launch_size;
  uint64_t group_stamp, launch_stamp;
  // Items that wait at a barrier, one of them, and those that have ended.
  uint32_t arrived, arrived_site, ended, ended_site, ended_item;
  uint64_t arrived_item[3];
  // `all_known`: items know more than is remembered; `all_pending`: they will behind a fence that acquires.
  uint32_t value_items, known_count, all_known, all_pending;
  struct Seen seen[SEEN];
  // Entries of the execution that `seen` begins with, if it is ordered before this group.
  uint64_t old, old_size;
  uint64_t values[MOST_LANES];
  struct Known known[KNOWN];
  uint16_t sub_start[MOST_SUBGROUPS], sub_last[MOST_SUBGROUPS];
};

// What a kernel that is looked at has as its context.
struct Checked {
  struct Context context;
  struct Races *races;
  struct Races own;
};

_Static_assert(offsetof(struct Checked, races) == 48, "behind the device's context");
_Static_assert(sizeof(struct Checked) <= 8192, "CHECKED in src/lower/checks.rs");

#define INLINE static inline __attribute__((always_inline))

INLINE struct Races *races_at(const struct Context *ctx) {
  return ((const struct Checked *)ctx)->races;
}

INLINE struct Races *races_of(const struct Place *place) {
  return races_at(place->ctx);
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

__attribute__((noinline)) static void wait(uint32_t *lock) {
  for (uint32_t i = 0; i < MOST_ROUNDS; i++) {
    if (i < FEW_ROUNDS)
      __builtin_ia32_pause();
    else
      give_way();
    if (__atomic_load_n(lock, __ATOMIC_RELAXED) == 0 && __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE) == 0)
      return;
  }
}

// Waits for a lock. A thread whose kernel is aborted keeps it: after a while it is taken all the same.
INLINE void enter(uint32_t *lock) {
  if (__builtin_expect(__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE) != 0, false))
    wait(lock);
}

INLINE void leave(uint32_t *lock) {
  __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
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

INLINE struct Block *block_at(const struct Races *races, const struct Watch *watch, uint64_t address) {
  return &races->blocks[(address & watch->mask) >> BLOCK];
}

// Takes the lock of an address's block in place of the one that is held, or of none: of two accesses at the same time,
// one sees the other.
INLINE void hold(const struct Races *races, const struct Watch *watch, uint32_t **held, uint64_t address) {
  uint32_t *lock = &block_at(races, watch, address)->lock;
  if (lock == *held)
    return;
  if (*held)
    leave(*held);
  enter(lock);
  *held = lock;
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
  races->old = found.yes ? (uint64_t)found.first << RUN : ~0ull;
  races->old_size = found.yes ? ((uint64_t)found.count << RUN) - 1 : 0;
  return found.yes;
}

INLINE bool is_earlier(struct Races *races, const struct Watch *watch, uint32_t run) {
  if (__builtin_expect(run - races->seen[0].first < races->seen[0].count, true))
    return races->seen[0].yes;
  return ask(races, watch, run);
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
  races->group_stamp = races->own | STAMP_OF_GROUP;
}

INLINE uint64_t linear(const struct Races *races, const struct Place *place) {
  return place->lx + races->nx * (place->ly + races->ny * place->lz);
}

#endif
