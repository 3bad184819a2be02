// SPDX-License-Identifier: MIT OR Apache-2.0
// Relaxed atomic minimum and maximum. After some items have updated the location, most updates change
// nothing, and such an update is only a load: it does not need the cache line exclusively.

#include <stdbool.h>
#include <stdint.h>

#define EXTREME(name, type, beats)                                                                 \
  type __tally_atomic_##name(type *at, type value) {                                               \
    type old = __atomic_load_n(at, __ATOMIC_RELAXED);                                              \
    while (value beats old && !__atomic_compare_exchange_n(at, &old, value, true,                  \
                                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED))    \
      ;                                                                                            \
    return old;                                                                                    \
  }

EXTREME(min_i32, int32_t, <)
EXTREME(min_i64, int64_t, <)
EXTREME(umin_i32, uint32_t, <)
EXTREME(umin_i64, uint64_t, <)
EXTREME(max_i32, int32_t, >)
EXTREME(max_i64, int64_t, >)
EXTREME(umax_i32, uint32_t, >)
EXTREME(umax_i64, uint64_t, >)
