// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups whose rows do not consist of whole vectors: the last vector of a row has fewer items, and the
//! missing ones have no effect.

use tally_compiler::ir::{Module, Op};
use tally_compiler::widen::{Rows, widen, widen_in};
use tally_compiler_protocol::Form;

use crate::diff::{Input, compare_with, same_in_all};
use crate::golden::golden;
use crate::guarded::Guarded;
use crate::harness::{Arg, Grid, Kernel, clang, module, targets, widths};
use crate::widen::{int, ints, wide};

/// Sizes of groups: with a part of a vector in each row, with one item behind whole vectors, shorter
/// than a quarter of a vector, and a column.
const GROUPS: [[u32; 3]; 9] = [
    [10, 10, 1],
    [100, 1, 1],
    [17, 3, 2],
    [33, 2, 1],
    [5, 4, 3],
    [1, 64, 1],
    [31, 1, 2],
    [4, 4, 1],
    [3, 2, 1],
];

/// A launch of two groups in each dimension, of which the last ones may be partial.
fn grid(group: [u32; 3], less: [u64; 3]) -> Grid {
    let global = std::array::from_fn(|d| 2 * u64::from(group[d]) - less[d]);
    Grid { offset: [0; 3], global, group }
}

fn volume(grid: Grid) -> i32 {
    grid.global.iter().product::<u64>() as i32
}

/// The launches for a size of groups: whole, and with edges.
fn grids(group: [u32; 3]) -> [Grid; 2] {
    let less = group.map(|n| u64::from(n) / 3);
    [grid(group, [0; 3]), grid(group, less)]
}

/// After divergent code, only the items of a vector that exist write: a tile of a stencil, with private
/// memory, a divergent loop and a store between barriers.
#[test]
fn tiles_of_any_size_are_exchanged_at_barriers() {
    let module = wide(
        "kernel void tile(global int *out, global const int *in, local int *t) {
           size_t nx = get_local_size(0), ny = get_local_size(1), nz = get_local_size(2);
           size_t x = get_local_id(0), y = get_local_id(1), z = get_local_id(2);
           size_t at = get_global_linear_id(), l = get_local_linear_id();
           int p[4] = {1, 2, 3, 4};
           t[l] = in[at];
           barrier(CLK_LOCAL_MEM_FENCE);
           int sum = t[l];
           if (x > 0) sum += 3 * t[l - 1];
           if (x < nx - 1) sum += 5 * t[l + 1];
           if (y > 0) sum += 7 * t[l - nx];
           if (y < ny - 1) sum += 11 * t[l + nx];
           for (int k = 0; k < (sum & 7); k++) p[(k + x) & 3] += sum;
           barrier(CLK_LOCAL_MEM_FENCE);
           t[nx * ny * nz - 1 - l] = sum + p[sum & 3];
           barrier(CLK_LOCAL_MEM_FENCE);
           out[at] = t[l] - p[z & 3];
         }",
    );
    let runs = GROUPS.iter().flat_map(|&group| grids(group)).map(|grid| {
        let (n, local) =
            (volume(grid), Input::Local(4 * grid.group.iter().product::<u32>() as usize));
        (grid, vec![ints(n, |_| -1), ints(n, |i| i * 29 % 1013), local])
    });
    same_in_all(&module, "tile", &runs.collect::<Vec<_>>());
}

/// Atomics on the same place and on different places are executed once by each item that exists, and so
/// are volatile accesses.
#[test]
fn what_is_done_item_by_item_is_done_by_those_that_there_are() {
    let module = wide(
        "kernel void count(global int *counts, local int *t, volatile global int *seen) {
           size_t l = get_local_linear_id();
           if (l < 8) t[l] = 0;
           barrier(CLK_LOCAL_MEM_FENCE);
           atomic_inc(&t[0]);
           atomic_add(&t[1 + (l & 3)], (int)l);
           if (l & 1) atomic_max(&t[6], (int)l);
           seen[get_global_linear_id()] += 1;
           barrier(CLK_LOCAL_MEM_FENCE);
           if (l < 8) atomic_add(&counts[l], t[l]);
           counts[8] = get_local_size(0) - get_local_size(0) + 7;
         }",
    );
    let runs = GROUPS
        .iter()
        .flat_map(|&group| grids(group))
        .map(|grid| (grid, vec![ints(9, |_| 0), Input::Local(32), ints(volume(grid), |i| i)]));
    same_in_all(&module, "count", &runs.collect::<Vec<_>>());
}

