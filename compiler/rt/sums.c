// SPDX-License-Identifier: MIT OR Apache-2.0
// Additions to memory that many groups make, summed up before they reach it.
//
// An atomic addition takes twenty cycles if its cache line is at hand, and hundreds if another processor has just
// written there. A kernel that counts into a few hundred places does little else. Where the kernel cannot
// observe it (`src/widen/sums.rs`), many groups run as one, and the thread that runs them keeps a sum for each place
// that it meets. A place's sum is added to memory when another place needs its room, and all of them at the end.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// PLACES sums are 16 KiB, half of the first-level cache; two places share one if they lie a multiple of so many
// integers apart. GROUPS_LEFT is how many times as many groups there have to be as run as one: all threads have
// work then. Groups run as one as long as they have at most ITEMS items.
enum { PLACES = 1024, ITEMS = 1 << 15, GROUPS_LEFT = 64 };

// How often a sum may be new or make room for another one: so often at first, and for one in so many items more. Of
// items that meet as many places as there are sums, at random, at most 413 more than that one in four are new. Where
// more are, there are too many places for this to help.
enum { PATIENCE = PLACES / 2, ONE_IN = 4 };

// No patience at all: more than a launch's items could ever make up for.
static const int64_t NONE = INT64_MIN / 2;

// Where few items run as one (at most SHORT), most places are new. There, sums are kept only if at least REPEATS of the
// first TRIAL items have met a place again: of items that meet 256 places at random, 7 have, with 1,000 places 2, with
// 4,096 places 0.5.
enum { SHORT = 1 << 12, TRIAL = 64, REPEATS = 2 };

// At the end places are prefetched so many ahead: loads wait for an atomic addition before them, and so the next one
// begins late.
enum { AHEAD = 16 };

// A place in memory, and what is to be added there: nothing if there is no place yet.
struct sum {
  uint64_t at, value;
};

struct sums {
  // How many sums may still be new.
  int64_t patience;
  // How many items are still to be tried, and how many more repeats there have to be.
  int32_t trial, repeats;
  // The sums that are new in the trial.
  uint32_t count;
  uint16_t tried[TRIAL + 64];
  struct sum of[PLACES];
};

// `GroupContext` and `LaunchInfo` of the device's manual; behind the former, the sums.
struct launch {
  uint64_t global_offset[3], global_size[3];
  uint32_t groups[3], group_size[3], more[6];
};

struct context {
  const struct launch *launch;
  const void *args;
  void *local, *scratch;
  uint32_t group[4];
  struct sums *sums;
};

_Static_assert(sizeof(struct launch) == 96, "LaunchInfo");
_Static_assert(offsetof(struct context, sums) == 48, "GroupContext");

#define INLINE __attribute__((always_inline))

