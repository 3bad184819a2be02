// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels whose vectors lie in another dimension than the first one, since their neighbours in memory do.

use tally_compiler::ir::Module;
use tally_compiler::widen::{lanes, widen};
use tally_compiler_protocol::Form;

use crate::diff::{Input, Run, compare_with, same_in_all};
use crate::golden::golden;
use crate::harness::{Grid, Kernel, buffer, clang, module, targets, value};
use crate::widen::{int, ints, wide};

/// The dimension in which a kernel's vectors lie, where a group has some there.
fn axis(module: &Module) -> u8 {
    let kernel = &module.kernels[0];
    let widened = widen(module, kernel, lanes(kernel)).expect("a plain kernel");
    widened.turned.map_or(0, |turned| turned.axis)
}

/// Groups that are long enough in the second dimension, with and without items that are left over, and some
/// that are not.
const GROUPS: [[u32; 3]; 7] =
    [[16, 16, 1], [4, 40, 1], [1, 33, 2], [32, 8, 1], [8, 8, 1], [10, 10, 1], [3, 2, 20]];

/// Launches of matrices of `n` by `n`, some of whose items have nothing to do, with an offset in one of them.
fn grids() -> impl Iterator<Item = Grid> {
    let grid = |group: [u32; 3], offset: u64| {
        let global = [0, 1, 2].map(|d| 2 * u64::from(group[d]) - u64::from(group[d]) / 3);
        Grid { offset: [offset, 2 * offset, 0], global, group }
    };
    GROUPS.into_iter().flat_map(move |group| [grid(group, 0), grid(group, 3)])
}

/// As [`same_in_all`], also in the form for uneven rows at all levels of processors.
fn same(module: &Module, name: &str, runs: &[Run]) {
    same_in_all(module, name, runs);
    for target in targets() {
        let kernel =
            Kernel::in_form(module, name, &target, Form::Uneven).expect("it has that form");
        compare_with(&kernel, module, name, runs).unwrap_or_else(|how| panic!("{how}"));
    }
}

/// Rows of a matrix by the first dimension: branches that items take apart, loops that they leave at different
/// times, a private array, and all that a launch tells an item about itself.
#[test]
fn rows_are_counted_by_the_first_dimension() {
    let module = wide(
        "kernel void rows(global int *out, global const int *in, int n, global uchar4 *parts,
                          global int *sizes) {
           int i = get_global_id(0), j = get_global_id(1);
           if (i >= n || j >= n) return;
           int p[4] = {1, 2, 3, 4}, sum = in[i * n + j];
           for (int k = 0; k < n; k++) sum += in[i * n + k] * in[k * n + j];
           if (j & 1) sum += 3 * in[i * n + j / 2];
           for (int k = 0; k < (sum & 7); k++) p[(k + j) & 3] += sum;
           parts[i * n + j] += (uchar4)(1, 2, 3, (uchar)sum);
           size_t place = get_local_id(0) + 3 * get_local_id(1) + 5 * get_group_id(0)
             + 7 * get_group_id(1) + 11 * get_local_size(0) + 13 * get_local_size(1)
             + 17 * get_num_groups(0) + 19 * get_num_groups(1) + 23 * get_global_size(0)
             + 29 * get_global_size(1) + 31 * get_global_offset(0) + 37 * get_global_offset(1)
             + 41 * get_enqueued_local_size(0) + 43 * get_enqueued_local_size(1)
             + 47 * get_local_id(2) + 53 * get_local_size(2);
           sizes[i * n + j] = (int)place;
           out[i * n + j] = sum + p[sum & 3];
         }",
    );
    // Several planes of items would write the same places.
    let runs = grids().filter(|grid| grid.global[2] == 1).map(|grid| {
        let n = 30;
        let matrix = n * n;
        let numbers = ints(matrix, |i| i * 29 % 1013);
        (
            grid,
            vec![
                ints(matrix, |_| -1),
                numbers,
                int(n),
                ints(matrix, |i| i * 77),
                ints(matrix, |_| 0),
            ],
        )
    });
    assert_eq!(axis(&module), 1);
    same(&module, "rows", &runs.collect::<Vec<_>>());
}

/// Distances of points: a loop reads the same in both dimensions, and what it leaves are neighbours in the second one.
#[test]
fn what_a_loop_leaves_decides() {
    let distances = |place: &str| {
        wide(&format!(
            "kernel void distances(global double *out, global const double *points, ulong n, ulong m) {{
               size_t i = get_global_id(0), j = get_global_id(1);
               double sum = 0;
               for (size_t k = 0; k < m; k++) {{
                 double by = points[i * m + k] - points[j * m + k];
                 sum += by * by;
               }}
               out[{place}] = sqrt(sum); }}"
        ))
    };
    let module = distances("i * n + j");
    let long = |number: u64| Input::Value(number.to_le_bytes().to_vec());
    let numbers = |from: u64, count: u64| {
        let number = move |i: u64| ((i * from % 512) as f64).to_le_bytes();
        Input::bytes((0..count).flat_map(number).collect())
    };
    let runs = grids()
        .filter(|grid| grid.global[2] == 1)
        .map(|grid| (grid, vec![numbers(0, 170 * 170), numbers(29, 170 * 3), long(170), long(3)]));
    assert_eq!(axis(&module), 1);
    same(&module, "distances", &runs.collect::<Vec<_>>());
    assert_eq!(axis(&distances("j * n + i")), 0);
}

