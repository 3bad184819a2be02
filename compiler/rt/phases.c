// SPDX-License-Identifier: MIT OR Apache-2.0
// The loops that run a work-group whose items wait at barriers.
//
// A kernel with barriers is a function that runs one item from a state to the next barrier, and returns
// the state in which the item stopped there. Between two calls, an item exists only as its frame. If
// the kernel is widened, a vector of items takes the place of an item here.
//
// src/lower/phases.rs calls these functions, and emits `layout` and the functions that they call as
// constants. Everything is inlined, so that LLVM sees plain loops over the kernel's code.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// States of an item: its beginning, its end, and the first states in which it waits at a named barrier, and
// only for its sub-group. All others are barriers of the work-group.
enum { BEGINS = 0, ENDED = -1, NAMED_STATES = 1 << 29, SUBGROUP_STATES = 1 << 30 };

// A state that no item has.
enum { NONE = -2 };

// Layout of the frames, as the code generator has chosen it.
struct layout {
  // Items of a vector, a power of two, and bytes from one frame to the next.
  uint64_t lanes, size;
  // Offset of the private variables of module scope.
  int64_t privates;
  // The places where items exchange values: the offset of the first of the two offers to the sub-group,
  // and the bytes of each.
  int64_t offers, offer_size;
  // Number of items, or vectors, that take turns with each other; 0 stands for the whole group.
  int64_t peers;
};

// The work-group: the kernel's parameters, all frames, and the number of items in each dimension.
struct group {
  const void *context, *arguments;
  char *frames;
  int64_t nx, ny, nz;
};

// Initialises the private variables of module scope.
typedef void initialise(char *privates);

// Runs an item from a state until it stops.
typedef int32_t run(const void *context, const void *arguments, int64_t x, int64_t y, int64_t z,
                    char *privates, char *frame, int32_t state);

#define INLINE __attribute__((always_inline))

static INLINE int64_t count(const struct layout *layout, const struct group *group) {
  return (uint64_t)(group->nx * group->ny * group->nz) / layout->lanes;
}

static INLINE char *frame_of(const struct layout *layout, const struct group *group, int64_t x,
                             int64_t y, int64_t z) {
  uint64_t item = (z * group->ny + y) * group->nx + x;
  return group->frames + item / layout->lanes * layout->size;
}

// Sets all items but one to their common state, or to the one that they will have.
__attribute__((noinline, cold)) static void part(char *frames, int64_t count, uint64_t size,
                                                 int32_t common) {
  for (int64_t i = 0; i != count; i++)
    *(int32_t *)(frames + i * size) = common;
}

// Runs one region of the kernel, the code from one barrier to the next, in all items before any
// continues. Returns the state in which all have stopped. `common` is that state if only one is
// possible, and NONE if the first item determines it. Unless `alike` says that all items stop in the
// same state, the result may be NONE: then their states are in their frames.
INLINE int32_t __tally_run_region(const struct layout *layout, const struct group *group, run *run,
                                  int32_t region, int32_t common, bool alike) {
  bool parted = false;
  int32_t stop = NONE;
  for (int64_t z = 0; z != group->nz; z++)
    for (int64_t y = 0; y != group->ny; y++)
      for (int64_t x = 0; x != group->nx; x += layout->lanes) {
        char *frame = frame_of(layout, group, x, y, z);
        stop =
            run(group->context, group->arguments, x, y, z, frame + layout->privates, frame, region);
        if (alike)
          continue;
        common = common == NONE ? stop : common;
        if (__builtin_expect(stop == common, true))
          continue;
        if (!parted)
          part(group->frames, count(layout, group), layout->size, common);
        parted = true;
        *(int32_t *)frame = stop;
      }
  if (alike)
    return stop;
  return parted ? NONE : common;
}

// Prepares the frames of items that continue one by one.
INLINE void __tally_begin_items(const struct layout *layout, const struct group *group,
                                initialise *initialise) {
  int64_t items = count(layout, group);
  for (int64_t i = 0; i != items; i++) {
    char *frame = group->frames + i * layout->size;
    *(int32_t *)frame = BEGINS;
    initialise(frame + layout->privates);
  }
}

// Resumes all items, each from its own state, until all have ended.
INLINE void __tally_run_items(const struct layout *layout, const struct group *group, run *run) {
  bool waiting;
  do {
    waiting = false;
    for (int64_t z = 0; z != group->nz; z++)
      for (int64_t y = 0; y != group->ny; y++)
        for (int64_t x = 0; x != group->nx; x += layout->lanes) {
          char *frame = frame_of(layout, group, x, y, z);
          int32_t *state = (int32_t *)frame;
          if (*state == ENDED)
            continue;
          *state = run(group->context, group->arguments, x, y, z, frame + layout->privates, frame,
                       *state);
          waiting |= *state != ENDED;
        }
  } while (waiting);
}