#define ADDITIONS(bits, shift)                                                                     \
  static INLINE void add_##bits(uint64_t at, uint64_t value) {                                     \
    __atomic_fetch_add((uint##bits##_t *)at, (uint##bits##_t)value, __ATOMIC_RELAXED);             \
  }                                                                                                \
                                                                                                   \
  /* Adds values to sums, and notes whether places repeat. */                                      \
  static __attribute__((noinline)) void try_##bits(struct sums *sums, const uint64_t *at,          \
                                                   const uint##bits##_t *values, uint32_t items) { \
    for (; items; items &= items - 1, sums->trial--) {                                             \
      uint64_t place = at[__builtin_ctz(items)], value = values[__builtin_ctz(items)];             \
      uint16_t index = (place >> (shift)) % PLACES;                                                \
      struct sum *sum = &sums->of[index];                                                          \
      if (sum->at == place) {                                                                      \
        sum->value += value;                                                                       \
        sums->repeats--;                                                                           \
        continue;                                                                                  \
      }                                                                                            \
      if (sum->value)                                                                              \
        add_##bits(sum->at, sum->value);                                                           \
      *sum = (struct sum){place, value};                                                           \
      sums->tried[sums->count++] = index;                                                          \
    }                                                                                              \
    if (sums->trial > 0 || sums->repeats <= 0)                                                     \
      return;                                                                                      \
    sums->patience = NONE;                                                                         \
    for (uint32_t i = 0; i != sums->count; i++) {                                                  \
      struct sum *sum = &sums->of[sums->tried[i]];                                                 \
      if (sum->value)                                                                              \
        add_##bits(sum->at, sum->value);                                                           \
      sum->value = 0;                                                                              \
    }                                                                                              \
  }                                                                                                \
                                                                                                   \
  /* Adds the values of those of `lanes` items that run, unless it is not worthwhile. */           \
  INLINE bool __tally_add_later_i##bits(struct sums *sums, const uint64_t *at,                     \
                                        const uint##bits##_t *values, uint32_t items,              \
                                        uint32_t lanes) {                                          \
    int64_t patience = sums->patience + lanes / ONE_IN;                                            \
    if (patience <= 0)                                                                             \
      return false;                                                                                \
    if (__builtin_expect(sums->trial > 0, 0)) {                                                    \
      try_##bits(sums, at, values, items);                                                         \
      return true;                                                                                 \
    }                                                                                              \
    for (; items; items &= items - 1) {                                                            \
      uint64_t place = at[__builtin_ctz(items)], value = values[__builtin_ctz(items)];             \
      struct sum *sum = &sums->of[(place >> (shift)) % PLACES];                                    \
      if (__builtin_expect(sum->at == place, 1)) {                                                 \
        sum->value += value;                                                                       \
        continue;                                                                                  \
      }                                                                                            \
      patience--;                                                                                  \
      if (sum->value)                                                                              \
        add_##bits(sum->at, sum->value);                                                           \
      *sum = (struct sum){place, value};                                                           \
    }                                                                                              \
    sums->patience = patience;                                                                     \
    return true;                                                                                   \
  }                                                                                                \
                                                                                                   \
  /* Adds all sums to memory. */                                                                   \
  __attribute__((noinline)) void __tally_add_sums_i##bits(const struct sums *sums) {               \
    for (int i = 0; i != PLACES; i++) {                                                            \
      __builtin_prefetch((const void *)sums->of[(i + AHEAD) % PLACES].at, 1);                      \
      if (sums->of[i].value)                                                                       \
        add_##bits(sums->of[i].at, sums->of[i].value);                                             \
    }                                                                                              \
  }

ADDITIONS(32, 2)
ADDITIONS(64, 3)

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

// Runs rows and planes of a group.
typedef void rows(const struct context *context, int64_t y_first, int64_t y_end, int64_t z_first,
                  int64_t z_end);

typedef void add_sums(const struct sums *sums);

// Runs the first of the groups that run as one, in place of all of them; the others do nothing. All of them decide
// alike: what is asked is the same for all. Groups stay alone if they do not cover the global size.
INLINE void __tally_run_summed(const struct context *context, rows *run, add_sums *end) {
  const struct launch *launch = context->launch;
  struct launch wide = *launch;
  struct context own = *context;
  uint64_t size[3], groups = 1, items = 1;
  for (int d = 0; d != 3; d++) {
    uint64_t full = launch->group_size[d];
    size[d] = least(full, launch->global_size[d] - full * context->group[d]);
    groups *= launch->groups[d];
    items *= full;
  }
  uint64_t many = 1;
  uint64_t row = launch->group_size[0], all = launch->groups[0] * row;
  if (all - row < launch->global_size[0] && launch->global_size[0] <= all) {
    uint64_t most = least(launch->groups[0], least(ITEMS / items, groups / GROUPS_LEFT));
    while (2 * many <= most)
      many *= 2;
    if (own.group[0] % many)
      return;
    own.group[0] /= many;
    wide.group_size[0] *= many;
  }
  struct sums sums;
  sums.patience = PATIENCE;
  sums.trial = many * items > SHORT ? 0 : TRIAL;
  sums.repeats = REPEATS;
  sums.count = 0;
  for (int i = 0; i != PLACES; i++)
    sums.of[i] = (struct sum){0, 0};
  // Null could only be found in the first sum. It has another sum's address at first, so that null is not found.
  sums.of[0].at = 1 << 3;
  own.launch = &wide;
  own.sums = &sums;
  run(&own, 0, size[1], 0, size[2]);
  if (sums.patience > NONE / 2)
    end(&sums);
}
