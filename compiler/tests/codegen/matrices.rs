// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrices that are spread over sub-groups, in compiled code and in the interpreter, against plain loops.

use std::fmt::Write;

use tally_compiler::{check, parse};

use crate::diff::{Elements, Input, Random, interpreted, same};
use crate::harness::clang::Assembly;
use crate::harness::{Grid, Kernel, module};
use crate::spirv;

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Num {
    Int(u32),
    Float(u32),
    /// SPIR-V's own type of brain floats.
    Brain,
    /// Integers that an instruction takes as brain floats.
    BrainBits,
}

impl Num {
    fn bytes(self) -> usize {
        match self {
            Num::Int(bits) | Num::Float(bits) => bits as usize / 8,
            Num::Brain | Num::BrainBits => 2,
        }
    }

    /// The declaration of its type, `%name`, but for `%i32` and `%i64`.
    fn declare(self, name: &str) -> String {
        match self {
            Num::Int(32) => format!("%{name} = OpTypeInt 32 1\n"),
            Num::Int(bits) => format!("%{name} = OpTypeInt {bits} 0\n"),
            Num::Float(bits) => format!("%{name} = OpTypeFloat {bits}\n"),
            Num::Brain => format!("%{name} = OpTypeFloat 16 0\n"),
            Num::BrainBits => format!("%{name} = OpTypeInt 16 0\n"),
        }
    }

    /// The bytes of a small integer; others are rounded to nearest, ties to even.
    fn encode(self, x: i64) -> Vec<u8> {
        match self {
            Num::Int(bits) => x.to_le_bytes()[..bits as usize / 8].to_vec(),
            Num::Float(16) => half(x).to_le_bytes().to_vec(),
            Num::Float(32) => (x as f32).to_le_bytes().to_vec(),
            Num::Float(_) => (x as f64).to_le_bytes().to_vec(),
            Num::Brain | Num::BrainBits => {
                let bits = (x as f32).to_bits();
                let rounded = bits + 0x7fff + (bits >> 16 & 1);
                ((rounded >> 16) as u16).to_le_bytes().to_vec()
            }
        }
    }
}

/// The half of an integer up to 2048.
fn half(x: i64) -> u16 {
    let sign = if x < 0 { 0x8000 } else { 0 };
    let bits = (x.unsigned_abs() as f32).to_bits();
    assert!(x.unsigned_abs() <= 2048, "{x} as a half");
    if x == 0 { 0 } else { sign | (((bits >> 23) - 127 + 15) << 10 | bits >> 13 & 0x3ff) as u16 }
}

/// The layouts in memory.
const ROWS: u32 = 0;
const COLUMNS: u32 = 1;
const PACKED: u32 = 2;

/// Where an element lies, in elements.
fn place(layout: u32, stride: usize, num: Num, (row, column): (usize, usize)) -> usize {
    match layout {
        ROWS => row * stride + column,
        COLUMNS => column * stride + row,
        _ => {
            let side = (4 / num.bytes()).max(1);
            row / side * stride + column * side + row % side
        }
    }
}

/// A product: each sub-group of two groups of two computes `out = a * b + c`.
#[derive(Clone, Copy, Debug)]
struct Case {
    lanes: u32,
    /// Types of both factors, of what is added, and of the result.
    types: [Num; 4],
    /// Rows and columns of the result, columns of the first factor.
    sizes: (usize, usize, usize),
    layouts: [u32; 3],
    flags: u32,
    /// The factors are copied to local memory first.
    local: bool,
}

impl Case {
    fn new(lanes: u32, types: [Num; 4], sizes: (usize, usize, usize)) -> Self {
        Self { lanes, types, sizes, layouts: [ROWS; 3], flags: 0, local: false }
    }

    fn shapes(&self) -> [(usize, usize); 4] {
        let (m, n, k) = self.sizes;
        [(m, k), (k, n), (m, n), (m, n)]
    }

    /// The layout of each matrix, its stride and its number of elements in memory.
    fn memory(&self) -> [(u32, usize, usize); 4] {
        let layouts = [self.layouts[0], self.layouts[1], self.layouts[2], self.layouts[2]];
        std::array::from_fn(|i| {
            let ((rows, columns), layout) = (self.shapes()[i], layouts[i]);
            let (side, lines) = match layout {
                ROWS => (columns, rows),
                COLUMNS => (rows, columns),
                _ => {
                    let side = (4 / self.types[i].bytes()).max(1);
                    (columns * side, rows.div_ceil(side))
                }
            };
            // Rows have a gap between them, and matrices too.
            (layout, side + 3, (side + 3) * lines)
        })
    }

