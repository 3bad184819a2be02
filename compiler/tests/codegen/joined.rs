// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups with short rows beside each other, whose items go in vectors together.

use tally_compiler::ir::Module;
use tally_compiler::widen::{lanes, widen};
use tally_compiler_protocol::Form;

use crate::diff::{Run, compare_with, same_in_all};
use crate::harness::{Grid, Kernel, buffer, clang, module, targets, value};
use crate::widen::{int, ints, wide};

/// Whether the groups of a kernel join.
fn joins(module: &Module) -> bool {
    let kernel = &module.kernels[0];
    widen(module, kernel, lanes(kernel)).is_ok_and(|it| it.joins)
}

/// What an item can be told about the launch without telling its group. Each item adds to its own place.
fn places() -> Module {
    wide(
        "kernel void places(global int *out, global const int *in, int n) {
           size_t x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
           size_t nx = get_global_size(0), ny = get_global_size(1);
           size_t at = get_global_linear_id();
           int sum = in[at];
           if (x & 1) sum += 3 * in[at / 2];
           for (int k = 0; k < (sum & 7); k++) sum += in[(at + k * n) % (nx * ny)];
           out[at] += sum + (int)(x + 3 * y + 5 * z + 7 * nx + 11 * ny + 13 * get_num_groups(0)
             + 17 * get_num_groups(1) + 19 * get_global_offset(0) + 23 * get_work_dim());
         }",
    )
}

/// Groups, and their numbers in each dimension. Some groups join all of a tile, some only the last ones of a row; in
/// the last two launches some have no row to run.
const LAUNCHES: [([u32; 3], [u64; 3]); 14] = [
    ([1, 64, 1], [20, 2, 1]),
    ([2, 32, 1], [9, 2, 1]),
    ([4, 5, 3], [7, 1, 2]),
    ([8, 8, 1], [3, 2, 1]),
    ([10, 10, 1], [9, 1, 1]),
    ([3, 2, 20], [17, 1, 1]),
    ([1, 1, 40], [33, 2, 1]),
    ([5, 7, 1], [1, 4, 1]),
    ([24, 8, 1], [3, 1, 2]),
    ([12, 3, 1], [2, 1, 1]),
    ([100, 1, 1], [5, 1, 1]),
    ([31, 40, 1], [18, 1, 1]),
    ([8, 1, 1], [131, 1, 1]),
    ([1, 2, 1], [71, 16, 1]),
];

fn grids() -> impl Iterator<Item = Grid> {
    LAUNCHES.into_iter().flat_map(|(group, counts)| {
        let all = [0, 1, 2].map(|d| counts[d] * u64::from(group[d]));
        let part = [0, 1, 2].map(|d| all[d] - u64::from(group[d]) / 3);
        [
            Grid { offset: [0; 3], global: all, group },
            Grid { offset: [0; 3], global: part, group },
            Grid { offset: [5, 1, 2], global: part, group },
        ]
    })
}

/// Each item runs once, with its own ids, in either form.
#[test]
fn all_items_of_joined_groups_run_once() {
    let module = places();
    assert!(joins(&module));
    let runs: Vec<Run> = grids()
        .map(|grid| {
            let n = grid.global.iter().product::<u64>() as i32;
            (grid, vec![ints(n, |i| i), ints(n, |i| i * 29 % 1013), int(7)])
        })
        .collect();
    same_in_all(&module, "places", &runs);
    for target in targets() {
        let kernel =
            Kernel::in_form(&module, "places", &target, Form::Uneven).expect("it has that form");
        compare_with(&kernel, &module, "places", &runs).unwrap_or_else(|how| panic!("{how}"));
    }
}

/// The calls of the item function, of a vector or of one item, in a launch of `counts` groups: each adds one.
fn calls(kernel: &Kernel, group: [u32; 3], counts: [u64; 3]) -> i32 {
    let global = [0, 1, 2].map(|d| counts[d] * u64::from(group[d]));
    let mut out = vec![0i32; global.iter().product::<u64>() as usize];
    let mut count = [0i32];
    let grid = Grid { offset: [0; 3], global, group };
    kernel.run(grid, vec![buffer(&mut out), buffer(&mut count), value(global[0] as i32)]);
    assert!(out.iter().all(|&times| times == 1), "{group:?}");
    count[0]
}

