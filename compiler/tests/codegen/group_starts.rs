// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indices of 32 bits that begin at a number of the group, which clang computes in 64 bits, and loops that compare them
//! with numbers of 64 bits.

use crate::diff::{Run, same_in_all};
use crate::harness::{Grid, clang, module};
use crate::transpose::apart;
use crate::widen::{int, ints};

/// A kernel that reads at `i` in turns.
fn reading(statements: &str) -> String {
    format!(
        "kernel void k(global float *out, global const float *in, int n, uint m, ulong w) {{
           size_t group = get_group_id(0), item = get_local_id(0), size = get_local_size(0);
           float s = 0;
           {statements}
           out[get_global_id(0)] = s; }}"
    )
}

#[test]
fn indices_from_a_number_of_the_group_are_lines() {
    let lines = [
        // (group << 44) + (item << 32) >> 30.
        "int i = group * 4096 + item; for (int k = 0; k < n; k++) s += in[i + k * 64];",
        "int i = group * 4096 - item * 7 + item * 8; for (int k = 0; k < n; k++) s += in[i + k * 64];",
        // The end has 64 bits.
        "for (int i = group * 4096 + item; i < group * 4096 + 4096; i += 64) s += in[i];",
        "for (uint i = group * 4096 + item; i < group * 4096 + 4096; i += 64) s += in[i];",
        "for (int i = group * n + item; i < (group + 1) * n; i += size) s += in[i];",
        "for (uint i = group * m + item; i < (group + 1) * m; i += size) s += in[i];",
        "for (int i = group * 4096 + item; i < min((size_t)n, group * 4096 + 4096); i += 64) s += in[i];",
        "for (int i = group * 64 + item; i < w; i += 4096) s += in[i];",
        "for (int i = group * 64 + item; (long)i < (long)w; i += 4096) s += in[i];",
        "for (uint i = group * 64 + item; (long)i <= (long)w; i += 4096) s += in[i];",
    ];
    for statements in lines {
        assert_eq!(apart(&reading(statements)), (0, 0), "{statements}");
    }
    // It ends at a number that nothing is known of.
    let found = "for (uint i = group * 64 + item; i < (size_t)in[3]; i += 4096) s += in[i];";
    assert_eq!(apart(&reading(found)), (1, 0));
}

/// Sums, products and counters, which wrap around in all groups, in some of them, or in some of their items.
#[test]
fn indices_from_a_number_of_the_group_wrap_around() {
    // `ADD` adds a number to those before it.
    let statements = [
        "int i = group * 0x10000000 + item; for (int k = 0; k < n; k++) ADD (i + k);",
        "int i = group * 0x3ffffff0 + item; ADD i;",
        "uint i = group * 0x10000000 + item; ADD i; ADD (int)i;",
        "int i = (group + 0x7ffffff0) * 0x100000001 - item; ADD i;",
        "for (int k = 0; k < 3; k++) { int i = group * m + k * 64 + item; ADD i; }",
        "int i = group * m + item; ADD (in[(i & 15) + 1] + i);",
        "s = ((long)(group << 40) + (long)(item << 32)) >> 29;",
        "s = ((ulong)(group << 63) - (item << 33)) >> 31;",
        "s = ((long)(group << 40) + (long)(item << 31)) >> 32;",
        "s = ((long)(group << 40) + (long)item) >> 32;",
        "s = ((long)(group << 40) + (long)(item << 33) + 0x70000000) >> 29;",
        "s = ((long)(group << 40) - (long)(item << 33) - 0x200000000) >> 32;",
        "s = ((long)(group * 0x300000000) + (long)(item << 33)) >> 31;",
        "s = ((long)(group * 0x3c0000000) + (long)(item << 33)) >> 32;",
        "for (uint i = m << 28; (long)i > n; i -= 0x30000000) ADD (int)(i - 0x40000010u + (uint)item);",
        "for (uint i = m + item; i < (ulong)m + n; i += size) ADD (int)i;",
        "for (uint i = m + item; i <= (ulong)m + n; i += 7) ADD i;",
        "int b = m; for (uint i = m + item; (ulong)(long)(int)i < (ulong)(long)b + n; i += 9) ADD i;",
        "int b = m; if (b > -1000) for (uint i = m - item; (long)(int)i > (long)b - n; i -= 3) ADD (int)i;",
    ];
    let mut runs: Vec<Run> = Vec::new();
    for (group, groups) in [(32, 9), (20, 3)] {
        let grid = Grid::line(group * groups, group as u32);
        for m in [5, 0x7fff_ff00, 0x7fff_fff0, i32::MIN, i32::MIN + 40, -300] {
            for n in [1, 40, 90] {
                let out = ints(2 * (group * groups) as i32, |_| -1);
                runs.push((grid, vec![out, ints(64, |i| i * 7), int(n), int(m)]));
            }
        }
    }
    for level in ["-O0", "-O2"] {
        for (number, statements) in statements.iter().enumerate() {
            let statements = statements.replace("ADD", "s = s * 31 + (long)");
            let name = format!("k{number}");
            let text = format!(
                "kernel void {name}(global long *out, global const int *in, int n, uint m) {{
                   size_t group = get_group_id(0), item = get_local_id(0), size = get_local_size(0);
                   long s = 0;
                   {statements}
                   out[get_global_id(0)] = s; }}"
            );
            same_in_all(&module(&clang::compile_text(&text, &[level, "-w"])), &name, &runs);
        }
    }
}
