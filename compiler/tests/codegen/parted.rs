// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barriers behind tests that seem to part the items of a vector. In valid programs they do not; in all others every
//! item still runs all of its code.

use tally_compiler::ir::Module;
use tally_compiler::widen::widen;
use tally_compiler_protocol::Form;

use crate::diff::{Input, Run, compare_with, same_in_all};
use crate::harness::{Grid, Kernel, targets};
use crate::widen::{int, ints, wide};

/// A kernel that runs in vectors agrees with the interpreter in its usual form and in the one for uneven rows.
fn same(module: &Module, name: &str, runs: &[Run]) {
    let kernel = module.kernel(name).expect("it is there").1;
    widen(module, kernel, 16).expect("its barriers do not matter");
    same_in_all(module, name, runs);
    for target in targets() {
        for form in [Form::Usual, Form::Uneven] {
            let kernel = Kernel::in_form(module, name, &target, form).expect("it has both forms");
            compare_with(&kernel, module, name, runs).unwrap_or_else(|how| panic!("{how}"));
        }
    }
}

fn grid(groups: u64, group: [u32; 3]) -> Grid {
    let global = [groups * u64::from(group[0]), u64::from(group[1]), u64::from(group[2])];
    Grid { offset: [0; 3], global, group }
}

/// Groups of whole and of uneven rows.
const GROUPS: [[u32; 3]; 5] = [[32, 1, 1], [64, 1, 1], [16, 4, 1], [20, 1, 1], [10, 3, 2]];

/// `if (i >= n) return;` in front of barriers: most kernels that reduce begin so. Where `n` is within a group, those
/// that are left wait for each other.
#[test]
fn items_out_of_range_leave_before_barriers() {
    let module = wide(
        "kernel void early(global int *out, global const int *in, local int *t, int n) {
           int i = get_global_linear_id(), l = get_local_linear_id();
           int size = get_local_size(0) * get_local_size(1) * get_local_size(2);
           t[l] = 0;
           if (i >= n) return;
           t[l] = in[i];
           barrier(CLK_LOCAL_MEM_FENCE);
           int sum = t[l];
           for (int k = 1; k < size; k *= 2) {
             int other = l >= k ? t[l - k] : 0;
             barrier(CLK_LOCAL_MEM_FENCE);
             sum += other;
             t[l] = sum;
             barrier(CLK_LOCAL_MEM_FENCE);
           }
           out[i] = sum;
         }",
    );
    let mut runs = Vec::new();
    for group in GROUPS {
        let grid = grid(3, group);
        let items = grid.global.iter().product::<u64>() as i32;
        let size = items / 3;
        for n in [items, 2 * size, size + size / 2, 5, 0] {
            let local = Input::Local(4 * size as usize);
            runs.push((
                grid,
                vec![ints(items, |_| -1), ints(items, |i| i * 29 % 101), local, int(n)],
            ));
        }
    }
    same(&module, "early", &runs);
}

/// Conditions, and numbers of turns, that are the same for all items of a group but come from memory: a branch with
/// barriers on both sides, and loops around barriers.
#[test]
fn groups_take_one_way_that_is_not_known_to_be_one() {
    let module = wide(
        "kernel void ways(global int *out, global const int *in, local int *t, global const int *turns) {
           int i = get_global_linear_id(), l = get_local_linear_id();
           int size = get_local_size(0) * get_local_size(1) * get_local_size(2);
           int sum = in[i], last = size - 1 - l, mine = turns[i];
           if (mine & 1) {
             t[l] = sum;
             barrier(CLK_LOCAL_MEM_FENCE);
             sum += 3 * t[last];
           } else {
             t[last] = sum + 1;
             barrier(CLK_LOCAL_MEM_FENCE);
             sum ^= t[l];
           }
           for (int k = 0; k < mine; k++) {
             barrier(CLK_LOCAL_MEM_FENCE);
             t[l] = sum + k * (l & 3);
             barrier(CLK_LOCAL_MEM_FENCE);
             if (l & 1) sum += t[last];
             for (int turn = 0; turn < (l & 3); turn++) sum = 5 * sum + turn;
           }
           out[i] = sum;
         }",
    );
    let runs = GROUPS.into_iter().map(|group| {
        let grid = grid(4, group);
        let items = grid.global.iter().product::<u64>() as i32;
        // The groups are one behind the other in the first dimension, so a row has a part of each of them.
        let row = grid.global[0] as i32;
        let group_of = move |i: i32| i % row / (row / 4);
        let (numbers, local) = (ints(items, |i| i * 29 % 101), Input::Local(items as usize));
        (grid, vec![ints(items, |_| -1), numbers, local, ints(items, group_of)])
    });
    same(&module, "ways", &runs.collect::<Vec<_>>());
}

/// Items that reach barriers different numbers of times, or different ones: no item waits without end, and each does
/// all that it has to do.
#[test]
fn items_that_part_at_barriers_all_end() {
    let module = wide(
        "kernel void apart(global int *out, global const int *turns) {
           int i = get_global_linear_id(), sum = 0;
           if (turns[i] % 3 == 0) {
             barrier(CLK_LOCAL_MEM_FENCE);
             sum = 7;
           } else if (turns[i] % 3 == 1) {
             sum = 9;
             barrier(CLK_LOCAL_MEM_FENCE);
             sum *= 2;
             barrier(CLK_LOCAL_MEM_FENCE);
           }
           for (int k = 0; k < turns[i]; k++) {
             sum += k;
             barrier(CLK_LOCAL_MEM_FENCE);
             if (k == 5 && turns[i] & 1) return;
             out[i] += sum;
           }
           out[i] += 1000 * sum;
         }",
    );
    let runs = GROUPS.into_iter().map(|group| {
        let grid = grid(2, group);
        let items = grid.global.iter().product::<u64>() as i32;
        (grid, vec![ints(items, |i| i), ints(items, |i| i * 7 % 13)])
    });
    same(&module, "apart", &runs.collect::<Vec<_>>());
}
