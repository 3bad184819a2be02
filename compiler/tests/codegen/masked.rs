// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vectors that items have side by side, of which some items load or store theirs: each is made of words that are one
//! item's alone. Buffers end at inaccessible pages, and what other items have there stays.

use tally_compiler::ir::{Module, Op};
use tally_compiler::widen::widen;

use crate::diff::{Elements, Input, Run, same_in_all};
use crate::harness::Grid;
use crate::widen::{ints, wide};

/// The types of components, the size of one in bytes, and the numbers of them.
const TYPES: [(&str, usize, &[usize]); 5] = [
    ("uchar", 1, &[1, 2, 3, 4]),
    ("ushort", 2, &[2, 4]),
    ("half", 2, &[4]),
    ("float", 4, &[2, 4]),
    ("long", 8, &[2]),
];

/// A kernel that copies each vector whose item's number is odd with its components turned around, and changes one
/// component of some others. `waits`: items wait for each other, so that groups of short rows have a form for their size.
fn kernel(ty: &str, n: usize, waits: bool) -> Module {
    let number = if n == 1 { String::new() } else { n.to_string() };
    let turned: String = (0..n).rev().map(|k| format!("{k:x}")).collect();
    let (turned, first) = if n == 1 { (String::new(), "") } else { (format!(".s{turned}"), ".s1") };
    let (local, wait) = match waits {
        true => (", local int *t", "t[0] = 1; barrier(CLK_LOCAL_MEM_FENCE);"),
        false => ("", ""),
    };
    wide(&format!(
        "#pragma OPENCL EXTENSION cl_khr_fp16 : enable
         typedef {ty}{number} T;
         kernel void k(global T *out, global const T *in, global const int *m{local}) {{
           size_t i = get_global_id(1) * get_global_size(0) + get_global_id(0);
           {wait}
           if (m[i] & 1) {{ T v = in[i]; out[i] = v{turned} + (T)3; }}
           else if (m[i] > 40) out[i]{first} = 5;
         }}"
    ))
}

fn runs(ty: &str, size: usize, n: usize, waits: bool) -> Vec<Run> {
    let grids = [([96, 1, 1], [48, 1, 1]), ([16, 16, 1], [8, 8, 1]), ([20, 30, 1], [4, 16, 1])];
    let run = |(global, group): ([u64; 3], [u32; 3])| {
        let items = global.iter().product::<u64>() as usize;
        // A vector of three has the room of four.
        let len = items * n.next_power_of_two();
        let numbers: Vec<u8> = (0..len)
            .flat_map(|i| {
                let number = (i * 37 + i / 7) % 101;
                match ty {
                    "float" => (number as f32).to_le_bytes().to_vec(),
                    "double" => (number as f64).to_le_bytes().to_vec(),
                    // From 1 to 2: the same exponent.
                    "half" => (0x3c00 + number as u16).to_le_bytes().to_vec(),
                    _ => (number as u64).to_le_bytes()[..size].to_vec(),
                }
            })
            .collect();
        let elements = if ty == "half" { Elements::Halves } else { Elements::Bytes };
        let out = Input::Buffer(elements, vec![0; len * size]);
        let mut inputs = vec![out, Input::bytes(numbers), ints(items as i32, |i| i * 29 % 83)];
        if waits {
            inputs.push(Input::Local(4));
        }
        (Grid { offset: [0; 3], global, group }, inputs)
    };
    grids.into_iter().map(run).collect()
}

#[test]
fn vectors_of_some_items_are_loaded_and_stored() {
    for (ty, size, counts) in TYPES {
        for &n in counts {
            for waits in [false, true] {
                same_in_all(&kernel(ty, n, waits), "k", &runs(ty, size, n, waits));
            }
        }
    }
}

/// The bits of the elements that a kernel stores under a mask.
fn stored(module: &Module) -> Vec<u32> {
    let widened = widen(module, &module.kernels[0], 16).expect("a plain kernel");
    let function = &widened.module.functions[widened.function];
    let bits = |at| widened.module.types.scalar_bits(widened.module.operand_type(function, at));
    let insts = function.blocks.iter().flat_map(|(_, block)| &block.insts);
    let stores = insts.filter_map(|inst| match inst.op {
        Op::MaskedStore(_, value, ..) => Some(bits(value)),
        _ => None,
    });
    let mut bits: Vec<u32> = stores.collect();
    bits.dedup();
    bits
}

#[test]
fn vectors_of_some_items_are_words() {
    let is = |ty: &str, n: usize, bits: u32| {
        assert_eq!(stored(&kernel(ty, n, false)), [bits], "{ty}{n}")
    };
    is("uchar", 1, 8);
    is("uchar", 2, 16);
    is("uchar", 4, 32);
    is("ushort", 2, 32);
    is("half", 4, 64);
    is("float", 2, 64);
    is("float", 4, 64);
    is("long", 2, 64);
}
