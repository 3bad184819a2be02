// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels whose items walk along rows of different lengths run one item at a time.

use tally_compiler::widen::widen;

use crate::diff::same;
use crate::harness::{Grid, clang, module};
use crate::widen::{int, ints};

#[test]
fn kernels_that_mostly_walk_along_rows_of_different_lengths_are_not_widened() {
    let each = "for (int j = first[i]; j < first[i + 1]; j++)";
    let long = "x = x * x + 0.5f;\n".repeat(20);
    let many = "s += at[i + 1] ^ s << 1;\n".repeat(50);
    let kernel = |name: &str, body: &str| {
        format!(
            "kernel void {name}(global const int *restrict first, global const int *restrict at, global const float *restrict v,
                                global int *restrict out, int n, local int *t) {{
               int i = get_global_id(0), s = 0;
               float f = 0, x;
               if (i < n) {{ {body} out[i] = s + (int)f; }}
             }}"
        )
    };
    let text = [
        kernel("yes_products", &format!("{each} f += v[j] * v[at[j]];")),
        kernel("yes_least", &format!("{each} s = min(s, at[at[j] & 63]);")),
        kernel("yes_quotients", &format!("{each} f += v[j] / (v[at[j]] + 1);")),
        kernel("yes_sums", &format!("{each} {{ s += at[j]; out[j + 64] = s; }}")),
        kernel("yes_pointers", "global const int *p = at + first[i]; while (p != at + first[i + 1]) s += *p++;"),
        kernel("yes_twice", &format!("{each} f += v[j] * v[at[j]]; {each} f -= v[at[j]];")),
        kernel("yes_turns", &format!("for (int k = 0; k < 3; k++) {each} f += v[j] * v[at[j] ^ k];")),
        // All items take the same turns, and neighbours' elements lie side by side or are in no row.
        kernel("no_same", "for (int j = 0; j < n; j++) f += v[j] * v[at[i * n + j]];"),
        kernel("no_columns", "for (int j = 0; j < first[i]; j++) f += v[j * 64 + i];"),
        kernel("no_steps", "for (int j = 0; j < first[i]; j++) f += v[at[i] + 8 * j];"),
        kernel("no_search", "int e = n; while (s < e) { int m = (s + e) / 2; if (at[m] < i) s = m + 1; else e = m; }"),
        kernel("no_list", "for (int j = first[i]; j > 0; j = at[j]) f += v[j];"),
        // There is more to compute than to load, it depends on branches, or others wait.
        kernel("no_long", &format!("{each} {{ x = v[j]; {long} f += x; }}")),
        kernel("no_function", &format!("{each} f += exp(v[j]);")),
        kernel("no_branches", &format!("{each} if (v[j] > 0.5f) f += sqrt(v[at[j]]); else out[64 + j] = 1;")),
        kernel("no_beside", &format!("{each} f += v[j] * v[at[j]]; {many}")),
        kernel("no_atomics", &format!("{each} atomic_inc(&out[at[j]]);")),
        kernel("no_local", &format!("{each} f += t[j];")),
        kernel("no_barrier", &format!("{each} f += v[j] * v[at[j]]; }} barrier(CLK_LOCAL_MEM_FENCE); {{")),
    ]
    .concat();
    let module = module(&clang::compile_text(&text, &["-O2", "-w"]));
    for kernel in &module.kernels {
        let refused = kernel.name.starts_with("yes");
        let is = widen(&module, kernel, 16);
        assert_eq!(is.as_ref().is_err(), refused, "{}", kernel.name);
        if let Err(why) = is {
            assert!(
                why.to_string().contains("rows of different lengths"),
                "{}: {why}",
                kernel.name
            );
        }
    }
    let first = ints(65, |i| i * 4 - i % 3);
    let args =
        [first, ints(320, |i| i * 37 % 64), ints(320, |_| 0x3f00_0000), ints(384, |_| 0), int(61)];
    for kernel in module.kernels.iter().filter(|kernel| kernel.name.starts_with("yes")) {
        let local = crate::diff::Input::Local(64);
        let args = [&args[..], &[local]].concat();
        same(&module, &kernel.name, Grid::line(64, 16), &args, "");
    }
}
