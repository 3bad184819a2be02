// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indices of 32 bits that begin at a number of the group, which clang computes in 64 bits, and loops that compare them
//! with numbers of 64 bits.

use tally_compiler::ir::{Inst, Op};
use tally_compiler::widen::widen;

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

/// Loops that load ahead: each turn has the index of the next one, which clang keeps extended.
#[test]
fn indices_of_the_next_turn_are_lines() {
    let ahead = |ty: &str, found: &str| {
        reading(&format!(
            "global const int *p = (global const int *)in;
             {ty} j = (p[0] & {found}) + ({ty})item;
             float t = in[j];
             for (int k = 2; k < n; k++) {{
               float d = out[j];
               j = (p[k] & {found}) + ({ty})item;
               s += d * t;
               t = in[j];
             }}
             s += t;"
        ))
    };
    // What is loaded may be any number, so each of the three lines has a gather beside it.
    for ty in ["int", "uint"] {
        let text = ahead(ty, "-1");
        assert_eq!((apart(&text), lines(&text)), ((3, 0), 3), "{ty}");
    }
    // What comes from the last turn has bounds, too.
    assert_eq!(apart(&ahead("int", "255")), (0, 0));
    let turned = "global const int *p = (global const int *)in;
                  int j = item, x = p[j];
                  for (int k = 1; k < n; k++) {
                    s += in[j] * x; j = (p[k] & 4095) + (int)item; x = p[j]; }";
    assert_eq!(apart(&reading(turned)), (0, 0));
}

/// The number of lines that a kernel loads, widened to 16 items.
fn lines(text: &str) -> usize {
    let module = module(&clang::compile_text(text, &["-O2", "-w"]));
    let widened = widen(&module, &module.kernels[0], 16).expect("it is widened");
    let function = &widened.module.functions[widened.function];
    let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let line = |inst: &&Inst| match (&inst.op, inst.result) {
        (Op::Load(..), Some(it)) => widened.module.types.lanes(function.values[it].ty) == 16,
        _ => false,
    };
    insts.filter(line).count()
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
        "int j = m + item; for (int k = 0; k < 5; k++) { ADD j; j = m + in[k] + (int)item; ADD j; }",
        "uint j = m - item; for (int k = 0; k < 5; k++) { ADD j; j = in[k] * n - m + (uint)item; ADD j; }",
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
