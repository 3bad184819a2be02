// SPDX-License-Identifier: MIT OR Apache-2.0
//! Items that look up elements in tables of few bytes. The buffers begin and end at inaccessible pages.

use tally_compiler::widen::widen;

use crate::diff::{Elements, Input, same};
use crate::harness::Grid;
use crate::widen::{int, wide};

/// Types, and the size in bytes and the number of elements of the longest table.
const TYPES: [(&str, usize, usize); 6] = [
    ("uchar", 1, 256),
    ("char", 1, 256),
    ("ushort", 2, 256),
    ("half", 2, 256),
    ("uint", 4, 128),
    ("float", 4, 64),
];

fn bytes(count: usize, f: impl Fn(usize) -> u8) -> Input {
    Input::Buffer(Elements::Bytes, (0..count).map(f).collect())
}

fn kernel(ty: &str, index: &str, test: &str) -> String {
    format!(
        "#pragma OPENCL EXTENSION cl_khr_fp16 : enable
         kernel void k(global {ty} *out, global const {ty} *t, global const uchar *in, int from) {{
           size_t i = get_global_id(0);
           if ({test}) out[i] = (t + from)[{index}];
         }}"
    )
}

/// Tables of all lengths at the end of a buffer, of which items read less than their indices might be, or all.
#[test]
fn tables_end_where_memory_does() {
    for (ty, size, most) in TYPES {
        for test in ["true", "in[i] % 3 == 1", "in[i] == 0"] {
            let index = format!("in[i] & {}", most - 1);
            let module = wide(&kernel(ty, &index, test));
            for (length, from) in
                [(most, 0), (most + 3, 3), (most / 2, 0), (most / 2 + 1, 1), (5, 0), (2, 1)]
            {
                let table = bytes(length * size, |i| (i * 37 % 120) as u8);
                let looked = bytes(128, |i| (i * 59 % (length - from)) as u8);
                let inputs = [bytes(128 * size, |_| 7), table, looked, int(from as i32)];
                let context = format!("{length} of {ty} from {from} on if {test}");
                same(&module, "k", Grid::line(128, 64), &inputs, &context);
            }
        }
    }
}

/// Where no item looks anything up, the table need not be there.
#[test]
fn tables_are_not_read_for_nobody() {
    for test in ["in[i] == 255", "in[i] > 200 && (in[i] & 3) == from"] {
        let module = wide(&kernel("uchar", "in[i]", test));
        let inputs = [bytes(128, |_| 7), bytes(1, |_| 1), bytes(128, |i| i as u8), int(1 << 28)];
        same(&module, "k", Grid::line(128, 64), &inputs, test);
    }
}

/// Which indices are known to be in a table: those of a few bits.
#[test]
fn indices_of_few_bits_are_looked_up() {
    let is_table = |ty: &str, index: &str| {
        let module = wide(&kernel(ty, index, "true"));
        let widened = widen(&module, &module.kernels[0], 16).expect("a plain kernel");
        widened.module.function_text(widened.function).to_string().contains("look_up")
    };
    for index in
        ["in[i]", "in[i] & 15", "in[i] - 1", "(in[i] << 3 | in[i + 9]) >> 3 & 255", "in[i] % 7"]
    {
        assert!(is_table("uchar", index), "{index}");
    }
    for index in [
        "in[i] & 63",
        "in[i] >> 2",
        "in[i] / 4",
        "in[i] % 64",
        "clamp(in[i] - 100, 0, 63)",
        "min((uint)in[i] - 9, 63u)",
        "(in[i] & 15) - 1",
        "in[i] & 127",
    ] {
        assert!(is_table("float", index), "{index}");
    }
    // More bytes than are loaded, signs, and places that are in line.
    for index in
        ["in[i]", "in[i] % 129", "in[i] * 2 / 3", "(char)in[i]", "min(in[i] - 9, 63)", "i & 15"]
    {
        assert!(!is_table("float", index), "{index}");
    }
    for index in ["(char)in[i]", "in[i] * 5"] {
        assert!(!is_table("uchar", index), "{index}");
    }
    for ty in ["double", "float2"] {
        assert!(!is_table(ty, "in[i] & 3"), "{ty}");
    }
}

