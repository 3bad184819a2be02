// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers made of places in a group: those that cannot wrap around keep their steps when they are extended, and
//! others are tested.

use tally_compiler::widen::widen;

use crate::diff::{Input, Run, same_in_all};
use crate::harness::{Grid, clang, module};
use crate::widen::{int, ints, wide};

/// The widened text of a kernel with the ids of a group's item.
fn widened(body: &str) -> String {
    let module = module(&clang::compile_text(
        &format!(
            "kernel void k(global int *out, global const int *in, local int *t, int n) {{
               int x = get_local_id(0), y = get_local_id(1), z = get_local_id(2);
               {body}
             }}"
        ),
        &["-O2", "-w"],
    ));
    let widened = widen(&module, &module.kernels[0], 16).expect("a plain kernel");
    widened.module.function_text(widened.function).to_string()
}

/// Whether the places of `t` are known to be in line, whatever the launch.
fn keeps(index: &str) -> bool {
    let text = widened(&format!("t[{index}] = n;"));
    assert!(text.contains("store"), "{text}");
    !text.contains("branch %")
}

#[test]
fn indices_of_tiles_are_not_tested() {
    for index in
        ["y * 16 + x", "(y * 33 + x) + 7", "((z << 6) | y) * 64 + x", "(y % 8) * 1000000 + x"]
    {
        assert!(keeps(index), "{index}");
    }
    for index in ["y / n * 4096 + x + in[0]", "(y - 1 + in[0]) * 16 + x"] {
        assert!(!keeps(index), "{index}");
    }
}

/// Results of each operation, where they wrap around within a vector and where not, in groups of several shapes.
#[test]
fn numbers_wrap_around_where_they_do() {
    let module = wide(
        "kernel void wrap(global long *out, local int *t, int n) {
           int x = get_local_id(0), y = get_local_id(1), z = get_local_id(2);
           int nx = get_local_size(0), ny = get_local_size(1);
           global long *o = out + 12 * get_global_linear_id();
           int tile = (z * ny + y) * nx + x;
           t[tile] = x + 3 * y;
           barrier(CLK_LOCAL_MEM_FENCE);
           o[0] = t[(z * ny + y) * nx + nx - 1 - x];
           o[1] = (long)((y * 3 + x) * 0x8000000);
           o[2] = (long)(int)((uint)(x + 3 * y) * 0x8000000u);
           o[3] = (ulong)((uint)(y * 16 + x) * 0x10000000u);
           o[4] = (long)(y * 2000000 + x);
           o[5] = (long)(y * 0x1000000 + x * 0x4000000);
           o[6] = (long)(int)(((y | 64) ^ z) * 0x1000000u + x);
           o[7] = (long)((y % 5) * 7 + (x >> 1));
           o[8] = (long)((y & 3) * n + x);
           o[9] = (long)((n > 3 ? y : z) * 16 + x);
           o[10] = (long)(short)(y * 3000 + x * 400);
           o[11] = (ulong)(ushort)(y * 3000 + x * 4000) + (uchar)(x * 9 + y);
         }",
    );
    let groups =
        [[32, 1, 1], [16, 16, 1], [64, 6, 2], [10, 10, 1], [8, 2, 20], [256, 2, 1], [5, 40, 1]];
    let runs: Vec<Run> = groups
        .into_iter()
        .flat_map(|group| {
            let global = group.map(u64::from);
            let items = group.iter().product::<u32>() as i32;
            [0x7fff_fff0, 3, -9].map(|n| {
                let out = ints(items * 24, |_| -1);
                (
                    Grid { offset: [0; 3], global, group },
                    vec![out, Input::Local(4 * items as usize), int(n)],
                )
            })
        })
        .collect();
    same_in_all(&module, "wrap", &runs);
}
