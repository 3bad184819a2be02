// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers by which the passes decide whether an optimisation is worth its size, each with its
//! measurement (processor time of `scripts/bench kernels` on two processors with AVX-512).

/// The maximum number of iterations of a loop that is unrolled: the 64 rounds of a hash, and the test
/// that ends them. `block_hash` without clang's optimiser, whose arrays become values only in this way,
/// takes 3.8 ms instead of 128; with it, 4.3 either way.
pub(super) const MAX_TURNS: usize = 65;

/// The maximum number of instructions of one unrolled loop: `block_hash` has 1,900. `lattice`, which
/// has 250, takes 2.3 ms instead of 2.8 if clang has not unrolled its loops.
pub(super) const MAX_UNROLLED: usize = 2048;

/// The numbers of instructions and of turns up to which a loop is unrolled in any case, as C compilers do when they
/// optimise. Loops of more turns may load much, and prefetch what later vectors load.
pub(super) const MAX_SHORT: usize = 150;
pub(super) const MAX_SHORT_TURNS: usize = 16;

/// The maximum number of instructions of all unrolled loops of a kernel: three large ones. Code of this
/// size takes LLVM a second for each width.
pub(super) const MAX_UNROLLED_IN_ALL: usize = 6144;

/// The maximum number of blocks of a loop that is unrolled, if that does not make it run once: complex products have 31,
/// for their exact cases. With two loops of these in eight turns each, a scan of dpnp's took 1.0 s to build, and takes 0.6 s.
/// A loop with a shorter form of these cases takes 0.86 of the time unrolled.
pub(super) const MAX_UNROLLED_BLOCKS: usize = 24;

/// The largest private variable, in bytes, whose elements are worth a value each: 8 times as many
/// registers as there are.
pub(super) const MAX_ELEMENTS_BYTES: u64 = 1024;

/// The maximum number of instructions of a strip: of a loop's body, as many times as 16 bytes have elements. The
/// largest of 16 turns that was measured, a maximum of bytes, has 128 and takes 0.2 of the time; a distance from
/// a centre, in floats, 0.7.
pub(crate) const MAX_STRIP: usize = 384;

/// The maximum number of blocks of a strip beyond those of a loop of one block: of a loop's blocks but one, as many times
/// as 16 bytes have elements. Two branches in each of 16 turns have 96: sums of bytes in their ways take 0.55 of the time,
/// and twice as long to build.
pub(crate) const MAX_STRIP_BLOCKS: usize = 96;

/// The maximum number of instructions of a loop that is taken apart at a condition on its counter, and of such
/// conditions in a kernel. Each takes the loop's code once more. Sums of the last 8 numbers take 0.55 of the time that they
/// take with the condition in each turn.
pub(crate) const MAX_SPLIT: usize = 96;
pub(crate) const MAX_SPLITS: usize = 3;

/// The maximum number of tests of addresses in front of a strip. `y[i] += a[i * n + k] * x[k]`, which has one that
/// differs from strip to strip, takes 0.92 of the time in strips.
pub(crate) const MAX_STRIP_TESTS: usize = 4;

/// The least number of elements in 16 bytes that are loaded as one from places that were just found out. A `float4`
/// at an index that was read takes 0.8 of the time then, a `short8` and a `uchar16` 0.23, but a `double2` 1.2.
pub(crate) const LEAST_APART: u64 = 4;

/// The maximum number of instructions that all copies of a function of the run-time library have in a kernel. Scans of
/// dpnp's that add logarithms call `log1p` in 152 places, unrolled and in two forms: they took 1.3 s to build, and take
/// 0.78 s. Where the copies would have as many as this, a kernel takes 1.05 times as long with calls.
pub(crate) const MAX_INLINED: usize = 2500;