/// Groups reduce and scan the values of the items that exist, and a broadcast finds an item by its
/// place in the group.
#[test]
fn groups_reduce_scan_and_broadcast() {
    let module = wide(
        "kernel void together(global long *out, uint x, uint y, uint z) {
           size_t i = get_global_linear_id();
           long v = out[i];
           long sum = work_group_reduce_add(v);
           int most = work_group_reduce_max((int)v);
           long upto = work_group_scan_inclusive_add(v), before = work_group_scan_exclusive_add(v);
           int least = work_group_scan_inclusive_min((int)v);
           long one = work_group_broadcast(v, x % get_local_size(0), y % get_local_size(1),
                                           z % get_local_size(2));
           int all = work_group_all(v > 3), any = work_group_any(v > 90);
           out[i] = sum + 3 * most + 5 * upto + 7 * before + 11 * least + 13 * one + 2 * all + any;
         }",
    );
    let runs = GROUPS.iter().flat_map(|&group| grids(group)).zip(13..).map(|(grid, x)| {
        let longs = (0..i64::from(volume(grid))).flat_map(|i| (i * 37 % 101).to_le_bytes());
        (grid, vec![Input::bytes(longs.collect()), int(x), int(7), int(1)])
    });
    same_in_all(&module, "together", &runs.collect::<Vec<_>>());
}

/// A sub-group is a part of the group in its order, so in one row the last one is partial; those of
/// several uneven rows begin within rows. Such groups run as one row if they consist of whole sub-groups, and
/// scalar otherwise.
const SUBGROUPS: &str = "
#define LID get_sub_group_local_id()
kernel SIZE void together(global uint *out, global uint *ids) {
  size_t i = get_global_linear_id();
  uint v = out[i], sum;
  ids[5 * i] = get_sub_group_id();
  ids[5 * i + 1] = LID;
  ids[5 * i + 2] = get_sub_group_size();
  ids[5 * i + 3] = get_num_sub_groups();
  ids[5 * i + 4] = get_max_sub_group_size();
  sum = sub_group_reduce_add(v);
  sum += 3 * sub_group_scan_inclusive_max(v) + 5 * sub_group_scan_exclusive_add(v);
  sum ^= sub_group_ballot(v & 1).x;
  sum += sub_group_broadcast(v, 0) + 7 * sub_group_shuffle(v, (LID * 5) & 31);
  sum += 9 * sub_group_shuffle_xor(v, 5u) + 11 * sub_group_shuffle(v, 6);
  sum ^= sub_group_shuffle_down(v, 1u) << 3;
  if (v & 2) sum += sub_group_non_uniform_reduce_add(v) + sub_group_clustered_reduce_max(v, 4u);
  sum += sub_group_all(v > 2) * 64 + sub_group_any(v == 77) * 128;
  sum += sub_group_ballot_bit_count(sub_group_ballot(1));
  out[i] = sum;
}";

fn subgroups(size: &str) -> Module {
    subgroups_with(&SUBGROUPS.replace("SIZE", size))
}

fn subgroups_with(text: &str) -> Module {
    module(&clang::compile_text(text, &["-O2", "-w", "-Xclang", "-cl-ext=+all"]))
}

