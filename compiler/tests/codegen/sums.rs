// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomic additions that groups sum up before they reach memory.

use tally_compiler::ir::{Module, Op};
use tally_compiler::widen::{lanes, widen};

use crate::diff::{Run, same_in_all};
use crate::harness::{Grid, Kernel, buffer, clang, module, targets};
use crate::widen::{ints, wide};

/// The size of the integers of which groups of a kernel keep sums, if they do, and the number of additions to them.
fn sums(module: &Module) -> (Option<u64>, usize) {
    let kernel = &module.kernels[0];
    let widened = widen(module, kernel, lanes(kernel)).expect("a plain kernel");
    let function = &widened.module.functions[widened.function];
    let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    (widened.sums, insts.filter(|inst| matches!(inst.op, Op::AddLater(..))).count())
}

fn kernel(body: &str) -> Module {
    let text = format!(
        "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
         kernel void k(global int *bins, global long *wide, global const int *x, global int *out) {{
           size_t i = get_global_id(0);
           {body}
         }}"
    );
    module(&clang::compile_text(&text, &["-O2", "-w", "-cl-std=CL2.0"]))
}

/// Groups keep sums if that cannot be observed: nothing follows an addition in its item, its result is unused, it asks
/// for no order, and no item may wait for another one.
#[test]
fn groups_keep_sums_where_that_cannot_be_observed() {
    let is = |body: &str, size: Option<u64>, additions: usize| {
        assert_eq!(sums(&kernel(body)), (size, additions), "{body}");
    };
    let not = |body: &str| is(body, None, 0);
    is("atomic_inc(&bins[x[i]]);", Some(4), 1);
    is("atomic_sub(&bins[x[i]], x[i]);", Some(4), 1);
    is("atom_add(&wide[x[i]], i);", Some(8), 1);
    is("if (x[i] > 0) atomic_add(&bins[x[i]], x[i] * x[i]);", Some(4), 1);
    is("int v = out[i] = x[i]; atomic_inc(&bins[v & 7]); atomic_dec(&bins[v >> 3]);", Some(4), 2);
    is("out[i] = atomic_inc(&bins[x[i]]); atomic_inc(&bins[x[i] + 1]);", Some(4), 1);
    // An addition to one place for all items is one addition of a vector anyway.
    is("atomic_inc(&bins[x[i]]); atomic_inc(bins);", Some(4), 1);
    not("atomic_inc(&bins[i]);");
    not("out[i] = atomic_inc(&bins[x[i]]);");
    not("atomic_inc(&bins[x[i]]); out[i] = x[i];");
    not("atomic_inc(&bins[x[i]]); if (bins[7]) atomic_inc(&bins[x[i] + 8]);");
    not("atomic_inc(&bins[x[i]]); atomic_xchg(&out[x[i]], 1);");
    not("for (int k = 0; k < x[i]; k++) atomic_inc(&bins[x[i + k]]);");
    not("atomic_inc(&bins[x[i]]); atom_inc(&wide[x[i]]);");
    not("atomic_inc(&bins[x[i]]); mem_fence(CLK_GLOBAL_MEM_FENCE);");
    let explicit = |order: &str, scope: &str| {
        format!(
            "atomic_fetch_add_explicit((volatile global atomic_int *)&bins[x[i]], 1, memory_order_{order},
               memory_scope_{scope});"
        )
    };
    is(&explicit("relaxed", "device"), Some(4), 1);
    not(&explicit("acq_rel", "device"));
    not(&explicit("relaxed", "all_svm_devices"));
}

/// All additions of items that run, of both sizes, with few places and with more than there are sums.
#[test]
fn sums_are_those_of_all_items() {
    let text = |ty: &str| {
        format!(
            "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
             kernel void count(global {ty} *bins, global const int *x) {{
               size_t i = get_global_linear_id();
               int v = x[i];
               if (v & 1) atom_add(&bins[v & 63], ({ty})v);
               if (get_global_id(1) & 1) atom_dec(&bins[v]);
               atom_inc(&bins[v * 3]);
             }}"
        )
    };
    for ty in ["int", "long"] {
        let module = wide(&text(ty));
        assert!(sums(&module).0.is_some(), "{ty}");
        let grids = [
            Grid { offset: [0; 3], global: [4096, 1, 1], group: [32, 1, 1] },
            Grid { offset: [0; 3], global: [4090, 1, 1], group: [32, 1, 1] },
            Grid { offset: [3, 1, 0], global: [300, 7, 2], group: [4, 3, 1] },
            Grid { offset: [0; 3], global: [100, 3, 1], group: [100, 1, 1] },
        ];
        for most in [50, 4_000] {
            let runs: Vec<Run> = grids
                .iter()
                .map(|&grid| {
                    let n = grid.global.iter().product::<u64>() as i32;
                    (grid, vec![ints(30_000, |i| i * 17), ints(n + 200, |i| i * 7919 % most)])
                })
                .collect();
            same_in_all(&module, "count", &runs);
        }
    }
}

/// The runs of groups as one in a launch, by what an item sees of the sums: what comes before its run.
fn runs(kernel: &Kernel, group: u32, groups: u64) -> usize {
    let n = groups * u64::from(group);
    let mut x: Vec<i32> = (0..n as i32).map(|i| i & 1).collect();
    let (mut bins, mut out) = ([0i32; 2], vec![-1; n as usize]);
    let grid = Grid { offset: [0; 3], global: [n, 1, 1], group: [group, 1, 1] };
    kernel.run(grid, vec![buffer(&mut bins), buffer(&mut x), buffer(&mut out)]);
    assert_eq!(bins, [n as i32 / 2; 2]);
    out.dedup();
    out.len()
}

/// One group runs the items of all that run as one. Where few groups would be left, and where the device leaves some
/// out, each runs its own.
#[test]
fn groups_run_as_one_where_enough_are_left() {
    let module = wide(
        "kernel void k(global int *bins, global const int *x, global int *out) {
           size_t i = get_global_id(0);
           out[i] = *bins;
           atomic_inc(&bins[x[i]]);
         }",
    );
    for target in targets() {
        let mut kernel = Kernel::new(&module, "k", &target);
        assert_eq!(runs(&kernel, 16, 4096), 64);
        assert_eq!(runs(&kernel, 16, 127), 127);
        assert_eq!(runs(&kernel, 256, 64 * 256), 2 * 64);
        kernel.beyond = [1, 0, 0];
        assert_eq!(runs(&kernel, 16, 256), 256);
    }
}