    fn module(&self) -> Vec<u8> {
        let names = ["ta", "tb", "tc", "td"];
        let mut declarations = String::new();
        let mut given: Vec<(Num, &str)> = Vec::new();
        let mut types = Vec::new();
        for (num, name) in self.types.into_iter().zip(names) {
            let known = given.iter().find(|(known, _)| {
                known == &num || known.declare("x") == num.declare("x")
            });
            let known = known.map(|(_, name)| *name);
            if known.is_none() {
                declarations += &num.declare(name);
                given.push((num, name));
            }
            types.push(known.unwrap_or(name));
        }
        for (i, ty) in types.iter().enumerate() {
            if !declarations.contains(&format!("%p_{ty} =")) {
                let _ = writeln!(declarations, "%p_{ty} = OpTypePointer CrossWorkgroup %{ty}");
            }
            if self.local && i < 2 {
                let _ = writeln!(
                    declarations,
                    "%l{i} = OpTypePointer Workgroup %{ty}"
                );
            }
        }
        let mut number = |n: usize| {
            let name = format!("%n{n}");
            if !declarations.contains(&format!("{name} =")) {
                let _ = writeln!(declarations, "{name} = OpConstant %i32 {n}");
            }
            name
        };
        let (mut matrices, mut body) = (String::new(), String::new());
        let uses = [0, 1, 2, 2];
        let scope = number(3);
        for (i, (rows, columns)) in self.shapes().into_iter().enumerate() {
            let [rows, columns, used] = [rows, columns, uses[i]].map(&mut number);
            let line = format!(
                "OpTypeCooperativeMatrixKHR %{} {scope} {rows} {columns} {used}",
                types[i]
            );
            if i == 3 && self.types[2] == self.types[3] {
                continue;
            }
            let _ = writeln!(matrices, "%m{i} = {line}");
        }
        let result = if self.types[2] == self.types[3] { 2 } else { 3 };
        let _ = writeln!(
            body,
            "%wg3 = OpLoad %v3 %group
             %wg = OpCompositeExtract %i64 %wg3 0
             %sg32 = OpLoad %i32 %sub
             %sg = OpUConvert %i64 %sg32
             %wg2 = OpIAdd %i64 %wg %wg
             %w = OpIAdd %i64 %wg2 %sg"
        );
        let mut constants = String::new();
        for (i, (layout, stride, count)) in self.memory().into_iter().enumerate() {
            let layout = number(layout as usize);
            let name = ["a", "b", "c", "out"][i];
            let _ = writeln!(
                constants,
                "%s{i} = OpConstant %i64 {stride}
                 %c{i} = OpConstant %i64 {count}"
            );
            let _ = writeln!(
                body,
                "%far{i} = OpIMul %i64 %w %c{i}
                 %at{i} = OpInBoundsPtrAccessChain %p_{} %{name} %far{i}",
                types[i]
            );
            if i == 3 {
                let flags = if self.flags == 0 { String::new() } else { self.flags.to_string() };
                let _ = writeln!(
                    body,
                    "%r = OpCooperativeMatrixMulAddKHR %m{result} %x0 %x1 %x2 {flags}
                     OpCooperativeMatrixStoreKHR %at3 %r {layout} %s3"
                );
                continue;
            }
            let mut from = format!("%at{i}");
            if self.local && i < 2 {
                let [two, semantics] = [number(2), number(0x110)];
                let _ = writeln!(
                    body,
                    "%event{i} = OpGroupAsyncCopy %event {two} %local{i} %{name} %c{i}x4 %one64 %noevent
                     OpControlBarrier {two} {two} {semantics}
                     %lat{i} = OpInBoundsPtrAccessChain %l{i} %local{i} %far{i}"
                );
                from = format!("%lat{i}");
            }
            let _ = writeln!(
                body,
                "%x{i} = OpCooperativeMatrixLoadKHR %m{i} {from} {layout} %s{i}"
            );
        }
        let pointers: Vec<String> = types.iter().map(|ty| format!("p_{ty}")).collect();
        let mut parameters = vec![
            ("a", pointers[0].as_str()),
            ("b", pointers[1].as_str()),
            ("c", pointers[2].as_str()),
            ("out", pointers[3].as_str()),
        ];
        if self.local {
            parameters.extend([("local0", "l0"), ("local1", "l1")]);
            for i in 0..2 {
                let _ = writeln!(
                    constants,
                    "%c{i}x4 = OpConstant %i64 {}",
                    self.memory()[i].2 * 4
                );
            }
            constants += "%event = OpTypeEvent\n%noevent = OpConstantNull %event\n\
                          %one64 = OpConstant %i64 1\n";
        }
        let head = "OpCapability Int8
             OpCapability Int16
             OpCapability Float16
             OpCapability Float64
             OpCapability Groups
             OpCapability SubgroupDispatch
             OpCapability CooperativeMatrixKHR
             OpCapability BFloat16TypeKHR
             OpCapability BFloat16CooperativeMatrixKHR
             OpExtension \"SPV_KHR_cooperative_matrix\"
             OpExtension \"SPV_KHR_bfloat16\"";
        let notes = format!(
            "OpExecutionMode %k SubgroupSize {}
             OpDecorate %group BuiltIn WorkgroupId
             OpDecorate %group Constant
             OpDecorate %sub BuiltIn SubgroupId
             OpDecorate %sub Constant",
            self.lanes
        );
        // The signed type of 32 bits would be a second one of the name.
        let declarations = format!(
            "%pi32 = OpTypePointer Input %i32
             %group = OpVariable %p3 Input
             %sub = OpVariable %pi32 Input
             {declarations}
             {matrices}
             {constants}"
        );
        let assembly = Assembly {
            head,
            notes: &notes,
            declarations: &declarations,
            parameters: &parameters,
            variables: "",
            body: &body,
        };
        spirv::assemble(&assembly.text())
    }

