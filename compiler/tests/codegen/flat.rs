// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of one size that run as one row: those whose rows are shorter than half a vector, where items wait
//! for each other, and those of several rows with sub-groups.
//!
//! [`same_in_all`] runs such groups also in the form for their size.

use tally_compiler::ir::{Module, Op};
use tally_compiler::widen::{lanes, widen, widen_in};
use tally_compiler_protocol::Form;

use crate::diff::{Input, Run, compare_with, requiring, same_in_all};
use crate::harness::{Arg, Grid, Kernel, clang, module, targets};
use crate::widen::{int, ints, wide};

/// Groups of columns in the second and in the third dimension, of one to five items in a row, that vectors fill and
/// that they do not fill.
const COLUMNS: [[u32; 3]; 12] = [
    [1, 64, 1],
    [1, 100, 1],
    [1, 1, 32],
    [1, 1, 37],
    [2, 64, 1],
    [3, 16, 1],
    [2, 5, 3],
    [5, 13, 1],
    [1, 16, 4],
    [3, 1, 21],
    [1, 7, 1],
    [1, 2, 1],
];

/// Two groups in each dimension, of which the last ones may be partial.
fn grids(group: [u32; 3]) -> [Grid; 2] {
    let grid = |less: [u64; 3]| {
        let global = std::array::from_fn(|d| 2 * u64::from(group[d]) - less[d]);
        Grid { offset: [3, 50, 700], global, group }
    };
    [grid([0; 3]), grid(group.map(|n| u64::from(n) / 3))]
}

fn volume(grid: Grid) -> i32 {
    grid.global.iter().product::<u64>() as i32
}

/// Launches of all such groups, with an output, an input and local memory for a number of each item.
fn runs() -> Vec<Run> {
    let run = |grid: Grid| {
        let (n, local) = (volume(grid), 4 * grid.group.iter().product::<u32>() as usize);
        (grid, vec![ints(n, |_| -1), ints(n, |i| i * 29 % 1013), Input::Local(local)])
    };
    COLUMNS.into_iter().flat_map(grids).map(run).collect()
}

/// What a kernel begins with: an item's place in the launch and in the group, from its ids alone.
const PLACE: &str = "
  int nx = get_local_size(0), ny = get_local_size(1), nz = get_local_size(2), n = nx * ny * nz;
  int x = get_local_id(0), y = get_local_id(1), z = get_local_id(2), l = (z * ny + y) * nx + x;
  int gx = get_global_id(0) - 3, gy = get_global_id(1) - 50, gz = get_global_id(2) - 700;
  int at = (gz * (int)get_global_size(1) + gy) * (int)get_global_size(0) + gx;
";

fn placed(body: &str) -> Module {
    wide(&format!(
        "kernel void k(global int *out, global const int *in, local int *t) {{ {PLACE} {body} }}"
    ))
}

/// A tree of sums in local memory, as in oneMKL's product of a matrix and a vector.
#[test]
fn columns_add_up_in_local_memory() {
    let module = placed(
        "int sum = 0;
         for (int k = 0; k <= y % 5; k++) sum += in[at] * (k + x);
         t[l] = sum;
         barrier(CLK_LOCAL_MEM_FENCE);
         for (int step = 512; step > 0; step /= 2) {
           if (l < step && l + step < n) t[l] += t[l + step];
           barrier(CLK_LOCAL_MEM_FENCE);
         }
         out[at] = t[0] + 3 * x + 5 * y + 7 * z + 11 * gx + 13 * gy + 17 * gz;",
    );
    same_in_all(&module, "k", &runs());
}