/// Numbers of a volume whose neighbours are in the third dimension.
#[test]
fn planes_are_counted_by_the_first_dimension() {
    let module = wide(
        "kernel void planes(global float *out, global const float *in, int n) {
           int i = get_global_id(0), j = get_global_id(1), k = get_global_id(2);
           if (i >= n || j >= n || k >= n) return;
           int at = (i * n + j) * n + k;
           out[at] = 2 * in[at] + (k > 0 ? in[at - 1] : 1) + get_local_id(2);
         }",
    );
    let runs = grids().map(|grid| {
        let n = 30;
        let floats = |from: i32| {
            let floats = (0..n * n * n).flat_map(move |i| ((i * from % 512) as f32).to_le_bytes());
            Input::bytes(floats.collect())
        };
        (grid, vec![floats(0), floats(29), int(n)])
    });
    assert_eq!(axis(&module), 2);
    same(&module, "planes", &runs.collect::<Vec<_>>());
}

/// It decides what group size is suggested.
#[test]
fn items_are_side_by_side_where_rows_share_no_lines_of_the_cache() {
    let side_by_side = |body: &str| {
        let text = format!(
            "kernel void k(global int *out, global const int *in, int n) {{
               int i = get_global_id(0), j = get_global_id(1);
               {body}
             }}"
        );
        let module = module(&clang::compile_text(&text, &["-O2", "-w"]));
        let kernel = &module.kernels[0];
        widen(&module, kernel, lanes(kernel)).expect("a plain kernel").side_by_side
    };
    assert!(side_by_side("out[j * n + i] = in[j * n + i] + in[(j + 1) * n + i - 1];"));
    assert!(side_by_side("out[i * n + j] = in[i * n + j];"), "in the other dimension");
    assert!(side_by_side("if (i < n) out[j * n + i] = in[j] + in[7];"));
    assert!(side_by_side("out[3 * (j * n + i)] = i;"));
    assert!(side_by_side("out[j * n + i] = in[in[j * n + i]];"), "anywhere");
    assert!(!side_by_side("out[j * n + i] = in[i * n + j];"));
    assert!(!side_by_side("out[i * n + j] = in[j * n + i];"));
    assert!(!side_by_side("out[1024 * i + j] = in[j * n + i];"));
    assert!(!side_by_side("out[in[j * n + i]] = i;"));
    let barrier = "out[j * n + i] = i; barrier(CLK_GLOBAL_MEM_FENCE); out[j * n + i] += n;";
    assert!(!side_by_side(barrier), "groups whose items wait stay small");
}

/// The first dimension stays where the other one is not much better, where a place in the group is asked for, and
/// where groups have no vectors in the other one.
#[test]
fn vectors_usually_lie_in_the_first_dimension() {
    let axis_of = |size: &str, body: &str| {
        let text = format!(
            "kernel {size} void k(global int *out, global const int *in, int n, write_only image2d_t image) {{
               size_t i = get_global_id(0), j = get_global_id(1);
               {body}
             }}"
        );
        axis(&module(&clang::compile_text(&text, &["-O2", "-w"])))
    };
    let rows = "out[i * n + j] = in[i * n + j];";
    assert_eq!(axis_of("", rows), 1);
    assert_eq!(axis_of("", "out[j * n + i] = in[j * n + i];"), 0);
    assert_eq!(axis_of("", "out[j * n + i] = in[i * n + j];"), 0);
    assert_eq!(axis_of("", "out[i * n + j] = in[get_local_linear_id()];"), 0);
    assert_eq!(axis_of("", "write_imagef(image, (int2)(i, j), 1);"), 0);
    assert_eq!(axis_of("", &format!("{rows} barrier(CLK_GLOBAL_MEM_FENCE); {rows}")), 0);
    assert_eq!(axis_of("__attribute__((reqd_work_group_size(32, 2, 1)))", rows), 0);
    assert_eq!(axis_of("__attribute__((reqd_work_group_size(32, 8, 1)))", rows), 1);
    assert_eq!(axis_of("__attribute__((reqd_work_group_size(8, 32, 1)))", rows), 1);
    // Items would leave the loop at different times.
    let part = "int s = 0; for (int k = 0; k < j; k++) s = 3 * s + in[i * n + k];";
    assert_eq!(axis_of("", &format!("{part} out[i * n + j] = s;")), 0);
}