/// Short rows run in whole vectors where there are enough groups beside each other; where some groups of a launch do
/// not run, and where few groups would have a row to run, they stay alone.
#[test]
fn short_rows_run_in_whole_vectors() {
    let module = wide(
        "kernel void count(global int *out, global int *count, int n) {
           out[get_global_id(1) * n + get_global_id(0)] += 1;
           *count += 1;
         }",
    );
    for target in targets() {
        let mut kernel =
            Kernel::in_form(&module, "count", &target, Form::Usual).expect("every kernel has it");
        assert_eq!(calls(&kernel, [1, 64, 1], [16, 1, 1]), 64);
        assert_eq!(calls(&kernel, [2, 32, 1], [16, 2, 1]), 2 * 64);
        assert_eq!(calls(&kernel, [8, 8, 1], [2, 3, 1]), 3 * 8);
        assert_eq!(calls(&kernel, [10, 10, 1], [8, 1, 1]), 10 * 80 / 16);
        // One group of 8 x 8 is left over.
        assert_eq!(calls(&kernel, [8, 8, 1], [3, 1, 1]), 8 + 64);
        assert_eq!(calls(&kernel, [24, 2, 1], [2, 1, 1]), 2 * 48 / 16);
        assert_eq!(calls(&kernel, [24, 1, 1], [2, 1, 1]), 2 * (1 + 8));
        assert_eq!(calls(&kernel, [1, 1, 1], [1024, 1, 1]), 1024 / 16);
        assert_eq!(calls(&kernel, [1, 1, 1], [32, 1, 1]), 32);
        kernel.beyond = [1, 0, 0];
        assert_eq!(calls(&kernel, [1, 64, 1], [16, 1, 1]), 16 * 64);
    }
}

/// Rows of one vector join where the kernel has vectors of twice as many items; a row that is left over runs as it is.
#[test]
fn rows_of_whole_vectors_join_for_longer_ones() {
    let body = "kernel SIZE void count(global int *out, global int *count, int n) {
           int at = get_global_id(1) * n + get_global_id(0);
           uint a = at, b = n;
           for (int k = 0; k < n; k++) { a += (b << 4 ^ b >> 5) + b; b += (a << 4 ^ a >> 5) + k; }
           out[at] += (a ^ b) == 1 ? 2 : 1;
           *count += 1;
         }";
    let Some(target) = targets().into_iter().find(|target| target.name == "x86-64-v4") else {
        return;
    };
    for size in ["", "__attribute__((reqd_work_group_size(16, 16, 1)))"] {
        let module = module(&clang::compile_text(&body.replace("SIZE", size), &["-O2", "-w"]));
        let kernel =
            Kernel::in_form(&module, "count", &target, Form::Usual).expect("every kernel has it");
        assert_eq!(calls(&kernel, [16, 16, 1], [4, 2, 1]), 2 * 2 * 16);
        assert_eq!(calls(&kernel, [16, 16, 1], [5, 1, 1]), 2 * 16 + 16);
        if size.is_empty() {
            assert_eq!(calls(&kernel, [48, 2, 1], [4, 1, 1]), 6 * 2);
            assert_eq!(calls(&kernel, [32, 2, 1], [2, 1, 1]), 2 * 2);
            assert_eq!(calls(&kernel, [16, 1, 1], [2, 1, 1]), 2);
            assert_eq!(calls(&kernel, [16, 1, 1], [128, 1, 1]), 64);
        }
    }
}

/// Whether groups of a kernel join for rows as long as can be. `T` is the type of what it accesses.
fn long_rows(of: &str, body: &str) -> bool {
    let text = format!(
        "typedef {of} T;
         kernel void k(global T *out, global const T *in, global const T *taps, int w, int h, int n,
           read_only image2d_t image) {{
           int x = get_global_id(0), y = get_global_id(1);
           if (x >= w || y >= h) return;
           {body}
         }}"
    );
    let module = module(&clang::compile_text(&text, &["-O2", "-w"]));
    let kernel = &module.kernels[0];
    let widened = widen(&module, kernel, lanes(kernel)).expect("a plain kernel");
    assert!(widened.joins, "{body}");
    widened.long_rows
}

/// Rows are long where items access memory side by side, and where nothing that a loop reads is the same for all rows.
#[test]
fn long_rows_are_for_neighbours() {
    for body in [
        "out[y * w + x] = in[y * w + x] * taps[x];",
        "float s = 0; for (int k = 0; k < n; k++) s += in[(y + k) * w + x] * taps[k]; out[y * w + x] = s;",
        "for (int k = 0; k < n; k++) out[(k * h + y) * w + x] = in[(k * h + y) * w + x] + 1;",
    ] {
        assert!(long_rows("float", body), "{body}");
    }
    for body in [
        "float s = 0; for (int k = 0; k < n; k++) s += in[y * n + k] * taps[k * w + x]; out[y * w + x] = s;",
        "out[y * w + x] = in[(y + x * n / 100) * w + x];",
        "float s = 0; for (int k = 0; k < n; k++) s = s * s + x; out[y * w + x] = s;",
        "out[y * w + x] = read_imagef(image, (int2)(x, y)).x;",
    ] {
        assert!(!long_rows("float", body), "{body}");
    }
}

/// In launches of many groups, of few, and of few in a row, each item of long rows runs once.
#[test]
fn all_items_of_long_rows_run_once() {
    for of in ["int", "char"] {
        let module = wide(&format!(
            "kernel void places(global {of} *out, global const {of} *in) {{
               int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
               int nx = get_global_size(0), ny = get_global_size(1), o = get_global_offset(0) == 5;
               int at = ((z - 2 * o) * ny + y - o) * nx + x - 5 * o;
               out[at] += in[at] + x + 3 * y + 5 * z + 7 * (int)get_num_groups(0);
             }}"
        ));
        let kernel = &module.kernels[0];
        let widened = widen(&module, kernel, lanes(kernel)).expect("a plain kernel");
        assert!(widened.long_rows);
        items_of_long_rows_run_once(&module);
    }
}

