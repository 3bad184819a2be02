// SPDX-License-Identifier: MIT OR Apache-2.0
// What races.c remembers of a group. The layouts of what the driver shares are in protocol/src/checks.rs.

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

// Of a report's size: the kind, and the rest.
enum { KIND = 24, KIND_WRITES = 1, KIND_ATOMIC = 2, ANY_SIZE = 0xffffff, MOST_BYTES = 1 << 20 };
enum { TOUCH_END = 4, VALUE = 4, RELEASE, ACQUIRE, FENCE, DEPART, ARRIVE, END };
enum { SUBGROUP = 1, WORKGROUP = 2, DEVICE = 3, ORDERS = 0x100, RELEASES = 0x100, ACQUIRES = 0x200 };

// Of __tally_group: what the kernel does.
enum { RACES = 1, SYNC = 2, SUBGROUPS = 4, WAITS_FOR_GROUPS = 8, ATOMICS_ORDER = 16 };

enum { BUCKETS = 1024, BLOCK = 6, FEW_ROUNDS = 1 << 10, MOST_ROUNDS = 1 << 18, RELEASED = 16, KNOWN = 40, MOST_LANES = 32, MOST_SUBGROUPS = 1024 };

// What an item has released: all that its group had done before `all`, its sub-group before `sub` and itself
// before `own`.
struct Point {
  uint32_t run;
  uint16_t item, own, all, sub, scope, unused;
};

// The lock also is that of the cells of all blocks of 2^BLOCK bytes that have this bucket. `newest`: the highest
// base of the launches that have had the bucket.
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
  uint64_t local, local_bytes, scratch, scratch_bytes;
  unsigned char *cells;
  // Entries of this group behind its last barrier, and of this launch: the first one, and the distance of the
  // last one.
  uint64_t own, own_size, launch, launch_size;
  // Items that wait at a barrier, one of them, and those that have ended.
  uint32_t arrived, arrived_site, ended, ended_site, ended_item;
  uint64_t arrived_item[3];
  // `all_known`: items know more than is remembered; `all_pending`: they will behind a fence that acquires.
  uint32_t value_items, known_count, all_known, all_pending;
  struct Seen seen[SEEN];
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

#endif
