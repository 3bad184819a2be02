// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows that crowd the cache run in vectors of fewer items, and searches in vectors of more.

use tally_compiler::widen::widen_twice;

use crate::diff::same;
use crate::harness::Grid;
use crate::widen::{int, ints, wide};

#[test]
fn rows_that_crowd_the_cache_have_vectors_of_eight_items() {
    let row = |name: &str, step: &str, body: &str| {
        format!(
            "kernel void {name}(global int *out, global const int *in, int n) {{
               int i = get_global_id(0), s = 0;
               global int *o = out + i * {step}; global const int *r = in + i * {step};
               for (int k = 0; k < n; k++) {{ {body} }}
               out[i * {step}] = s;
             }}\n"
        )
    };
    let scan = "s += r[k]; o[k] = s;";
    let code = [
        row("l8_scan", "1024", scan),
        row("l8_scan_far", "4096", scan),
        row("l8_in_place", "1024", "o[k] += o[k + 1];"),
        row("l8_three", "512", "s += r[k] * o[k]; o[k] = s;"),
        row("l16_scan", "1040", scan),
        row("l16_near", "512", scan),
        row("l16_lines", "1024", "int j = k * 37 & 1023; s += r[j]; o[j] = s;"),
        row("l16_sum", "1024", "s = s * 3 + r[k];"),
        row("l16_short", "32", scan),
    ];
    let module = wide(&code.concat());
    for kernel in &module.kernels {
        let widened = widen_twice(&module, kernel, 16).expect("it can be widened");
        let lanes = if kernel.name.starts_with("l8") { 8 } else { 16 };
        assert_eq!(widened.lanes, lanes, "{}", kernel.name);
        match kernel.name.as_str() {
            // 32 rows of one array crowd it too.
            "l16_sum" => assert!(widened.double.is_none()),
            "l16_short" => assert!(widened.double.is_some()),
            _ => {}
        }
    }
    for kernel in &module.kernels {
        for (items, group) in [(48, 16), (40, 20), (23, 23)] {
            let args = [ints(4096 * 48, |_| 1), ints(4096 * 48, |i| i * 7919 - 400), int(9)];
            same(
                &module,
                &kernel.name,
                Grid::line(items, group),
                &args,
                &format!("groups of {group}"),
            );
        }
    }
}

#[test]
fn rows_of_required_groups_that_crowd_the_cache() {
    for group in [8_u32, 16, 24, 32, 20, 5] {
        let module = wide(&format!(
            "kernel __attribute__((reqd_work_group_size({group}, 1, 1)))
             void scan(global int *out, global const int *in, int n) {{
               int i = get_global_id(0), s = 0;
               for (int k = 0; k < n; k++) {{ s += in[i * 1024 + k]; out[i * 1024 + k] = s; }}
             }}"
        ));
        let items = 2 * u64::from(group);
        let args = [ints(1024 * 64, |_| 0), ints(1024 * 64, |i| i * 7919 - 400), int(9)];
        same(&module, "scan", Grid::line(items, group), &args, &format!("groups of {group}"));
    }
}

#[test]
fn searches_have_vectors_of_twice_as_many_items() {
    let module = wide(
        "kernel void yes_sorted(global int *out, global const int *in, int n) {
           int i = get_global_id(0), key = in[i] & 255, lo = 0, hi = n;
           while (lo < hi) { int m = (lo + hi) >> 1; if (in[m] < key) lo = m + 1; else hi = m; }
           out[i] = lo;
         }
         kernel void yes_probes(global int *out, global const int *in, int n) {
           int i = get_global_id(0), h = in[i] & 63, c = 0;
           while (c < n && (in[h] & 3) != 1) { h = (h + 1) & 63; c++; }
           out[i] = h * 64 + c;
         }
         kernel void yes_list(global int *out, global const int *in, int n) {
           int i = get_global_id(0), x = i;
           for (int k = 0; k < n; k++) x = in[x] & 127;
           out[i] = x;
         }
         kernel void no_indirect(global int *out, global const int *in, int n) {
           int i = get_global_id(0), s = 0, e = in[i] & 7;
           for (int k = 0; k < e; k++) s += in[in[(k * 16 + i) & 127] & 127];
           out[i] = s;
         }
         kernel void no_rows(global int *out, global const int *in, int n) {
           int i = get_global_id(0), s = 0;
           for (int k = 0; k < n && s < 90; k++) s += in[(i * n + k) & 127] & 7;
           out[i] = s;
         }
         kernel void no_scatters(global int *out, global const int *in, int n) {
           int i = get_global_id(0), x = i;
           for (int k = 0; k < n; k++) { x = in[x] & 127; out[x] = 5; }
         }
         kernel void no_atomics(global int *out, global const int *in, int n) {
           int i = get_global_id(0), x = i;
           for (int k = 0; k < n; k++) { x = in[x] & 127; atomic_add(out + x, 1); }
         }",
    );
    for kernel in &module.kernels {
        let widened = widen_twice(&module, kernel, 16).expect("it can be widened");
        let doubled = kernel.name.starts_with("yes");
        assert_eq!(widened.double.is_some(), doubled, "{}", kernel.name);
    }
    for kernel in &module.kernels {
        for group in [16, 32, 48, 128] {
            let group = if kernel.name == "no_scatters" { 16 } else { group };
            let args = [ints(128, |_| 0), ints(128, |i| i * 7919 % 251), int(9)];
            let items = if group == 48 { 96 } else { 128 };
            same(
                &module,
                &kernel.name,
                Grid::line(items, group),
                &args,
                &format!("groups of {group}"),
            );
        }
    }
}
