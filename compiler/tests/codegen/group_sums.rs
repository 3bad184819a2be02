// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions and scans of a work-group among its vectors: each vector combines its value with those of the vectors
//! before it where all surely stop at the same places.

use tally_compiler::ir::Module;
use tally_compiler::lower;
use tally_compiler::widen::widen;

use crate::diff::{Run, same_in_all};
use crate::harness::{Grid, clang, module};
use crate::widen::ints;

fn compiled(body: &str) -> Module {
    let options = ["-O2", "-w", "-Xclang", "-cl-ext=+all"];
    module(&clang::compile_text(
        &format!(
            "#pragma OPENCL EXTENSION cl_khr_fp16 : enable
             kernel void k(global int *p, global const int *q) {{
               size_t i = get_global_linear_id(), n = get_global_size(0);
               int x = q[i], l = get_local_linear_id();
               size_t m = get_local_size(0) * get_local_size(1) * get_local_size(2);
               {body} }}"
        ),
        &options,
    ))
}

/// The lowered form of whole vectors.
fn lowered(module: &Module) -> String {
    let widened = widen(module, &module.kernels[0], 16).expect("a plain kernel");
    lower::lower_widened(&widened, &module.kernels[0]).expect("a small kernel").text
}

/// Kernels in which vectors make sums on their way.
const ALONE: [&str; 10] = [
    "p[i] = work_group_reduce_add(x) + l;",
    "p[i] = work_group_scan_exclusive_add(x) * 3 + work_group_scan_inclusive_max(x);",
    // Sums that follow from each other, of several types.
    "for (int k = 0; k < 3; k++) {
       long a = work_group_reduce_add((long)x << 20);
       short b = work_group_reduce_min((short)(x + a));
       x = work_group_scan_exclusive_add(x ^ (int)a) + b + work_group_reduce_max(x);
     }
     p[i] = x;",
    // One sum again and again: a vector adds to the next one while others have not read the last one yet.
    "for (int k = 0; k < 3 + (int)get_group_id(0); k++) x += work_group_reduce_add(x & (k + l));
     p[i] = x;",
    // A sum that decides whether there is another one.
    "int turns = 0;
     while (work_group_any(x > 40) && turns < 9) { x -= work_group_reduce_max(x) / 2; turns++; }
     p[i] = x * 16 + turns;",
    // Barriers between sums, and what is kept across them.
    "local int t[512];
     t[l] = x; int a = work_group_reduce_add(x & 7);
     barrier(CLK_LOCAL_MEM_FENCE);
     x += t[a % m]; int b = work_group_reduce_add(x);
     barrier(CLK_LOCAL_MEM_FENCE);
     t[l] = b + l; barrier(CLK_LOCAL_MEM_FENCE);
     p[i] = t[m - 1 - l] * 3 + a + work_group_all(x > b);",
    "if (get_group_id(0) & 1) p[i] = work_group_reduce_add(x); else p[i] = work_group_reduce_max(x) + 1;",
    "double a = work_group_reduce_add((double)x), b = work_group_scan_inclusive_add((double)l);
     p[i] = (int)(a * 4 + b);",
    "float a = work_group_reduce_max((float)x); half h = work_group_reduce_min((half)(x & 15));
     p[i] = (int)a * 32 + (int)h;",
    "uchar a = work_group_reduce_add((uchar)x); ulong b = work_group_reduce_max((ulong)x << 33);
     p[i] = a + (int)(b >> 33) * 256 + work_group_scan_exclusive_min(x) * 7;",
];

/// One in which they look at each other's values, since one item's value is passed on.
const TOGETHER: &str = "p[i] = work_group_reduce_add(x) + work_group_broadcast(x, 0, 0, 0);";

#[test]
fn vectors_sum_up_on_their_way() {
    for body in ALONE {
        let text = lowered(&compiled(body));
        assert!(text.contains("@tally.sum."), "{body}\n{text}");
    }
    assert!(!lowered(&compiled(TOGETHER)).contains("@tally.sum."));
}

#[test]
fn sums_are_those_of_all_items() {
    // Whole vectors, uneven rows, several rows, columns, and parts of groups.
    let groups = [[64, 1, 1], [16, 4, 1], [20, 2, 2], [1, 48, 1], [40, 1, 1], [8, 8, 1]];
    let runs: Vec<Run> = groups
        .into_iter()
        .map(|group| {
            let global = [u64::from(group[0]) * 2, u64::from(group[1]), u64::from(group[2])];
            let items = global.iter().product::<u64>() as i32;
            let q = ints(items, |i| (i * 37 + i / 5) % 101);
            (Grid { offset: [0; 3], global, group }, vec![ints(items, |_| -1), q])
        })
        .collect();
    for body in ALONE.iter().chain([&TOGETHER]) {
        same_in_all(&compiled(body), "k", &runs);
    }
}