/// Rows of the other dimension that fill no vector run in one with a mask where that gains enough.
#[test]
fn short_rows_run_in_vectors_where_that_gains() {
    let least = |body: &str| {
        let module = wide(&format!(
            "kernel void k(global int *out, global const int *in, int n) {{
               int i = get_global_id(0), j = get_global_id(1), s = 0;
               {body}
             }}"
        ));
        let turned = widen(&module, &module.kernels[0], 16).expect("a plain kernel").turned;
        turned.expect("it is better there").short.map(|(_, least)| least)
    };
    assert_eq!(least("out[i * n + j] = in[i * n + j];"), Some(4));
    // The loop along a row of each item takes strips.
    let product =
        "for (int k = 0; k < n; k++) s += in[i * n + k] * in[k * n + j]; out[i * n + j] = s;";
    assert_eq!(least(product), Some(12));
}

/// The number of each group of a launch in the order in which they ran, by the group's place among them with the
/// last dimension fastest.
fn order(kernel: &Kernel, grid: Grid) -> Vec<i32> {
    let [x, y, z] = grid.global.map(|size| size as usize);
    let (mut out, mut count) = (vec![-1i32; x * y * z], [0i32]);
    let sizes = [y, z].map(|size| value(size as i32));
    let zeros = vec![0i32; x * y * z];
    let mut input = zeros;
    let [ny, nz] = sizes;
    kernel.run(grid, vec![buffer(&mut out), buffer(&mut count), buffer(&mut input), ny, nz]);
    let group = grid.group.map(|size| size as usize);
    let firsts = |size: usize, group: usize| (0..size).step_by(group);
    let places = firsts(x, group[0]).flat_map(|i| {
        firsts(y, group[1]).flat_map(move |j| firsts(z, group[2]).map(move |k| (i * y + j) * z + k))
    });
    places.map(|place| out[place]).collect()
}

/// Groups run along the dimension in which the vectors lie, if they are long enough there. Where some groups of a
/// launch do not run, they keep the device's order. The ids are right in any case.
#[test]
fn groups_follow_the_dimension_of_the_vectors() {
    // The last item of a group counts it.
    let text = |at: &str| {
        format!(
            "kernel void k(global int *out, global int *count, global const int *in, int ny, int nz) {{
               int i = get_global_id(0), j = get_global_id(1), k = get_global_id(2), at = {at};
               out[at] = in[at] + *count;
               bool last = get_local_id(0) + 1 == get_local_size(0) && get_local_id(1) + 1 == get_local_size(1)
                 && get_local_id(2) + 1 == get_local_size(2);
               if (last) *count += 1;
             }}"
        )
    };
    let all = "(i * ny + j) * nz + k";
    let last_fastest: Vec<i32> = (0..24).collect();
    let device = |[x, y, z]: [i32; 3]| {
        let number = move |i: i32, j: i32, k: i32| (k * y + j) * x + i;
        let of = (0..x).flat_map(|i| (0..y).flat_map(move |j| (0..z).map(move |k| (i, j, k))));
        of.map(|(i, j, k)| number(i, j, k)).collect::<Vec<_>>()
    };
    let (rows, planes) = (wide(&text("i * ny + j")), wide(&text(all)));
    let cases = [
        (&rows, 1, [4, 6, 1], [8, 16, 1]),
        (&rows, 1, [6, 4, 1], [3, 40, 1]),
        (&rows, 1, [3, 8, 1], [16, 14, 1]),
        (&planes, 2, [2, 3, 4], [2, 3, 32]),
        (&planes, 2, [4, 2, 3], [3, 2, 20]),
    ];
    for (module, axis, counts, group) in cases {
        assert_eq!(self::axis(module), axis);
        let sizes = [0, 1, 2].map(|d| {
            let (count, group) = (counts[d] as u64, u64::from(group[d]));
            count * group - u64::from(count > 1)
        });
        let grid = Grid { offset: [0; 3], global: sizes, group };
        for target in targets() {
            let mut kernel = Kernel::new(module, "k", &target);
            assert_eq!(order(&kernel, grid), last_fastest, "{counts:?} of {group:?}");
            kernel.beyond = [2, 0, 1];
            assert_eq!(order(&kernel, grid), device(counts), "{counts:?} of {group:?}");
            let short = Grid { group: [64, 1, 1], global: [256, 3, 2], ..grid };
            kernel.beyond = [0; 3];
            if axis == 2 {
                assert_eq!(order(&kernel, short), device([4, 3, 2]));
            }
        }
    }
}

/// The view of such a function: its queries are those of the exchanged dimensions.
#[test]
fn a_turned_kernel_is_readable() {
    let module = module(&clang::compile_text(
        "kernel void turned(global int *out, global const int *in, int n) {
           size_t i = get_global_id(0), j = get_global_id(1);
           out[i * n + j] = 3 * in[i * n + j];
         }",
        &["-O1"],
    ));
    let widened = widen(&module, &module.kernels[0], 8).expect("a plain kernel");
    let turned = widened.turned.expect("its neighbours are in the second dimension");
    let function = turned.function.expect("it requires no size");
    golden("widen-turned.ir", &widened.module.function_text(function).to_string());
}
