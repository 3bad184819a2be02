// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The kernels of `scripts/bench kernels`, by class. Each kernel is what a programmer would write first,
// without optimising it for a processor.

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
