// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What `scripts/bench kernels` measures, by class. Each kernel is what a programmer would write first, with
// no thought of the processor that runs it.

#include "bench/atomics.cl"
#include "bench/bytes.cl"
#include "bench/compute.cl"
#include "bench/divergence.cl"
#include "bench/double.cl"
#include "bench/gather.cl"
#include "bench/half.cl"
#include "bench/integer.cl"
#include "bench/launches.cl"
#include "bench/local.cl"
#include "bench/memory.cl"
#include "bench/private.cl"
#include "bench/subgroups.cl"