/// All that a launch tells an item about itself, private memory, and branches that items take apart.
#[test]
fn columns_know_their_place() {
    let module = placed(
        "int p[4] = {1, 2, 3, 4};
         t[n - 1 - l] = in[at] + (int)get_local_linear_id() + 3 * (int)get_global_linear_id();
         for (int k = 0; k < (in[at] & 7); k++) p[(k + y) & 3] += k;
         barrier(CLK_LOCAL_MEM_FENCE);
         int sum = t[l] + p[in[at] & 3];
         if (y & 1) sum += 5 * t[(l + nx) % n];
         for (uint d = 0; d < 3; d++)
           sum = sum * 31 + get_local_id(d) + 17 * get_global_id(d) + 5 * get_group_id(d)
             + 7 * get_local_size(d) + 11 * get_enqueued_local_size(d) + 13 * get_num_groups(d)
             + 19 * get_global_size(d) + 23 * get_global_offset(d);
         barrier(CLK_LOCAL_MEM_FENCE);
         atomic_add(&t[l / 2], sum & 1023);
         barrier(CLK_LOCAL_MEM_FENCE);
         out[at] = sum + t[l];",
    );
    same_in_all(&module, "k", &runs());
}

/// Some items leave before the barriers, and others wait in a loop that differs from group to group.
#[test]
fn items_of_columns_part_at_barriers() {
    let module = placed(
        "t[l] = in[at];
         if (at % 7 == 3) return;
         int sum = 0;
         for (int k = 0; k < 3 + (int)get_group_id(1); k++) {
           barrier(CLK_LOCAL_MEM_FENCE);
           int other = t[l];
           barrier(CLK_LOCAL_MEM_FENCE);
           t[l] = other + k;
           sum = 3 * sum + other;
           if (y > 2 * k) sum ^= x;
         }
         out[at] = sum;",
    );
    same_in_all(&module, "k", &runs());
}

/// Items reduce and scan in their order in the group, and a broadcast finds an item by its place.
#[test]
fn columns_exchange_values() {
    let module = placed(
        "int v = in[at];
         long sum = work_group_reduce_add((long)v) + 3 * work_group_reduce_max(v);
         sum += 5 * work_group_scan_inclusive_add(v) + 7 * work_group_scan_exclusive_add(v);
         sum += 11 * work_group_broadcast(v, nx - 1, ny / 2, nz / 3);
         out[at] = sum + work_group_all(v > 3) + 2 * work_group_any(v > 900);",
    );
    same_in_all(&module, "k", &runs());
}

/// An operation of the group in a loop over the first dimension: as it seems, items of a row leave it at different
/// times. Those of a column do not.
const ROWS: &str = "
kernel void rows(global int *out, global const int *in, int n, int m) {
  for (long i = get_global_id(0); i < n; i += get_global_size(0)) {
    int sum = 0;
    for (long k = get_local_id(1); k < m; k += get_local_size(1)) sum += in[i * m + k] * (int)(k + 1);
    sum = work_group_reduce_add(sum);
    if (get_local_id(1) == 0) out[i] = sum;
  }
}";

#[test]
fn kernels_that_only_run_columns_in_vectors_do() {
    let module = module(&clang::compile_text(ROWS, &["-O2", "-w"]));
    let kernel = &module.kernels[0];
    let refused = widen(&module, kernel, lanes(kernel)).expect_err("items of a row part");
    assert!(refused.to_string().contains("parted"), "{refused}");
    let grid = |group: [u32; 3]| Grid {
        offset: [0; 3],
        global: [3 * u64::from(group[0]), group[1].into(), group[2].into()],
        group,
    };
    let runs = [[1, 128, 1], [1, 50, 1]].map(|group| {
        (grid(group), vec![ints(40, |_| -1), ints(40 * 70, |i| i * 29 % 1013), int(40), int(70)])
    });
    same_in_all(&module, "rows", &runs);
    for target in targets() {
        let usual = Kernel::in_form(&module, "rows", &target, Form::Usual).expect("it is a kernel");
        let others = usual.code.uneven.expect("it may have other forms");
        assert_eq!(others.form([20, 1, 1]), Form::Usual);
        for (grid, inputs) in &runs {
            let form = others.form(grid.group);
            assert_eq!(form, Form::Sized(grid.group));
            let kernel = Kernel::in_form(&module, "rows", &target, form).expect("it has that form");
            assert_eq!(kernel.code.remark, "");
            let run = (*grid, inputs.clone());
            compare_with(&kernel, &module, "rows", &[run]).unwrap_or_else(|how| panic!("{how}"));
        }
    }
}