fn items_of_long_rows_run_once(module: &Module) {
    let more = [
        ([1, 8, 1], [16, 32, 1]),
        ([1, 8, 1], [19, 33, 1]),
        ([3, 5, 1], [5, 60, 1]),
        ([2, 1, 9], [9, 1, 40]),
        ([16, 7, 1], [3, 50, 1]),
        ([64, 1, 1], [40, 1, 1]),
        ([8, 1, 1], [300, 1, 1]),
    ];
    let grids =
        grids().chain(more.into_iter().flat_map(|(group, counts): ([u32; 3], [u64; 3])| {
            let all = [0, 1, 2].map(|d| counts[d] * u64::from(group[d]));
            let part = [all[0] - u64::from(group[0]) / 2, all[1] - u64::from(group[1]) / 2, all[2]];
            [
                Grid { offset: [0; 3], global: all, group },
                Grid { offset: [5, 1, 2], global: part, group },
            ]
        }));
    let runs: Vec<Run> = grids
        .map(|grid| {
            let n = grid.global.iter().product::<u64>() as i32;
            (grid, vec![ints(n, |i| i), ints(n, |i| i * 29 % 1013)])
        })
        .collect();
    same_in_all(module, "places", &runs);
    for target in targets() {
        let kernel =
            Kernel::in_form(module, "places", &target, Form::Uneven).expect("it has that form");
        compare_with(&kernel, module, "places", &runs).unwrap_or_else(|how| panic!("{how}"));
    }
}

/// Groups of 32 x 8 run rows of 256 items where each has one; where there are many, some run rows of all groups beside each
/// other.
#[test]
fn rows_of_whole_vectors_join_for_long_stretches() {
    let module = wide(
        "kernel void stamps(global int *out, global int *count, int n) {
           out[get_global_id(1) * n + get_global_id(0)] = (*count)++;
         }",
    );
    // The items of a row that run one after the other.
    let stretch = |kernel: &Kernel, counts: [u64; 3]| {
        let global = [32 * counts[0], 8 * counts[1], 1];
        let (mut out, mut count) = (vec![0i32; (global[0] * global[1]) as usize], [0i32]);
        let width = global[0] as i32;
        let grid = Grid { offset: [0; 3], global, group: [32, 8, 1] };
        kernel.run(grid, vec![buffer(&mut out), buffer(&mut count), value(width)]);
        let row = &out[..width as usize];
        1 + row.windows(2).take_while(|two| (0..=1).contains(&(two[1] - two[0]))).count()
    };
    for target in targets() {
        let kernel =
            Kernel::in_form(&module, "stamps", &target, Form::Usual).expect("every kernel has it");
        assert_eq!(stretch(&kernel, [16, 1, 1]), 256);
        assert_eq!(stretch(&kernel, [16, 32, 1]), 512);
        assert_eq!(stretch(&kernel, [5, 32, 1]), 160);
    }
}

/// Groups stay alone if an item can tell its own, or may wait for another one's.
#[test]
fn groups_that_can_be_told_apart_stay_alone() {
    let joins = |size: &str, args: &str, body: &str| {
        let text = format!(
            "kernel {size} void k(global int *out, volatile global int *lock {args}) {{
               size_t i = get_global_id(0);
               {body}
             }}"
        );
        joins(&module(&clang::compile_text(&text, &["-O2", "-w"])))
    };
    assert!(joins("", "", "out[i] = 1;"));
    assert!(joins("", "", "atomic_inc(&out[i & 3]);"));
    assert!(joins("", "", "out[i] = *lock;"));
    assert!(joins("__attribute__((reqd_work_group_size(1, 64, 1)))", "", "out[i] = 1;"));
    assert!(!joins("__attribute__((reqd_work_group_size(10, 10, 1)))", "", "out[i] = 1;"));
    for query in [
        "get_local_id(0)",
        "get_local_id(2)",
        "get_group_id(1)",
        "get_local_size(0)",
        "get_enqueued_local_size(0)",
        "get_local_linear_id()",
        "get_sub_group_local_id()",
    ] {
        assert!(!joins("", "", &format!("out[i] = {query};")), "{query}");
    }
    assert!(!joins("", ", local int *t", "out[i] = atomic_inc(t);"));
    assert!(!joins("", "", "local int t; out[i] = atomic_inc(&t);"));
    assert!(!joins("", "", "barrier(CLK_GLOBAL_MEM_FENCE); out[i] = 1;"));
    assert!(!joins("", "", "while (*lock) {} out[i] = 1;"));
    assert!(!joins("", "", "for (int k = 0; k < (int)i; k++) lock[k] += atomic_xchg(&out[i], k);"));
    assert!(!joins(
        "",
        "",
        "while (atomic_xchg(lock, 1)) {} out[i] += out[0]; atomic_xchg(lock, 0);"
    ));
    // Their neighbours in memory are in the second dimension: vectors lie there.
    assert!(!joins("", "", "out[i * 100 + get_global_id(1)] = 1;"));
}