/// Small elements that are written side by side are joined before tables of local and constant memory are tested.
#[test]
fn tables_do_not_part_what_is_written() {
    for space in ["local", "constant"] {
        let module = wide(&format!(
            "kernel void k(global uchar *out, {space} uchar *t, global const uchar *in) {{
               size_t i = get_global_id(0);
               uchar a = in[i], b = in[i + 1];
               global uchar *at = out + 3 * i;
               at[0] = t[a];
               at[1] = (t + 3)[b >> 4];
               at[2] = 5;
             }}"
        ));
        let widened = widen(&module, &module.kernels[0], 16).expect("a plain kernel");
        let text = widened.module.function_text(widened.function).to_string();
        assert_eq!(text.matches("look_up").count(), 2, "{space}:\n{text}");
        assert!(!text.contains("  scatter "), "{space}:\n{text}");
    }
}

/// Tables whose elements are written side by side: of all lengths at the end of a buffer, and in local memory.
#[test]
fn elements_of_tables_are_written_side_by_side() {
    for test in ["true", "in[2 * i] % 3 == 1", "in[2 * i] == 0"] {
        let module = wide(&format!(
            "kernel void k(global uchar *out, constant uchar *t, global const uchar *in, int from) {{
               size_t i = get_global_id(0);
               local uchar own[256];
               for (size_t n = get_local_id(0); n < 256; n += get_local_size(0)) own[n] = n * 7;
               barrier(CLK_LOCAL_MEM_FENCE);
               if ({test}) {{
                 out[2 * i] = (t + from)[in[2 * i]];
                 out[2 * i + 1] = own[in[2 * i + 1]] + (t + from)[in[2 * i + 1] & 1];
               }}
             }}"
        ));
        for (length, from) in [(256, 0), (259, 3), (128, 0), (129, 1), (5, 0), (3, 1)] {
            let table = bytes(length, |i| (i * 37 % 120) as u8);
            let looked = bytes(256, |i| (i * 59 % (length - from)) as u8);
            let inputs = [bytes(256, |_| 7), table, looked, int(from as i32)];
            let context = format!("{length} from {from} if {test}");
            same(&module, "k", Grid::line(128, 64), &inputs, &context);
        }
    }
}

/// Variables of the module are tables of their size: what clang makes of a switch, and arrays of constants.
#[test]
fn variables_are_tables_of_their_size() {
    let texts = [
        // The first one is a switch that clang makes a table.
        "switch (x) { case 'a': y = 5; break; case 'c': y = 1; break; case 'e': y = -7; break;
                      case 'f': y = 12; break; case 'g': y = 2; break; default: y = 3; }",
        "if (x < 64) y = t[x];",
        "if (x >= 3 && x < 67) y = t[x - 3];",
        "if (x > 200) y = (t + 60)[(char)x / 16];",
        "if (x < 100) y = s[x] * b[x];",
    ];
    for text in texts {
        let module = wide(&format!(
            "constant int t[64] = {{ 9, 8, 7, 1000000, 5, 4, 3, 2, 1, [60] = 17, 18, 19, 20 }};
             constant short s[100] = {{ 9, 8, 7, -3000, 5, [90] = 17, 18, 19, 20, [99] = 77 }};
             constant uchar b[200] = {{ 9, 8, 7, 200, 5, [90] = 17, 18, 19, 20, [99] = 177 }};
             kernel void k(global int *out, global const uchar *in) {{
               size_t i = get_global_id(0); uchar x = in[i]; int y = 3;
               {text}
               out[i] = y; }}"
        ));
        let widened = widen(&module, &module.kernels[0], 16).expect("a plain kernel");
        let code = widened.module.function_text(widened.function).to_string();
        assert!(code.contains("look_up"), "{text}:\n{code}");
        for step in [1, 7, 59] {
            let inputs = [bytes(4 * 256, |_| 7), bytes(256, |i| (i * step + step) as u8)];
            same(&module, "k", Grid::line(256, 64), &inputs, text);
        }
    }
}