/// Code for a size runs all other groups too.
#[test]
fn a_form_for_a_size_runs_all_groups() {
    let module = placed(
        "t[l] = in[at];
         barrier(CLK_LOCAL_MEM_FENCE);
         out[at] = t[n - 1 - l] + 3 * x + 5 * y + nx;",
    );
    for target in targets() {
        for size in [[1, 64, 1], [1, 7, 1]] {
            let kernel = Kernel::in_form(&module, "k", &target, Form::Sized(size));
            let kernel = kernel.expect("it has that form");
            compare_with(&kernel, &module, "k", &runs()).unwrap_or_else(|how| panic!("{how}"));
        }
    }
}

/// Items of a vector see what others have written without waiting for it. No specification promises that.
#[test]
fn columns_run_in_vectors() {
    let module = placed(
        "volatile local int *seen = t;
         out[at] = 0;
         barrier(CLK_LOCAL_MEM_FENCE);
         seen[l] = 3 * l;
         out[at] = seen[l ^ 1];",
    );
    let usual = widen_in(&module, &module.kernels[0], 16, false, Form::Usual).expect("it is plain");
    let others = usual.left_out.expect("it requires no size");
    for size in [[1, 64, 1], [1, 1, 32], [2, 64, 1], [3, 16, 1], [1, 36, 1]] {
        assert_eq!(others.form(size), Form::Sized(size));
        let n = size.iter().product::<u32>() as usize;
        for target in targets() {
            let kernel = Kernel::in_form(&module, "k", &target, Form::Sized(size));
            let kernel = kernel.expect("it has that form");
            let (mut out, mut input) = (vec![0; 4 * n], vec![0; 4 * n]);
            let grid = Grid { offset: [3, 50, 700], global: size.map(u64::from), group: size };
            let args = vec![Arg::Buffer(&mut out), Arg::Buffer(&mut input), Arg::Local(4 * n)];
            kernel.run(grid, args);
            for (l, x) in (0i32..).zip(out.chunks(4)) {
                assert_eq!(x, (3 * (l ^ 1)).to_le_bytes(), "{l} of {size:?} for {}", target.name);
            }
        }
    }
}

/// In a column an item's ids are 0 and its number, so it loads and stores neighbours, as in a row.
#[test]
fn columns_access_neighbours() {
    let module = placed(
        "size_t i = get_global_id(1);
         t[l] = in[i];
         barrier(CLK_LOCAL_MEM_FENCE);
         out[i] = t[n - 1 - l];",
    );
    for (size, gathers) in [([1, 64, 1], false), ([1, 128, 1], false), ([3, 64, 1], true)] {
        let module = requiring(&module, size);
        let widened = widen(&module, &module.kernels[0], 16).expect("it is plain");
        assert!(widened.flat);
        let function = &widened.module.functions[widened.function];
        let mut insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
        assert_eq!(insts.any(|inst| matches!(inst.op, Op::Scatter(..))), gathers, "{size:?}");
    }
}