#[test]
fn the_last_sub_group_of_a_row_is_partial() {
    for size in ["", "__attribute__((intel_reqd_sub_group_size(8)))"] {
        let module = subgroups(size);
        let groups = [[100, 1, 1], [37, 1, 1], [9, 1, 1], [15, 1, 1], [10, 10, 1], [12, 1, 2]];
        let runs = groups.into_iter().flat_map(grids).map(|grid| {
            let n = volume(grid);
            (grid, vec![ints(n, |i| i * 7 % 83), ints(5 * n, |_| -1)])
        });
        same_in_all(&module, "together", &runs.collect::<Vec<_>>());
    }
}

/// Groups of several rows that whole sub-groups fill, and some that none do.
const FLAT: [[u32; 3]; 8] =
    [[8, 8, 1], [4, 4, 1], [2, 4, 4], [1, 64, 1], [5, 16, 1], [12, 4, 2], [3, 1, 16], [10, 3, 1]];

/// The ids, in launches with an offset and with partial last groups, and operations of sub-groups and of the group.
#[test]
fn groups_of_whole_sub_groups_run_as_one_row() {
    for size in ["", "__attribute__((intel_reqd_sub_group_size(8)))"] {
        let module = subgroups(size);
        let runs = FLAT.into_iter().flat_map(grids).map(|grid| {
            let n = volume(grid);
            (grid, vec![ints(n, |i| i * 7 % 83), ints(5 * n, |_| -1)])
        });
        same_in_all(&module, "together", &runs.collect::<Vec<_>>());
    }
    let module = subgroups_with(
        "kernel void places(global long *out, local int *t) {
           size_t i = get_global_linear_id(), l = get_local_linear_id();
           size_t n = get_local_size(0) * get_local_size(1) * get_local_size(2);
           long sum = 0;
           for (uint d = 0; d < 3; d++)
             sum = sum * 131 + get_local_id(d) + 17 * get_global_id(d) + 5 * get_group_id(d);
           t[l] = (int)(get_local_id(0) + 3 * get_local_id(1) + 7 * get_local_id(2));
           barrier(CLK_LOCAL_MEM_FENCE);
           sum = 3 * sum + t[n - 1 - l] + sub_group_reduce_add(t[l]) + sub_group_broadcast(sum, 2);
           if (get_local_id(1) & 1) sum += t[l / 2];
           barrier(CLK_LOCAL_MEM_FENCE);
           out[i] = sum + work_group_scan_inclusive_add(t[l]);
         }",
    );
    let runs = FLAT.into_iter().flat_map(grids).map(|grid| {
        let bytes = 4 * grid.group.iter().product::<u32>() as usize;
        let grid = Grid { offset: [3, 50, 700], ..grid };
        (grid, vec![Input::bytes(vec![0; 8 * volume(grid) as usize]), Input::Local(bytes)])
    });
    same_in_all(&module, "places", &runs.collect::<Vec<_>>());
}

/// Items of a sub-group see what others have written without waiting for it, if they run in vectors. No
/// specification promises that.
#[test]
fn a_group_of_8_by_8_runs_in_vectors_of_two_rows() {
    let module = subgroups_with(
        "kernel void near(global int *out, volatile local int *t) {
           size_t l = get_local_linear_id();
           t[l] = sub_group_broadcast((int)l, 9) + (int)get_local_id(1);
           out[l] = t[l ^ 8];
         }",
    );
    let usual =
        widen_in(&module, &module.kernels[0], 16, false, Form::Usual).expect("it has shuffles");
    assert!(usual.left_out.expect("it requires no size").form([8, 8, 1]) == Form::Sized([8, 8, 1]));
    for target in targets() {
        let kernel = Kernel::in_form(&module, "near", &target, Form::Sized([8, 8, 1]));
        let kernel = kernel.expect("it has a form for that size");
        let mut out = [0; 4 * 64];
        let grid = Grid { offset: [0; 3], global: [8, 8, 1], group: [8, 8, 1] };
        kernel.run(grid, vec![Arg::Buffer(&mut out), Arg::Local(4 * 64)]);
        for (l, x) in (0..).zip(out.chunks(4)) {
            let expected: i32 = l / 16 * 16 + 9 + (l ^ 8) / 8;
            assert_eq!(x, expected.to_le_bytes(), "{l} for {}", target.name);
        }
    }
}

