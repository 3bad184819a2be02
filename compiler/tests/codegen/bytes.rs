// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels of bytes and of integers of two bytes have vectors of twice as many items.

use tally_compiler::widen;

use crate::diff::{Input, same};
use crate::harness::Grid;
use crate::widen::{int, wide};

/// Kernels, and whether they are of bytes.
const KERNELS: [(&str, bool, &str); 18] = [
    ("copies", true, "out[i] = in[i];"),
    ("differences", true, "out[i] = max(in[i], in[i + 1]) - min(in[i], in[i + 1]);"),
    ("shorts", true, "short x = w[i], y = w[i + 3]; ((global short *)out)[i] = add_sat(x, y) ^ n;"),
    ("backwards", true, "out[127 - i] = in[i] ^ 5;"),
    ("one_for_all", true, "out[i] = (in[i] ^ in[n]) + (uchar)n;"),
    (
        "edges",
        true,
        "if (i == 0 || i >= n + 99) out[i] = in[i]; else out[i] = max(in[i - 1], in[i + 1]);",
    ),
    ("chosen", true, "uchar x = in[i]; if (x & 4) x = x * 3 - in[i + 2]; out[i] = x;"),
    (
        "median",
        true,
        "uchar a[5]; for (int k = 0; k < 5; k++) a[k] = in[i + k];
         for (int k = 0; k < 3; k++) for (int l = k + 1; l < 5; l++) {
           uchar x = min(a[k], a[l]); a[l] = max(a[k], a[l]); a[k] = x;
         }
         out[i] = a[2];",
    ),
    ("of_one_place", false, "out[0] = n;"),
    ("of_words", false, "((global int *)out)[i] = ((global const int *)in)[i];"),
    ("as_words", false, "out[i] = (in[i] * (n + 70000 * i)) >> 8;"),
    ("halves", false, "((global half *)out)[i] = -((global const half *)w)[i];"),
    ("floats", false, "out[i] = (uchar)(convert_float(in[i] >> 1) * 1.5f);"),
    ("rows", false, "out[i] = in[i * 3 ] ^ in[i * 3 + 1];"),
    ("vectors", false, "((global uchar4 *)out)[i] = ((global const uchar4 *)in)[i] ^ (uchar4)7;"),
    ("lookups", false, "out[i] = in[in[i] & 127];"),
    (
        "loops",
        false,
        "uchar s[8], x = 0; for (int j = 0; j < 8; j++) s[j] = j;
         for (int k = 0; k < n; k++) for (int j = 0; j < 8; j++) s[j] = s[j] * 3 + in[i + k + j];
         for (int j = 0; j < 8; j++) x ^= s[j];
         out[i] = x;",
    ),
    ("atomics", false, "out[i] = in[i]; atomic_inc((global int *)out + 100);"),
];

#[test]
fn kernels_of_bytes_have_vectors_of_twice_as_many_items() {
    for (name, doubled, body) in KERNELS {
        let module = wide(&format!(
            "#pragma OPENCL EXTENSION cl_khr_fp16 : enable
             kernel void k(global uchar *out, global const uchar *in, global const short *w, int n) {{
               int i = get_global_id(0); {body}
             }}"
        ));
        let kernel = &module.kernels[0];
        let widened = widen::widen_twice(&module, kernel, 16).expect("it can be widened");
        assert_eq!(widened.double.is_some(), doubled, "{name}");
        let bytes = |by: u32| {
            let byte = |i: u32| (i.wrapping_mul(0x9e37_79b9).wrapping_mul(by) >> 24) as u8;
            Input::bytes((0..1024).map(byte).collect())
        };
        for group in [16, 32, 48, 127] {
            let args = [bytes(1), bytes(3), bytes(5), int(21)];
            let what = format!("{name}, groups of {group}");
            same(&module, "k", Grid::line(127, group), &args, &what);
        }
    }
}
