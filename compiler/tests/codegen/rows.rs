// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that widened code makes at run time: whether addresses are contiguous, whether any item is
//! within a limit, and whether all vectors of a group stop at the same barrier.

use tally_compiler::widen::{widen, widen_twice};

use crate::diff::{Input, same};
use crate::harness::Grid;
use crate::widen::{int, ints, wide};

/// Remainders and bits of ids index adjacent elements in some vectors and scattered ones in others;
/// each active item reads and writes its own place, whichever items take part.
#[test]
fn computed_places_are_those_named_in_line_or_not() {
    let module = wide(
        "kernel void lines(global int *out, global const int *in, int n, int mask) {
           int i = get_global_id(0), x = i % n, y = i / n;
           int v = in[y * n + x];
           v += 3 * in[(i & mask) * 2 + (i & ~mask)];
           if ((i ^ y) & 4) v += in[x * 5 % n];
           if (i > 5 && x < n - 1) out[(i & ~31) + ((i + n) & 31)] = v;
         }",
    );
    for (n, mask) in [(40, 7), (32, 0), (7, 31)] {
        let args = [ints(160, |_| 0), ints(256, |i| i * 7 - 300), int(n), int(mask)];
        same(&module, "lines", Grid::line(160, 32), &args, "");
    }
}

/// Places that come from floats are gathered at once, since they are nearly never in line; those from integers are tested.
#[test]
fn places_from_floats_are_not_tested() {
    let tests = |place: &str| {
        let module = wide(&format!(
            "kernel void scaled(global float *out, global const float *in, float by, int n) {{
               int i = get_global_id(0), j = get_global_id(1);
               out[i] = in[{place}];
             }}"
        ));
        let widened = widen(&module, &module.kernels[0], 16).expect("a plain kernel");
        widened.module.function_text(widened.function).to_string().contains("in_line")
    };
    assert!(tests("i * 3 / 3 % n"));
    for place in [
        "(int)(i * by)",
        "clamp((int)floor(i * by - 0.5f), 0, n) + j",
        "convert_uint_sat(i * by) & 255",
    ] {
        assert!(!tests(place), "{place}");
    }
}

/// An atomic uses the value that an item has loaded, though the item has written to that place since.
#[test]
fn an_atomic_gets_what_was_loaded_before_a_write() {
    let module = wide(
        "kernel void count(global int *x, global int *y, global int *bins, local int *t) {
           int i = get_global_id(0), l = get_local_id(0), v = x[i], w = y[i];
           if (l < 16) t[l] = 0;
           barrier(CLK_LOCAL_MEM_FENCE);
           x[i] = -1;
           atomic_add(&bins[v & 15], 3);
           atomic_add(&t[y[i] & 15], v);
           atomic_inc(&t[w >> 4 & 15]);
           if (l != 5) atomic_sub(&t[l & 3], 2);
           barrier(CLK_LOCAL_MEM_FENCE);
           if (l < 16) atomic_add(&bins[16 + l], t[l]);
         }",
    );
    let x = || ints(128, |i| i * 29 % 101);
    for group in [32, 64] {
        let args = [x(), x(), ints(32, |_| 0), Input::Local(64)];
        same(&module, "count", Grid::line(128, group), &args, "");
    }
}

/// A comparison of an id with a limit is right for each item, wherever the limit lies.
#[test]
fn ids_pass_limits_one_by_one() {
    let module = wide(
        "kernel void limits(global int *out, int n) {
           int i = get_global_id(0), l = get_local_id(0);
           global int *o = out + 12 * i;
           if (i < n) o[0] = 1;
           if (i <= n) o[1] = 2; else o[2] = 3;
           if (n > i) o[3] = 4; else o[4] = 5;
           if (i >= n) o[5] = 6;
           if (l == (n & 31)) o[6] = 7; else o[7] = 8;
           if ((uint)i > (uint)n) o[8] = 9;
           if (get_global_id(0) < (size_t)(long)n) o[9] = 10;
           if (n != i) o[10] = 11;
         }",
    );
    for n in [-1, 0, 1, 15, 16, 17, 40, 63, 64, i32::MAX] {
        same(&module, "limits", Grid::line(64, 32), &[ints(768, |_| 0), int(n)], "");
    }
}

/// Vectors that stop at different barriers continue, each from where it stopped, until all have run all
/// of their code.
#[test]
fn vectors_that_stop_apart_all_run_to_their_end() {
    let source = |attribute: &str| {
        format!(
            "kernel {attribute} void apart(global int *out, local int *t, int n) {{
               int x = get_local_id(0), y = get_local_id(1), i = y * get_local_size(0) + x;
               int sum = out[i];
               barrier(CLK_LOCAL_MEM_FENCE);
               for (int k = 0; k < n; k++) {{
                 if ((y + k) & 1) {{
                   sum = sum * 3 + k;
                   barrier(CLK_LOCAL_MEM_FENCE);
                   sum += x;
                 }}
                 if (k > y) break;
                 t[i] = sum;
                 barrier(CLK_LOCAL_MEM_FENCE);
                 sum += t[i];
               }}
               barrier(CLK_LOCAL_MEM_FENCE);
               out[i] = sum;
             }}"
        )
    };
    let grid = Grid { offset: [0; 3], global: [32, 4, 1], group: [32, 4, 1] };
    for attribute in ["", "__attribute__((reqd_work_group_size(32, 4, 1)))"] {
        let module = wide(&source(attribute));
        for n in [0, 1, 6] {
            let args = [ints(128, |i| i * 5), Input::Local(512), int(n)];
            same(&module, "apart", grid, &args, "");
        }
    }
}