/// Groups whose rows are parts of vectors, with sub-groups: each row is an access of its own where its items' data lie
/// side by side. Branches leave parts out, or the first items of parts; both rows write one place; a loop moves an
/// address on; values have several components.
#[test]
fn rows_that_are_parts_of_a_vector_are_accessed_one_by_one() {
    let module = module(&clang::compile_text(
        "kernel void k(global int *out, global const int *in, global const short4 *wide, global char *bytes,
                       local int *t, int n) {
           int nx = get_local_size(0), ny = get_local_size(1), nz = get_local_size(2);
           int x = get_local_id(0), y = get_local_id(1), z = get_local_id(2), l = (z * ny + y) * nx + x;
           int row = get_group_id(0) * ny * nz + z * ny + y, at = row * nx + x;
           int sum = in[at] + 3 * in[x] + 5 * in[y * nz + z] + sub_group_broadcast(x, 5);
           short4 w = wide[at];
           sum += w.x + 7 * w.y + 11 * w.z + 13 * w.w + wide[x].y;
           if (in[at] % 3 != 0) sum += 17 * in[at + n];
           if (x > 2) sum += 19 * in[row * nx + x - 2];
           if (y & 1) sum += 23 * in[at];
           const global int *moving = in + at;
           for (int k = 0; k < 5; k++, moving += n) sum = 3 * sum + *moving;
           t[x] = 0;
           barrier(CLK_LOCAL_MEM_FENCE);
           t[x] = l;
           barrier(CLK_LOCAL_MEM_FENCE);
           bytes[at] += sum + t[x];
           if (x != 0) out[at] = sum + t[nx - 1 - x];
           if (x == 0 && (y & 1)) out[at] = sum;
         }",
        &["-O2", "-w", "-Xclang", "-cl-ext=+all"],
    ));
    let runs = [[8, 8, 1], [4, 4, 4], [1, 8, 4], [8, 5, 1], [4, 11, 1], [6, 8, 1]].map(|group| {
        let n = group.iter().product::<u32>() as i32;
        let grid = Grid { offset: [0; 3], global: group.map(|n| 2 * u64::from(n)), group };
        let inputs = vec![
            ints(8 * n, |_| -1),
            ints(24 * n, |i| i * 29 % 1013),
            ints(16 * n, |i| i * 1_000_003),
            ints(2 * n, |i| i * 77),
            Input::Local(4 * n as usize),
            int(n),
        ];
        (Grid { global: [grid.global[0], group[1].into(), group[2].into()], ..grid }, inputs)
    });
    same_in_all(&module, "k", &runs);
    for (size, wanted) in [([8, 8, 1], 8), ([4, 4, 4], 4), ([1, 8, 4], 8), ([6, 8, 1], 16)] {
        let module = requiring(&module, size);
        let widened = widen(&module, &module.kernels[0], 16).expect("it has a broadcast");
        let function = &widened.module.functions[widened.function];
        let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
        let parts: Vec<u32> = insts
            .filter_map(|inst| match inst.op {
                Op::InLine(.., part) => Some(part),
                _ => None,
            })
            .collect();
        assert!(parts.len() > 8 && parts.iter().all(|&part| part == wanted), "{size:?}: {parts:?}");
    }
}

/// Where an index of a shuffle depends on nothing but the item's number in its sub-group, also in another block, no
/// memory is needed.
#[test]
fn shuffles_by_the_number_of_an_item_take_no_memory() {
    let module = module(&clang::compile_text(
        "kernel void k(global int *out, int n) {
           size_t i = get_global_linear_id();
           int part = get_sub_group_local_id() / 8 * 8, v = out[i], sum = 0;
           for (int k = 0; k < n; k++) {
             sum += 3 * sub_group_shuffle(v + k, part) + 5 * sub_group_shuffle(v ^ k, part + 3);
             sum ^= sub_group_shuffle_xor(sum, 9u);
           }
           out[i] = sum;
         }",
        &["-O2", "-w", "-Xclang", "-cl-ext=+all"],
    ));
    let widened = widen(&module, &module.kernels[0], 16).expect("it has shuffles");
    assert!(widened.module.functions[widened.function].variables.is_empty());
    let runs = [[64, 1, 1], [40, 1, 1], [8, 8, 1], [8, 3, 1]].map(|group| {
        let grid = Grid { offset: [0; 3], global: group.map(u64::from), group };
        (grid, vec![ints(volume(grid), |i| i * 77), int(5)])
    });
    same_in_all(&module, "k", &runs);
}