/// A kernel that requires uneven rows has one form with vectors, for those.
#[test]
fn a_required_size_with_uneven_rows_goes_in_vectors() {
    let text = |[x, y, z]: [u32; 3]| {
        format!(
            "kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))
             void turn(global int *out, local int *t) {{
               size_t l = get_local_linear_id();
               size_t n = get_local_size(0) * get_local_size(1) * get_local_size(2);
               t[l] = out[get_global_linear_id()];
               barrier(CLK_LOCAL_MEM_FENCE);
               out[get_global_linear_id()] = 3 * t[n - 1 - l] + t[l] + (int)get_local_size(0);
             }}"
        )
    };
    for (group, rows, lanes) in
        [([10, 10, 1], Rows::Any, 16), ([24, 2, 1], Rows::Whole, 8), ([6, 5, 1], Rows::Any, 16)]
    {
        let module = module(&clang::compile_text(&text(group), &["-O2", "-w"]));
        let kernel = &module.kernels[0];
        assert_eq!(tally_compiler::widen::lanes(kernel), lanes, "{group:?}");
        let widened = widen(&module, kernel, lanes).expect("it has barriers only");
        assert_eq!((widened.rows, widened.uneven), (rows, None), "{group:?}");
        let runs = grids(group).map(|grid| {
            let bytes = 4 * group.iter().product::<u32>() as usize;
            (grid, vec![ints(volume(grid), |i| i * 5), Input::Local(bytes)])
        });
        same_in_all(&module, "turn", &runs);
    }
    let column = module(&clang::compile_text(&text([1, 64, 1]), &["-O2", "-w"]));
    let widened = widen(&column, &column.kernels[0], 16).expect("it runs as one row");
    assert_eq!((widened.rows, widened.flat), (Rows::Whole, true));
}

/// Items that do not wait go in vectors too, where rows are short: branches that items take apart, loops that they
/// leave at different times, private arrays, atomics, and values of several parts.
#[test]
fn short_rows_go_in_vectors_without_barriers() {
    let module = wide(
        "kernel void apart(global int *out, global const int *in, global int *counts,
                           global char4 *parts) {
           size_t x = get_local_id(0), at = get_global_linear_id();
           int p[4] = {1, 2, 3, 4}, sum = in[at];
           if (x & 1) sum += 3 * in[at / 2];
           for (int k = 0; k < (sum & 7); k++) p[(k + x) & 3] += sum;
           atomic_inc(&counts[sum & 3]);
           atomic_add(&counts[4], p[0]);
           parts[at] += (char4)(1, 2, 3, (char)sum);
           out[at] = p[sum & 3] + (int)get_local_size(0);
         }",
    );
    let kernel = &module.kernels[0];
    let usual = widen_in(&module, kernel, 16, false, Form::Usual).expect("a plain kernel");
    let left_out = usual.left_out.expect("it requires no size");
    assert_eq!(left_out.form([8, 8, 1]), Form::Uneven);
    assert_eq!(left_out.form([64, 4, 1]), Form::Usual);
    let runs = GROUPS.iter().chain(&[[8, 8, 1], [20, 20, 1]]).flat_map(|&group| grids(group));
    let runs = runs.map(|grid| {
        let n = volume(grid);
        let counts = ints(5, |_| 0);
        (grid, vec![ints(n, |_| -1), ints(n, |i| i * 29 % 1013), counts, ints(n, |i| i * 77)])
    });
    let runs = runs.collect::<Vec<_>>();
    same_in_all(&module, "apart", &runs);
    for target in targets() {
        let kernel = Kernel::in_form(&module, "apart", &target, Form::Uneven);
        let kernel = kernel.expect("it has a form for uneven rows");
        assert_eq!(kernel.code.remark, "");
        compare_with(&kernel, &module, "apart", &runs).unwrap_or_else(|how| panic!("{how}"));
    }
}