/// Items whose loops depend on their own results run in vectors of 32 if a row has room for that, then
/// of 16, then singly; wherever a row ends, each item is run once.
#[test]
fn rows_are_run_in_two_lengths_of_vectors_and_a_rest() {
    let module = wide(
        "kernel void steps(global int *out, int n) {
           int i = get_global_id(0), x = i, k = 0;
           for (; k < n && x != 1; k++) x = x & 1 ? 3 * x + 1 : x >> 1;
           out[i] += 1000 * k + (x & 511);
         }
         kernel void doubles(global double *out, int n) {
           double x = out[get_global_id(0)];
           for (int k = 0; k < n; k++) x = 3.5 * x * (1 - x);
           out[get_global_id(0)] = x;
         }
         kernel void sums(global int *out, local int *t) {
           int l = get_local_id(0), x = l;
           for (int k = 0; k < 4; k++) {
             t[l] = x;
             barrier(CLK_LOCAL_MEM_FENCE);
             x += t[l ^ 1];
             barrier(CLK_LOCAL_MEM_FENCE);
           }
           out[get_global_id(0)] = x;
         }
         kernel void rows(global int *out, global const int *in, int n) {
           int i = get_global_id(0), x = 0;
           for (int k = 0; k < n; k++) x = 3 * x + in[i * n + k];
           out[i] = x;
         }
         kernel void outer(global int *out, global const int *in, int n) {
           int i = get_global_id(0), x = 0;
           for (int k = 0; k < n; k++) {
             x += in[i * n + k];
             for (int j = 0; j < n; j++) x = 3 * x + in[j];
           }
           out[i] = x;
         }
         kernel void line(global int *out) { out[get_global_id(0)] *= 3; }",
    );
    for kernel in &module.kernels {
        let widened = widen_twice(&module, kernel, 16).expect("it can be widened");
        // Gathers of an outer loop are few.
        let doubled = ["steps", "outer"].contains(&kernel.name.as_str());
        assert_eq!(widened.double.is_some(), doubled, "{}", kernel.name);
    }
    let args = [ints(127, |_| 0), ints(127 * 9, |i| i * 37 % 1009), int(9)];
    same(&module, "outer", Grid::line(127, 127), &args, "");
    for group in [8, 16, 31, 32, 48, 63, 127] {
        let args = [ints(127, |i| i), int(60)];
        same(&module, "steps", Grid::line(127, group), &args, &format!("groups of {group}"));
    }
}

/// A kernel whose required rows consist of vectors of 8 or 16 items runs in those; longer ones would not
/// be full.
#[test]
fn required_rows_are_made_of_whole_vectors() {
    let module = wide(
        "kernel __attribute__((reqd_work_group_size(8, 8, 1)))
         void tile(global int *out, local int *t) {
           int x = get_local_id(0), y = get_local_id(1), sum = 0;
           t[8 * y + x] = out[get_global_linear_id()];
           barrier(CLK_LOCAL_MEM_FENCE);
           for (int k = 0; k < 8; k++) sum += t[8 * k + y] * t[8 * x + k];
           barrier(CLK_LOCAL_MEM_FENCE);
           out[get_global_linear_id()] = sum;
         }
         kernel __attribute__((reqd_work_group_size(24, 2, 1)))
         void eights(global int *out) { out[get_global_linear_id()] *= 5; }
         kernel __attribute__((reqd_work_group_size(48, 1, 1)))
         void sixteens(global int *out) { out[get_global_linear_id()] *= 7; }
         kernel __attribute__((reqd_work_group_size(6, 1, 1)))
         void neither(global int *out) { out[get_global_linear_id()] *= 9; }",
    );
    let lanes: Vec<u32> = module.kernels.iter().map(tally_compiler::widen::lanes).collect();
    assert_eq!(lanes, [8, 8, 16, 8]);
    let sizes = [("tile", [8, 8]), ("eights", [24, 2]), ("sixteens", [48, 1]), ("neither", [6, 1])];
    for (name, [x, y]) in sizes {
        let global = [3 * u64::from(x), 2 * u64::from(y), 1];
        let grid = Grid { offset: [0; 3], global, group: [x, y, 1] };
        let out = ints(6 * (x * y) as i32, |i| i * 3 - 50);
        let args = if name == "tile" { vec![out, Input::Local(256)] } else { vec![out] };
        same(&module, name, grid, &args, "");
    }
}
