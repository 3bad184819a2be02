// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of a launch's groups.
//!
//! The device counts groups with the first dimension fastest, and a thread takes many that follow one another.
//! If a kernel's vectors lie in another dimension, so do its neighbours in memory; then the group of a number is
//! the one that has this number when that dimension counts fastest:
//!
//! ```text
//!   device         0 1 2       kernel         0 2 4
//!                  3 4 5                      1 3 5
//! ```
//!
//! Each number is another group, so all run, each once, whatever order the device takes.

use super::context::{GLOBAL_SIZE, GROUP, GROUP_SIZE, NUM_GROUPS};

/// The size of `GroupContext`.
const CONTEXT: u32 = 48;

/// The function that the device calls, if groups of at least `least` items in dimension `axis` run in its
/// order: it calls `inner` with a context of its own. `small` computes `%launch` and `%small`, without which no
/// group runs in vectors. (`inner` must not be inlined, since it takes its context as constant.)
///
/// All of a launch's groups must decide alike: what is asked here is the same for all. Groups that the device
/// leaves out, since they lie beyond the global size, would move; so where there are any, the order stays.
pub(super) fn along(head: &str, inner: &str, axis: u8, least: u32, small: &str) -> String {
    let mut text = format!("{head}  %own = alloca [{CONTEXT} x i8], align 16\n{small}");
    for d in 0..3 {
        let words = [
            ("id", "%ctx", GROUP + 4 * d),
            ("count", "%launch", NUM_GROUPS + 4 * d),
            ("size", "%launch", GROUP_SIZE + 4 * d),
        ];
        for (what, base, offset) in words {
            text += &format!(
                "  %{what}{d}.at = getelementptr inbounds i8, ptr {base}, i64 {offset}
  %{what}{d}.word = load i32, ptr %{what}{d}.at, align 4
  %{what}{d} = zext i32 %{what}{d}.word to i64
"
            );
        }
        let global = GLOBAL_SIZE + 8 * d;
        text += &format!(
            "  %global{d}.at = getelementptr inbounds i8, ptr %launch, i64 {global}
  %global{d} = load i64, ptr %global{d}.at, align 8
  %before{d} = sub i64 %count{d}, 1
  %full{d} = mul i64 %before{d}, %size{d}
  %all{d} = icmp ult i64 %full{d}, %global{d}
"
        );
    }
    // The dimensions in the order in which they count now.
    let [first, second, third] = match axis {
        1 => [1, 0, 2],
        _ => [2, 1, 0],
    };
    text += &format!(
        "  %long = icmp uge i64 %size{axis}, {least}
  %all01 = and i1 %all0, %all1
  %all = and i1 %all01, %all2
  %goes = and i1 %small, %long
  %turns = and i1 %goes, %all
  br i1 %turns, label %turn, label %as.it.is
turn:
  %rows = mul i64 %id2, %count1
  %row = add i64 %rows, %id1
  %before = mul i64 %row, %count0
  %number = add i64 %before, %id0
  %in{first} = urem i64 %number, %count{first}
  %rest = udiv i64 %number, %count{first}
  %in{second} = urem i64 %rest, %count{second}
  %in{third} = udiv i64 %rest, %count{second}
  call void @llvm.memcpy.inline.p0.p0.i64(ptr align 16 %own, ptr align 8 %ctx, i64 {GROUP}, i1 false)
"
    );
    for d in 0..3 {
        text += &format!(
            "  %in{d}.word = trunc i64 %in{d} to i32
  %in{d}.at = getelementptr inbounds i8, ptr %own, i64 {}
  store i32 %in{d}.word, ptr %in{d}.at, align 4
",
            GROUP + 4 * d
        );
    }
    text + &format!(
        "  call void @{inner}(ptr %own)
  ret void
as.it.is:
  call void @{inner}(ptr %ctx)
  ret void
}}
"
    )
}