    /// Small numbers for the matrices of four sub-groups; unsigned ones where the flags say so.
    fn inputs(&self, random: &mut Random) -> [Vec<i64>; 3] {
        std::array::from_fn(|i| {
            let signed = !matches!(self.types[i], Num::Int(_)) || self.flags & 1 << i != 0;
            let count = self.memory()[i].2 * 4;
            (0..count)
                .map(|_| {
                    let x = random.below(7) as i64;
                    let big = self.types[i] == Num::Int(8) && random.below(4) == 0;
                    let x = if big { x + if signed { 115 } else { 240 } } else { x };
                    if signed { x - 3 } else { x }
                })
                .collect()
        })
    }

    fn expected(&self, inputs: &[Vec<i64>; 3]) -> Vec<u8> {
        let (m, n, k) = self.sizes;
        let memory = self.memory();
        let bytes = self.types[3].bytes();
        let mut out = vec![0; memory[3].2 * 4 * bytes];
        let at = |w: usize, i: usize, place_of: (usize, usize)| {
            w * memory[i].2 + place(memory[i].0, memory[i].1, self.types[i], place_of)
        };
        for w in 0..4 {
            for row in 0..m {
                for column in 0..n {
                    let mut sum = inputs[2][at(w, 2, (row, column))];
                    for k in 0..k {
                        let (a, b) = (at(w, 0, (row, k)), at(w, 1, (k, column)));
                        sum += inputs[0][a] * inputs[1][b];
                    }
                    let at = at(w, 3, (row, column)) * bytes;
                    out[at..at + bytes].copy_from_slice(&self.types[3].encode(sum));
                }
            }
        }
        out
    }

    fn run(&self, random: &mut Random) {
        let module = module(&self.module());
        let inputs = self.inputs(random);
        let mut arguments: Vec<Input> = inputs
            .iter()
            .zip(self.types)
            .map(|(numbers, num)| {
                Input::bytes(numbers.iter().flat_map(|&x| num.encode(x)).collect())
            })
            .collect();
        arguments.push(Input::bytes(vec![0; self.memory()[3].2 * 4 * self.types[3].bytes()]));
        if self.local {
            for i in 0..2 {
                arguments.push(Input::Local(self.memory()[i].2 * 4 * self.types[i].bytes()));
            }
        }
        let grid = Grid::line(u64::from(self.lanes) * 4, self.lanes * 2);
        assert!(Kernel::is_widened(&module, "k", self.lanes), "{self:?}");
        let run = (grid, arguments.clone());
        let got = interpreted(&module, "k", &run).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(got[3], self.expected(&inputs), "{self:?}");
        same(&module, "k", grid, &arguments, &format!("{self:?}"));
    }
}

const F32: Num = Num::Float(32);
const F16: Num = Num::Float(16);
const F64: Num = Num::Float(64);
const I8: Num = Num::Int(8);
const I32: Num = Num::Int(32);

/// Sizes that Intel's matrix engines have, and others.
#[test]
fn products_of_all_types_and_sizes_are_right() {
    let mut random = Random::new(1);
    let cases = [
        Case::new(16, [F32; 4], (8, 16, 16)),
        Case::new(16, [F16, F16, F32, F32], (8, 16, 16)),
        Case::new(8, [F16; 4], (8, 8, 16)),
        Case { flags: 15, ..Case::new(16, [I8, I8, I32, I32], (8, 16, 32)) },
    ];
    for case in cases {
        case.run(&mut random);
    }
}
