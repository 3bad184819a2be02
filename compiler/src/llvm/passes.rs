// SPDX-License-Identifier: MIT OR Apache-2.0
//! The passes of LLVM that kernels go through.
//!
//! LLVM's own list for `-O2` is made for C++: it simplifies each function before and after inlining, looks for
//! vectors, and tries again what seldom finds more. What is lowered here is a few functions that Tally has
//! optimised already, and its vectors are there. So vectors of items go through one round of simplification, one
//! of loops, one of unrolling. compiler/docs/speed.md has the figures.
//!
//! Lists with and without these passes were compared by the kernels of `scripts/bench kernels`. Without `sccp`
//! two kernels with barriers took 1.08 and 1.14 times as long, since it follows the number of the region at
//! which an item goes on; without `loop-unroll` `transpose` took 1.13 times, `polynomial` 1.06 times as long.
//! Without `deadargelim` loops over items have up to 34 instructions more, and without `correlated-propagation`
//! the guards of masked loads are longer. `slp-vectorizer`, `memcpyopt` and `adce` changed nothing, and
//! with `jump-threading` `scan` took 1.06 times as long.

use super::Level;
use crate::lower::{ENTRY, Work};

/// Functions in their places, and nothing that is not called or passed for nothing.
const INLINING: &str =
    "always-inline,inferattrs,cgscc(inline,function-attrs),globaldce,deadargelim";

/// The first round.
const FIRST: &str = "sroa<modify-cfg>,early-cse<memssa>,simplifycfg<switch-range-to-icmp>,\
    instcombine<no-verify-fixpoint>,reassociate";

/// Loops: what does not change leaves them, branches on that become branches around them, counters get one form,
/// and those that turn a few times are written out.
const LOOPS: &str = "loop-mssa(loop-instsimplify,loop-simplifycfg,licm<no-allowspeculation>,loop-rotate,\
    licm<allowspeculation>,simple-loop-unswitch<no-nontrivial;trivial>),simplifycfg<switch-range-to-icmp>,\
    instcombine<no-verify-fixpoint>,loop(loop-idiom,indvars,loop-deletion,loop-unroll-full),sroa<modify-cfg>";

/// The same for code whose only loops are those over items, which the lowering has rotated.
const ITEM_LOOPS: &str = "loop-mssa(licm<allowspeculation>)";

/// Vectors instead of loops over the components of vectors.
const COMPONENTS: &str = "loop-vectorize<no-interleave-forced-only;no-vectorize-forced-only;>";

/// The second round, with what is left of the first one's and of the loops' results.
const SECOND: &str = "vector-combine,gvn,sccp,bdce,instcombine<no-verify-fixpoint>,\
    correlated-propagation,dse,loop-mssa(licm<allowspeculation>),simplifycfg<forward-switch-cond;\
    switch-range-to-icmp;switch-to-arithmetic;switch-to-lookup;no-keep-loops;hoist-common-insts;sink-common-insts>";

/// Several rounds of a loop in one. What is simple only then, since a value has lost its last other use, takes a
/// second look: steps of a checksum are two instructions for each bit then, and not three.
const UNROLLING: &str =
    "loop-unroll<O2>,instcombine<max-iterations=2;no-verify-fixpoint>,loop-sink";

/// What instruction selection wants.
const LAST: &str = "div-rem-pairs,simplifycfg";

/// What no code for vectors does without. LLVM 22's instruction selection makes the upper halves of 32-bit products with
/// ones shifts by 32 bits, which are undefined, if nothing before it has found out that the factors are ones
/// (`visitMULHU` in DAGCombiner.cpp tests that for scalars alone).
const FACTS: &str = "instcombine<no-verify-fixpoint>";

/// The passes for a kernel, as LLVM reads them.
pub(super) fn list(work: Work, level: Level) -> String {
    let own = match (level, work) {
        (Level::None, Work::Items) => "default<O0>".to_owned(),
        (Level::None, _) => format!("default<O0>,function({FACTS})"),
        (Level::Little, _) => "default<O1>".to_owned(),
        (Level::Full, Work::Items) => "default<O2>".to_owned(),
        (Level::Full, Work::Vectors) => around(&[FIRST, LOOPS, SECOND, UNROLLING, LAST]),
        (Level::Full, Work::Components) => {
            around(&[FIRST, LOOPS, COMPONENTS, SECOND, UNROLLING, LAST])
        }
        (Level::Full, Work::Straight) => around(&[FIRST, ITEM_LOOPS, SECOND, LAST]),
    };
    format!("internalize<preserve-gv={ENTRY}>,globaldce,{own}")
}

/// Inlining before, and what is not called any more goes after, passes of a function.
fn around(passes: &[&str]) -> String {
    format!("{INLINING},function<eager-inv>({}),globaldce", passes.join(","))
}
