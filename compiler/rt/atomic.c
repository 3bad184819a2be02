// SPDX-License-Identifier: MIT OR Apache-2.0
// Relaxed atomic minimum and maximum. Most updates change nothing once some items have been there, and an
// update that changes nothing is a load: it needs no cache line of its own.

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