// The head of a frame if items exchange values (src/lower/group.rs): two states for each scope,
// whether the result of the scope has been made, and the local ids. src/lower/frame.rs has the same
// offsets.
struct head {
  int32_t group_states[2], subgroup_states[2];
  uint32_t group_ready, subgroup_ready;
  uint32_t x, y, z;
};

_Static_assert(offsetof(struct head, group_states) == 0, "place(0, 16, ..) in frame.rs");
_Static_assert(offsetof(struct head, group_ready) == 16, "place(0, 16, ..) in frame.rs");
_Static_assert(offsetof(struct head, subgroup_states) == 8, "place(8, 20, ..) in frame.rs");
_Static_assert(offsetof(struct head, subgroup_ready) == 20, "place(8, 20, ..) in frame.rs");
_Static_assert(offsetof(struct head, x) == 24, "LOCAL_IDS in frame.rs");
_Static_assert(sizeof(struct head) == 36, "frame.rs continues after it");

// Further parameters for resuming an item that exchanges values: the frames of its sub-group and of its
// group, their numbers, and which one of each pair is written now.
struct turn {
  char *peers, *frames;
  int64_t peer_count, items;
  int64_t turn, phase;
};

typedef int32_t run_exchanging(const void *context, const void *arguments, int64_t x, int64_t y,
                               int64_t z, char *privates, char *frame, int32_t state,
                               const struct turn *turn);

static INLINE void begin_exchange(const struct layout *layout, const struct group *group,
                                  int64_t items, initialise *initialise) {
  uint64_t row = (uint64_t)group->nx / layout->lanes, ny = group->ny;
  for (int64_t i = 0; i != items; i++) {
    char *frame = group->frames + i * layout->size;
    struct head *head = (struct head *)frame;
    head->group_states[0] = head->group_states[1] = BEGINS;
    head->group_ready = head->subgroup_ready = 0;
    head->x = i % row * layout->lanes;
    head->y = i / row % ny;
    head->z = i / row / ny;
    initialise(frame + layout->privates);
  }
}

// Runs the items of a sub-group until all have reached a barrier of the work-group, or ended. In the
// first turn all of them run; after that, those at the first of the sub-group's barriers where some
// wait. The others carry their offers over. Every item writes its state in every turn, so that neither
// of a pair is ever stale. Returns whether an item waits for the work-group.
static INLINE bool take_turns(const struct layout *layout, const struct group *group,
                              struct turn *now, run_exchanging *run) {
  bool waits, begins = true;
  int32_t chosen = NONE;
  now->turn = 0;
  do {
    int32_t least = INT32_MAX;
    waits = false;
    for (int64_t i = 0; i != now->peer_count; i++) {
      char *frame = now->peers + i * layout->size;
      struct head *head = (struct head *)frame;
      int32_t state =
          begins ? head->group_states[now->phase ^ 1] : head->subgroup_states[now->turn ^ 1];
      if ((begins && state != ENDED) || state == chosen) {
        state = run(group->context, group->arguments, head->x, head->y, head->z,
                    frame + layout->privates, frame, state, now);
      } else {
        char *offers = frame + layout->offers;
        __builtin_memcpy(offers + now->turn * layout->offer_size,
                         offers + (now->turn ^ 1) * layout->offer_size, layout->offer_size);
      }
      head->group_states[now->phase] = head->subgroup_states[now->turn] = state;
      if (state >= SUBGROUP_STATES && state < least)
        least = state;
      waits |= (uint32_t)state < SUBGROUP_STATES;
    }
    chosen = least;
    begins = false;
    now->turn ^= 1;
  } while (chosen != INT32_MAX);
  return waits;
}

// What kernels with named barriers need besides: the offset of the following structure in a frame, and the
// place of the two offers to the work-group.
struct naming {
  int64_t named, offers, offer_size;
};

// The named barrier at which an item waits, which is the number of sub-groups that it waits for; and, of the
// first item of a sub-group, whether the sub-group stays where it is for a phase.
struct named {
  const uint32_t *barrier;
  uint32_t held;
};

_Static_assert(sizeof(struct named) == 16, "frame.rs leaves room for it");

static INLINE struct named *named_of(const struct naming *naming, char *frame) {
  return (struct named *)(frame + naming->named);
}

