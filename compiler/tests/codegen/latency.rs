// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels whose vectors wait for their own results run in vectors of twice as many items.

use tally_compiler::widen::widen_twice;

use crate::diff::same;
use crate::harness::Grid;
use crate::widen::{int, ints, wide};

/// Rounds of a cipher, as text.
fn rounds(count: usize) -> String {
    let round = "a += (b << 4 ^ b >> 5) + b ^ n; b += (a << 4 ^ a >> 5) + a ^ (n + 5);\n";
    round.repeat(count)
}

#[test]
fn kernels_of_one_chain_have_vectors_of_twice_as_many_items() {
    let pair = "int i = get_global_id(0); uint a = in[i], b = i;";
    let (chain, few) = (rounds(16), rounds(2));
    let step = "a = rotate(a + (b & c | ~b & d) + n, 7u) + b; d = rotate(d + (a & b | ~a & c), 12u) + a;
                c = rotate(c + (d & a | ~d & b), 17u) + d; b = rotate(b + (c & d | ~c & a), 22u) + c;\n";
    let steps = step.repeat(8);
    let four = "v += (v << 4 ^ v >> 5) + (uint)n;\n".repeat(24);
    let live: Vec<_> = (0..30).map(|k| format!("uint s{k} = a * {}u + b;", 2 * k + 3)).collect();
    let sums: Vec<_> = (0..30).map(|k| format!("s{k}")).collect();
    let some = live[..12].join(" ");
    let (live, sums) = (live.join(" "), sums.join(" ^ "));
    let module = wide(&format!(
        "kernel void yes_chain(global int *out, global const int *in, int n) {{
           {pair} {chain} out[i] = a ^ b;
         }}
         kernel void yes_steps(global int *out, global const int *in, int n) {{
           {pair} uint c = a + 3, d = a ^ n;
           for (int k = 0; k < n; k++) {{ {steps} }}
           out[i] = a + b + c + d;
         }}
         kernel void yes_vectors(global int *out, global const int *in, int n) {{
           {pair} uint4 v = (uint4)(a, b, a + b, n);
           for (int k = 0; k < n; k++) v = (v ^ v.yzwx) * 5u + 1u;
           out[i] = v.x + v.y + v.z + v.w;
         }}
         kernel void no_short(global int *out, global const int *in, int n) {{
           uint i = get_global_id(0), a = i, b = n; {few} out[i] = a ^ b;
         }}
         kernel void no_many(global int *out, global const int *in, int n) {{
           {pair} {live} {chain} out[i] = a ^ b ^ {sums};
         }}
         kernel void yes_some(global int *out, global const int *in, int n) {{
           {pair} {some} {chain} out[i] = a ^ b ^ s0 ^ s1 ^ s2 ^ s3 ^ s4 ^ s5 ^ s6 ^ s7 ^ s8 ^ s9 ^ s10 ^ s11;
         }}
         kernel void no_wide(global int *out, global const int *in, int n) {{
           {pair} uint4 v = (uint4)(a, b, a + b, n); {four}
           out[i] = v.x ^ v.y ^ v.z ^ v.w;
         }}
         kernel void no_loads(global int *out, global const int *in, int n) {{
           {pair}
           for (int k = 0; k < 16; k++) {{ a += in[i + k] ^ b; b ^= a << 3; }}
           out[i] = a ^ b;
         }}
         kernel void yes_beside(global int *out, global const int *in, int n) {{
           {pair} for (int k = 0; k < n; k++) {{ a = a * 5 + b; out[k * 128 + i] = a; }}
         }}
         kernel void yes_powers(global int *out, global const int *in, int n) {{
           {pair} ulong r = 1, s = a % 1000003;
           for (int k = n; k; k >>= 1) {{ if (k & 1) r = r * s % 1000003; s = s * s % 1000003; }}
           out[i] = r;
         }}
         kernel void no_products(global int *out, global const int *in, int n) {{
           {pair} ulong r = 1, s = a;
           for (int k = n; k; k >>= 1) {{ if (k & 1) r = r * s ^ r >> 33; s = s * s + 7; }}
           out[i] = r >> 20;
         }}
         kernel void no_one_of_two(global int *out, global const int *in, int n) {{
           {pair} ulong r = 1, s = a;
           for (int k = n; k; k >>= 1) r = r * s % 1000003;
           for (int k = n; k; k >>= 1) r = r * s ^ r >> 33;
           out[i] = r;
         }}
         kernel void no_scatters(global int *out, global const int *in, int n) {{
           {pair} for (int k = 0; k < n; k++) {{ a = a * 5 + b; out[(i * 64 + k) & n] = a; }}
         }}
         kernel void yes_calls(global int *out, global const int *in, int n) {{
           {pair} float x = a & 15; for (int k = 0; k < 3; k++) x -= sin(x) * 0.5f;
           out[i] = (int)(exp(x * 0.01f) * 100.0f) ^ b;
         }}
         kernel void no_two_calls(global int *out, global const int *in, int n) {{
           {pair} float x = a & 15;
           out[i] = (int)(exp(sin(x) * 0.5f) * 100.0f) ^ b;
         }}
         kernel void no_calls(global int *out, global const int *in, int n) {{
           {pair} float x = a & 15;
           out[i] = (int)(exp(x * 0.01f) + sin(x) + log(x + 2) + cos(x) + exp(x * 0.02f) + log(x + 3)) ^ b;
         }}"
    ));
    for kernel in &module.kernels {
        let widened = widen_twice(&module, kernel, 16).expect("it can be widened");
        let doubled = kernel.name.starts_with("yes");
        assert_eq!(widened.double.is_some(), doubled, "{}", kernel.name);
    }
    for name in ["yes_chain", "yes_steps", "yes_vectors", "yes_some", "yes_calls"] {
        for group in [16, 32, 48, 127] {
            let args = [ints(127, |_| 0), ints(127, |i| i * 7919 - 400), int(3)];
            same(&module, name, Grid::line(127, group), &args, &format!("groups of {group}"));
        }
    }
}