/// Such a kernel that requires its size is built for it, unless most of its rows are whole vectors.
#[test]
fn a_required_size_with_short_rows_goes_in_vectors_without_barriers() {
    for (group, rows, lanes) in [
        ([10, 10, 1], Rows::Any, 16),
        ([4, 4, 4], Rows::Any, 8),
        ([8, 8, 1], Rows::Whole, 8),
        ([100, 1, 1], Rows::Whole, 16),
    ] {
        let [x, y, z] = group;
        let text = format!(
            "kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))
             void plain(global int *out) {{
               size_t at = get_global_linear_id();
               out[at] = 3 * out[at] + (int)get_local_size(0) * (int)get_local_id(1);
             }}"
        );
        let module = module(&clang::compile_text(&text, &["-O2", "-w"]));
        let kernel = &module.kernels[0];
        assert_eq!(tally_compiler::widen::lanes(kernel), lanes, "{group:?}");
        let widened = widen(&module, kernel, lanes).expect("a plain kernel");
        assert_eq!((widened.rows, widened.uneven), (rows, None), "{group:?}");
        let runs = grids(group).map(|grid| (grid, vec![ints(volume(grid), |i| i * 5)]));
        same_in_all(&module, "plain", &runs);
    }
}

/// Masked items access no memory: the memory that the missing items would read and write behind their
/// row is not mapped.
#[test]
fn missing_items_touch_no_memory() {
    let module = wide(
        "kernel void edge(global int *out, global const int *in, global const float4 *wide) {
           size_t i = get_global_linear_id();
           int x = in[i];
           barrier(CLK_GLOBAL_MEM_FENCE);
           float4 v = wide[i];
           out[i] = x + in[(i * 7) % get_global_size(0)] + (int)(v.x + v.w);
         }",
    );
    for (target, lanes) in widths() {
        let kernel = Kernel::with_lanes(&module, "edge", &target, lanes);
        for n in [9usize, 20, 31, 100] {
            let (mut out, mut input, mut wide) =
                (Guarded::new(4096), Guarded::new(4096), Guarded::new(4096));
            input.last(n * 4).chunks_mut(4).for_each(|x| x.copy_from_slice(&7i32.to_le_bytes()));
            wide.last(n * 16).chunks_mut(4).for_each(|x| x.copy_from_slice(&2f32.to_le_bytes()));
            let args = vec![
                Arg::Buffer(out.last(n * 4)),
                Arg::Buffer(input.last(n * 4)),
                Arg::Buffer(wide.last(n * 16)),
            ];
            kernel.run(Grid::line(n as u64, n as u32), args);
            assert!(out.last(n * 4).chunks(4).all(|x| x == 18i32.to_le_bytes()), "{n} of {lanes}");
        }
    }
}

/// The view of a kernel with a barrier: its form for uneven rows tests once which items exist, and has
/// no effect without that mask.
#[test]
fn the_form_for_uneven_rows_is_readable() {
    let module = module(&clang::compile_text(
        "kernel void turn(global int *p, local int *t) {
           size_t l = get_local_id(0);
           t[l] = p[get_global_id(0)];
           barrier(CLK_LOCAL_MEM_FENCE);
           if (l > 0) p[get_global_id(0)] = t[l - 1];
         }",
        &["-O1"],
    ));
    let widened = widen(&module, &module.kernels[0], 8).expect("a plain kernel");
    let uneven = widened.uneven.expect("it has a barrier");
    let function = &widened.module.functions[uneven];
    let asked = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    assert_eq!(asked.filter(|inst| inst.op == Op::Present).count(), 1);
    golden("widen-uneven.ir", &widened.module.function_text(uneven).to_string());
}