// The named barrier at which a sub-group waits; null if it waits for the work-group, or has ended.
static const uint32_t *waits_at(const struct layout *layout, const struct naming *naming, char *frame,
                                int64_t count, int64_t phase) {
  for (int64_t i = 0; i != count; i++, frame += layout->size) {
    int32_t state = ((struct head *)frame)->group_states[phase];
    if (state >= NAMED_STATES && state < SUBGROUP_STATES)
      return named_of(naming, frame)->barrier;
  }
  return NULL;
}

// Decides which sub-groups continue in the next phase. While some wait at named barriers, those continue whose
// number is complete, and all others stay. If none is complete, nothing would ever happen: all continue, as
// at a barrier that not all items reach.
__attribute__((noinline)) static void release(const struct layout *layout, const struct naming *naming,
                                              char *frames, int64_t items, int64_t peers,
                                              int64_t phase) {
  bool released = false;
  for (int64_t first = 0; first < items; first += peers)
    named_of(naming, frames + first * layout->size)->held = 1;
  for (int64_t first = 0; first < items; first += peers) {
    char *frame = frames + first * layout->size;
    int64_t count = items - first < peers ? items - first : peers;
    const uint32_t *at = waits_at(layout, naming, frame, count, phase);
    if (!at || !named_of(naming, frame)->held)
      continue;
    uint32_t there = 0, wanted = *at ? *at : 1;
    for (int turn = 0; turn != 2; turn++)
      for (int64_t other = first; other < items; other += peers) {
        char *start = frames + other * layout->size;
        struct named *named = named_of(naming, start);
        count = items - other < peers ? items - other : peers;
        if (!named->held || waits_at(layout, naming, start, count, phase) != at)
          continue;
        if (turn == 0) {
          there++;
        } else if (there >= wanted && wanted != 0) {
          named->held = 0;
          released = true;
          wanted--, there--;
        }
      }
  }
  if (released)
    return;
  for (int64_t first = 0; first < items; first += peers)
    named_of(naming, frames + first * layout->size)->held = 0;
}

// The items of a sub-group that stays: their states and offers are those of the last phase. Returns whether an
// item waits.
static INLINE bool stay(const struct layout *layout, const struct naming *naming,
                        const struct turn *now) {
  bool waits = false;
  for (int64_t i = 0; i != now->peer_count; i++) {
    char *frame = now->peers + i * layout->size, *offers = frame + naming->offers;
    struct head *head = (struct head *)frame;
    int32_t state = head->group_states[now->phase ^ 1];
    head->group_states[now->phase] = state;
    __builtin_memcpy(offers + now->phase * naming->offer_size,
                     offers + (now->phase ^ 1) * naming->offer_size, naming->offer_size);
    waits |= state != ENDED;
  }
  return waits;
}

// Runs a group phase by phase until no item waits. With `naming`, sub-groups stay where they are for some of them.
static INLINE void run_phases(const struct layout *layout, const struct group *group,
                              const struct naming *naming, initialise *initialise,
                              run_exchanging *run) {
  int64_t items = count(layout, group), peers = layout->peers ? layout->peers : items;
  begin_exchange(layout, group, items, initialise);
  for (int64_t first = 0; naming && first < items; first += peers)
    named_of(naming, group->frames + first * layout->size)->held = 0;
  struct turn now = {.frames = group->frames, .items = items};
  bool waits;
  do {
    waits = false;
    for (int64_t first = 0; first < items; first += peers) {
      now.peers = group->frames + first * layout->size;
      now.peer_count = items - first < peers ? items - first : peers;
      if (naming && named_of(naming, now.peers)->held)
        waits |= stay(layout, naming, &now);
      else
        waits |= take_turns(layout, group, &now, run);
    }
    if (naming)
      release(layout, naming, group->frames, items, peers, now.phase);
    now.phase ^= 1;
  } while (waits);
}

// Runs a group whose items exchange values. A phase takes all items to a barrier of the work-group;
// within it, the items of a sub-group take turns. Without barriers of sub-groups all items take one
// turn.
INLINE void __tally_run_exchanging(const struct layout *layout, const struct group *group,
                                   initialise *initialise, run_exchanging *run) {
  run_phases(layout, group, NULL, initialise, run);
}

// Runs a group with named barriers. A phase takes sub-groups to a barrier of the work-group, or to a named one.
INLINE void __tally_run_naming(const struct layout *layout, const struct group *group,
                               const struct naming *naming, initialise *initialise,
                               run_exchanging *run) {
  run_phases(layout, group, naming, initialise, run);
}
